//go:build linux && cgo && ibverbs

package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
	"rocelink/fpga/pattern"
)

const (
	loopSlots  = 16
	loopFrame  = 64
	loopStride = loopFrame + rocelink.TrailerBytes
	creditAt   = loopSlots * loopStride
)

// session is the receive loop over the provider, and the peer that sends to it.
type session struct {
	*rig
	verb    rocelink.Verb
	loop    *receive.Loop
	ended   chan error
	next    uint64 // frame
	mu      sync.Mutex
	windows []*rocelink.Window
}

// verifying is a sink that checks frames and counts them.
func verifying() receive.Sink {
	return sink.Func(func(f *receive.Frame) receive.Verdict {
		if pattern.Check(f.Data, pattern.Counter, f.Sequence) >= 0 {
			return receive.Corrupt
		}
		return receive.Verified
	})
}

// newSession makes a loop that runs.
func newSession(t testing.TB, verb rocelink.Verb, mode receive.Mode, s receive.Sink) *session {
	t.Helper()
	g := newRig(t, loopSlots, creditAt+8)
	n := &session{rig: g, verb: verb, ended: make(chan error, 1)}
	g.must(g.qp.Init(allAccess))
	if s == nil {
		s = verifying()
	}
	c := receive.Config{
		QP: g.qp, CQ: g.cq, Memory: g.mem, LKey: g.mr.LKey(), Verb: verb, Slots: loopSlots, Stride: loopStride, FrameBytes: loopFrame,
		Sink: s, Mode: mode, Window: 20 * time.Millisecond, Pattern: pattern.Counter,
	}
	if verb == rocelink.VerbWrite {
		c.CreditOffset = creditAt
	}
	loop, err := receive.New(c)
	g.must(err)
	n.loop = loop
	g.must(loop.Prepare())
	g.connect()
	go func() {
		for w := range loop.Windows() {
			n.mu.Lock()
			n.windows = append(n.windows, w)
			n.mu.Unlock()
		}
	}()
	go func() { n.ended <- loop.Run() }()
	return n
}

// credit reads how many frames were released, as the peer reads it.
func (n *session) credit() uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], atomic.LoadUint64((*uint64)(unsafe.Pointer(&n.mem.Bytes()[creditAt]))))
	return binary.LittleEndian.Uint64(b[:])
}

// send has the peer send the next frame as the verb does; EAGAIN if it may not
// yet.
func (n *session) send() error {
	q := n.next
	data := make([]byte, loopFrame)
	pattern.Fill(data, pattern.Counter, q)
	at := n.mr.Address() + q%loopSlots*loopStride
	m := double.Message{Data: data}
	switch n.verb {
	case rocelink.VerbSendImm:
		m.WithImm, m.Imm = true, uint32(q)
	case rocelink.VerbWriteImm:
		m = double.Message{Write: true, WithImm: true, Imm: uint32(q), Address: at, RKey: n.mr.RKey(), Data: data}
	case rocelink.VerbWrite:
		if q >= n.credit()+loopSlots {
			return syscall.EAGAIN
		}
		m = double.Message{Write: true, Address: at, RKey: n.mr.RKey(), Data: data}
	}
	err := double.Deliver(n.qpn(), m)
	if err != nil {
		return err
	}
	if n.verb == rocelink.VerbWrite {
		// The sequence word is what the peer writes last.
		var trailer [rocelink.TrailerBytes]byte
		binary.LittleEndian.PutUint32(trailer[:], loopFrame)
		binary.LittleEndian.PutUint64(trailer[8:], q+1)
		end := (q%loopSlots + 1) * loopStride
		verbs.Place(n.mem.Bytes()[end-rocelink.TrailerBytes:end], trailer[:])
	}
	n.next++
	return nil
}

// sendAll sends so many frames, waiting for receives.
func (n *session) sendAll(count int) {
	n.Helper()
	for range count {
		until(n, "the peer may send", func() bool {
			err := n.send()
			if err != nil && !errors.Is(err, syscall.EAGAIN) {
				n.Fatal(err)
			}
			return err == nil
		})
	}
}

func (n *session) seen(count uint64) {
	n.Helper()
	until(n, fmt.Sprintf("%d messages were seen, %+v", count, n.loop.Totals()), func() bool { return uint64(n.loop.Totals().Messages) >= count })
}

// wait waits until the loop has ended, and returns its last window and error.
func (n *session) wait() (*rocelink.Window, error) {
	n.Helper()
	select {
	case err := <-n.ended:
		var last *rocelink.Window
		until(n, "the last window came", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.windows) > 0 {
				last = n.windows[len(n.windows)-1]
			}
			return last != nil && last.Last
		})
		return last, err
	case <-time.After(limit):
		n.Fatalf("the loop did not end; %+v", n.loop.Totals())
	}
	panic("unreachable")
}

// stop ends the loop as its owner does: nothing may be left over.
func (n *session) stop() {
	n.Helper()
	n.loop.Stop()
	n.must(n.qp.SetError())
	w, err := n.wait()
	if err != nil || w.Reason != "stopped" {
		n.Errorf("Run: %v, reason %q", err, w.Reason)
	}
	if left := double.Posted(n.qpn()); left != 0 {
		n.Errorf("%d receives are still posted", left)
	}
}

var (
	streaming  = []rocelink.Verb{rocelink.VerbSend, rocelink.VerbSendImm, rocelink.VerbWriteImm, rocelink.VerbWrite}
	completing = streaming[:3]
)

// credits is how many receives a verb keeps posted.
func credits(v rocelink.Verb) int {
	switch v {
	case rocelink.VerbWriteImm:
		return loopSlots - 1
	case rocelink.VerbWrite:
		return 0
	}
	return loopSlots
}

// each runs a test for each verb that brings frames, in both modes.
func each(t *testing.T, test func(*testing.T, rocelink.Verb, receive.Mode)) {
	for _, v := range streaming {
		for name, m := range map[string]receive.Mode{"event": receive.Event, "busy": receive.Busy} {
			t.Run(string(v)+"/"+name, func(t *testing.T) { test(t, v, m) })
		}
	}
}

// TestLoopReceives: all frames arrive and are right, nothing is lost over many
// laps, and at rest all credits are posted.
func TestLoopReceives(t *testing.T) {
	each(t, func(t *testing.T, v rocelink.Verb, m receive.Mode) {
		const frames = 5000
		n := newSession(t, v, m, nil)
		n.sendAll(frames)
		n.seen(frames)
		until(t, "all credits are posted", func() bool { return double.Posted(n.qpn()) == credits(v) })
		n.stop()
		total := n.loop.Totals()
		want := rocelink.Totals{Messages: frames, Bytes: frames * loopFrame, Accepted: frames, Verified: frames, Flushed: rocelink.Count(credits(v))}
		if total != want {
			t.Errorf("totals\n%+v, want\n%+v", total, want)
		}
	})
}

// TestLoopSleepsAndWakes: with the queue armed a single message wakes the loop,
// again and again.
func TestLoopSleepsAndWakes(t *testing.T) {
	n := newSession(t, rocelink.VerbSend, receive.Event, nil)
	for i := range 200 {
		if i%50 == 0 {
			until(t, "the loop sleeps", func() bool { return *n.cq.guard.in() != 0 })
		}
		n.sendAll(1)
		n.seen(n.next)
	}
	n.stop()
}

// TestLoopRNR: a consumer that keeps its slots makes the receiver not ready; the
// peer goes on when it lets go, and no credit is lost.
func TestLoopRNR(t *testing.T) {
	for _, v := range completing {
		t.Run(string(v), func(t *testing.T) {
			kept := make(chan receive.Frame, loopSlots)
			n := newSession(t, v, receive.Event, sink.Func(func(f *receive.Frame) receive.Verdict {
				kept <- *f
				return receive.Kept
			}))
			for range 5 {
				n.sendAll(credits(v))
				n.seen(n.next)
				if err := n.send(); !errors.Is(err, syscall.EAGAIN) {
					t.Fatalf("the peer was not held up: %v", err)
				}
				for range credits(v) {
					(<-kept).Release()
				}
				until(t, "all credits are posted", func() bool { return double.Posted(n.qpn()) == credits(v) })
			}
			n.stop()
			if total := n.loop.Totals(); total.Messages != rocelink.Count(5*credits(v)) || total.Errors != 0 || total.Lost() != 0 {
				t.Errorf("%+v", total)
			}
		})
	}
}

// TestLoopStopsWhileReleasing: slots are given back at the moment the loop is
// stopped and the queue pair set to error. None is posted too late to be flushed.
func TestLoopStopsWhileReleasing(t *testing.T) {
	for range 100 {
		kept := make(chan receive.Frame, loopSlots)
		n := newSession(t, rocelink.VerbSend, receive.Busy, sink.Func(func(f *receive.Frame) receive.Verdict {
			kept <- *f
			return receive.Kept
		}))
		n.sendAll(loopSlots)
		n.seen(loopSlots)
		go func() {
			for range loopSlots {
				(<-kept).Release()
			}
		}()
		n.stop()
		n.close()
	}
}

// TestLoopErrors has each error end the loop: the first cause is shown, flushes
// and credits add up, and a new session on the same device works.
func TestLoopErrors(t *testing.T) {
	const before = 37
	for _, c := range []struct {
		name    string
		verbs   []rocelink.Verb
		provoke func(*session)
		is      error
		says    string
		// errors counted beside the flushes; flushed is less than all receives
		// by what the error consumed
		errors, consumed int
		event            verbs.EventKind
		lost             bool // completions are lost with the queue
	}{
		{name: "local length error", verbs: completing[:2], is: &receive.CompletionError{Status: verbs.LocalLengthError}, says: "longer than the receive buffer",
			errors: 1, consumed: 1, provoke: func(n *session) {
				m := double.Message{Data: make([]byte, loopFrame+1), WithImm: n.verb == rocelink.VerbSendImm}
				if err := double.Deliver(n.qpn(), m); !errors.Is(err, syscall.EMSGSIZE) {
					n.Error(err)
				}
			}},
		{name: "local protection error", verbs: completing, is: &receive.CompletionError{Status: verbs.LocalProtectionError}, errors: 1, consumed: 1,
			provoke: func(n *session) { n.must(double.Fault(n.qpn(), int(verbs.LocalProtectionError), 0x52)) }},
		{name: "fatal error", verbs: completing, is: &receive.CompletionError{Status: verbs.FatalError}, errors: 1, consumed: 1,
			provoke: func(n *session) { n.must(double.Fault(n.qpn(), int(verbs.FatalError), 1)) }},
		// The loop finds a flushed receive, or that the queue pair takes no more,
		// whichever comes first: what happened is in the event.
		{name: "peer's access violation", verbs: completing, says: "queue pair", event: verbs.EventQPFatal,
			provoke: func(n *session) {
				err := double.Deliver(n.qpn(), double.Message{Write: true, Address: n.mr.Address() + n.mr.Length() - 1, RKey: n.mr.RKey(), Data: []byte("xx")})
				if !errors.Is(err, syscall.EACCES) {
					n.Error(err)
				}
			}},
		{name: "flushed", verbs: completing, is: &receive.CompletionError{Status: verbs.WorkRequestFlushed},
			provoke: func(n *session) { n.must(double.Fault(n.qpn(), 0, 0)) }},
		{name: "device removed", verbs: completing, is: verbs.ErrNoDevice, says: "removed or has failed", event: verbs.EventDeviceRemoved, lost: true,
			provoke: func(*session) { double.Remove(0) }},
		{name: "device fatal", verbs: completing, is: verbs.ErrNoDevice, says: "removed or has failed", event: verbs.EventDeviceRemoved, lost: true,
			provoke: func(n *session) { n.must(double.Emit(0, double.EventDeviceFatal, 0, 0)) }},
		{name: "post fails", verbs: completing, is: verbs.ErrAccess, says: "post receive",
			provoke: func(n *session) {
				double.Fail("post_recv", syscall.EINVAL, 0, 1)
				n.sendAll(1)
			}, consumed: 1},
		{name: "poll fails", verbs: completing, says: "poll completion queue", lost: true, is: receive.ErrNotDrained,
			provoke: func(*session) { double.Fail("poll_cq", syscall.EINVAL, 0, 1) }},
	} {
		for _, v := range c.verbs {
			for mode, m := range map[string]receive.Mode{"event": receive.Event, "busy": receive.Busy} {
				t.Run(c.name+"/"+string(v)+"/"+mode, func(t *testing.T) {
					n := newSession(t, v, m, nil)
					n.sendAll(before)
					n.seen(before)
					until(t, "all credits are posted", func() bool { return double.Posted(n.qpn()) == credits(v) })
					c.provoke(n)
					w, err := n.wait()
					wantCause(t, err, c.is, c.says)
					if w.Reason == "" || "receive loop: "+w.Reason != err.Error() {
						t.Errorf("reason %q of error %v", w.Reason, err)
					}
					total := n.loop.Totals()
					flushed := credits(v) - c.consumed
					if c.lost {
						flushed = 0
						wantCause(t, err, receive.ErrNotDrained, fmt.Sprintf("%d receives still posted", credits(v)))
					} else if errors.Is(err, receive.ErrNotDrained) {
						t.Errorf("not drained: %v", err)
					}
					if int(total.Errors) != c.errors || int(total.Flushed) != flushed || total.Messages != rocelink.Count(n.next) || total.Verified != total.Messages {
						t.Errorf("%d errors, %d flushed, want %d, %d; totals %+v", total.Errors, total.Flushed, c.errors, flushed, total)
					}
					if c.event != 0 {
						if e := n.event(); e.Kind != c.event {
							t.Errorf("event %+v", e)
						}
					}
					n.close()
					again := newSession(t, v, m, nil)
					again.sendAll(before)
					again.seen(before)
					again.stop()
				})
			}
		}
	}
}

// wantCause is wantError for errors that may have more than one line.
func wantCause(t testing.TB, err, is error, says string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Errorf("error %v, want %v", err, is)
		return
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%q does not say %q", err, says)
	}
}

// TestLoopRequesterErrors: errors that a send queue reports come through the
// same completion queue, with a work request that means nothing. They are shown
// as the cause, and no receive is taken for them.
func TestLoopRequesterErrors(t *testing.T) {
	for _, s := range []verbs.Status{verbs.RemoteAccessError, verbs.RetryExceeded, verbs.RNRRetryExceeded, verbs.RemoteInvalidRequest, verbs.ResponseTimeout} {
		t.Run(s.String(), func(t *testing.T) {
			n := newSession(t, rocelink.VerbSend, receive.Event, nil)
			n.sendAll(20)
			n.seen(20)
			until(t, "all credits are posted", func() bool { return double.Posted(n.qpn()) == loopSlots })
			// As a device does: the error first, then the flushes.
			n.must(double.Complete(n.qpn(), double.Completion{ID: 1 << 60, Status: int(s), VendorError: 0x81}))
			n.must(n.qp.SetError())
			w, err := n.wait()
			wantCause(t, err, &receive.CompletionError{Status: s}, "vendor error 0x81")
			if w.Total.Errors != 1 || w.Total.Flushed < loopSlots-1 || double.Posted(n.qpn()) != 0 {
				t.Errorf("%+v", w.Total)
			}
		})
	}
}

// TestLoopOverrun: a completion queue that lost completions ends the loop, which
// says how many receives it does not know about.
func TestLoopOverrun(t *testing.T) {
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	n := newSession(t, rocelink.VerbSend, receive.Event, sink.Func(func(*receive.Frame) receive.Verdict {
		once.Do(func() {
			close(blocked)
			<-release
		})
		return 0
	}))
	n.sendAll(1)
	<-blocked // the loop is held up, the device goes on
	for i := 0; ; i++ {
		err := double.Complete(n.qpn(), double.Completion{ID: 1 << 40, Opcode: int(verbs.OpSend)})
		if errors.Is(err, syscall.EOVERFLOW) {
			break
		}
		n.must(err)
		if i > 2*loopSlots {
			t.Fatal("the queue never overran")
		}
	}
	if e := n.event(); e.Kind != verbs.EventCQError {
		t.Errorf("%+v", e)
	}
	close(release)
	w, err := n.wait()
	wantCause(t, err, verbs.ErrOverrun, "deeper")
	wantCause(t, err, receive.ErrNotDrained, fmt.Sprintf("%d receives still posted", loopSlots))
	if w.Total.Messages != 1 || w.Total.Errors == 0 || w.Total.Flushed != 0 {
		t.Errorf("%+v", w.Total)
	}
}

// TestLoopSurvivesPortFlap: the port goes down and comes back; the device says
// so, nothing is lost, and the loop goes on.
func TestLoopSurvivesPortFlap(t *testing.T) {
	each(t, func(t *testing.T, v rocelink.Verb, m receive.Mode) {
		n := newSession(t, v, m, nil)
		n.sendAll(100)
		for range 3 {
			p := defaultPort()
			p.State = double.PortDown
			double.SetPort(0, p)
			n.must(double.Emit(0, double.EventPortError, 1, 0))
			if e := n.event(); e.Kind != verbs.EventPortDown {
				t.Errorf("%+v", e)
			}
			if a, err := n.dev.Port(); err != nil || a.Active {
				t.Errorf("%+v, %v", a, err)
			}
			double.SetPort(0, defaultPort())
			n.must(double.Emit(0, double.EventPortActive, 1, 0))
			if e := n.event(); e.Kind != verbs.EventPortActive {
				t.Errorf("%+v", e)
			}
			if a, err := n.dev.Port(); err != nil || !a.Active || a.Address != hostAddress {
				t.Errorf("%+v, %v", a, err)
			}
			n.sendAll(100)
		}
		n.seen(400)
		n.stop()
		if total := n.loop.Totals(); total.Verified != 400 || total.Lost() != 0 {
			t.Errorf("%+v", total)
		}
	})
}

// TestLoopAfterGIDMoved: the stream is told, and the session that it opens anew
// uses the new index.
func TestLoopAfterGIDMoved(t *testing.T) {
	n := newSession(t, rocelink.VerbSend, receive.Event, nil)
	n.sendAll(50)
	n.seen(50)
	double.SetGIDs(0, gidsAt(12))
	n.must(double.Emit(0, double.EventGIDChange, 1, 0))
	if e := n.event(); e.Kind != verbs.EventGIDChange {
		t.Errorf("%+v", e)
	}
	n.stop()
	port, err := n.dev.Port()
	if err != nil || port.Address != hostAddress || port.GIDIndex != 12 {
		t.Fatalf("%+v, %v", port, err)
	}
	n.must(n.qp.Close())
	qp, err := n.pd.CreateQP(verbs.QPConfig{RecvCQ: n.cq, MaxReceives: loopSlots})
	n.must(err)
	n.qp = qp.(*queuePair)
	n.connect()
	for _, m := range double.Modified() {
		if m.QPN == n.qpn() && m.Mask == double.MaskRTR && m.SGIDIndex != 12 {
			t.Errorf("source GID index %d", m.SGIDIndex)
		}
	}
}

// TestLoopRestarts: four sessions in a row on one device.
func TestLoopRestarts(t *testing.T) {
	g := newRig(t, loopSlots, creditAt+8)
	for i := range 4 {
		n := &session{rig: g, verb: rocelink.VerbSendImm, ended: make(chan error, 1)}
		g.must(g.qp.Init(allAccess))
		loop, err := receive.New(receive.Config{QP: g.qp, CQ: g.cq, Memory: g.mem, LKey: g.mr.LKey(), Verb: n.verb, Slots: loopSlots,
			Stride: loopStride, FrameBytes: loopFrame, Sink: verifying()})
		g.must(err)
		n.loop = loop
		g.must(loop.Prepare())
		g.connect()
		go func() {
			for w := range loop.Windows() {
				n.mu.Lock()
				n.windows = append(n.windows, w)
				n.mu.Unlock()
			}
		}()
		go func() { n.ended <- loop.Run() }()
		n.sendAll(100)
		n.seen(100)
		n.stop()
		if total := loop.Totals(); total.Verified != 100 || total.Lost() != 0 {
			t.Errorf("session %d: %+v", i, total)
		}
		g.must(g.qp.Close())
		qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, MaxReceives: loopSlots})
		g.must(err)
		g.qp = qp.(*queuePair)
	}
}

// TestLoopZeroLengthWrite: a device that does not say how long a WRITE with
// immediate was.
func TestLoopZeroLengthWrite(t *testing.T) {
	n := newSession(t, rocelink.VerbWriteImm, receive.Event, nil)
	data := make([]byte, loopFrame)
	pattern.Fill(data, pattern.Counter, 0)
	n.must(double.Deliver(n.qpn(), double.Message{Write: true, WithImm: true, Address: n.mr.Address(), RKey: n.mr.RKey(), Data: data, SilentLength: true}))
	n.seen(1)
	n.stop()
	if total := n.loop.Totals(); total.Bytes != loopFrame || total.Verified != 1 {
		t.Errorf("%+v", total)
	}
}
