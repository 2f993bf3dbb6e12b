//go:build verilator

package core

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

// Frames of an external source, of any length up to FrameBytes, with pauses on
// all sides, beside a stream of the generator and through loss: each arrives
// once, whole and in order, and the source waits where there is no room.
func TestSource(t *testing.T) {
	for _, v := range verbs {
		for i, c := range faults {
			if i%4 != int(v.verb)%4 { // two for each verb
				continue
			}
			t.Run(v.name+"/"+c.name, func(t *testing.T) {
				b := open(t, 41)
				rng := rand.New(rand.NewPCG(41, uint64(v.verb)))
				b.SetSink(Pausing(30))
				const most = 6000
				qps := []qpConfig{qp(0), qp(1)}
				qps[0].mtu, qps[0].timeout, qps[0].window = 1024, 2, 16
				qps[1].timeout = 2
				streams := []streamConfig{
					{verb: v.verb, external: true, bytes: most, slots: 3, stride: most + 16, base: 1 << 40, rkey: 5},
					{verb: regs.StreamConfigVerbSend, kind: pattern.PRBS31, bytes: 2500, count: 40},
				}
				var peers []*responder.Peer
				for i, q := range qps {
					cfg := peerConfig(q)
					cfg.Faults = c.f
					if c.peer != nil {
						c.peer(&cfg)
					}
					peers = append(peers, responder.New(cfg, uint64(i)))
				}
				// 600 kB: more than the source and the ring hold.
				frames := make([][]byte, 160)
				for i := range frames {
					n := []int{1, 63, 64, 65, 1024, 1025, most}[rng.IntN(7)]
					if rng.IntN(2) == 0 {
						n = 1 + rng.IntN(most)
					}
					frames[i] = make([]byte, n)
					for j := range frames[i] {
						frames[i][j] = byte(rng.Uint32())
					}
					b.Offer(frames[i], []int{0, 100, 240}[i*3/len(frames)])
				}
				b.Run(100)
				if n := b.Offered(); n != len(frames) {
					t.Errorf("%d frames were taken before a stream asked for them", len(frames)-n)
				}
				for i := range qps {
					b.connect(uint32(i), qps[i])
					b.start(uint32(i), streams[i])
				}
				per := 1
				if v.verb == regs.StreamConfigVerbWrite {
					per = 2
				}
				b.exchange(peers, qps, 6_000_000, func() bool { return len(peers[0].Messages) == len(frames)*per })
				for i, f := range frames {
					m := peers[0].Messages[i*per]
					if !bytes.Equal(m.Data, f) {
						t.Fatalf("frame %d: %d bytes arrived, %d were sent", i, len(m.Data), len(f))
					}
					slot := streams[0].base + uint64(i%3)*uint64(streams[0].stride)
					if m.Op.IsWrite() && m.Address != slot {
						t.Fatalf("frame %d: written to %#x, want %#x", i, m.Address, slot)
					}
					if m.Op.HasImm() && m.Imm != uint32(i) {
						t.Fatalf("frame %d: immediate %d", i, m.Imm)
					}
					if per == 2 {
						tr := peers[0].Messages[2*i+1]
						if n := binary.LittleEndian.Uint32(tr.Data); n != uint32(len(f)) || tr.Address != slot+uint64(streams[0].stride)-16 {
							t.Fatalf("trailer %d says %d bytes, want %d; at %#x", i, n, len(f), tr.Address)
						}
					}
				}
				b.must(b.stream, regs.StreamCommandOpStop, 0)
				b.exchange(peers, qps, 2_000_000, b.stopped(0))
				b.exchange(peers, qps, 2_000_000, b.stopped(1))
				checkMessages(t, peers[1].Messages, streams[1], 40)
				b.streamState(0)
				var total uint64
				for _, f := range frames {
					total += uint64(len(f))
				}
				b.expect("SourceFrames", b.get64(b.stream, regs.StreamStatSourceFrames), uint64(len(frames)))
				b.expect("SourceBytes", b.get64(b.stream, regs.StreamStatSourceBytes), total)
				b.expect("FramesDone", b.get64(b.stream, regs.StreamStatFramesDone), uint64(len(frames)))
				b.expect("BytesDone", b.get64(b.stream, regs.StreamStatBytesDone), total)
				b.expect("SourceDropped", b.get64(b.stream, regs.StreamStatSourceDropped), 0)
			})
		}
	}
}

// A frame longer than FrameBytes is dropped whole and counted, and those around
// it arrive; one without bytes is a message without bytes.
func TestSourceTooLong(t *testing.T) {
	for _, mtu := range []roce.MTU{256, 4096} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			b := open(t, 42)
			q := qp(0)
			q.mtu = mtu
			b.connect(0, q)
			var want [][]byte
			for i := range 40 {
				f := bytes.Repeat([]byte{byte(i)}, []int{1000, 1001, 64, 5000, 999}[i%5])
				if i%5 == 4 {
					f = f[:0]
				}
				if len(f) <= 1000 {
					want = append(want, f)
				}
				b.Offer(f, i)
			}
			b.start(0, streamConfig{verb: regs.StreamConfigVerbSend, external: true, bytes: 1000})
			p := responder.New(peerConfig(q), 1)
			b.exchange([]*responder.Peer{p}, []qpConfig{q}, 100000, func() bool { return len(p.Messages) == len(want) })
			for i, f := range want {
				if !bytes.Equal(p.Messages[i].Data, f) {
					t.Fatalf("message %d: %d bytes of %v, want %d of %v", i, len(p.Messages[i].Data), p.Messages[i].Data[:1], len(f), f[:1])
				}
			}
			b.streamState(0)
			b.expect("SourceDropped", b.get64(b.stream, regs.StreamStatSourceDropped), 16)
		})
	}
}

// A stream that is reset in the middle of everything begins with a whole frame.
func TestSourceReset(t *testing.T) {
	b := open(t, 43)
	rng := rand.New(rand.NewPCG(43, 1))
	serial := 0
	for session := range 40 {
		for b.Offered() < 60 {
			serial++
			f := make([]byte, 8+rng.IntN(3000))
			for i := range f {
				f[i] = byte(serial)
			}
			binary.LittleEndian.PutUint64(f, uint64(serial)<<32|uint64(len(f)))
			b.Offer(f, rng.IntN(200))
		}
		q := qp(0)
		q.psn = roce.PSN(rng.Uint32N(1 << 24))
		b.connect(0, q)
		b.start(0, streamConfig{verb: regs.StreamConfigVerbSend, external: true, bytes: 3008})
		p := responder.New(peerConfig(q), uint64(session))
		b.exchange([]*responder.Peer{p}, []qpConfig{q}, uint64(300+rng.IntN(4000)), nil)
		for i, m := range p.Messages {
			head := binary.LittleEndian.Uint64(m.Data)
			n := head >> 32
			if uint64(len(m.Data)) != head&0xffffffff || len(m.Data) > 8 && m.Data[len(m.Data)-1] != byte(n) {
				t.Fatalf("session %d, message %d: %d bytes, head %#x", session, i, len(m.Data), head)
			}
			if i > 0 && n != binary.LittleEndian.Uint64(p.Messages[i-1].Data)>>32+1 {
				t.Fatalf("session %d: frame %d after %d", session, n, binary.LittleEndian.Uint64(p.Messages[i-1].Data)>>32)
			}
		}
		if rng.IntN(2) == 0 {
			b.must(b.Core, regs.CoreCommandOpReset, 0)
		}
		b.must(b.stream, regs.StreamCommandOpReset, 0)
		b.must(b.Core, regs.CoreCommandOpReset, 0)
		b.Run(100)
		b.Take()
	}
	if serial < 200 {
		t.Errorf("only %d frames were offered", serial)
	}
}

// A source that cannot wait loses whole frames, each counted, and the others
// arrive whole and in order.
func TestSourceLossy(t *testing.T) {
	b := open(t, 44)
	b.SetLossy()
	b.SetSink(Pausing(200)) // slower than the source
	rng := rand.New(rand.NewPCG(44, 1))
	q := qp(0)
	b.connect(0, q)
	b.start(0, streamConfig{verb: regs.StreamConfigVerbSend, external: true, bytes: 8192})
	const count = 600
	for i := range count {
		f := make([]byte, 4+rng.IntN(8188))
		for j := range f {
			f[j] = byte(i)
		}
		binary.LittleEndian.PutUint32(f, uint32(i))
		b.Offer(f, 10)
	}
	p := responder.New(peerConfig(q), 1)
	b.exchange([]*responder.Peer{p}, []qpConfig{q}, 2_000_000, func() bool {
		if b.Offered() > 0 {
			return false
		}
		b.streamState(0)
		return uint64(len(p.Messages))+b.get64(b.stream, regs.StreamStatSourceDropped) == count
	})
	dropped := b.get64(b.stream, regs.StreamStatSourceDropped)
	if dropped == 0 || dropped == count {
		t.Errorf("SourceDropped is %d of %d", dropped, count)
	}
	last := -1
	for _, m := range p.Messages {
		n := int(binary.LittleEndian.Uint32(m.Data))
		if n <= last || len(m.Data) > 4 && m.Data[len(m.Data)-1] != byte(n) {
			t.Fatalf("frame %d, which ends in %d, after %d", n, m.Data[len(m.Data)-1], last)
		}
		last = n
	}
}
