package model_test

import (
	"fmt"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/regs"
)

// A driver's test needs nothing but the bus: writes act at once, and Step gives
// the fabric the time.
func Example() {
	f, err := model.New(model.Config{Link: model.Link{AlignTime: time.Millisecond}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	mac := regs.At(f.Bus(), model.CMACBase)

	regs.CMACConfigRx.Write(mac, regs.CMACConfigRxEnable.Of(1))
	regs.CMACConfigTx.Write(mac, regs.CMACConfigTxEnable.Of(1))
	f.Step(2 * time.Millisecond)
	for range 2 {
		status, err := regs.CMACStatRx.Read(mac)
		fmt.Printf("receive status %#x, error %v\n", status, err)
	}
	_, err = f.Bus().Read32(model.CMACBase + 8)
	fmt.Println(err)
	// Output:
	// receive status 0xc0, error <nil>
	// receive status 0x3, error <nil>
	// read register 0x10008: nothing answers there: bus error
}
