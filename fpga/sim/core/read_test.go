//go:build verilator

package core

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

// ring is a peer's memory with the frames that a stream of verb Read expects.
func ring(s streamConfig) []byte {
	m := make([]byte, s.slots*s.stride)
	for i := range s.slots {
		pattern.Fill(m[i*s.stride:][:s.bytes], s.kind, uint64(i))
	}
	return m
}

// reader makes memory readable.
func reader(s streamConfig, m []byte) func(uint64, uint32, uint32) []byte {
	return func(address uint64, rkey, n uint32) []byte {
		at := address - s.base
		if rkey != s.rkey || at > uint64(len(m)) || uint64(n) > uint64(len(m))-at {
			return nil
		}
		return m[at : at+uint64(n) : at+uint64(n)]
	}
}

// wireGap is how far apart in cycles packets of an MTU are on the wire, at the
// fewest: 100 Gb/s and a clock of 250 MHz.
func wireGap(mtu roce.MTU) uint64 { return (uint64(mtu) + 54 + 4 + 24 + 49) / 50 }

// stopped returns a function that says whether a stream has stopped. It asks
// seldom: a command holds up the responses.
func (b *bench) stopped(index uint32) func() bool {
	var next uint64
	return func() bool {
		if b.Cycle() < next {
			return false
		}
		next = b.Cycle() + 1000
		return b.streamState(index) == regs.StreamStatStateStateStopped
	}
}

func (b *bench) goodAndBad(index uint32) (good, bad uint64) {
	b.Helper()
	b.streamState(index)
	return b.get64(b.stream, regs.StreamStatReadGood), b.get64(b.stream, regs.StreamStatReadBad)
}

// Every MTU and pattern, frames that are no multiple of anything: what is read
// is found right, and a single wrong bit anywhere is found.
func TestRead(t *testing.T) {
	for _, mtu := range []roce.MTU{256, 512, 1024, 2048, 4096} {
		for _, kind := range []pattern.Kind{pattern.Counter, pattern.PRBS31} {
			for _, size := range []uint32{0, 1, 3, 7, 8, 200, 256, 1023, 4096, 5000, 70001} {
				t.Run(fmt.Sprintf("%v/%d/%d", kind, mtu, size), func(t *testing.T) {
					b := open(t, 31)
					q := qp(0)
					q.mtu = mtu
					b.connect(0, q)
					s := streamConfig{verb: regs.StreamConfigVerbRead, kind: kind, bytes: size, slots: 3, stride: 70008,
						base: 0x1234_5678_ffff_0000, rkey: 0xfeed_beef, count: 11}
					m := ring(s)
					cfg := peerConfig(q)
					cfg.Read, cfg.ReadGap = reader(s, m), wireGap(mtu)
					p := responder.New(cfg, 1)
					b.start(0, s)
					b.exchange([]*responder.Peer{p}, []qpConfig{q}, 400000, b.stopped(0))
					good, bad := b.goodAndBad(0)
					b.expect("ReadGood", good, s.count)
					b.expect("ReadBad", bad, 0)
					b.expect("FramesDone", b.get64(b.stream, regs.StreamStatFramesDone), s.count)
					b.expect("BytesDone", b.get64(b.stream, regs.StreamStatBytesDone), s.count*uint64(size))
					b.latch(0)
					b.expect("ReadResponses", b.counter(regs.CoreStatReadResponses), s.count*uint64(mtu.Packets(int(size))))
					b.expect("ReadGaps", b.counter(regs.CoreStatReadGaps), 0)
					b.expect("PacketsAcked", b.counter(regs.CoreStatPacketsAcked), s.count)
					b.expect("PacketsResent", b.counter(regs.CoreStatPacketsResent), 0)
					b.expect("BytesAcked", b.counter(regs.CoreStatBytesAcked), s.count*uint64(size))
					b.expect("UnackedPSN", uint64(b.get(b.Core, regs.CoreStatUnackedPSN)), uint64(p.Expected()))
					if size == 0 {
						return
					}
					// One bit is wrong in one slot of three.
					rng := rand.New(rand.NewPCG(uint64(size), uint64(mtu)))
					for range 6 {
						at := s.stride + rng.Uint32N(size)
						if rng.IntN(2) == 0 {
							at = s.stride + min(size-1, uint32(mtu)-1+rng.Uint32N(3)) // where packets meet
						}
						m[at] ^= 1 << rng.IntN(8)
						b.must(b.stream, regs.StreamCommandOpReset, 0)
						s.count = 3
						b.start(0, s)
						b.exchange([]*responder.Peer{p}, []qpConfig{q}, 400000, b.stopped(0))
						if good, bad := b.goodAndBad(0); good != 2 || bad != 1 {
							t.Fatalf("byte %d of %d is wrong: ReadGood %d, ReadBad %d", at-s.stride, size, good, bad)
						}
						copy(m, ring(s))
					}
				})
			}
		}
	}
}

// No more READs than the peer was told are outstanding, and as many.
func TestReadsOutstanding(t *testing.T) {
	b := open(t, 32)
	b.expect("MaxReads", uint64(b.get(b.Core, regs.CoreMaxReads)), 4)
	q := qp(0)
	b.connect(0, q)
	b.start(0, streamConfig{verb: regs.StreamConfigVerbRead, bytes: 3000, slots: 3, stride: 3000})
	b.Run(1000)
	b.expect("requests without a response", uint64(len(b.Take())), 4)
	b.latch(0)
	b.expect("NextPSN", uint64(b.get(b.Core, regs.CoreStatNextPSN)), uint64(q.psn.Add(12)))
	b.expect("UnackedPSN", uint64(b.get(b.Core, regs.CoreStatUnackedPSN)), uint64(q.psn))
}

// READs beside other verbs through a link with faults: every frame is read once,
// in order, and found right; and data that is wrong stays wrong.
func TestReadLoss(t *testing.T) {
	for _, c := range faults {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				b := open(t, uint32(seed)+1)
				b.SetSink(Pausing(20))
				var peers []*responder.Peer
				var qps []qpConfig
				var streams []streamConfig
				for i := range 4 {
					q := qp(i)
					q.mtu = []roce.MTU{256, 1024, 4096, 512}[i]
					q.timeout = 2
					s := streamConfig{verb: regs.StreamConfigVerbRead, kind: pattern.Kind(i % 2), bytes: []uint32{3000, 9000, 20000, 100}[i],
						slots: 3, stride: 20000, base: uint64(i+1) << 32, rkey: uint32(i), count: 30}
					if i == 3 {
						s.verb = regs.StreamConfigVerbSend
					}
					cfg := peerConfig(q)
					cfg.Faults = c.f
					if c.peer != nil {
						c.peer(&cfg)
					}
					m := ring(s)
					m[s.stride+50] ^= 4 // the second slot is wrong
					cfg.Read = reader(s, m)
					cfg.ReadGap = wireGap(q.mtu)
					peers = append(peers, responder.New(cfg, seed*4+uint64(i)))
					qps, streams = append(qps, q), append(streams, s)
				}
				for i := range qps {
					b.connect(uint32(i), qps[i])
					b.start(uint32(i), streams[i])
				}
				b.exchange(peers, qps, 6_000_000, func() bool {
					for i := range streams {
						if b.streamState(uint32(i)) != regs.StreamStatStateStateStopped {
							if state, cause := b.latch(uint32(i)); state != regs.CoreStatStateStateReady {
								b.Fatalf("queue pair %d is in state %d, cause %d", i, state, cause)
							}
							return false
						}
					}
					return true
				})
				for i, s := range streams[:3] {
					good, bad := b.goodAndBad(uint32(i))
					b.expect("ReadGood", good, 20)
					b.expect("ReadBad", bad, 10)
					b.expect("BytesDone", b.get64(b.stream, regs.StreamStatBytesDone), s.count*uint64(s.bytes))
					b.latch(uint32(i))
					b.expect("ReadResponses", b.counter(regs.CoreStatReadResponses), s.count*uint64(qps[i].mtu.Packets(int(s.bytes))))
					b.expect("UnackedPSN", uint64(b.get(b.Core, regs.CoreStatUnackedPSN)), uint64(peers[i].Expected()))
				}
			})
		}
	}
}

// READ responses that arrive as fast as the wire carries them are all taken.
func TestReadRate(t *testing.T) {
	for _, mtu := range []roce.MTU{256, 1024, 4096} {
		b := open(t, 33)
		q := qp(0)
		q.mtu = mtu
		b.connect(0, q)
		s := streamConfig{verb: regs.StreamConfigVerbRead, kind: pattern.PRBS31, bytes: 64 * uint32(mtu), slots: 2, stride: 64 * uint32(mtu)}
		cfg := peerConfig(q)
		cfg.Read, cfg.ReadGap = reader(s, ring(s)), wireGap(mtu)
		p := responder.New(cfg, 1)
		b.start(0, s)
		b.exchange([]*responder.Peer{p}, []qpConfig{q}, 60000, nil)
		b.latch(0)
		b.expect("ReadGaps", b.counter(regs.CoreStatReadGaps), 0)
		b.expect("Timeouts", b.counter(regs.CoreStatTimeouts), 0)
		good, bad := b.goodAndBad(0)
		b.expect("ReadBad", bad, 0)
		t.Logf("MTU %d: %d frames of %d packets in 60000 cycles", mtu, good, 64)
		if good < 3 {
			t.Errorf("MTU %d: only %d frames were read", mtu, good)
		}
	}
}

// A stream of verb Write reads the Credit word and overwrites no slot that the
// host has not released, loss or not; and it is never idle for long when there
// is one.
func TestCredit(t *testing.T) {
	for _, c := range faults {
		for _, slots := range []uint32{1, 5, 16} {
			t.Run(fmt.Sprintf("%s/%d", c.name, slots), func(t *testing.T) {
				b := open(t, 35)
				q := qp(0)
				q.mtu, q.timeout = 256, 2
				b.connect(0, q)
				s := streamConfig{verb: regs.StreamConfigVerbWrite, kind: pattern.PRBS31, bytes: 700, slots: slots, stride: 720,
					base: 0x10000, rkey: 7, credit: 0xfff8, count: 40}
				cfg := peerConfig(q)
				cfg.Faults = c.f
				if c.peer != nil {
					c.peer(&cfg)
				}
				var p *responder.Peer
				var released uint64
				cfg.Read = func(address uint64, rkey, n uint32) []byte {
					if address != s.credit || rkey != s.rkey || n != 8 {
						t.Errorf("READ of %d bytes at %#x, rkey %d", n, address, rkey)
					}
					return binary.LittleEndian.AppendUint64(nil, released)
				}
				p = responder.New(cfg, 3)
				b.start(0, s)
				var atLeast uint64
				b.exchange([]*responder.Peer{p}, []qpConfig{q}, 8_000_000, func() bool {
					// Each WRITE that arrived, or has begun to, must be for a free slot.
					arrived := uint64(len(p.Messages)+1) / 2
					if arrived > released+uint64(slots) {
						t.Fatalf("frame %d arrived, %d are released, %d slots", arrived, released, slots)
					}
					// The host is slow: it lets the ring fill, then empties most of it.
					if done := uint64(len(p.Messages)) / 2; done-released >= uint64(slots) {
						released += max(1, uint64(slots)*3/4)
						atLeast++
					}
					return b.streamState(0) == regs.StreamStatStateStateStopped
				})
				checkMessages(t, p.Messages, s, s.count)
				reads := b.get64(b.stream, regs.StreamStatCreditReads)
				stalls := b.get64(b.stream, regs.StreamStatCreditStalls)
				if reads == 0 || uint64(p.Reads) != reads {
					t.Errorf("CreditReads %d, the peer saw %d", reads, p.Reads)
				}
				if stalls == 0 || stalls > s.count || reads < atLeast {
					t.Errorf("CreditStalls %d, CreditReads %d, the ring was full %d times", stalls, reads, atLeast)
				}
				b.expect("FramesDone", b.get64(b.stream, regs.StreamStatFramesDone), s.count)
				if r := b.get64(b.stream, regs.StreamStatReleased); r > released || r+uint64(slots) < s.count {
					t.Errorf("Released %d of %d", r, released)
				}
			})
		}
	}
}
