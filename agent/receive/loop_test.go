package receive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
	"rocelink/fpga/pattern"
)

// A frame of every length arrives once, whole and in order, however often the
// slots are used again.
func TestFrames(t *testing.T) {
	cross(t, streaming, func(t *testing.T, c Config) {
		lengths := []int{64, 1, 63, 8, 0, 17}
		if c.Verb == rocelink.VerbWriteImm {
			lengths = lengths[:4] // its 0 means "not known"
		}
		for _, batch := range []int{1, 3, 256} {
			var r *rig
			c.Batch = batch
			var want uint64
			c.Sink = funcSink(func(f *Frame) Verdict {
				r.balance()
				if f.Sequence != want || f.Late || len(f.Data) != lengths[want%uint64(len(lengths))] {
					t.Errorf("frame %d (late %v) of %d bytes, want %d of %d", f.Sequence, f.Late, len(f.Data), want, lengths[want%uint64(len(lengths))])
				}
				want++
				if !f.Intact() {
					t.Errorf("frame %d is not intact while the sink looks at it", f.Sequence)
				}
				if pattern.Check(f.Data, pattern.Counter, f.Sequence) >= 0 {
					return Corrupt
				}
				return Verified
			})
			r = newRig(t, c, scripted.Config{})
			r.run()
			const frames = 101
			bytes := 0
			for q := range uint64(frames) {
				n := lengths[q%uint64(len(lengths))]
				bytes += n
				r.send(q, frame(q, n))
			}
			r.seen(frames)
			r.stop()
			r.balance()
			if got, want := r.loop.Totals(), (rocelink.Totals{Messages: frames, Bytes: rocelink.Count(bytes), Accepted: frames, Verified: frames,
				Flushed: rocelink.Count(r.cfg.receives())}); got != want {
				t.Errorf("batch %d: totals %+v, want %+v", batch, got, want)
			}
			if w := r.last(); w.Reason != "stopped" || w.HeldSlots != 0 || w.Slots != 8 || w.Verb != c.Verb {
				t.Errorf("last window %+v", w)
			}
		}
	})
}

// Every error status ends the loop with its name; nothing is posted any more,
// and all that was posted comes back.
func TestErrorStatus(t *testing.T) {
	statuses := []verbs.Status{verbs.Statuses, 255}
	for s := verbs.Success + 1; s < verbs.Statuses; s++ {
		statuses = append(statuses, s)
	}
	for _, s := range statuses {
		for _, rubbish := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/rubbish=%v", s, rubbish), func(t *testing.T) {
				cross(t, completing, func(t *testing.T, c Config) {
					var late atomic.Int64
					c.Sink = funcSink(func(*Frame) Verdict { late.Add(1); return 0 })
					r := newRig(t, c, scripted.Config{RubbishIDs: rubbish})
					// All in the queue before the loop looks: the batch has
					// good ones, the error, and flushes.
					r.sendAll(0, 3)
					r.qp.Fail(s, 0x77)
					r.run()
					err := r.wait()
					var ce *CompletionError
					if !errors.As(err, &ce) || ce.Status != s || ce.VendorError != 0x77 && s != verbs.WorkRequestFlushed {
						t.Fatalf("Run: %v, want status %v", err, s)
					}
					if !errors.Is(err, &CompletionError{Status: s}) || errors.Is(err, &CompletionError{Status: s + 1}) {
						t.Errorf("%v is not found by its status", err)
					}
					if !strings.Contains(r.last().Reason, s.String()) || !strings.Contains(err.Error(), s.Remedy()) {
						t.Errorf("reason %q, error %q: want status and remedy", r.last().Reason, err)
					}
					total := r.loop.Totals()
					flushed, errs := rocelink.Count(r.cfg.receives()-4), rocelink.Count(1)
					if s == verbs.WorkRequestFlushed {
						flushed, errs = flushed+1, 0
					}
					if total.Messages != 3 || total.Accepted != 3 || late.Load() != 3 || total.Errors != errs || total.Flushed != flushed {
						t.Errorf("totals %+v", total)
					}
					if r.loop.outstanding != 0 || r.qp.PostsInError() != 0 {
						t.Errorf("%d outstanding, %d posted in error", r.loop.outstanding, r.qp.PostsInError())
					}
					if got := r.last().ByStatus[s.String()]; got == 0 {
						t.Errorf("by status: %v", r.last().ByStatus)
					}
				})
			})
		}
	}
}

// A flush that is seen first does not hide the error behind it.
func TestCauseAfterFlush(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend}, scripted.Config{})
	r.cq.Push(verbs.WorkCompletion{Status: verbs.WorkRequestFlushed, ID: 1 << 40},
		verbs.WorkCompletion{Status: verbs.RemoteAccessError, ID: 1 << 40},
		verbs.WorkCompletion{Status: verbs.FatalError, ID: 1 << 40})
	r.must(r.qp.SetError())
	r.run()
	if err := r.wait(); !errors.Is(err, &CompletionError{Status: verbs.RemoteAccessError}) {
		t.Errorf("Run: %v, want the first error that is no flush", err)
	}
}

// Good completions that make no sense.
func TestRubbish(t *testing.T) {
	good := verbs.WorkCompletion{Opcode: verbs.OpRecv, ByteLen: 8}
	with := func(change func(*verbs.WorkCompletion)) verbs.WorkCompletion {
		wc := good
		change(&wc)
		return wc
	}
	for _, test := range []struct {
		name   string
		verb   rocelink.Verb
		wc     verbs.WorkCompletion
		err    error  // nil: the loop goes on
		status string // expected in ByStatus
	}{
		{"ID out of range", rocelink.VerbSend, with(func(wc *verbs.WorkCompletion) { wc.ID = 8 }), ErrBadID, ""},
		{"ID far out of range", rocelink.VerbSend, with(func(wc *verbs.WorkCompletion) { wc.ID = 1<<64 - 1 }), ErrBadID, ""},
		{"too long", rocelink.VerbSend, with(func(wc *verbs.WorkCompletion) { wc.ByteLen = 65 }), nil, tooLong},
		{"much too long", rocelink.VerbWriteImm, verbs.WorkCompletion{Opcode: verbs.OpRecvRDMAWithImm, Flags: verbs.WithImm, ByteLen: 1<<32 - 1}, nil, tooLong},
		{"immediate not agreed", rocelink.VerbSend, with(func(wc *verbs.WorkCompletion) { wc.Flags = verbs.WithImm }), nil, "unexpected RECV with immediate"},
		{"immediate missing", rocelink.VerbSendImm, good, nil, "unexpected RECV without immediate"},
		{"write for send", rocelink.VerbSend, with(func(wc *verbs.WorkCompletion) { wc.Opcode, wc.Flags = verbs.OpRecvRDMAWithImm, verbs.WithImm }), nil, "unexpected RECV_RDMA_WITH_IMM"},
		{"send for write", rocelink.VerbWriteImm, good, nil, "unexpected RECV without immediate"},
		{"requester's", rocelink.VerbSend, with(func(wc *verbs.WorkCompletion) { wc.Opcode = verbs.OpRDMARead }), nil, "unexpected RDMA_READ"},
		{"unknown opcode", rocelink.VerbSendImm, with(func(wc *verbs.WorkCompletion) { wc.Opcode = 77 }), nil, "unexpected opcode 77"},
		{"plain write", rocelink.VerbWrite, good, nil, "unexpected RECV without immediate"},
		{"read", rocelink.VerbRead, good, nil, "unexpected RECV without immediate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, Config{Verb: test.verb, Mode: Busy}, scripted.Config{})
			taken := 0
			r.loop.cfg.Sink = funcSink(func(*Frame) Verdict { taken++; return 0 })
			r.run()
			r.cq.Push(test.wc)
			if test.err != nil {
				if err := r.wait(); !errors.Is(err, test.err) {
					t.Errorf("Run: %v, want %v", err, test.err)
				}
				if r.qp.State() != verbs.Error || !strings.Contains(r.last().Reason, test.err.Error()) {
					t.Errorf("queue pair in %v, reason %q", r.qp.State(), r.last().Reason)
				}
				return
			}
			r.until(func() bool { return r.loop.Totals().Errors == 1 }, "the error is counted")
			r.loop.Stop()
			r.must(r.qp.SetError())
			// The device made up a completion, so one receive more or less
			// may be posted than the loop knows.
			if err := r.wait(); err != nil && !errors.Is(err, ErrNotDrained) {
				t.Errorf("Run: %v", err)
			}
			n := rocelink.Count(0)
			for _, w := range r.windows {
				n += w.ByStatus[test.status]
			}
			if n != 1 || taken != 0 {
				t.Errorf("%d %q, %d frames taken; want 1 and none", n, test.status, taken)
			}
		})
	}
}

// A receive that something else than a frame consumed is posted again.
func TestUnfitIsPostedAgain(t *testing.T) {
	for _, v := range completing {
		t.Run(string(v), func(t *testing.T) {
			r := newRig(t, Config{Verb: v}, scripted.Config{})
			r.run()
			for range 40 { // more than there are slots
				m := scripted.Message{Write: v != rocelink.VerbWriteImm}
				r.until(func() bool { return r.qp.Deliver(m) == nil }, "the peer may send")
			}
			r.until(func() bool { return r.loop.Totals().Errors == 40 }, "all are counted")
			r.until(func() bool { return r.qp.Outstanding() == r.cfg.receives() }, "all are posted again")
			r.sendAll(0, 20)
			r.seen(20)
			r.stop()
			r.balance()
		})
	}
}

// A queue that takes only a part, or nothing for a while, costs no slot.
func TestPartialPosts(t *testing.T) {
	cross(t, completing, func(t *testing.T, c Config) {
		for took := range 3 {
			r := newRig(t, c, scripted.Config{})
			r.loop.cfg.Sink = funcSink(func(*Frame) Verdict { r.balance(); return 0 })
			r.run()
			for q := range uint64(60) {
				r.provider.Inject(scripted.Fault{Step: scripted.StepPostReceive, Err: verbs.ErrFull, Posted: took})
				r.send(q, frame(q, 64))
			}
			r.provider.Clear(scripted.StepPostReceive)
			r.until(func() bool { return r.qp.Outstanding() == r.cfg.receives() }, "all receives are posted again")
			r.seen(60)
			r.stop()
			r.balance()
			if w := r.loop.Totals(); w.Accepted != 60 || w.Lost() != 0 {
				t.Errorf("totals %+v", w)
			}
		}
	})
}

// Calls into the device that fail end the loop with the step and the cause.
func TestDeviceFailures(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		step  scripted.Step
		mode  Mode
		err   error
		want  string
		blind bool
	}{
		{scripted.StepPoll, Busy, verbs.ErrOverrun, "poll", true},
		{scripted.StepPoll, Event, broken, "poll", true},
		{scripted.StepArm, Event, broken, "arm", false},
		{scripted.StepWait, Event, broken, "wait", false},
		{scripted.StepPostReceive, Event, broken, "post receive", false},
		{scripted.StepPostReceive, Busy, verbs.ErrState, "post receive", false},
	} {
		t.Run(fmt.Sprintf("%v/%v", test.step, test.err), func(t *testing.T) {
			r := newRig(t, Config{Verb: rocelink.VerbSend, Mode: test.mode}, scripted.Config{})
			r.run()
			r.sendAll(0, 5)
			r.seen(5)
			r.provider.Inject(scripted.Fault{Step: test.step, Err: test.err, Sticky: true})
			if test.step == scripted.StepPostReceive {
				r.sendAll(5, 6)
			}
			r.cq.Wake() // if it sleeps
			if test.err == verbs.ErrState {
				r.seen(6)
				r.must(r.qp.SetError()) // which the error says it is in
			}
			err := r.wait()
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Run: %v, want %q and %v", err, test.want, test.err)
			}
			if errors.Is(err, ErrNotDrained) != test.blind {
				t.Errorf("Run: %v, want not drained: %v", err, test.blind)
			}
			if r.qp.State() != verbs.Error {
				t.Errorf("the queue pair is in %v", r.qp.State())
			}
		})
	}
}

// A completion queue that overflowed delivers what it had, then the loop ends.
func TestOverrun(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend}, scripted.Config{})
	r.sendAll(0, 4)
	for range r.cq.Depth() {
		r.cq.Push(verbs.WorkCompletion{Status: verbs.Success, Opcode: verbs.OpSend})
	}
	r.run()
	if err := r.wait(); !errors.Is(err, verbs.ErrOverrun) {
		t.Errorf("Run: %v, want %v", err, verbs.ErrOverrun)
	}
	if n := r.loop.Totals().Accepted; n != 4 {
		t.Errorf("%d frames accepted, want 4", n)
	}
}

// Wakes without a cause, as interrupted waits are, change nothing.
func TestSpuriousWakes(t *testing.T) {
	for _, v := range rocelink.Verbs {
		t.Run(string(v), func(t *testing.T) {
			r := newRig(t, Config{Verb: v, Spin: -1}, scripted.Config{})
			r.run()
			for q := range uint64(20) {
				waits := r.provider.Count(scripted.StepWait)
				r.cq.Wake()
				r.until(func() bool { return r.provider.Count(scripted.StepWait) > waits }, "the loop sleeps again")
				if v != rocelink.VerbRead {
					r.send(q, frame(q, 64))
				}
			}
			if v != rocelink.VerbRead {
				r.seen(20)
			}
			r.stop()
			if w := r.loop.Totals(); w.Lost() != 0 {
				t.Errorf("totals %+v", w)
			}
		})
	}
}

// A loop with nothing to do sleeps until there is something.
func TestSleep(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend, Window: time.Hour, Spin: -1}, scripted.Config{})
	r.run()
	for q := range uint64(10) {
		r.send(q, frame(q, 64))
		r.seen(q + 1)
		r.until(func() bool { return r.loop.sleeping.Load() }, "the loop sleeps")
	}
	polls := r.provider.Count(scripted.StepPoll)
	<-time.After(20 * time.Millisecond)
	if n := r.provider.Count(scripted.StepPoll) - polls; n > 2 {
		t.Errorf("%d polls in 20 ms of silence", n)
	}
	r.stop()
	if s := r.last().Sleeps; s < 10 {
		t.Errorf("%d sleeps, want 10 at least", s)
	}
}

// A busy loop never sleeps.
func TestBusy(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend, Mode: Busy}, scripted.Config{})
	r.run()
	r.sendAll(0, 20)
	r.seen(20)
	r.stop()
	if n := r.provider.Count(scripted.StepWait); n != 0 || r.last().Sleeps != 0 || r.last().EmptyPolls == 0 {
		t.Errorf("%d waits, window %+v", n, r.last())
	}
}

// A consumer that keeps everything stops the peer, not the loop; what it
// releases, in any order and from any goroutine, is posted again.
func TestStalledConsumer(t *testing.T) {
	cross(t, streaming, func(t *testing.T, c Config) {
		kept := make(chan Frame, 64)
		c.Sink = funcSink(func(f *Frame) Verdict { kept <- *f; return Kept })
		r := newRig(t, c, scripted.Config{})
		r.run()
		rounds := uint64(0)
		for range 5 {
			var held []Frame
			may := uint64(r.cfg.Slots)
			if c.Verb == rocelink.VerbWriteImm {
				may-- // the slot behind them must be free as well
			}
			r.sendAll(rounds, rounds+may)
			for range may {
				held = append(held, <-kept)
			}
			rounds += may
			r.seen(rounds)
			// The loop has turned since and gave no credit.
			r.loop.wake()
			if err := r.try(rounds, frame(rounds, 64)); !errors.Is(err, errBlocked) {
				t.Fatalf("all slots are held, the peer sent: %v", err)
			}
			if n := r.loop.Held(); n != int(may) {
				t.Errorf("%d held, want %d", n, may)
			}
			for _, f := range held {
				if !f.Intact() || pattern.Check(f.Data, pattern.Counter, f.Sequence) >= 0 {
					t.Errorf("held frame %d was overwritten", f.Sequence)
				}
			}
			rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			var wg sync.WaitGroup
			for _, f := range held {
				wg.Go(func() {
					f.Release()
					f.Release() // counts once
					if f.Intact() {
						t.Errorf("frame %d is intact after its release", f.Sequence)
					}
				})
			}
			wg.Wait()
			r.until(func() bool { return r.loop.Held() == 0 }, "all are back")
		}
		r.stop()
		r.balance()
		if w := r.loop.Totals(); w.Accepted != rocelink.Count(rounds) || w.Lost() != 0 {
			t.Errorf("totals %+v", w)
		}
	})
}

// On a ring the release of a later slot gives no credit as long as an earlier
// one is held; with SEND it does.
func TestReleaseOrder(t *testing.T) {
	for _, v := range streaming {
		t.Run(string(v), func(t *testing.T) {
			kept := make(chan Frame, 64)
			r := newRig(t, Config{Verb: v, Slots: 4, Window: time.Hour,
				Sink: funcSink(func(f *Frame) Verdict { kept <- *f; return Kept })}, scripted.Config{})
			r.run()
			n := uint64(4)
			if v == rocelink.VerbWriteImm {
				n = 3
			}
			r.sendAll(0, n)
			r.seen(n)
			held := make(map[uint64]Frame)
			for range n {
				f := <-kept
				held[f.Sequence] = f
			}
			held[1].Release()
			if v.Ring() {
				// The loop wakes, takes the slot back, and sleeps again.
				r.until(func() bool {
					for i := range r.loop.lending.cells {
						if r.loop.lending.cells[i].Load() != 0 {
							return false
						}
					}
					return r.loop.sleeping.Load()
				}, "the loop took slot 1 back")
				if err := r.try(n, frame(n, 64)); !errors.Is(err, errBlocked) {
					t.Fatalf("slot 0 is held, but the peer sent: %v", err)
				}
				held[0].Release()
				r.sendAll(n, n+2)
				r.seen(n + 2)
				if err := r.try(n+2, frame(n+2, 64)); !errors.Is(err, errBlocked) {
					t.Fatalf("slot 2 is held, but the peer sent: %v", err)
				}
			} else {
				r.sendAll(n, n+1)
			}
			r.stop()
		})
	}
}

// Random frames, releases, partial posts and jumps: nothing gets lost.
func TestRandomWalk(t *testing.T) {
	cross(t, streaming, func(t *testing.T, c Config) {
		var r *rig
		kept := make(chan Frame, 1024)
		c.Slots = 16
		c.Sink = funcSink(func(f *Frame) Verdict {
			r.balance()
			v := Verified
			if pattern.Check(f.Data, pattern.Counter, f.Sequence) >= 0 {
				v = Corrupt
			}
			if f.Sequence%3 == 0 {
				return v
			}
			kept <- *f
			return Kept | v
		})
		r = newRig(t, c, scripted.Config{})
		r.run()
		var consumers sync.WaitGroup
		for i := range 3 {
			consumers.Go(func() {
				rnd := rand.New(rand.NewPCG(7, uint64(i)))
				var mine []Frame
				release := func() {
					k := rnd.IntN(len(mine))
					mine[k].Release()
					mine = slices.Delete(mine, k, k+1)
				}
				for open := true; open; {
					// Who waits holds nothing: on a ring that could be what
					// everybody waits for.
					var f Frame
					select {
					case f, open = <-kept:
					default:
						if len(mine) > 0 {
							release()
							continue
						}
						f, open = <-kept
					}
					if open {
						mine = append(mine, f)
					}
					for len(mine) > 2 || len(mine) > 0 && rnd.IntN(2) == 0 {
						release()
					}
				}
				for len(mine) > 0 {
					release()
				}
			})
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		const frames = 1000
		for q := range uint64(frames) {
			if rnd.IntN(8) == 0 {
				r.provider.Inject(scripted.Fault{Step: scripted.StepPostReceive, Err: verbs.ErrFull, Posted: rnd.IntN(3)})
			}
			r.send(q, frame(q, 1+rnd.IntN(64)))
		}
		r.seen(frames)
		close(kept)
		consumers.Wait()
		r.provider.Clear(scripted.StepPostReceive)
		if n := r.cfg.receives(); n > 0 {
			r.until(func() bool { return r.qp.Outstanding() == n }, "all %d receives are posted again", n)
		}
		r.stop()
		r.balance()
		if w := r.loop.Totals(); w.Verified != frames || w.Lost() != 0 || r.loop.Held() != 0 || r.loop.held != 0 {
			t.Errorf("totals %+v, held %d", w, r.loop.Held())
		}
	})
}

// Releases that make no sense are ignored.
func TestForeignRelease(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend}, scripted.Config{})
	frames := make(chan Frame, 1)
	// Released before the sink says that it is done: still one release.
	r.loop.cfg.Sink = funcSink(func(f *Frame) Verdict {
		f.Release()
		select {
		case frames <- *f:
		default:
		}
		return 0
	})
	r.run()
	r.sendAll(0, 1)
	old := <-frames
	for _, f := range []Frame{{Slot: -1}, {Slot: 8}, {Slot: 1 << 40}, {Slot: 3}, {Slot: 3, generation: 9}} {
		f.Owner = r.loop
		f.Release()
		if f.Intact() {
			t.Errorf("frame in slot %d is intact", f.Slot)
		}
	}
	for q := range uint64(50) {
		old.Release()
		r.sendAll(q+1, q+2)
	}
	r.seen(51)
	r.stop()
	r.balance()
	old.Release() // after the end
	if n := r.loop.Held(); n != 0 {
		t.Errorf("%d held", n)
	}
}

// Frames that are released after the end are still taken back.
func TestReleaseAfterEnd(t *testing.T) {
	kept := make(chan Frame, 8)
	r := newRig(t, Config{Verb: rocelink.VerbSend, Sink: funcSink(func(f *Frame) Verdict { kept <- *f; return Kept })}, scripted.Config{})
	r.run()
	r.sendAll(0, 5)
	r.seen(5)
	r.stop()
	if w := r.last(); w.HeldSlots != 5 || r.loop.Held() != 5 {
		t.Errorf("window: %d held, loop: %d, want 5", w.HeldSlots, r.loop.Held())
	}
	for range 5 {
		(<-kept).Release()
	}
	if n := r.loop.Held(); n != 0 {
		t.Errorf("%d held after all were released", n)
	}
}

// The sink's failure is the loop's.
func TestFail(t *testing.T) {
	cross(t, streaming, func(t *testing.T, c Config) {
		full := errors.New("disk full")
		c.Sink = funcSink(func(f *Frame) Verdict {
			if f.Sequence == 3 {
				f.Owner.Fail(full)
				f.Owner.Fail(errors.New("another"))
				f.Owner.Fail(nil)
				return Refused
			}
			return 0
		})
		r := newRig(t, c, scripted.Config{})
		r.run()
		r.sendAll(0, 4)
		err := r.wait()
		if !errors.Is(err, full) || !strings.Contains(r.last().Reason, "disk full") {
			t.Errorf("Run: %v, reason %q", err, r.last().Reason)
		}
		if w := r.loop.Totals(); w.Messages != 4 || w.Accepted != 3 {
			t.Errorf("totals %+v: a refused frame is not accepted", w)
		}
		if r.qp.State() != verbs.Error || r.loop.outstanding != 0 {
			t.Errorf("queue pair in %v, %d outstanding", r.qp.State(), r.loop.outstanding)
		}
	})
}

// A loop that sleeps notices a failure that has nothing to do with a frame.
func TestFailWakes(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend, Window: time.Hour, Spin: -1}, scripted.Config{})
	r.run()
	r.until(func() bool { return r.loop.sleeping.Load() }, "the loop sleeps")
	gone := errors.New("gone")
	r.loop.Fail(gone)
	if err := r.wait(); !errors.Is(err, gone) {
		t.Errorf("Run: %v", err)
	}
}

// Stop ends every loop soon, whatever it is doing.
func TestStop(t *testing.T) {
	cross(t, rocelink.Verbs, func(t *testing.T, c Config) {
		c.Window = time.Hour
		for _, traffic := range []bool{false, true} {
			r := newRig(t, c, scripted.Config{})
			r.run()
			if traffic && c.Verb != rocelink.VerbRead {
				r.sendAll(0, 30)
			}
			begin := time.Now()
			r.stop()
			if d := time.Since(begin); d > DrainTime {
				t.Errorf("Stop took %v", d)
			}
			r.loop.Stop() // again, after the end
			if w := r.last(); !traffic && w.FirstPacket != nil {
				t.Errorf("last window %+v", w)
			}
			if r.provider.Count(scripted.StepPostReceive) > 0 && r.qp.PostsInError() != 0 && !traffic {
				t.Errorf("%d receives posted in error", r.qp.PostsInError())
			}
		}
	})
}

// A peer that goes on sending does not keep a stopped loop alive.
func TestStopUnderFire(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbWrite, CreditOffset: -1}, scripted.Config{})
	q := uint64(0)
	r.loop.cfg.Sink = funcSink(func(f *Frame) Verdict {
		q = f.Sequence + 1 // the next frame lands while this one is looked at
		r.must(r.try(q, frame(q, 64)))
		return 0
	})
	r.must(r.try(0, frame(0, 64)))
	r.run()
	r.seen(100)
	r.loop.Stop()
	if err := r.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Without the owner's SetError the loop gives up in time, and says so.
func TestStopWithoutFlush(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{Verb: rocelink.VerbSend, Mode: m.mode}, scripted.Config{})
			r.run()
			begin := time.Now()
			r.loop.Stop()
			err := r.wait()
			if d := time.Since(begin); !errors.Is(err, ErrNotDrained) || d < DrainTime || d > 2*DrainTime {
				t.Errorf("after %v: %v, want %v after %v", d, err, ErrNotDrained, DrainTime)
			}
		})
	}
}

// Stop after the flushes were seen is still a stop.
func TestSetErrorThenStop(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend}, scripted.Config{})
	r.must(r.qp.SetError())
	r.loop.Stop()
	r.run()
	if err := r.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A queue pair that died with no receive posted is found.
func TestDeadQueuePair(t *testing.T) {
	for _, v := range rocelink.Verbs {
		t.Run(string(v), func(t *testing.T) {
			r := newRig(t, Config{Verb: v, Slots: 2, Window: 5 * time.Millisecond,
				Sink: funcSink(func(*Frame) Verdict { return Kept })}, scripted.Config{})
			r.run()
			if n := uint64(r.cfg.receives()); n > 0 {
				r.sendAll(0, n)
				r.seen(n)
			}
			r.must(r.qp.SetError())
			if err := r.wait(); !errors.Is(err, ErrQueuePair) {
				t.Errorf("Run: %v, want %v", err, ErrQueuePair)
			}
		})
	}
}

// READ: the ring holds what the peer expects, and there are windows.
func TestRead(t *testing.T) {
	for _, kind := range []pattern.Kind{pattern.Counter, pattern.PRBS31} {
		for _, crc := range []bool{false, true} {
			r := newRig(t, Config{Verb: rocelink.VerbRead, Pattern: kind, CRC: crc, FrameBytes: 60, Stride: 64, Window: 5 * time.Millisecond}, scripted.Config{})
			for i := range 8 {
				b := r.mem.Bytes()[i*64 : i*64+60]
				body := b
				if crc {
					body = b[:56]
				}
				if at := pattern.Check(body, kind, uint64(i)); at >= 0 || crc && !pattern.CheckCRC(b) {
					t.Errorf("%v, CRC %v: slot %d is wrong at %d", kind, crc, i, at)
				}
			}
			go func() { r.ended <- r.loop.Run() }()
			for len(r.windows) < 3 {
				select {
				case w := <-r.loop.Windows():
					r.windows = append(r.windows, w)
				case <-time.After(patience):
					t.Fatal("no window")
				}
			}
			r.loop.Stop()
			for w := range r.loop.Windows() {
				r.windows = append(r.windows, w)
			}
			r.must(r.wait())
			for i, w := range r.windows {
				if w.FirstPacket != nil || i > 0 && !w.Start.Equal(r.windows[i-1].End) {
					t.Errorf("window %+v", w)
				}
			}
		}
	}
}

func TestOrder(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend}, scripted.Config{})
	if err := r.loop.Prepare(); !errors.Is(err, ErrOrder) {
		t.Errorf("second Prepare: %v", err)
	}
	fresh, err := New(r.cfg)
	r.must(err)
	if err := fresh.Run(); !errors.Is(err, ErrOrder) {
		t.Errorf("Run before Prepare: %v", err)
	}
	r.run()
	r.stop()
	if err := r.loop.Run(); !errors.Is(err, ErrOrder) {
		t.Errorf("second Run: %v", err)
	}
}

// All receives are posted before RTR, with the right addresses, or Prepare
// fails.
func TestPrepare(t *testing.T) {
	for v, want := range map[rocelink.Verb]int{rocelink.VerbSend: 8, rocelink.VerbSendImm: 8, rocelink.VerbWriteImm: 7, rocelink.VerbWrite: 0, rocelink.VerbRead: 0} {
		r := newRig(t, Config{Verb: v}, scripted.Config{})
		if n := r.qp.Outstanding(); n != want {
			t.Errorf("%s: %d receives posted, want %d", v, n, want)
		}
	}
	for _, fault := range []scripted.Fault{{Err: verbs.ErrFull, Posted: 3}, {Err: verbs.ErrState}} {
		r := newRig(t, Config{Verb: rocelink.VerbSend}, scripted.Config{})
		fresh, err := New(r.cfg)
		r.must(err)
		fault.Step = scripted.StepPostReceive
		r.provider.Inject(fault)
		if err := fresh.Prepare(); !errors.Is(err, fault.Err) {
			t.Errorf("Prepare: %v, want %v", err, fault.Err)
		}
		if err := fresh.Run(); !errors.Is(err, ErrOrder) {
			t.Errorf("Run after a failed Prepare: %v", err)
		}
	}
}

func TestPin(t *testing.T) {
	for cpu, want := range map[int]bool{0: true, 100_000: false, -1: false} {
		r := newRig(t, Config{Verb: rocelink.VerbSend, CPU: &cpu}, scripted.Config{})
		r.run()
		if want {
			r.sendAll(0, 20)
			r.seen(20)
			r.stop()
		} else if err := r.wait(); err == nil || !strings.Contains(r.last().Reason, "pin to CPU") {
			t.Errorf("CPU %d: Run: %v, reason %q", cpu, err, r.last().Reason)
		}
	}
}

func TestConfig(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbWrite}, scripted.Config{})
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string // "" is good
	}{
		{"as it is", func(*Config) {}, ""},
		{"no queue pair", func(c *Config) { c.QP = nil }, "must all be given"},
		{"no sink", func(c *Config) { c.Sink = nil }, "must all be given"},
		{"verb", func(c *Config) { c.Verb = "push" }, `verb "push"`},
		{"no slots", func(c *Config) { c.Slots = 0 }, "0 slots"},
		{"one slot", func(c *Config) { c.Slots = 1 }, "needs 2"},
		{"slots", func(c *Config) { c.Slots = 1 << 31 }, "slots"},
		{"frame", func(c *Config) { c.FrameBytes = rocelink.MaxFrameBytes + 1 }, "at most"},
		{"no room for the trailer", func(c *Config) { c.FrameBytes = c.Stride - 15 }, "stride 80"},
		{"odd stride", func(c *Config) { c.Stride = 84 }, "multiple of 8"},
		{"memory", func(c *Config) { c.Slots = 9 }, "of memory"},
		{"huge", func(c *Config) { c.Slots, c.Stride = 1<<31-1, 1<<32-8 }, "of memory"},
		{"credit in a slot", func(c *Config) { c.CreditOffset = 8 }, "credit word at 8"},
		{"credit misaligned", func(c *Config) { c.CreditOffset += 4 }, "credit word"},
		{"credit outside", func(c *Config) { c.CreditOffset += 8 }, "credit word"},
		{"credit negative", func(c *Config) { c.CreditOffset = -8 }, "credit word"},
		{"credit of another verb", func(c *Config) { c.Verb = rocelink.VerbSend }, "only write"},
		{"no credit", func(c *Config) { c.CreditOffset = 0 }, ""},
		{"shallow queue", func(c *Config) {
			cq, err := r.provider.Devices()[0].CreateCQ(7)
			r.must(err)
			c.CQ, c.Verb, c.CreditOffset = cq, rocelink.VerbSend, 0
		}, "depth 7"},
		{"mode", func(c *Config) { c.Mode = 9 }, "mode 9"},
		{"batch", func(c *Config) { c.Batch = 257 }, "batch of 257"},
		{"negative batch", func(c *Config) { c.Batch = -1 }, "batch of -1"},
		{"window", func(c *Config) { c.Window = 1 }, "window of 1ns"},
		{"pattern", func(c *Config) { c.Verb, c.CreditOffset, c.Pattern = rocelink.VerbRead, 0, 9 }, "pattern"},
		{"no room for a CRC", func(c *Config) { c.Verb, c.CreditOffset, c.CRC, c.FrameBytes = rocelink.VerbRead, 0, true, 3 }, "CRC"},
		{"nothing in the frames", func(c *Config) { c.FrameBytes = 0 }, ""},
	} {
		c := r.cfg
		test.change(&c)
		_, err := New(c)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// Totals may be read while they change, and belong together.
func TestTotalsSnapshot(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend, Mode: Busy}, scripted.Config{})
	r.run()
	r.qp.Generate(&scripted.Generator{ByteLen: 64, Count: 200_000})
	for {
		got := r.loop.Totals()
		if got.Bytes != 64*got.Messages || got.Accepted != got.Messages {
			t.Fatalf("torn totals: %+v", got)
		}
		if got.Messages == 200_000 {
			break
		}
	}
	r.stop()
}

// What comes between the last look and the sleep keeps the loop awake.
func TestNoSleepOverNews(t *testing.T) {
	for name, news := range map[string]func(*Loop, Frame){
		"release": func(_ *Loop, f Frame) { f.Release() },
		"stop":    func(l *Loop, _ Frame) { l.Stop() },
		"fail":    func(l *Loop, _ Frame) { l.Fail(errors.New("gone")) },
		"nothing": func(*Loop, Frame) {},
	} {
		var kept Frame
		r := newRig(t, Config{Verb: rocelink.VerbSend, Window: 50 * time.Millisecond, Spin: -1,
			Sink: funcSink(func(f *Frame) Verdict { kept = *f; return Kept })}, scripted.Config{})
		r.loop.begin = time.Now()
		r.must(r.try(0, frame(0, 64)))
		r.loop.turn() // takes the frame
		r.loop.turn() // finds nothing
		r.loop.rest(r.loop.now())
		now, _ := r.loop.turn() // once more, armed
		news(r.loop, kept)
		r.loop.rest(now)
		if slept := r.provider.Count(scripted.StepWait) > 0; slept != (name == "nothing") {
			t.Errorf("%s: slept %v", name, slept)
		}
	}
}
