package soft_test

import (
	"errors"
	"fmt"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/soft"
)

// A device is a local address; its port tells the MTU and MAC to give the peer.
func ExampleNew() {
	device, err := soft.New().Open("127.42.255.254")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer device.Close()
	port, _ := device.Port()
	fmt.Println(port.Address, port.MTU, port.Active)

	_, err = soft.New().Open("127.42.255.254")
	fmt.Println("a second one:", errors.Is(err, verbs.ErrBusy))
	// Output:
	// 127.42.255.254 4096 true
	// a second one: true
}
