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

// Without a MAC that pauses, frames leave with no cycle between their beats nor
// between two frames, and each has exactly the beats that its bytes need.
func TestNoBubble(t *testing.T) {
	for _, v := range verbs {
		for _, mtu := range []roce.MTU{1024, 2048, 4096} {
			for _, kind := range []pattern.Kind{pattern.Counter, pattern.PRBS31} {
				t.Run(fmt.Sprintf("%s/%d/%v", v.name, mtu, kind), func(t *testing.T) {
					b := open(t, 3)
					q := qp(0)
					q.mtu, q.window = mtu, 256
					b.connect(0, q)
					size := uint32(16 * mtu)
					s := streamConfig{verb: v.verb, kind: kind, bytes: size, slots: 8, stride: size + 16, count: 40}
					b.start(0, s)
					cfg := peerConfig(q)
					p := responder.New(cfg, 1)
					b.exchange([]*responder.Peer{p}, []qpConfig{q}, 200000, func() bool {
						return uint64(countFrames(p, s)) == s.count
					})
					checkMessages(t, p.Messages, s, s.count)
					var total int
					for i, f := range b.frames {
						if f.Last-f.First+1 != uint64(f.Beats) {
							t.Fatalf("frame %d: %d beats in %d cycles", i, f.Beats, f.Last-f.First+1)
						}
						if f.Beats != (len(f.Data)+63)/64 {
							t.Fatalf("frame %d: %d bytes in %d beats", i, len(f.Data), f.Beats)
						}
						total += f.Beats
					}
					took := int(b.frames[len(b.frames)-1].Last-b.frames[0].First) + 1
					if took != total {
						t.Errorf("%d beats took %d cycles", total, took)
					}
				})
			}
		}
	}
}

func countFrames(p *responder.Peer, s streamConfig) int {
	if s.verb == regs.StreamConfigVerbWrite {
		return len(p.Messages) / 2
	}
	return len(p.Messages)
}

// Behind a 100 Gb/s wire at the MAC's clock the goodput is what the wire's
// arithmetic allows, and no frame has a gap.
func TestGoodput(t *testing.T) {
	const rate = 38788 // thousandths of a byte a cycle: 100 Gb/s at 322.265625 MHz
	for _, v := range verbs {
		for _, mtu := range []roce.MTU{256, 512, 1024, 2048, 4096} {
			t.Run(fmt.Sprintf("%s/%d", v.name, mtu), func(t *testing.T) {
				b := open(t, 5)
				b.SetSink(Wire(rate))
				q := qp(0)
				q.mtu, q.window = mtu, 256
				b.connect(0, q)
				size := uint32(64 * mtu)
				s := streamConfig{verb: v.verb, kind: pattern.PRBS31, bytes: size, slots: 8, stride: size + 16}
				b.start(0, s)
				p := responder.New(peerConfig(q), 1)
				b.exchange([]*responder.Peer{p}, []qpConfig{q}, 100000, nil)
				// From frame to frame in the middle of the run.
				frames := b.frames[len(b.frames)/4:]
				var bytes, wire int
				for _, f := range frames[1:] {
					var d roce.Frame
					if err := d.Decode(f.Data); err != nil {
						t.Fatal(err)
					}
					bytes += len(d.Packet.Payload)
					wire += max(len(f.Data), 60) + 24
				}
				cycles := frames[len(frames)-1].Last - frames[0].Last
				limit := float64(bytes) / float64(wire)
				got := float64(bytes) / float64(cycles) / (rate / 1000.)
				t.Logf("goodput %.3f Gb/s of %.3f possible, %.2f cycles a packet", 100*got, 100*limit, float64(cycles)/float64(len(frames)-1))
				if got < 0.999*limit {
					t.Errorf("goodput is %.2f %% of what the wire carries", 100*got/limit)
				}
				if got > 1.001*limit {
					t.Errorf("goodput %.3f is more than the wire carries, %.3f", got, limit)
				}
			})
		}
	}
}

// After one lost packet the stream is back at line rate within the round trip
// and the window.
func TestRecovery(t *testing.T) {
	b := open(t, 5)
	q := qp(0)
	q.mtu, q.window = 1024, 64
	b.connect(0, q)
	s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: 16 * 1024, kind: pattern.PRBS31, count: 64}
	b.start(0, s)
	cfg := peerConfig(q)
	p := responder.New(cfg, 1)
	dropped := false
	var lost, back uint64
	for end := b.Cycle() + 200000; b.Cycle() < end && len(p.Messages) < 64; {
		b.Run(16)
		for _, f := range b.Take() {
			b.frames = append(b.frames, f)
			if len(b.frames) == 300 && !dropped {
				dropped, lost = true, f.Last
				continue
			}
			p.Send(f.Last, f.Data)
			if dropped && back == 0 && len(b.frames) > 1 {
				// Back is when what was lost has arrived.
				if p.Early > 0 && p.Accepted >= 300 {
					back = f.Last
				}
			}
		}
		for _, a := range p.Answers(b.Cycle()) {
			b.Receive(a, 0)
		}
	}
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	checkMessages(t, p.Messages, s, 64)
	limit := 2*cfg.Delay + uint64(q.window)*17 + 300
	t.Logf("lost at %d, repaired %d cycles later", lost, back-lost)
	if back == 0 || back-lost > limit {
		t.Errorf("repaired %d cycles after the loss, want at most %d", back-lost, limit)
	}
	b.latch(0)
	b.expect("SequenceNAKs", b.counter(regs.CoreStatSequenceNAKs), 1)
	b.expect("Timeouts", b.counter(regs.CoreStatTimeouts), 0)
}
