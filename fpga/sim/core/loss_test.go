//go:build verilator

package core

import (
	"fmt"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

var faults = []struct {
	name string
	f    responder.Faults
	peer func(*responder.Config)
}{
	{"drop", responder.Faults{Drop: 0.05}, nil},
	{"duplicate", responder.Faults{Duplicate: 0.2}, nil},
	{"reorder", responder.Faults{Reorder: 0.1}, nil},
	{"corrupt", responder.Faults{Corrupt: 0.05}, nil},
	{"coalesce", responder.Faults{}, func(c *responder.Config) { c.AckDelay = 900 }},
	{"stale", responder.Faults{}, func(c *responder.Config) { c.Stale, c.AckEvery = 0.3, 1 }},
	{"rnr", responder.Faults{}, func(c *responder.Config) { c.RNR, c.RNRTimes, c.RNRCode = 0.2, 3, 1 }},
	{"all", responder.Faults{Drop: 0.02, Duplicate: 0.02, Reorder: 0.03, Corrupt: 0.02}, func(c *responder.Config) {
		c.AckDelay, c.Stale, c.AckEvery = 200, 0.1, 3
		c.RNR, c.RNRTimes, c.RNRCode = 0.1, 2, 1
	}},
}

// Four queue pairs of different verbs and MTUs share a link with faults, and
// every frame arrives once, in order, as the generator made it.
func TestLoss(t *testing.T) {
	for _, c := range faults {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				b := open(t, uint32(seed)+1)
				b.SetSink(Pausing(20))
				var peers []*responder.Peer
				var qps []qpConfig
				var streams []streamConfig
				for i, v := range verbs {
					q := qp(i)
					q.mtu = []roce.MTU{1024, 256, 4096, 512}[i]
					q.window = []uint32{16, 256, 5, 40}[i]
					q.timeout = 2
					qps = append(qps, q)
					b.connect(uint32(i), q)
					s := streamConfig{verb: v.verb, kind: pattern.Kind(i % 2), bytes: []uint32{3000, 700, 9000, 512}[i],
						slots: 7, stride: 9024, base: uint64(i) << 40, rkey: uint32(i) + 1, count: 60}
					streams = append(streams, s)
					pc := peerConfig(q)
					pc.Faults = c.f
					if c.peer != nil {
						c.peer(&pc)
					}
					peers = append(peers, responder.New(pc, seed*10+uint64(i)))
				}
				for i, s := range streams {
					b.start(uint32(i), s)
				}
				at := uint32(0)
				b.exchange(peers, qps, 30_000_000, func() bool {
					for ; at < 4; at++ {
						if b.streamState(at) != regs.StreamStatStateStateStopped {
							if state, cause := b.latch(at); state != regs.CoreStatStateStateReady {
								b.Fatalf("queue pair %d is in state %d, cause %d", at, state, cause)
							}
							return false
						}
					}
					return true
				})
				var resent, sent uint64
				for i, s := range streams {
					checkMessages(t, peers[i].Messages, s, s.count)
					b.streamState(uint32(i))
					b.expect("FramesDone", b.get64(b.stream, regs.StreamStatFramesDone), s.count)
					b.expect("BytesDone", b.get64(b.stream, regs.StreamStatBytesDone), s.count*uint64(s.bytes))
					b.latch(uint32(i))
					b.expect("PacketsSent", b.counter(regs.CoreStatPacketsSent), uint64(peers[i].Accepted))
					b.expect("PacketsAcked", b.counter(regs.CoreStatPacketsAcked), uint64(peers[i].Accepted))
					b.expect("MessagesAcked", b.counter(regs.CoreStatMessagesAcked), uint64(len(peers[i].Messages)))
					b.expect("UnackedPSN", uint64(b.get(b.Core, regs.CoreStatUnackedPSN)), uint64(peers[i].Expected()))
					resent += b.counter(regs.CoreStatPacketsResent)
					sent += b.counter(regs.CoreStatPacketsSent)
				}
				b.expect("TxPackets", b.counter(regs.CoreTxPackets), uint64(len(b.frames)))
				b.expect("packets sent and resent", sent+resent, uint64(len(b.frames)))
			})
		}
	}
}

// With a window larger than the ring and answers that come late the ring fills,
// and nothing in it is overwritten before it is acknowledged.
func TestRingFull(t *testing.T) {
	b := open(t, 21)
	q := qp(0)
	q.mtu, q.window, q.timeout = 4096, 256, 7
	b.connect(0, q)
	s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: 16 * 4096, kind: pattern.PRBS31, count: 20}
	b.start(0, s)
	pc := peerConfig(q)
	pc.Delay = 5000
	p := responder.New(pc, 4)
	lost := false
	b.exchange([]*responder.Peer{p}, []qpConfig{q}, 2_000_000, func() bool {
		if len(b.frames) == 64 && !lost { // all that fits: one of them gets lost
			lost = true
			p.SetFaults(responder.Faults{Drop: 0.5})
		} else if lost && p.Early > 0 {
			p.SetFaults(responder.Faults{})
		}
		return len(p.Messages) == int(s.count)
	})
	checkMessages(t, p.Messages, s, s.count)
	b.latch(0)
	if n := b.counter(regs.CoreStatWindowStalls); n == 0 {
		t.Error("the ring never filled")
	}
}
