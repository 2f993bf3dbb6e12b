//go:build verilator

package core

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

// The identity words are there, and the chain of blocks.
func TestIdentity(t *testing.T) {
	b := open(t, 9)
	b.expect("Ident", uint64(b.get(b.Core, regs.CoreIdent)), regs.IdentCore)
	b.expect("Version", uint64(b.get(b.Core, regs.CoreVersion)), regs.VersionMajor<<16|regs.VersionMinor)
	b.expect("Next", uint64(b.get(b.Core, regs.CoreNext)), streamBase)
	b.expect("stream Ident", uint64(b.get(b.stream, regs.StreamIdent)), regs.IdentStream)
	caps := b.get(b.Core, regs.CoreCaps)
	b.expect("QueuePairs", uint64(regs.CoreCapsQueuePairs.Get(caps)), 8)
	b.expect("MaxMTU", uint64(regs.CoreCapsMaxMTU.Get(caps)), 5)
	b.expect("Emulated", uint64(regs.CoreCapsEmulated.Get(caps)), 0)
	b.expect("ClockKHz", uint64(b.get(b.Core, regs.CoreClockKHz)), 250000)
	b.put(b.Core, regs.CoreScratch, 0xdeadbeef)
	b.expect("Scratch", uint64(b.get(b.Core, regs.CoreScratch)), 0xdeadbeef)
	b.put(b.Core, regs.CoreIdent, 0)
	b.expect("Ident after a write", uint64(b.get(b.Core, regs.CoreIdent)), regs.IdentCore)
	b.expect("a hole", uint64(b.get(b.Core, 0x3fc)), 0)
	b.expect("beyond the blocks", uint64(b.get(b.Core, 0x8000)), 0)
}

// Each register holds each bit, and no write reaches another register.
func TestRegisterFile(t *testing.T) {
	b := open(t, 9)
	b.put(b.Core, regs.CoreControl, 0)
	rng := rand.New(rand.NewPCG(5, 6))
	type place struct {
		bus regs.Bus
		r   regs.Reg
	}
	want := map[place]uint32{}
	for range 4 {
		for _, blk := range regs.Blocks() {
			bus := map[string]regs.Bus{"Core": b.Core, "Stream": b.stream}[blk.Name]
			for _, r := range blk.Regs {
				for w := range uint32(r.Words()) {
					if bus != nil && r.Access == regs.RW {
						p := place{bus, regs.Reg(r.Offset + 4*w)}
						want[p] = rng.Uint32()
						if r.Name == "Control" {
							want[p] &^= 1
						}
						b.put(p.bus, p.r, want[p])
					}
				}
			}
		}
		for p, v := range want {
			if got := b.get(p.bus, p.r); got != v {
				t.Fatalf("register %#x holds %#x, want %#x", p.r, got, v)
			}
		}
	}
}

// What is not there in this build is refused by name.
func TestRefused(t *testing.T) {
	b := open(t, 9)
	b.connect(0, qp(0))
	for _, c := range []struct {
		name   string
		change func()
		detail regs.Reg
	}{
		{"READ and CRC", func() {
			b.put(b.stream, regs.StreamConfig, regs.StreamConfigVerb.Of(regs.StreamConfigVerbRead)|regs.StreamConfigCRC.Of(1))
		}, regs.StreamConfig},
		{"CRC", func() { b.put(b.stream, regs.StreamConfig, regs.StreamConfigCRC.Of(1)) }, regs.StreamConfig},
		{"CRC", func() { b.put(b.stream, regs.StreamConfig, regs.StreamConfigCRC.Of(1)) }, regs.StreamConfig},
		{"READ from an external source", func() {
			b.put(b.stream, regs.StreamConfig, regs.StreamConfigVerb.Of(regs.StreamConfigVerbRead)|regs.StreamConfigSource.Of(1))
		}, regs.StreamConfig},
		{"external frames of no bytes", func() {
			b.put(b.stream, regs.StreamConfig, regs.StreamConfigSource.Of(1))
			b.put(b.stream, regs.StreamFrameBytes, 0)
		}, regs.StreamFrameBytes},
		{"external frames that the source cannot hold", func() {
			b.put(b.stream, regs.StreamConfig, regs.StreamConfigSource.Of(1))
			b.put(b.stream, regs.StreamFrameBytes, 131073)
		}, regs.StreamFrameBytes},
		{"credit", func() { b.put64(b.stream, regs.StreamCredit, 12) }, regs.Reg(regs.StreamCredit)},
	} {
		b.describe(streamConfig{verb: regs.StreamConfigVerbWrite, bytes: 100, slots: 4, stride: 128})
		c.change()
		code, detail := b.command(b.stream, regs.StreamCommandOpCommit, 0)
		if code != regs.StreamCommandStatusCodeBadValue || detail != uint32(c.detail) {
			t.Errorf("%s: status %d, detail %#x, want %d, %#x", c.name, code, detail, regs.StreamCommandStatusCodeBadValue, c.detail)
		}
	}
}

// The external source belongs to one stream.
func TestOneSource(t *testing.T) {
	b := open(t, 9)
	b.expect("External", uint64(regs.CoreCapsExternal.Get(b.get(b.Core, regs.CoreCaps))), 1)
	b.describe(streamConfig{external: true, bytes: 100})
	if code, detail := b.command(b.stream, regs.StreamCommandOpCommit, 1); code != regs.StreamCommandStatusCodeBadValue || detail != uint32(regs.StreamConfig) {
		t.Errorf("stream 1: status %d, detail %#x", code, detail)
	}
	b.must(b.stream, regs.StreamCommandOpCommit, 0)
}

// A reset at any cycle: nothing of before leaves after it, registers read as
// after a start, and the core works again.
func TestReset(t *testing.T) {
	b := open(t, 9)
	rng := rand.New(rand.NewPCG(1, 9))
	for round := range 60 {
		if rng.IntN(2) == 0 {
			b.SetSink(Pausing(rng.IntN(200)))
		} else {
			b.SetSink(Open())
		}
		q := qp(1)
		q.timeout = 1
		b.connect(1, q)
		b.start(1, streamConfig{verb: regs.StreamConfigVerbWrite, bytes: 2500, slots: 4, stride: 4096})
		b.Run(rng.IntN(900))
		b.Take()
		b.Reset()
		b.SetSink(Open())
		b.Run(600)
		if f := b.Take(); len(f) != 0 {
			t.Fatalf("round %d: %d frames left after a reset", round, len(f))
		}
		if v := b.get(b.Core, regs.CoreQpWindow); v != 0 {
			t.Fatalf("round %d: QpWindow is %d after a reset", round, v)
		}
		if state, _ := b.latch(1); state != regs.CoreStatStateStateReset {
			t.Fatalf("round %d: queue pair in state %d after a reset", round, state)
		}
		b.expect("TxPackets after a reset", b.counter(regs.CoreTxPackets), 0)
		b.expect("PacketsSent after a reset", b.counter(regs.CoreStatPacketsSent), 0)
		b.enable()
		q = qp(0)
		b.connect(0, q)
		s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: 1500, count: 3, kind: pattern.PRBS31}
		b.start(0, s)
		p := responder.New(peerConfig(q), 1)
		b.exchange([]*responder.Peer{p}, []qpConfig{q}, 20000, func() bool { return len(p.Messages) == 3 })
		checkMessages(t, p.Messages, s, 3)
		b.must(b.stream, regs.StreamCommandOpReset, 0)
		b.must(b.Core, regs.CoreCommandOpReset, 0)
	}
}

// Resetting a queue pair in the middle of everything: what leaves is whole, of
// the old session or of the new, and never of both.
func TestResetQueuePair(t *testing.T) {
	b := open(t, 9)
	rng := rand.New(rand.NewPCG(2, 9))
	// The last session's, of which frames may still be on their way, and this one's.
	var peers []*responder.Peer
	var qps []qpConfig
	var streams []streamConfig
	for session := range 80 {
		b.SetSink(Pausing([]int{60, 248, 248, 248}[session%4])) // the slow one has much under way, also when the next session begins
		q := qp(0)
		q.peerQPN = roce.QPN(0x1000 + session)
		q.psn = roce.PSN(rng.Uint32N(1 << 24))
		q.mtu = []roce.MTU{256, 1024, 4096}[session%3]
		q.timeout = 1
		b.connect(0, q)
		// Its data is not what lay in the same place of the ring.
		s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: 5000, kind: pattern.Kind(session % 2)}
		b.start(0, s)
		n := min(1, len(peers))
		peers = append(peers[len(peers)-n:], responder.New(peerConfig(q), uint64(session)))
		qps, streams = append(qps[len(qps)-n:], q), append(streams[len(streams)-n:], s)
		b.exchange(peers, qps, uint64(rng.IntN(3000)), nil)
		for i, p := range peers {
			checkMessages(t, p.Messages, streams[i], uint64(len(p.Messages)))
		}
		b.latch(0)
		b.expect("SequenceNAKs", b.counter(regs.CoreStatSequenceNAKs), 0) // no frame has another session's PSN
		b.must(b.Core, regs.CoreCommandOpReset, 0)
		b.expect("stream state", uint64(b.streamState(0)), regs.StreamStatStateStateError)
		b.must(b.stream, regs.StreamCommandOpReset, 0)
	}
}

// Answers of an old session that arrive in the new one change nothing.
func TestOldSession(t *testing.T) {
	b := open(t, 9)
	p := pair{bench: b}
	q := qp(0)
	q.psn, q.timeout = 1000, 0
	b.program(q)
	for range 20 {
		b.must(b.Core, regs.CoreCommandOpCommit, 0)
		b.start(0, streamConfig{verb: regs.StreamConfigVerbSend, bytes: 100, count: 50})
		b.Run(2000)
		// They arrive while the reset has everything stand still, and the next
		// session begins before they have all been dealt with.
		for range 60 {
			b.Receive(p.frame(0, 1020, roce.ACK(31)), 0)
		}
		b.must(b.Core, regs.CoreCommandOpReset, 0)
		b.must(b.Core, regs.CoreCommandOpCommit, 0)
		b.Run(1000)
		b.latch(0)
		b.expect("UnackedPSN", uint64(b.get(b.Core, regs.CoreStatUnackedPSN)), 1000)
		b.expect("AcksReceived", b.counter(regs.CoreStatAcksReceived), 0)
		b.expect("StaleAcks", b.counter(regs.CoreStatStaleAcks), 0)
		b.must(b.Core, regs.CoreCommandOpReset, 0)
		b.must(b.stream, regs.StreamCommandOpReset, 0)
	}
}

// A MAC that stops taking beats, or whose link goes down, holds up no command;
// the frame that it has a part of ends with an error, and after that the core
// goes on.
func TestDeadMAC(t *testing.T) {
	for _, link := range []bool{false, true} {
		b := open(t, 11)
		q := qp(0)
		q.timeout = 1
		b.connect(0, q)
		b.start(0, streamConfig{verb: regs.StreamConfigVerbSend, bytes: 5000})
		b.Run(700)
		if link {
			b.SetLink(false)
		}
		b.SetSink(Closed())
		b.Run(20000) // the bench's core gives a MAC 4096 cycles
		if code, _ := b.command(b.Core, regs.CoreCommandOpReset, 0); code != 0 {
			t.Fatalf("Reset while the MAC is dead: status %d", code)
		}
		b.latch(0)
		if n := b.counter(regs.CoreTxDropped); n == 0 {
			t.Error("no frame was counted as dropped")
		}
		b.SetLink(true)
		b.SetSink(Open())
		b.Run(200)
		frames := b.Take()
		bad := 0
		for _, f := range frames {
			var d roce.Frame
			switch err := d.Decode(f.Data); {
			case f.Error:
				bad++
			case err != nil || !d.ICRCOK(f.Data):
				t.Errorf("frame of %d bytes without an error mark: %v", len(f.Data), err)
			}
		}
		if bad > 1 {
			t.Errorf("%d frames with an error mark", bad)
		}
		b.must(b.stream, regs.StreamCommandOpReset, 0)
		b.connect(0, q)
		s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: 5000, count: 4, kind: pattern.PRBS31}
		b.start(0, s)
		p := responder.New(peerConfig(q), 1)
		b.exchange([]*responder.Peer{p}, []qpConfig{q}, 30000, func() bool { return len(p.Messages) == 4 })
		checkMessages(t, p.Messages, s, 4)
	}
}

// A paced stream keeps its rate, and its burst leaves at once.
func TestPace(t *testing.T) {
	for _, c := range []struct{ kbps, bytes, burst uint32 }{
		{1_000_000, 1000, 1}, {10_000_000, 1000, 4}, {25_000_000, 4096, 1}, {777_777, 333, 8},
	} {
		b := open(t, 12)
		q := qp(0)
		q.window = 256
		b.connect(0, q)
		s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: c.bytes, kbps: c.kbps, burst: c.burst}
		b.start(0, s)
		p := responder.New(peerConfig(q), 1)
		const cycles = 400_000
		from := b.Cycle()
		b.exchange([]*responder.Peer{p}, []qpConfig{q}, cycles, nil)
		// Frames by their first packet.
		var starts []uint64
		for _, f := range b.frames {
			if op := roce.Opcode(f.Data[42]); op.Starts() {
				starts = append(starts, f.First)
			}
		}
		per := float64(c.bytes) * 8 * 250_000 / float64(c.kbps) // cycles a frame
		if n := float64(len(starts)); n < cycles/per-2 || n > cycles/per+float64(c.burst)+2 {
			t.Errorf("%+v: %v frames in %d cycles, want %.1f", c, n, cycles, cycles/per)
		}
		if c.burst > 1 && float64(starts[c.burst-1]-from) > per {
			t.Errorf("%+v: the burst took %d cycles", c, starts[c.burst-1]-from)
		}
		tail := starts[len(starts)/2:]
		got := float64(tail[len(tail)-1]-tail[0]) / float64(len(tail)-1)
		if got < per*0.999-1 || got > per*1.001+1 {
			t.Errorf("%+v: a frame every %.2f cycles, want %.2f", c, got, per)
		}
	}
}

// Frames of any content and length, back to back and with pauses, are counted
// and change nothing, and the stream beside them goes on at its rate.
func TestGarbage(t *testing.T) {
	b := open(t, 13)
	rng := rand.New(rand.NewPCG(3, 9))
	q := qp(0)
	b.connect(0, q)
	s := streamConfig{verb: regs.StreamConfigVerbSend, bytes: 3000, count: 200, kind: pattern.PRBS31}
	b.start(0, s)
	p := responder.New(peerConfig(q), 1)
	pr := pair{bench: b}
	good := pr.frame(0, q.psn, roce.ACK(31))
	sent := 0
	b.exchange([]*responder.Peer{p}, []qpConfig{q}, 200000, func() bool {
		for b.Queued() < 20 && sent < 3000 {
			sent++
			f := make([]byte, 1+rng.IntN(300))
			if rng.IntN(10) == 0 {
				f = make([]byte, 9000)
			}
			for i := range f {
				f[i] = byte(rng.Uint32())
			}
			// As far as this is right it gets further in.
			copy(f, good[:rng.IntN(len(good))])
			if len(f) >= len(good) && bytes.Equal(f[:len(good)-1], good[:len(good)-1]) {
				continue
			}
			b.Receive(f, rng.IntN(3)*60)
		}
		return len(p.Messages) == int(s.count) && sent >= 3000 && b.Queued() == 0
	})
	checkMessages(t, p.Messages, s, s.count)
	b.latch(0)
	b.expect("PacketsResent", b.counter(regs.CoreStatPacketsResent), 0)
	if n := b.counter(regs.CoreRxMalformed) + b.counter(regs.CoreRxBadICRC); n < 500 {
		t.Errorf("only %d frames were counted as bad", n)
	}
}

// Copies of an RNR NAK and of a NAK that arrive before anything was sent again
// are counted and use up no patience.
func TestCopies(t *testing.T) {
	for _, c := range []struct {
		name    string
		s       roce.Syndrome
		counter regs.Reg64
	}{
		{"RNR NAK", roce.RNRNak(4), regs.CoreStatRNRNAKs},
		{"NAK", roce.Nak(roce.PSNSequenceError), regs.CoreStatSequenceNAKs},
	} {
		b := open(t, 14)
		p := pair{bench: b}
		q := qp(0)
		q.timeout, q.retry, q.rnrRetry = 0, 1, 1
		b.connect(0, q)
		b.start(0, streamConfig{verb: regs.StreamConfigVerbSend, bytes: 100, count: 8})
		b.Run(1000)
		for range 4 {
			b.Receive(p.frame(0, q.psn, c.s), 0)
		}
		b.Run(200)
		state, cause := b.latch(0)
		if state != regs.CoreStatStateStateReady {
			t.Errorf("after copies of one %s: state %d, cause %d", c.name, state, cause)
		}
		b.expect(c.name+"s", b.counter(c.counter), 4)
		// One that comes after the packets were sent again is another one.
		b.Run(20000)
		b.Receive(p.frame(0, q.psn, c.s), 0)
		b.Run(200)
		if state, _ := b.latch(0); state != regs.CoreStatStateStateError {
			t.Errorf("after a second %s: state %d", c.name, state)
		}
	}
}
