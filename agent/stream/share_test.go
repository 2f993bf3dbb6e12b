package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// sharers are three streams of one share, on a bench.
type sharers struct {
	*bench
	t       *testing.T
	cancel  []context.CancelFunc
	streams []*Stream
}

func newSharers(t *testing.T, b *bench, take Taker) *sharers {
	t.Helper()
	h := &sharers{bench: b, t: t}
	for i := range 3 {
		h.open(i, take)
	}
	return h
}

func (h *sharers) open(i int, take Taker) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.t.Cleanup(cancel)
	s, err := h.agent.Open(ctx, Spec{Name: fmt.Sprint("s", i), Board: "demo", Slots: 8, FrameBytes: SizeOf(8), Sink: SinkDiscard, Share: "x"}, take)
	if err != nil {
		h.t.Fatal(err)
	}
	await(h.t, h.board)
	h.running(s, 1)
	h.streams, h.cancel = append(h.streams, s), append(h.cancel, cancel)
}

// running waits until a stream runs in its nth session.
func (h *sharers) running(s *Stream, n int) {
	h.t.Helper()
	eventually(h.t, func() bool { st := s.status(); return st.State == StateRunning && st.Opens == rocelink.Count(n) })
}

func (h *sharers) qp(i int) *scripted.QueuePair {
	s := h.streams[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session.qp.(*scripted.QueuePair)
}

// send has a stream's peer send so many frames.
func (h *sharers) send(i, frames int) {
	h.t.Helper()
	was := h.streams[i].status().Total.Messages
	for range frames {
		eventually(h.t, func() bool { return h.qp(i).Deliver(scripted.Message{Data: []byte("12345678")}) == nil })
	}
	eventually(h.t, func() bool { return h.streams[i].status().Total.Messages == was+rocelink.Count(frames) })
}

// end ends all streams in order: so many sessions each, and a problem that
// contains this, or none.
func (h *sharers) end(sessions []int, problems []string) {
	h.t.Helper()
	h.acknowledge()
	for i, s := range h.streams {
		h.cancel[i]()
		r := result(h.t, s)
		if r.Sessions != sessions[i] || !strings.Contains(r.Problem, problems[i]) || (problems[i] == "") != (r.Problem == "") {
			h.t.Errorf("stream %d: %d sessions, problem %q, want %d and %q", i, r.Sessions, r.Problem, sessions[i], problems[i])
		}
	}
}

// acknowledge has the board say that what arrived was all.
func (h *sharers) acknowledge() {
	h.board.update(nil, func(s *rocelink.StreamStatus) {
		for i, st := range h.streams {
			if st.status().Session == s.Session {
				n := h.streams[i].status().Total.Messages
				s.SourceFrames, s.FramesDone, s.BytesDone = n, n, 8*n
			}
		}
	})
}

// close checks that nothing is left. Queue pairs of a share go in any order.
func (h *sharers) close() {
	h.t.Helper()
	if err := errors.Join(h.agent.Close(), h.device.Close()); err != nil {
		h.t.Error(err)
	}
	if live := h.provider.StillOpen(); len(live) > 0 {
		h.t.Errorf("still open: %q", live)
	}
}

func (h *sharers) made(step scripted.Step) (n int) {
	for _, c := range h.provider.Calls() {
		if c.Step == step && c.Err == nil {
			n++
		}
	}
	return n
}

// Streams of a share have one of everything but queue pairs. The death of one,
// and its way back, concern no other.
func TestShareOutlivesItsStreams(t *testing.T) {
	b := newBench(t)
	h := newSharers(t, b, discard)
	defer h.close()
	for _, step := range []scripted.Step{scripted.StepAllocPD, scripted.StepRegister, scripted.StepCreateCQ, scripted.StepCreateSRQ} {
		if n := h.made(step); n != 1 {
			t.Errorf("%v: %d times", step, n)
		}
	}
	for i := range 3 {
		h.send(i, 20+i)
	}
	h.qp(1).Fail(verbs.LocalLengthError, 7)
	h.send(0, 5)
	await(t, b.board)
	h.running(h.streams[1], 2)
	for i := range 3 {
		h.send(i, 9)
	}
	if n := h.made(scripted.StepCreateSRQ); n != 1 {
		t.Errorf("%d shared receive queues", n)
	}
	h.end([]int{1, 2, 1}, []string{"", "local length error", ""})
	// And a share begins anew with the next stream, with what that asks for.
	s, err := b.agent.Open(context.Background(), Spec{Name: "big", Board: "demo", FrameBytes: SizeOf(4096), Share: "x", Mode: "busy", Count: 1}, discard)
	if err != nil {
		t.Fatal(err)
	}
	await(t, b.board)
	b.board.update(nil, func(s *rocelink.StreamStatus) { s.State = rocelink.StreamStopped })
	if r := result(t, s); r.Sessions != 1 {
		t.Errorf("result %+v", r)
	}
	if n := h.made(scripted.StepCreateSRQ); n != 2 {
		t.Errorf("%d shared receive queues", n)
	}
}

// The device's word that a queue pair is done comes at the end of each session:
// without waiting for it in vain, and also when the device is on its way out.
func TestShareLeavesAtOnce(t *testing.T) {
	r := &returns{held: make(chan struct{})}
	close(r.held)
	b := newBench(t, r.configure)
	h := newSharers(t, b, discard)
	begin := time.Now()
	for n := 2; n < 4; n++ {
		unplug(b)
		for range h.streams {
			await(t, b.board)
		}
		for i, s := range h.streams {
			h.running(s, n)
			h.send(i, 3)
		}
	}
	// Each time the device is asked for a second time before it is back.
	if d := time.Since(begin); d > 2*(receive.DrainTime+reopenDelay) {
		t.Errorf("it took %v", d)
	}
	for i, s := range h.streams {
		if text := s.status().Problem; text != "" {
			t.Errorf("stream %d: %s", i, text)
		}
	}
	h.end([]int{3, 3, 3}, []string{"device removed", "device removed", "device removed"})
	h.close()
}

// What concerns the common queue ends every session with its reason; all open
// again with a new one.
func TestShareThatFailsIsMadeAnew(t *testing.T) {
	b := newBench(t)
	h := newSharers(t, b, discard)
	defer h.close()
	h.send(2, 4)
	b.provider.Inject(scripted.Fault{Step: scripted.StepPoll, Err: errors.New("queue is broken")})
	_ = h.qp(0).Deliver(scripted.Message{Data: []byte("12345678")})
	for range h.streams {
		await(t, b.board)
	}
	for i, s := range h.streams {
		h.running(s, 2)
		h.send(i, 10)
	}
	if n := h.made(scripted.StepCreateSRQ); n < 2 || n > 4 {
		t.Errorf("%d shared receive queues", n)
	}
	h.end([]int{2, 2, 2}, []string{"queue is broken", "queue is broken", "queue is broken"})
}

// A consumer that keeps its slots takes them from all; when it lets go, they are
// the share's again, also after its stream has ended.
func TestShareWithAConsumerThatKeeps(t *testing.T) {
	b := newBench(t)
	k := keeper{make(chan receive.Frame, 8)}
	h := newSharers(t, b, discard)
	defer h.close()
	h.open(3, func(int) (receive.Sink, error) { return k, nil })
	h.send(3, 8)
	if err := h.qp(0).Deliver(scripted.Message{Data: []byte("12345678")}); !errors.Is(err, scripted.ErrNoReceive) {
		t.Errorf("all slots are held, yet %v", err)
	}
	(<-k.frames).Release()
	h.send(0, 30)
	h.acknowledge()
	h.cancel[3]()
	if r := result(t, h.streams[3]); !strings.Contains(r.Problem, "7 slots of share x are still held") {
		t.Errorf("problem %q", r.Problem)
	}
	h.streams, h.cancel = h.streams[:3], h.cancel[:3]
	for range 7 {
		f := <-k.frames
		if string(f.Data) != "12345678" || !f.Intact() {
			t.Errorf("frame %d that is held: %q", f.Sequence, f.Data)
		}
		f.Release()
	}
	h.send(1, 30)
	h.end([]int{1, 1, 1}, []string{"", "", ""})
}

// A stream that comes later takes the share as it is, or is refused by the
// setting that does not fit.
func TestShareRefusesWhatDoesNotFit(t *testing.T) {
	b := newBench(t)
	h := newSharers(t, b, discard)
	defer h.close()
	for want, change := range map[string]func(*Spec){
		"frame of 9 bytes: share x is open with receives of 8": func(s *Spec) { s.FrameBytes = SizeOf(9) },
		"slots 9: share x is open with 8":                      func(s *Spec) { s.Slots = 9 },
		"mode event, another mode busy":                        func(s *Spec) { s.Mode = "busy" },
	} {
		spec := Spec{Name: "late", Board: "demo", FrameBytes: SizeOf(8), Slots: 4, Share: "x"}
		change(&spec)
		if _, err := b.agent.Open(context.Background(), spec, discard); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if n := len(b.agent.Status().Streams); n != 3 {
		t.Errorf("%d streams", n)
	}
	h.end([]int{1, 1, 1}, []string{"", "", ""})
}

// on makes a bench's device another one.
func on(t *testing.T, sc scripted.Config) func(*bench, *Config) {
	return func(b *bench, c *Config) {
		if err := b.device.Close(); err != nil {
			t.Fatal(err)
		}
		b.provider = scripted.New(sc)
		b.device, _ = b.provider.Open("")
		c.Device = b.device
	}
}

// On a device that does not say when a queue pair is done with the shared queue,
// a session ends all the same, after its time.
func TestShareOnADeviceThatForgets(t *testing.T) {
	h := newSharers(t, newBench(t, on(t, scripted.Config{NoLastWQE: true})), discard)
	defer h.close()
	h.send(1, 3)
	h.acknowledge()
	begin := time.Now()
	for _, cancel := range h.cancel {
		cancel()
	}
	h.end([]int{1, 1, 1}, []string{"", "", ""})
	if d := time.Since(begin); d < receive.DrainTime {
		t.Errorf("it took %v", d)
	}
}

func TestShareNeedsADeviceThatHasIt(t *testing.T) {
	b := newBench(t, on(t, scripted.Config{Attributes: verbs.DeviceAttributes{MaxSRQ: -1}}))
	defer b.close(t)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Share: "x"}, discard)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(s.status().Problem, "without share") })
	cancel()
	if r := result(t, s); !strings.Contains(r.Problem, "never opened: ") {
		t.Errorf("problem %q", r.Problem)
	}
}
