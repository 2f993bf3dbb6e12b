package model

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// Each register of a queue pair is checked, and a refusal names it and leaves
// the queue pair as it was.
func TestCommitRefusesQueuePair(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(w *world)
		want regs.Reg
	}{
		{"MTU code 0", func(w *world) { w.write(w.core, regs.CoreQpConfig, 0) }, regs.CoreQpConfig},
		{"MTU code 6", func(w *world) { w.write(w.core, regs.CoreQpConfig, 6) }, regs.CoreQpConfig},
		{"MTU larger than built", func(w *world) { w.write(w.core, regs.CoreQpConfig, 5) }, regs.CoreQpConfig},
		{"local QPN 1", func(w *world) { w.write(w.core, regs.CoreQpLocalQPN, 1) }, regs.CoreQpLocalQPN},
		{"local QPN of 25 bits", func(w *world) { w.write(w.core, regs.CoreQpLocalQPN, 1<<24) }, regs.CoreQpLocalQPN},
		{"local QPN of another", func(w *world) { w.write(w.core, regs.CoreQpLocalQPN, 0x101) }, regs.CoreQpLocalQPN},
		{"remote QPN 0", func(w *world) { w.write(w.core, regs.CoreQpRemoteQPN, 0) }, regs.CoreQpRemoteQPN},
		{"PSN of 25 bits", func(w *world) { w.write(w.core, regs.CoreQpStartPSN, 1<<24) }, regs.CoreQpStartPSN},
		{"window 0", func(w *world) { w.write(w.core, regs.CoreQpWindow, 0) }, regs.CoreQpWindow},
		{"window too large", func(w *world) { w.write(w.core, regs.CoreQpWindow, 65) }, regs.CoreQpWindow},
		{"source port 0", func(w *world) { w.write(w.core, regs.CoreQpSourcePort, 0) }, regs.CoreQpSourcePort},
		{"source port of 17 bits", func(w *world) { w.write(w.core, regs.CoreQpSourcePort, 1<<16) }, regs.CoreQpSourcePort},
		{"hop limit 0", func(w *world) { w.write(w.core, regs.CoreQpTraffic, 0) }, regs.CoreQpTraffic},
		{"P_Key of 17 bits", func(w *world) { w.write(w.core, regs.CoreQpPKey, 1<<16) }, regs.CoreQpPKey},
		{"MAC zero", func(w *world) {
			w.write(w.core, regs.CoreQpRemoteMACLow, 0)
			w.write(w.core, regs.CoreQpRemoteMACHigh, 0)
		}, regs.CoreQpRemoteMACLow},
		{"MAC multicast", func(w *world) { w.write(w.core, regs.CoreQpRemoteMACHigh, 0x0100) }, regs.CoreQpRemoteMACLow},
		{"MAC of 49 bits", func(w *world) { w.write(w.core, regs.CoreQpRemoteMACHigh, 1<<16) }, regs.CoreQpRemoteMACHigh},
		{"no remote address", func(w *world) { w.address(regs.CoreQpRemoteIP0, netip.IPv4Unspecified()) }, regs.CoreQpRemoteIP0},
		{"multicast", func(w *world) { w.address(regs.CoreQpRemoteIP0, netip.MustParseAddr("224.0.0.1")) }, regs.CoreQpRemoteIP0},
		{"other family", func(w *world) { w.address(regs.CoreQpRemoteIP0, netip.MustParseAddr("2001:db8::1")) }, regs.CoreQpRemoteIP0},
		{"no local address", func(w *world) { w.address(regs.CoreLocalIP0, netip.IPv4Unspecified()) }, regs.CoreLocalIP0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{QueuePairs: 2, MaxMTU: 2048, MaxWindow: 64}, FaultConfig{})
			other := defaults()
			other.index = 1
			w.openQP(other)
			w.fillQP(defaults())
			c.set(w)
			code, detail := w.command(w.core, regs.CoreCommandOpCommit, 0)
			if code != regs.CoreCommandStatusCodeBadValue || regs.Reg(detail) != c.want {
				t.Errorf("status %d, detail %#x; want BadValue, %#x", code, detail, c.want)
			}
			if st, _ := w.qpState(0); st != regs.CoreStatStateStateReset {
				t.Errorf("state %d", st)
			}
			if n := w.read(w.core, regs.CoreCommandCount); n != 3 {
				t.Errorf("%d commands counted, want 3", n)
			}
		})
	}
}

func TestCommitRefusesStream(t *testing.T) {
	good := streamSettings{verb: regs.StreamConfigVerbWrite, size: 1000, slots: 4, stride: 1016, base: 1 << 40, credit: 1 << 41}
	for _, c := range []struct {
		name string
		set  func(s *streamSettings)
		want uint32
	}{
		{"no such verb", func(s *streamSettings) { s.verb = 5 }, uint32(regs.StreamConfig)},
		{"no such pattern", func(s *streamSettings) { s.kind = 2 }, uint32(regs.StreamConfig)},
		{"no source connected", func(s *streamSettings) { s.external = true }, uint32(regs.StreamConfig)},
		{"frame too large", func(s *streamSettings) { s.size = 16<<20 + 1 }, uint32(regs.StreamFrameBytes)},
		{"no room for the CRC", func(s *streamSettings) { s.size, s.crc = 3, true }, uint32(regs.StreamFrameBytes)},
		{"no slots", func(s *streamSettings) { s.slots = 0 }, uint32(regs.StreamSlots)},
		{"stride not of words", func(s *streamSettings) { s.stride = 1020 }, uint32(regs.StreamStride)},
		{"no room for the trailer", func(s *streamSettings) { s.stride = 1008 }, uint32(regs.StreamStride)},
		{"beyond the last address", func(s *streamSettings) { s.base = 1<<64 - 4*1016 + 1 }, uint32(regs.StreamBase)},
		{"credit not aligned", func(s *streamSettings) { s.credit++ }, uint32(regs.StreamCredit)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
			s := good
			c.set(&s)
			w.fillStream(s)
			code, detail := w.command(w.stream, regs.StreamCommandOpCommit, 0)
			if code != regs.StreamCommandStatusCodeBadValue || detail != c.want {
				t.Errorf("status %d, detail %#x; want BadValue, %#x", code, detail, c.want)
			}
			if st := w.streamState(0); st != regs.StreamStatStateStateIdle {
				t.Errorf("state %d", st)
			}
		})
	}
	for name, s := range map[string]streamSettings{
		"up to the last address": {verb: regs.StreamConfigVerbWrite, size: 1000, slots: 4, stride: 1016, base: 1<<64 - 4*1016},
		"SEND needs no ring":     {verb: regs.StreamConfigVerbSend, size: 16 << 20},
		"WRITE with immediate needs no trailer": {verb: regs.StreamConfigVerbWriteImm, size: 1000, slots: 1, stride: 1000,
			credit: 1},
	} {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		w.fillStream(s)
		if code, detail := w.command(w.stream, regs.StreamCommandOpCommit, 0); code != 0 {
			t.Errorf("%s: status %d, detail %#x", name, code, detail)
		}
	}
}

// Every command in every state.
func TestCommandsByState(t *testing.T) {
	const ok, badState = regs.CoreCommandStatusCodeOK, regs.CoreCommandStatusCodeBadState
	reach := map[uint32]func(w *world){
		regs.StreamStatStateStateIdle: func(w *world) { w.openQP(defaults()); w.fillStream(streamSettings{size: 10, count: 5}) },
		regs.StreamStatStateStateConfigured: func(w *world) {
			w.openQP(defaults())
			w.fillStream(streamSettings{size: 10, count: 5})
			w.must(w.stream, regs.StreamCommandOpCommit, 0)
		},
		regs.StreamStatStateStateRunning:  func(w *world) { w.session(defaults(), streamSettings{size: 10}); w.run(time.Millisecond) },
		regs.StreamStatStateStateStopping: func(w *world) { w.muteSession(); w.must(w.stream, regs.StreamCommandOpStop, 0) },
		regs.StreamStatStateStateStopped: func(w *world) {
			s := streamSettings{size: 10, count: 5}
			w.session(defaults(), s)
			w.delivered(0, s)
		},
		regs.StreamStatStateStateError: func(w *world) {
			w.muteSession()
			w.until("error", time.Minute, func() bool { return w.f.streams[0].state == streamError })
		},
	}
	want := map[uint32][5]uint32{ // Commit, Start, Stop, Reset, Latch
		regs.StreamStatStateStateIdle:       {ok, badState, badState, ok, ok},
		regs.StreamStatStateStateConfigured: {badState, ok, badState, ok, ok},
		regs.StreamStatStateStateRunning:    {badState, badState, ok, ok, ok},
		regs.StreamStatStateStateStopping:   {badState, badState, ok, ok, ok},
		regs.StreamStatStateStateStopped:    {badState, badState, ok, ok, ok},
		regs.StreamStatStateStateError:      {badState, badState, badState, ok, ok},
	}
	for state, codes := range want {
		for i, code := range codes {
			t.Run(fmt.Sprintf("state %d, command %d", state, i+1), func(t *testing.T) {
				w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
				reach[state](w)
				if got := w.streamState(0); got != state {
					t.Fatalf("state %d reached", got)
				}
				got, detail := w.command(w.stream, i+1, 0)
				if got != code || code == badState && detail != state {
					t.Errorf("status %d, detail %d; want %d", got, detail, code)
				}
			})
		}
	}
	t.Run("start without its queue pair", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		w.fillStream(streamSettings{size: 10})
		w.must(w.stream, regs.StreamCommandOpCommit, 0)
		if code, detail := w.command(w.stream, regs.StreamCommandOpStart, 0); code != badState || detail != regs.StreamStatStateStateConfigured {
			t.Errorf("status %d, detail %d", code, detail)
		}
	})
	t.Run("queue pair", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		w.openQP(defaults())
		if code, detail := w.command(w.core, regs.CoreCommandOpCommit, 0); code != badState || detail != regs.CoreStatStateStateReady {
			t.Errorf("Commit when Ready: status %d, detail %d", code, detail)
		}
		w.must(w.core, regs.CoreCommandOpReset, 0)
		w.must(w.core, regs.CoreCommandOpReset, 0)
		w.must(w.core, regs.CoreCommandOpCommit, 0)
	})
	t.Run("unknown", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 2}, FaultConfig{})
		for _, b := range []regs.Bus{w.core, w.stream} {
			for _, c := range []struct{ op, index, want int }{
				{0, 1, regs.CoreCommandStatusCodeBadOp}, {6, 0, regs.CoreCommandStatusCodeBadOp}, {255, 0, regs.CoreCommandStatusCodeBadOp},
				{1, 2, regs.CoreCommandStatusCodeBadIndex}, {3, 255, regs.CoreCommandStatusCodeBadIndex},
			} {
				if code, _ := w.command(b, c.op, c.index); code != uint32(c.want) {
					t.Errorf("command %d of %d: status %d, want %d", c.op, c.index, code, c.want)
				}
			}
		}
	})
}

// muteSession runs a stream whose host never answers.
func (w *world) muteSession() {
	hq, _ := w.session(defaults(), streamSettings{size: 10})
	hq.mute = true
	w.run(time.Millisecond)
}

// Stop delivers what was taken, in the middle of large frames too.
func TestStopDrains(t *testing.T) {
	for _, verb := range []uint32{regs.StreamConfigVerbSend, regs.StreamConfigVerbWrite, regs.StreamConfigVerbRead} {
		w := newWorld(t, Config{QueuePairs: 1, MaxWindow: 16}, FaultConfig{Drop: 1, Seed: 1})
		q := defaults()
		q.window = 16
		w.session(q, streamSettings{verb: verb, size: 100_000})
		w.run(3 * time.Millisecond)
		w.must(w.stream, regs.StreamCommandOpStop, 0)
		w.until("stopped", 10*time.Second, func() bool { return w.f.streams[0].state == streamStopped })
		taken, done := w.streamStat(0, regs.StreamStatSourceFrames), w.streamStat(0, regs.StreamStatFramesDone)
		if taken == 0 || taken != done {
			t.Errorf("%s: %d frames taken, %d delivered", verbName(verb), taken, done)
		}
		if regs.StreamStatStateEnded.Get(w.read(w.stream, regs.StreamStatState)) != 0 {
			t.Errorf("%s: Ended is set though the stream was stopped", verbName(verb))
		}
		// Stopped and reset, the stream starts again on the same queue pair.
		w.must(w.stream, regs.StreamCommandOpReset, 0)
		if st, _ := w.qpState(0); st != regs.CoreStatStateStateReady {
			t.Errorf("%s: queue pair in state %d", verbName(verb), st)
		}
	}
}

// Taking frames away from a running stream leaves nothing half sent: the queue
// pair has to be programmed anew, and works.
func TestResetWhileRunning(t *testing.T) {
	for _, core := range []bool{false, true} {
		w := newWorld(t, Config{QueuePairs: 1, MaxWindow: 16}, FaultConfig{})
		q := defaults()
		q.window = 16
		w.session(q, streamSettings{size: 100_000})
		w.run(time.Millisecond)
		if core {
			w.must(w.core, regs.CoreCommandOpReset, 0)
			if st := w.streamState(0); st != regs.StreamStatStateStateError {
				t.Errorf("stream in state %d after its queue pair was reset", st)
			}
			w.must(w.stream, regs.StreamCommandOpReset, 0)
		} else {
			w.must(w.stream, regs.StreamCommandOpReset, 0)
			if st, _ := w.qpState(0); st != regs.CoreStatStateStateReset {
				t.Errorf("queue pair in state %d after frames were taken away", st)
			}
		}
		for i := range 4 {
			w.wire = nil
			q.psn = roce.PSN(1000 * i)
			s := streamSettings{size: 9000, count: 20}
			w.session(q, s)
			w.delivered(0, s)
			w.must(w.stream, regs.StreamCommandOpReset, 0)
			w.must(w.core, regs.CoreCommandOpReset, 0)
		}
	}
}

// ResetAll resets the queue pairs and clears the port's counters.
func TestResetAll(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 3}, FaultConfig{})
	boot := w.read(w.core, regs.CoreBoot)
	for i := range 3 {
		q := defaults()
		q.index = i
		w.session(q, streamSettings{size: 100})
	}
	w.run(time.Millisecond)
	if w.stat(0, regs.CoreTxPackets) == 0 {
		t.Fatal("nothing sent")
	}
	w.must(w.core, regs.CoreCommandOpResetAll, 200)
	for i := range 3 {
		if st, _ := w.qpState(i); st != regs.CoreStatStateStateReset {
			t.Errorf("queue pair %d in state %d", i, st)
		}
		if st := w.streamState(i); st != regs.StreamStatStateStateError {
			t.Errorf("stream %d in state %d", i, st)
		}
	}
	if n := w.stat(0, regs.CoreTxPackets) + w.stat(0, regs.CoreRxPackets); n != 0 {
		t.Errorf("the port counts %d packets", n)
	}
	if w.read(w.core, regs.CoreBoot) != boot {
		t.Error("Boot changed though the fabric did not start again")
	}
}

// Without Control.Enable nothing is sent and nothing received.
func TestDisabled(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	s := streamSettings{size: 10_000, count: 300}
	w.session(defaults(), s)
	w.run(100 * time.Microsecond)
	w.write(w.core, regs.CoreControl, 0)
	tx, rx := w.stat(0, regs.CoreTxPackets), w.stat(0, regs.CoreRxPackets)
	w.run(time.Second)
	if a, b := w.stat(0, regs.CoreTxPackets), w.stat(0, regs.CoreRxPackets); a != tx || b != rx {
		t.Errorf("%d packets sent and %d received while disabled", a-tx, b-rx)
	}
	w.write(w.core, regs.CoreControl, 1)
	w.delivered(0, s)
}

func TestUptime(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	w.run(3 * time.Second)
	w.tick(w.now)
	khz := uint64(w.read(w.core, regs.CoreClockKHz))
	if got := w.stat(0, regs.CoreUptime); got != 3000*khz {
		t.Errorf("Uptime = %d after 3 s at %d kHz", got, khz)
	}
}

func TestBusFaults(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	for _, o := range []uint32{1, 2, 3, 0x101, ApertureBytes, ApertureBytes + 4, 0xFFFFFFFC, // outside, unaligned
		CoreBase + 0x400, StreamBase + 0x400, 0x8000, // between blocks
		CMACBase + 0x0008, CMACBase + 0x0010, CMACBase + 0x1FFC, CMACBase + 0x2000} { // holes
		if _, err := w.bus.Read32(o); !errors.Is(err, ErrBus) {
			t.Errorf("read %#x: %v", o, err)
		}
		if err := w.bus.Write32(o, 1); !errors.Is(err, ErrBus) {
			t.Errorf("write %#x: %v", o, err)
		}
	}
	// Every register of the table answers.
	for _, b := range regs.Blocks() {
		base := map[string]uint32{"Core": CoreBase, "Stream": StreamBase, "CMAC": CMACBase}[b.Name]
		for _, r := range b.Regs {
			before, err := w.bus.Read32(base + r.Offset)
			if err != nil {
				t.Errorf("%s.%s: %v", b.Name, r.Name, err)
			}
			if r.Access != regs.RO && r.Access != regs.TIK {
				continue
			}
			if err := w.bus.Write32(base+r.Offset, ^before); err != nil {
				t.Errorf("%s.%s: %v", b.Name, r.Name, err)
			}
			if after, _ := w.bus.Read32(base + r.Offset); after != before {
				t.Errorf("%s.%s is read-only and went from %#x to %#x", b.Name, r.Name, before, after)
			}
		}
	}
	if v, err := w.bus.Read32(CoreBase + 0x3FC); v != 0 || err != nil {
		t.Errorf("undefined address of the core: %#x, %v", v, err)
	}
	w.write(w.core, regs.CoreScratch, 0xA5A55A5A)
	if v := w.read(w.core, regs.CoreScratch); v != 0xA5A55A5A {
		t.Errorf("Scratch holds %#x", v)
	}
}
