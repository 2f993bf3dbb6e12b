package model

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// Whatever the network does, every frame arrives once and in order.
func TestFaults(t *testing.T) {
	kinds := []struct {
		name string
		set  func(*FaultConfig, float64)
	}{
		{"drop", func(c *FaultConfig, p float64) { c.Drop = p }},
		{"duplicate", func(c *FaultConfig, p float64) { c.Duplicate = p }},
		{"reorder", func(c *FaultConfig, p float64) { c.Reorder = p }},
		{"corrupt", func(c *FaultConfig, p float64) { c.Corrupt = p }},
		{"delay", func(c *FaultConfig, p float64) { c.Delay = p }},
		{"all", func(c *FaultConfig, p float64) {
			c.Drop, c.Duplicate, c.Reorder, c.Corrupt, c.Delay = p/4, p/4, p/4, p/4, p/4
		}},
	}
	for _, k := range kinds {
		for _, percent := range []float64{1, 10} {
			for verb := uint32(regs.StreamConfigVerbSend); verb <= regs.StreamConfigVerbRead; verb++ {
				for seed := range uint64(3) {
					t.Run(fmt.Sprintf("%s/%v/%s/%d", k.name, percent, verbName(verb), seed), func(t *testing.T) {
						var faults FaultConfig
						k.set(&faults, percent)
						faults.Seed = seed
						w := newWorld(t, Config{QueuePairs: 1, MaxWindow: 64}, faults)
						w.frames = seed == 1
						q := defaults()
						s := streamSettings{verb: verb, size: 5000, count: 300, crc: true, kind: uint32(seed % 2)}
						if verb == regs.StreamConfigVerbWrite {
							s.credit = 1
						}
						hq, ring := w.session(q, s)
						if s.credit != 0 {
							ring.release()
						}
						w.delivered(0, s)
						if k.name == "corrupt" && w.from.Count.Corrupted > 0 {
							w.must(w.core, regs.CoreCommandOpLatch, 0)
							if got := w.read64(w.core, regs.CoreRxBadICRC); got != w.from.Count.Corrupted && !w.frames {
								t.Errorf("%d frames with a wrong ICRC, %d were corrupted", got, w.from.Count.Corrupted)
							}
						}
						if percent == 10 && k.name == "drop" && (w.stat(0, regs.CoreStatPacketsResent) == 0 || hq.naks == 0) {
							t.Error("a tenth of the packets was lost and nothing sent again")
						}
					})
				}
			}
		}
	}
}

// RNR holds the queue pair for the time asked for, and ends only when the peer
// is ready or the retries are used up.
func TestReceiverNotReady(t *testing.T) {
	for _, verb := range []uint32{regs.StreamConfigVerbSend, regs.StreamConfigVerbSendImm, regs.StreamConfigVerbWriteImm} {
		for _, drop := range []float64{0, 5} {
			t.Run(fmt.Sprintf("%s/%v", verbName(verb), drop), func(t *testing.T) {
				w := newWorld(t, Config{QueuePairs: 1, MaxWindow: 64}, FaultConfig{Drop: drop, Seed: 3})
				s := streamSettings{verb: verb, size: 3000, count: 200}
				hq, _ := w.session(defaults(), s)
				hq.notReady = 0.3
				w.delivered(0, s)
				naks, messages := w.stat(0, regs.CoreStatRNRNAKs), w.stat(0, regs.CoreStatRNRMessages)
				if drop == 0 && (naks != uint64(hq.rnrs) || messages == 0 || messages > naks) {
					t.Errorf("%d RNR NAKs on %d messages, the host sent %d", naks, messages, hq.rnrs)
				}
				if hq.rnrs == 0 {
					t.Error("the host was always ready")
				}
			})
		}
	}
}

func TestRNRDelay(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	s := streamSettings{size: 100, count: 1}
	hq, _ := w.session(defaults(), s)
	hq.notReady, hq.rnrCode = 1, 0 // the longest: 655.36 ms
	w.run(5 * time.Millisecond)
	if hq.requests != 1 {
		t.Fatalf("%d requests before the delay is over", hq.requests)
	}
	asked := w.now
	hq.notReady = 0
	w.delivered(0, s)
	if d := w.now - asked; d < 645*time.Millisecond || d > 660*time.Millisecond {
		t.Errorf("sent again after about %v, want 655.36ms", d)
	}
}

func TestRNRRetryExceeded(t *testing.T) {
	for retries := range uint8(7) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		q := defaults()
		q.rnrRetries = retries
		hq, _ := w.session(q, streamSettings{size: 100, count: 1})
		hq.notReady = 1
		w.until("error", time.Second, func() bool { return w.f.qps[0].state == qpError })
		if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseRNRRetryExceeded {
			t.Errorf("cause %d", cause)
		}
		if hq.rnrs != int(retries)+1 {
			t.Errorf("%d tries with %d retries", hq.rnrs, retries)
		}
		if st := w.streamState(0); st != regs.StreamStatStateStateError {
			t.Errorf("stream in state %d", st)
		}
	}
}

func TestRetryExceeded(t *testing.T) {
	for retries := range uint8(8) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		q := defaults()
		q.retries = retries
		hq, _ := w.session(q, streamSettings{size: 5000, count: 3})
		hq.mute = true
		begun := w.now
		w.until("error", time.Minute, func() bool { return w.f.qps[0].state == qpError })
		if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseRetryExceeded {
			t.Errorf("cause %d", cause)
		}
		if n := w.stat(0, regs.CoreStatTimeouts); n != uint64(retries)+1 {
			t.Errorf("%d timeouts with %d retries", n, retries)
		}
		want := time.Duration(retries+1) * roce.AckTimeout(q.timeout)
		if d := w.now - begun; d < want || d > want+time.Millisecond {
			t.Errorf("gave up after %v, want %v", d, want)
		}
		// Progress is what counts: a new session of the same queue pair works.
		w.must(w.core, regs.CoreCommandOpReset, 0)
		w.must(w.stream, regs.StreamCommandOpReset, 0)
		s := streamSettings{size: 5000, count: 3}
		w.session(q, s)
		w.delivered(0, s)
	}
}

// A timeout of 0 waits for ever.
func TestNoTimeout(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	q.timeout = 0
	hq, _ := w.session(q, streamSettings{size: 100, count: 1})
	hq.mute = true
	w.run(time.Hour)
	if st, _ := w.qpState(0); st != regs.CoreStatStateStateReady || hq.requests != 0 || w.stat(0, regs.CoreStatTimeouts) != 0 {
		t.Errorf("state %d after an hour, %d timeouts", st, w.stat(0, regs.CoreStatTimeouts))
	}
}

// Acknowledgements may be few: progress never depends on a timeout as long as
// nothing is lost.
func TestCoalescedAcks(t *testing.T) {
	for _, window := range []int{1, 2, 3, 7, 64} {
		for _, every := range []int{1, 2, 5} {
			w := newWorld(t, Config{QueuePairs: 1, MaxWindow: 64}, FaultConfig{})
			q := defaults()
			q.window = window
			s := streamSettings{size: 20 * 1024, count: 50}
			hq, _ := w.session(q, s)
			if window >= 16*every {
				hq.ackEvery = every
			}
			hq.ackEvery = max(hq.ackEvery, 1)
			w.delivered(0, s)
			if n := w.stat(0, regs.CoreStatTimeouts); n != 0 {
				t.Errorf("window %d, every %d acknowledged: %d timeouts", window, every, n)
			}
			if a, p := w.stat(0, regs.CoreStatAcksReceived), w.stat(0, regs.CoreStatPacketsAcked); window == 64 && a >= p {
				t.Errorf("%d acknowledgements for %d packets", a, p)
			}
			if window == 1 && w.stat(0, regs.CoreStatWindowStalls) == 0 {
				t.Error("a window of 1 never stalled")
			}
		}
	}
}

// A storm of old, future and repeated acknowledgements changes nothing.
func TestStaleAcks(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	q.psn = 0xFFFFF0
	s := streamSettings{size: 100, count: 40}
	hq, _ := w.session(q, s)
	w.delivered(0, s)
	before := w.f.qps[0]
	for i := -200; i < 200; i++ {
		for _, sy := range []roce.Syndrome{roce.ACK(31), roce.RNRNak(5), roce.Nak(0), roce.Nak(1), roce.Nak(2), roce.Nak(3)} {
			w.reply(hq.answer(hq.expected.Add(i), sy))
		}
		w.reply([]roce.Packet{{BTH: roce.BTH{Opcode: roce.ReadResponseOnly, DestQP: hq.peer, PSN: hq.expected.Add(i)}}})
	}
	w.run(time.Millisecond)
	after := w.f.qps[0]
	if got := after.count.staleAcks - before.count.staleAcks; got != 400*7 {
		t.Errorf("%d stale acknowledgements counted, want %d", got, 400*7)
	}
	after.count.staleAcks = before.count.staleAcks
	if after.count != before.count || after.state != before.state || after.una != before.una || after.timer != before.timer {
		t.Errorf("stale acknowledgements changed %+v to %+v", before.count, after.count)
	}
}

func TestFatalNAKs(t *testing.T) {
	for code, want := range map[roce.NakCode]uint32{
		roce.InvalidRequest:    regs.CoreStatStateCauseRemoteInvalidRequest,
		roce.RemoteAccess:      regs.CoreStatStateCauseRemoteAccess,
		roce.RemoteOperational: regs.CoreStatStateCauseRemoteOperational,
	} {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		hq, _ := w.session(defaults(), streamSettings{size: 100})
		w.run(time.Millisecond)
		hq.refuse = roce.Nak(code)
		w.until("error", time.Second, func() bool { return w.f.qps[0].state == qpError })
		if _, cause := w.qpState(0); cause != want {
			t.Errorf("%v: cause %d, want %d", code, cause, want)
		}
		if n := w.stat(0, regs.CoreStatFatalNAKs); n != 1 {
			t.Errorf("%v: %d fatal NAKs", code, n)
		}
		if w.streamState(0) != regs.StreamStatStateStateError {
			t.Errorf("%v: the stream is not in Error", code)
		}
		sent := w.stat(0, regs.CoreTxPackets)
		w.run(time.Second)
		if n := w.stat(0, regs.CoreTxPackets); n != sent {
			t.Errorf("%v: %d packets sent in Error", code, n-sent)
		}
	}
}

// A peer that answers every packet with a sequence NAK ends in Error after the
// retries, not never.
func TestEndlessSequenceNAKs(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	hq, _ := w.session(defaults(), streamSettings{size: 100, count: 1})
	hq.refuse = roce.Nak(roce.PSNSequenceError)
	w.until("error", time.Second, func() bool { return w.f.qps[0].state == qpError })
	if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseRetryExceeded {
		t.Errorf("cause %d", cause)
	}
	if n := w.stat(0, regs.CoreStatSequenceNAKs); n != 8 {
		t.Errorf("%d sequence NAKs taken, want 8", n)
	}
}

// A sequence NAK acknowledges what is before it and is enough to recover: no
// timeout is needed.
func TestSequenceNAKRecovers(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	q.timeout = 0
	s := streamSettings{size: 20 * 1024, count: 2}
	hq, _ := w.session(q, s)
	n := 0
	w.lose = func(toHost bool, _ *roce.Packet) bool {
		if toHost {
			n++
		}
		return toHost && n == 5
	}
	w.delivered(0, s)
	if hq.naks != 1 || w.stat(0, regs.CoreStatSequenceNAKs) != 1 {
		t.Errorf("%d NAKs sent, %d received; want 1", hq.naks, w.stat(0, regs.CoreStatSequenceNAKs))
	}
}

// Copies of a sequence NAK are one failure, not several.
func TestRepeatedSequenceNAK(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	q.retries = 1
	s := streamSettings{size: 100, count: 1}
	hq, _ := w.session(q, s)
	hq.mute = true
	w.run(time.Millisecond)
	for range 5 {
		w.reply(hq.answer(q.psn, roce.Nak(roce.PSNSequenceError)))
	}
	hq.mute = false
	w.delivered(0, s)
	if n := w.stat(0, regs.CoreStatSequenceNAKs); n == 0 {
		t.Error("no sequence NAK was taken")
	}
}

// READ responses that are lost are asked for again from where they are missing.
func TestReadResumes(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	q.timeout = 0 // the gap alone must do
	s := streamSettings{verb: regs.StreamConfigVerbRead, size: 20 * 1024, count: 3}
	hq, _ := w.session(q, s)
	w.gap = time.Microsecond // one response after the other shows the gap
	n := 0
	w.lose = func(toHost bool, p *roce.Packet) bool {
		if !toHost {
			n++
		}
		return !toHost && (n == 7 || n == 8)
	}
	var asked []uint32
	w.tap = func(b []byte) {
		var f roce.Frame
		if err := f.Decode(b); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, f.Packet.RETH.Length)
	}
	w.delivered(0, s)
	if gaps := w.stat(0, regs.CoreStatReadGaps); gaps == 0 {
		t.Error("no gap seen")
	}
	// Three requests, then the first again without the 6 KiB that came, and
	// those behind it.
	if want := []uint32{20480, 20480, 20480, 14336, 20480, 20480}; !slices.Equal(asked, want) {
		t.Errorf("requests of %d bytes, want %d", asked, want)
	}
	if hq.duplicates != 3 {
		t.Errorf("%d requests repeated", hq.duplicates)
	}
}

// Responses that are lost again cost one timeout, not one each.
func TestReadResumesAfterTimeout(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	w.gap = time.Microsecond
	s := streamSettings{verb: regs.StreamConfigVerbRead, size: 20 * 1024, count: 1}
	q := defaults()
	w.session(q, s)
	lost := 0
	w.lose = func(toHost bool, p *roce.Packet) bool {
		if toHost || p.PSN != q.psn.Add(6) || lost == 3 {
			return false
		}
		lost++
		return true
	}
	w.delivered(0, s)
	// Lost at first: a gap. Lost when asked again: nothing new, a timeout.
	// Lost after that: a gap.
	if n := w.stat(0, regs.CoreStatTimeouts); n != 1 {
		t.Errorf("%d timeouts, want 1", n)
	}
}

// A peer that is there but not ready is waited for, whatever is lost between.
func TestNotReadyIsNoFailure(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	s := streamSettings{size: 100, count: 1}
	hq, _ := w.session(defaults(), s)
	hq.notReady = 1
	n := 0
	w.lose = func(toHost bool, p *roce.Packet) bool {
		n++
		return toHost && n%4 != 0 // three of four requests, each a timeout
	}
	w.run(2 * time.Second)
	if st, cause := w.qpState(0); st != regs.CoreStatStateStateReady {
		t.Fatalf("state %d, cause %d", st, cause)
	}
	if n := w.stat(0, regs.CoreStatTimeouts); n < 20 {
		t.Errorf("only %d timeouts", n)
	}
	w.lose, hq.notReady = nil, 0
	w.delivered(0, s)
}

// A copy of an RNR NAK neither counts as a retry nor makes the wait longer.
func TestRepeatedRNR(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	q.rnrRetries = 1
	s := streamSettings{size: 100, count: 1}
	hq, _ := w.session(q, s)
	hq.notReady, hq.rnrCode = 1, 12 // 0.64 ms
	w.run(20 * time.Microsecond)
	asked := w.now
	for range 10 {
		w.run(50 * time.Microsecond)
		w.reply(hq.answer(q.psn, roce.RNRNak(12)))
	}
	hq.notReady = 0
	w.delivered(0, s)
	if d := w.now - asked; d > 700*time.Microsecond {
		t.Errorf("sent after %v, want 0.64 ms after the first RNR NAK", d)
	}
	if n := w.stat(0, regs.CoreStatRNRNAKs); n != 11 {
		t.Errorf("%d RNR NAKs counted, want 11", n)
	}
	if n := w.stat(0, regs.CoreStatRNRMessages); n != 1 {
		t.Errorf("%d messages waited, want 1", n)
	}
}

// A response that contradicts its request ends the queue pair; one with a wrong
// ICRC is only lost.
func TestBadResponses(t *testing.T) {
	for name, bad := range map[string]func(p *roce.Packet){
		"opcode of a first":    func(p *roce.Packet) { p.Opcode = roce.ReadResponseOnly },
		"middle as first":      func(p *roce.Packet) { p.Opcode = roce.ReadResponseMiddle },
		"short":                func(p *roce.Packet) { p.Payload = p.Payload[:len(p.Payload)-4] },
		"long":                 func(p *roce.Packet) { p.Payload = append(p.Payload, 0, 0, 0, 0) },
		"negative":             func(p *roce.Packet) { p.AETH.Syndrome = roce.Nak(roce.RemoteAccess) },
		"last before its time": func(p *roce.Packet) { p.Opcode = roce.ReadResponseLast },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
			hq, _ := w.session(defaults(), streamSettings{verb: regs.StreamConfigVerbRead, size: 4096, count: 1})
			hq.tamper = func(out []roce.Packet) { bad(&out[0]) }
			w.until("error", time.Second, func() bool { return w.f.qps[0].state == qpError })
			if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseBadResponse {
				t.Errorf("cause %d", cause)
			}
		})
	}
	t.Run("a second first", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		hq, _ := w.session(defaults(), streamSettings{verb: regs.StreamConfigVerbRead, size: 4096, count: 1})
		hq.tamper = func(out []roce.Packet) { out[1].Opcode = roce.ReadResponseFirst }
		w.until("error", time.Second, func() bool { return w.f.qps[0].state == qpError })
		if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseBadResponse || w.stat(0, regs.CoreStatReadResponses) != 1 {
			t.Errorf("cause %d after %d responses", cause, w.stat(0, regs.CoreStatReadResponses))
		}
	})
	t.Run("response to a SEND", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		hq, _ := w.session(defaults(), streamSettings{size: 100, count: 1})
		hq.mute = true
		w.run(time.Millisecond)
		w.reply([]roce.Packet{{BTH: roce.BTH{Opcode: roce.ReadResponseOnly, DestQP: hq.peer, PSN: hq.expected}}})
		w.run(time.Millisecond)
		if st, cause := w.qpState(0); st != regs.CoreStatStateStateError || cause != regs.CoreStatStateCauseBadResponse {
			t.Errorf("state %d, cause %d", st, cause)
		}
	})
}

// Sixteen queue pairs at once, of every verb, over a bad network.
func TestSixteenQueuePairs(t *testing.T) {
	w := newWorld(t, Config{MaxWindow: 64}, FaultConfig{Drop: 1, Reorder: 1, Duplicate: 1, Corrupt: 1, Seed: 9})
	var all []streamSettings
	for i := range 16 {
		q := defaults()
		q.index = i
		q.psn = roce.PSN(0x1000*i) & roce.PSNMask
		q.mtu = roce.MTU(256 << (i % 5))
		s := streamSettings{index: i, verb: uint32(i % 5), size: uint32(1000 * (i + 1)), count: 60, crc: i%2 == 0, kind: uint32(i % 2)}
		w.session(q, s)
		all = append(all, s)
	}
	for _, s := range all {
		w.delivered(s.index, s)
	}
}

// What the port does not take is offered again and counts once.
func TestPortBackpressure(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 2}, FaultConfig{})
	s := streamSettings{size: 10 * 1024, count: 30}
	var hosts []*hostQP
	for i := range 2 {
		q := defaults()
		q.index = i
		s.index = i
		hq, _ := w.session(q, s)
		hosts = append(hosts, hq)
	}
	n := 0
	for w.f.streams[0].state < streamStopped || w.f.streams[1].state < streamStopped {
		n++
		w.refuse = n * 7 % 13
		if !w.tick(w.now + time.Second) {
			t.Fatal("stuck")
		}
	}
	for i, hq := range hosts {
		s.index = i
		w.delivered(i, s)
		if hq.requests != 300 || hq.duplicates != 0 {
			t.Errorf("host %d: %d requests, %d of them twice; want 300", i, hq.requests, hq.duplicates)
		}
	}
	if got := w.stat(0, regs.CoreTxPackets); got != 600 {
		t.Errorf("TxPackets = %d, want 600", got)
	}
}
