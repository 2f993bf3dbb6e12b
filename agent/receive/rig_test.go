package receive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
	"rocelink/fpga/pattern"
)

// patience bounds every wait of the tests.
const patience = 20 * time.Second

// rig is a loop on a scripted device, and the peer that sends to it.
type rig struct {
	testing.TB
	cfg      Config
	provider *scripted.Provider
	cq       *scripted.CompletionQueue
	qp       *scripted.QueuePair
	mr       *scripted.MemoryRegion
	mem      *verbs.Memory
	loop     *Loop
	ended    chan error
	windows  []*rocelink.Window
}

type funcSink func(*Frame) Verdict

func (f funcSink) Take(frame *Frame) Verdict { return f(frame) }

var discard = funcSink(func(*Frame) Verdict { return 0 })

// newRig makes everything up to RTR. Fields of c that are not set get small
// values; a credit word is kept unless CreditOffset is negative.
func newRig(t testing.TB, c Config, sc scripted.Config) *rig {
	t.Helper()
	r := &rig{TB: t, provider: scripted.New(sc), ended: make(chan error, 1)}
	if c.Slots == 0 {
		c.Slots = 8
	}
	if c.FrameBytes == 0 {
		c.FrameBytes = 64
	}
	if c.Stride == 0 {
		c.Stride = (c.FrameBytes + rocelink.TrailerBytes + 7) &^ 7
	}
	if c.Sink == nil {
		c.Sink = discard
	}
	size := int(c.Slots) * int(c.Stride)
	switch {
	case c.CreditOffset < 0 || c.Verb != rocelink.VerbWrite:
		c.CreditOffset = 0
	case c.CreditOffset == 0:
		c.CreditOffset = size
	}
	mem, err := verbs.AllocMemory(size+8, false)
	r.must(err)
	t.Cleanup(func() { _ = mem.Free() })
	dev, err := r.provider.Open("")
	r.must(err)
	pd, err := dev.AllocPD()
	r.must(err)
	mr, err := pd.Register(mem, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	r.must(err)
	cq, err := dev.CreateCQ(int(c.Slots) + 64)
	r.must(err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: int(c.Slots)})
	r.must(err)
	r.must(qp.Init(verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead))
	c.QP, c.CQ, c.Memory, c.LKey = qp, inOneCall(cq), mem, mr.LKey()
	r.loop, err = New(c)
	r.must(err)
	r.cfg, r.mem = r.loop.cfg, mem
	r.cq, r.qp, r.mr = cq.(*scripted.CompletionQueue), qp.(*scripted.QueuePair), mr.(*scripted.MemoryRegion)
	r.must(r.loop.Prepare())
	r.must(qp.ReadyToReceive(verbs.PeerAttributes{MTU: 1024, Address: netip.MustParseAddr("192.0.2.9")}))
	r.must(qp.ReadyToSend(0))
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// run starts the loop; windows are gathered until it ends.
func (r *rig) run() {
	gathered := make(chan struct{})
	go func() {
		for w := range r.loop.Windows() {
			r.windows = append(r.windows, w)
		}
		close(gathered)
	}()
	go func() {
		err := r.loop.Run()
		<-gathered
		r.ended <- err
	}()
}

// wait waits until the loop has ended and checks what always holds then.
func (r *rig) wait() error {
	r.Helper()
	var err error
	select {
	case err = <-r.ended:
	case <-time.After(patience):
		buf := make([]byte, 1<<16)
		r.Fatalf("the loop did not end\n%s", buf[:runtime.Stack(buf, true)])
	}
	r.checkWindows()
	return err
}

// stop ends the loop as an owner does.
func (r *rig) stop() {
	r.Helper()
	r.loop.Stop()
	r.must(r.qp.SetError())
	if err := r.wait(); err != nil {
		r.Errorf("Run after Stop: %v", err)
	}
	if n := r.loop.outstanding; n != 0 {
		r.Errorf("%d receives outstanding after Stop", n)
	}
}

// last is the last window.
func (r *rig) last() *rocelink.Window {
	r.Helper()
	if len(r.windows) == 0 {
		r.Fatal("no window was published")
	}
	return r.windows[len(r.windows)-1]
}

// checkWindows checks that the windows add up to the totals, follow each other,
// and that only the last one is the last.
func (r *rig) checkWindows() {
	r.Helper()
	var sum rocelink.Totals
	var inStatus rocelink.Count
	for i, w := range r.windows {
		sum.Add(rocelink.Totals{Messages: w.Messages, Bytes: w.Bytes, Missing: w.Missing, Duplicate: w.Duplicate, Late: w.Late,
			Overrun: w.Overrun, Corrupt: w.Corrupt, Accepted: w.Accepted, Verified: w.Verified})
		for _, n := range w.ByStatus {
			inStatus += n
		}
		if got := w.End.Sub(w.Start); int64(got) != w.DurationNS || got < 0 {
			r.Errorf("window %d: duration %d, but %v from start to end", i, w.DurationNS, got)
		}
		// The first batch after idleness came before the window's start: with it
		// the rate could be more than the wire carries.
		full := 8 * float64(w.Bytes) / (float64(w.DurationNS) / 1e9)
		switch {
		case w.DurationNS == 0:
		case w.FirstPacket == nil && w.BitsPerSecond != full:
			r.Errorf("window %d: %v b/s, want %v", i, w.BitsPerSecond, full)
		case w.FirstPacket != nil && w.Batches < 2 && w.BitsPerSecond != 0:
			r.Errorf("window %d: %v b/s of one batch", i, w.BitsPerSecond)
		case w.FirstPacket != nil && w.BitsPerSecond > full:
			r.Errorf("window %d: %v b/s, %v with the first batch", i, w.BitsPerSecond, full)
		}
		if i > 0 && w.Start.Before(r.windows[i-1].End) {
			r.Errorf("window %d starts before the end of the one before", i)
		}
		if w.Last != (i == len(r.windows)-1) || w.Last != (w.Reason != "") {
			r.Errorf("window %d of %d: last %v, reason %q", i+1, len(r.windows), w.Last, w.Reason)
		}
		if w.FirstPacket != nil && !w.FirstPacket.Equal(w.Start) {
			r.Errorf("window %d: first packet at %v, start at %v", i, w.FirstPacket, w.Start)
		}
		if w.MinGapNS > w.MaxGapNS || w.MaxGapNS > 0 && w.Batches == 0 {
			r.Errorf("window %d: gaps %d to %d in %d batches", i, w.MinGapNS, w.MaxGapNS, w.Batches)
		}
	}
	total := r.last().Total
	if total != r.loop.Totals() {
		r.Errorf("total of the last window %+v, of the loop %+v", total, r.loop.Totals())
	}
	if r.loop.Dropped() > 0 {
		return // some were not seen
	}
	if inStatus != total.Errors+total.Flushed {
		r.Errorf("%d completions by status, %d errors and %d flushes", inStatus, total.Errors, total.Flushed)
	}
	sum.Errors, sum.Flushed = total.Errors, total.Flushed
	if sum != total {
		r.Errorf("windows add up to\n%+v, the total is\n%+v", sum, total)
	}
}

// frame makes the counter frame of a sequence.
func frame(q uint64, length int) []byte {
	b := make([]byte, length)
	pattern.Fill(b, pattern.Counter, q)
	return b
}

var errBlocked = errors.New("the peer may not send")

// try sends a frame as the verb does, unless the peer may not.
func (r *rig) try(q uint64, data []byte) error {
	offset := int(q%uint64(r.cfg.Slots)) * int(r.cfg.Stride)
	m := scripted.Message{Data: data, Imm: uint32(q)}
	switch r.cfg.Verb {
	case rocelink.VerbSendImm:
		m.WithImm = true
	case rocelink.VerbWriteImm:
		m.Write, m.Region, m.Offset = true, r.mr, offset
	case rocelink.VerbWrite:
		if r.cfg.CreditOffset != 0 && q >= r.credit()+uint64(r.cfg.Slots) {
			return errBlocked
		}
		if err := r.mr.Write(offset, data); err != nil {
			return err
		}
		return r.trailer(q, uint32(len(data)), q+1)
	}
	err := r.qp.Deliver(m)
	if errors.Is(err, scripted.ErrNoReceive) {
		return errBlocked
	}
	return err
}

// trailer writes the trailer of the slot of q.
func (r *rig) trailer(q uint64, length uint32, word uint64) error {
	var b [rocelink.TrailerBytes]byte
	binary.LittleEndian.PutUint32(b[:], length)
	binary.LittleEndian.PutUint64(b[8:], word)
	slot := int(q % uint64(r.cfg.Slots))
	return r.mr.Write((slot+1)*int(r.cfg.Stride)-len(b), b[:])
}

func (r *rig) credit() uint64 {
	return littleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.mem.Bytes()[r.cfg.CreditOffset]))))
}

// send sends a frame as soon as the peer may.
func (r *rig) send(q uint64, data []byte) {
	r.Helper()
	r.until(func() bool {
		err := r.try(q, data)
		if err != nil && !errors.Is(err, errBlocked) {
			r.Fatal(err)
		}
		return err == nil
	}, "frame %d can be sent", q)
}

// sendAll sends the frames from..to-1.
func (r *rig) sendAll(from, to uint64) {
	r.Helper()
	for q := from; q < to; q++ {
		r.send(q, frame(q, int(r.cfg.FrameBytes)))
	}
}

// until polls a condition, with a bound.
func (r *rig) until(cond func() bool, format string, args ...any) {
	r.Helper()
	for end := time.Now().Add(patience); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			r.Fatalf("waited in vain until %s; totals %+v", fmt.Sprintf(format, args...), r.loop.Totals())
		}
	}
}

// seen waits until so many messages were handled.
func (r *rig) seen(n uint64) {
	r.Helper()
	r.until(func() bool { return uint64(r.loop.Totals().Messages) >= n }, "%d messages were seen", n)
}

// balance checks, on the loop's thread, that no slot or credit is lost.
func (r *rig) balance() {
	l := r.loop
	switch l.kind {
	case kindSend:
		posted := 0
		for _, p := range l.posted {
			if p {
				posted++
			}
		}
		// A failed completion need not say which receive it was.
		lost := posted - l.outstanding
		if lost != 0 && (lost < 0 || !l.leaving) || posted+l.held+l.free.n != int(r.cfg.Slots) {
			r.Errorf("%d posted (%d counted) + %d held + %d to be posted, of %d slots", posted, l.outstanding, l.held, l.free.n, r.cfg.Slots)
		}
	case kindWriteImm:
		if l.outstanding > int(r.cfg.Slots)-1 || l.ring.holding > l.held || l.ring.floor > l.seq.next {
			r.Errorf("%d posted, %d slots held (%d lent), floor %d, next %d", l.outstanding, l.ring.holding, l.held, l.ring.floor, l.seq.next)
		}
	case kindWrite:
		if l.ring.holding > l.held || l.ring.floor > l.ring.next || l.ring.granted > l.ring.floor {
			r.Errorf("%d slots held (%d lent), granted %d, floor %d, next %d", l.ring.holding, l.held, l.ring.granted, l.ring.floor, l.ring.next)
		}
	}
}

// streaming is the verbs that bring frames.
var streaming = []rocelink.Verb{rocelink.VerbSend, rocelink.VerbSendImm, rocelink.VerbWriteImm, rocelink.VerbWrite}

// completing is the verbs that bring completions.
var completing = streaming[:3]

var modes = []struct {
	name string
	mode Mode
}{{"event", Event}, {"busy", Busy}}

// cross runs a test for each verb and mode.
func cross(t *testing.T, vs []rocelink.Verb, test func(*testing.T, Config)) {
	for _, v := range vs {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s/%s", v, m.name), func(t *testing.T) { test(t, Config{Verb: v, Mode: m.mode}) })
		}
	}
}
