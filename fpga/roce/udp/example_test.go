//go:build linux

package udp_test

import (
	"fmt"
	"net/netip"
	"time"

	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// A packet to oneself. A real sender has another address and port 4791.
func ExampleConn() {
	c, err := udp.Listen(netip.MustParseAddrPort("127.40.0.1:0"), udp.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	peer := c.LocalAddr()
	p := roce.Packet{
		BTH:     roce.BTH{Opcode: roce.SendOnly, PKey: roce.PKeyDefault, DestQP: 3, PSN: 9},
		Payload: []byte("hello"),
	}
	buf := make([]byte, p.Len())
	if _, err := p.Put(buf); err != nil {
		fmt.Println(err)
		return
	}
	flow := c.FlowTo(peer) // once for each peer
	flow.Seal(buf)

	q := c.NewSendQueue(0)
	q.Add(peer, buf)
	if _, err := c.Send(q); err != nil {
		fmt.Println(err)
		return
	}

	batch := c.NewBatch(0)
	for batch.Len() == 0 {
		if _, err := c.Wait(time.Second); err != nil {
			fmt.Println(err)
			return
		}
		if _, err := c.Receive(batch); err != nil {
			fmt.Println(err)
			return
		}
	}
	for i := range batch.Len() {
		data, src := batch.Packet(i)
		flow := c.FlowFrom(src)
		var got roce.Packet
		err := got.Decode(data)
		fmt.Println(got.Opcode, string(got.Payload), flow.Check(data), err)
	}
	// Output: SEND_ONLY hello true <nil>
}
