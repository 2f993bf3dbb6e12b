//go:build verilator

package core

import (
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

// A READ has one FIRST, at its beginning or where it is asked for again: one in
// its middle is a response that no request explains, and ends the queue pair.
func TestReadFirstInTheMiddle(t *testing.T) {
	for _, c := range []struct {
		name  string
		ops   []roce.Opcode
		state uint32
		cause uint32
	}{
		{"as it should be", []roce.Opcode{roce.ReadResponseFirst, roce.ReadResponseMiddle, roce.ReadResponseMiddle}, regs.CoreStatStateStateReady, 0},
		{"second", []roce.Opcode{roce.ReadResponseFirst, roce.ReadResponseFirst}, regs.CoreStatStateStateError, regs.CoreStatStateCauseBadResponse},
		{"third", []roce.Opcode{roce.ReadResponseFirst, roce.ReadResponseMiddle, roce.ReadResponseFirst}, regs.CoreStatStateStateError, regs.CoreStatStateCauseBadResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, 51)
			q := qp(0)
			q.mtu, q.timeout = 256, 0
			b.connect(0, q)
			s := streamConfig{verb: regs.StreamConfigVerbRead, bytes: 4 * 256, slots: 1, stride: 1024, base: 0x10000, rkey: 7, count: 1}
			b.start(0, s)
			b.Run(500)
			sent := b.Take()
			if len(sent) != 1 {
				t.Fatalf("%d frames left, want one READ", len(sent))
			}
			var request roce.Frame
			if err := request.Decode(sent[0].Data); err != nil || request.Packet.Opcode != roce.ReadRequest {
				t.Fatalf("%v left: %v", request.Packet.Opcode, err)
			}
			p := responder.New(peerConfig(q), 1)
			data := make([]byte, s.bytes)
			pattern.Fill(data, s.kind, 0)
			for i, op := range c.ops {
				b.Receive(p.Response(&request, op, q.psn.Add(i), roce.ACK(31), data[256*i:256*(i+1)]), 0)
			}
			b.Run(500)
			if state, cause := b.latch(0); state != c.state || cause != c.cause {
				t.Errorf("state %d, cause %d, want %d, %d", state, cause, c.state, c.cause)
			}
		})
	}
}
