package scripted_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

const depth = 8

// stream is what a receive loop sets up.
type stream struct {
	p      *scripted.Provider
	device *scripted.Device
	cq     *scripted.CompletionQueue
	qp     *scripted.QueuePair
	mr     *scripted.MemoryRegion
	memory *verbs.Memory
	undo   []func() error
}

func (s *stream) close() error {
	var errs []error
	for _, f := range slices.Backward(s.undo) {
		errs = append(errs, f())
	}
	s.undo = nil
	return errors.Join(errs...)
}

func peer() verbs.PeerAttributes {
	return verbs.PeerAttributes{QPN: 0x11, PSN: 0x22, Address: netip.MustParseAddr("192.0.2.2"), MTU: 4096, MinRNRTimer: 12}
}

// open sets up in the usual order and undoes what it did if a step fails.
func open(p *scripted.Provider) (s *stream, err error) {
	s = &stream{p: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	d, err := p.Open("")
	if err != nil {
		return s, err
	}
	s.device = d.(*scripted.Device)
	s.undo = append(s.undo, d.Close)
	pd, err := d.AllocPD()
	if err != nil {
		return s, err
	}
	s.undo = append(s.undo, pd.Close)
	s.memory, err = verbs.AllocMemory(1<<16, false)
	if err != nil {
		return s, err
	}
	s.undo = append(s.undo, s.memory.Free)
	mr, err := pd.Register(s.memory, verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return s, err
	}
	s.mr = mr.(*scripted.MemoryRegion)
	s.undo = append(s.undo, mr.Close)
	cq, err := d.CreateCQ(depth)
	if err != nil {
		return s, err
	}
	s.cq = cq.(*scripted.CompletionQueue)
	s.undo = append(s.undo, cq.Close)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: depth})
	if err != nil {
		return s, err
	}
	s.qp = qp.(*scripted.QueuePair)
	s.undo = append(s.undo, qp.Close)
	if err := qp.Init(verbs.LocalWrite | verbs.RemoteWrite); err != nil {
		return s, err
	}
	if err := s.post(depth); err != nil {
		return s, err
	}
	if err := qp.ReadyToReceive(peer()); err != nil {
		return s, err
	}
	return s, qp.ReadyToSend(1)
}

func (s *stream) post(n int) error {
	var rs []verbs.ReceiveRequest
	for i := range n {
		rs = append(rs, verbs.ReceiveRequest{ID: uint64(i), Address: s.mr.Address() + uint64(i)*4096, Length: 4096, LKey: s.mr.LKey()})
	}
	_, err := s.qp.PostReceive(rs)
	return err
}

func mustOpen(t testing.TB, c scripted.Config) *stream {
	t.Helper()
	s, err := open(scripted.New(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if err := s.p.CheckUnwound(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *stream) poll(t testing.TB) []verbs.WorkCompletion {
	t.Helper()
	wcs := make([]verbs.WorkCompletion, 2*depth)
	n, err := s.cq.Poll(wcs)
	if err != nil {
		t.Fatal(err)
	}
	return wcs[:n]
}

func TestEveryStepCanFailAndIsUndone(t *testing.T) {
	mine := errors.New("mine")
	for step := scripted.StepOpen; step <= scripted.StepPostReceive; step++ {
		if step == scripted.StepPort || step == scripted.StepSetError || step == scripted.StepCreateSRQ {
			continue
		}
		t.Run(step.String(), func(t *testing.T) {
			p := scripted.New(scripted.Config{})
			p.Inject(scripted.Fault{Step: step, Err: mine})
			if _, err := open(p); !errors.Is(err, mine) {
				t.Fatalf("error %v", err)
			}
			if err := p.CheckUnwound(); err != nil {
				t.Errorf("%v; calls %v", err, p.Calls())
			}
			if got := p.StillOpen(); len(got) > 0 {
				t.Errorf("still open: %v", got)
			}
			s, err := open(p)
			if err != nil {
				t.Fatalf("second start: %v", err)
			}
			if err := p.CheckUnwound(); err == nil {
				t.Error("an open stream counts as unwound")
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckUnwoundSeesWrongOrder(t *testing.T) {
	p := scripted.New(scripted.Config{})
	d, _ := p.Open("")
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(1)
	_, _ = pd.Close(), cq.Close()
	_ = d.Close()
	if err := p.CheckUnwound(); err == nil {
		t.Error("no error")
	}
	if got := p.StillOpen(); len(got) != 0 {
		t.Errorf("still open: %v", got)
	}
}

func TestClosingInUseIsBusy(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	pd := s.undo[1]
	for name, f := range map[string]func() error{"device": s.device.Close, "pd": pd, "mr": s.mr.Close, "cq": s.cq.Close} {
		if err := f(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("close %s: %v, want busy", name, err)
		}
	}
}

func TestFaultCounts(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	wcs := make([]verbs.WorkCompletion, 1)
	s.p.Inject(scripted.Fault{Step: scripted.StepPoll, Nth: 3})
	for i := 1; i <= 4; i++ {
		if _, err := s.cq.Poll(wcs); (i == 3) != errors.Is(err, scripted.ErrFault) {
			t.Errorf("poll %d: %v", i, err)
		}
	}
	s.p.Inject(scripted.Fault{Step: scripted.StepPoll, Nth: 2, Sticky: true})
	for i := 1; i <= 4; i++ {
		if _, err := s.cq.Poll(wcs); (i >= 2) != errors.Is(err, scripted.ErrFault) {
			t.Errorf("sticky poll %d: %v", i, err)
		}
	}
	s.p.Clear(scripted.StepPoll)
	if _, err := s.cq.Poll(wcs); err != nil {
		t.Errorf("cleared: %v", err)
	}
	if got := s.p.Count(scripted.StepPoll); got != 9 {
		t.Errorf("%d polls counted, want 9", got)
	}
}

func TestMessages(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	data := bytes.Repeat([]byte("rocelink"), 8)
	if err := s.qp.Deliver(scripted.Message{Data: data}); err != nil {
		t.Fatal(err)
	}
	if err := s.qp.Deliver(scripted.Message{Data: data[:3], Imm: 7, WithImm: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.qp.Deliver(scripted.Message{Write: true, Data: data, Region: s.mr, Offset: 1<<16 - len(data), Imm: 9}); err != nil {
		t.Fatal(err)
	}
	want := []verbs.WorkCompletion{
		{ID: 0, Opcode: verbs.OpRecv, ByteLen: 64, QPN: uint32(s.qp.QPN())},
		{ID: 1, Opcode: verbs.OpRecv, ByteLen: 3, Flags: verbs.WithImm, Imm: verbs.ImmediateOf(7), QPN: uint32(s.qp.QPN())},
		{ID: 2, Opcode: verbs.OpRecvRDMAWithImm, ByteLen: 64, Flags: verbs.WithImm, Imm: verbs.ImmediateOf(9), QPN: uint32(s.qp.QPN())},
	}
	if got := s.poll(t); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	b := s.memory.Bytes()
	if !bytes.Equal(b[:64], data) || !bytes.Equal(b[4096:4099], data[:3]) || !bytes.Equal(b[1<<16-64:], data) {
		t.Error("data is not where it belongs")
	}
	if err := s.qp.Deliver(scripted.Message{Write: true, Data: data, Region: s.mr, Offset: 1<<16 - 63}); !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("write past the end: %v", err)
	}
	if err := s.mr.Write(-1, data); !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("write before the start: %v", err)
	}
	if err := s.mr.Write(1<<16, nil); err != nil {
		t.Errorf("nothing at the end: %v", err)
	}
	for s.qp.Outstanding() > 0 {
		if err := s.qp.Deliver(scripted.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.qp.Deliver(scripted.Message{}); !errors.Is(err, scripted.ErrNoReceive) {
		t.Errorf("without a receive: %v", err)
	}
}

func TestTooLongASend(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	if err := s.qp.Deliver(scripted.Message{Data: make([]byte, 4097)}); err != nil {
		t.Fatal(err)
	}
	got := s.poll(t)
	if len(got) != depth || got[0].Status != verbs.LocalLengthError || got[1].Status != verbs.WorkRequestFlushed {
		t.Errorf("got %+v", got)
	}
	if s.qp.State() != verbs.Error {
		t.Errorf("state %v", s.qp.State())
	}
}

func TestQuirks(t *testing.T) {
	s := mustOpen(t, scripted.Config{RubbishIDs: true, ZeroWriteLength: true})
	if err := s.qp.Deliver(scripted.Message{Write: true, Data: make([]byte, 8), Region: s.mr, Imm: 3}); err != nil {
		t.Fatal(err)
	}
	s.qp.Fail(verbs.LocalAccessError, 0x88)
	got := s.poll(t)
	if len(got) != depth {
		t.Fatalf("%d completions, want %d", len(got), depth)
	}
	if got[0].ByteLen != 0 || got[0].ID != 0 || got[0].Imm.Uint32() != 3 {
		t.Errorf("write: %+v", got[0])
	}
	if got[1].Status != verbs.LocalAccessError || got[1].VendorError != 0x88 || got[1].ID != scripted.RubbishID {
		t.Errorf("failed: %+v", got[1])
	}
	for _, wc := range got[2:] {
		if wc.Status != verbs.WorkRequestFlushed || wc.ID != scripted.RubbishID {
			t.Errorf("flushed: %+v", wc)
		}
	}
	if s.qp.Outstanding() != 0 || s.qp.PostsInError() != 0 {
		t.Errorf("outstanding %d, posts in error %d", s.qp.Outstanding(), s.qp.PostsInError())
	}
	if err := s.post(1); err != nil {
		t.Fatal(err)
	}
	if got := s.poll(t); s.qp.PostsInError() != 1 || len(got) != 1 || got[0].Status != verbs.WorkRequestFlushed {
		t.Errorf("posts in error %d, completions %+v", s.qp.PostsInError(), got)
	}
}

func TestPostLimits(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	if err := s.post(1); !errors.Is(err, verbs.ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	if err := s.qp.Deliver(scripted.Message{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.qp.PostReceive([]verbs.ReceiveRequest{{Address: s.mr.Address() + 1<<16 - 8, Length: 9, LKey: s.mr.LKey()}})
	if !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("past the region: %v", err)
	}
	s.p.Inject(scripted.Fault{Step: scripted.StepPostReceive, Posted: 1})
	n, err := s.qp.PostReceive(make([]verbs.ReceiveRequest, 2))
	if n != 1 || !errors.Is(err, scripted.ErrFault) {
		t.Errorf("posted %d, %v; want 1 and the fault", n, err)
	}
}

func TestStates(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	if err := s.qp.ReadyToReceive(peer()); !errors.Is(err, verbs.ErrState) {
		t.Errorf("RTR from RTS: %v", err)
	}
	if err := s.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	if err := s.qp.Deliver(scripted.Message{}); !errors.Is(err, verbs.ErrState) {
		t.Errorf("deliver in error: %v", err)
	}
	if got := s.poll(t); len(got) != depth {
		t.Errorf("%d flushed, want %d", len(got), depth)
	}
	pd, err := s.device.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pd.CreateQP(verbs.QPConfig{RecvCQ: s.cq, MaxReceives: 1}); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("more receives than the completion queue holds: %v", err)
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
}

func TestOverrunIsFinal(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	s.cq.Push(make([]verbs.WorkCompletion, depth+1)...)
	if e := <-s.device.Events(); e.Kind != verbs.EventCQError {
		t.Errorf("event %v", e.Kind)
	}
	if got := s.poll(t); len(got) != depth {
		t.Errorf("%d completions, want %d", len(got), depth)
	}
	for range 2 {
		if _, err := s.cq.Poll(make([]verbs.WorkCompletion, 1)); !errors.Is(err, verbs.ErrOverrun) {
			t.Errorf("error %v", err)
		}
	}
}

func TestArmWaitWake(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	wait := func(timeout time.Duration, want bool) {
		t.Helper()
		if got, err := s.cq.Wait(timeout); got != want || err != nil {
			t.Errorf("wait: %v, %v; want %v", got, err, want)
		}
	}
	if err := s.qp.Deliver(scripted.Message{}); err != nil {
		t.Fatal(err)
	}
	wait(0, false) // not armed
	if err := s.cq.Arm(); err != nil {
		t.Fatal(err)
	}
	wait(0, false) // the completion came before
	s.poll(t)
	go func() { _ = s.qp.Deliver(scripted.Message{}) }()
	wait(-1, true)
	wait(0, false) // one notification a call of Arm
	s.cq.Wake()
	wait(-1, false)
}

func TestGenerator(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	s.qp.Generate(&scripted.Generator{Opcode: verbs.OpRecvRDMAWithImm, ByteLen: 512, Imm: 41, Count: 10})
	first := s.poll(t)
	if err := s.post(depth); err != nil {
		t.Fatal(err)
	}
	if err := s.cq.Arm(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.cq.Wait(time.Minute); !got || err != nil {
		t.Errorf("wait: %v, %v", got, err)
	}
	second := s.poll(t)
	if len(first) != depth || len(second) != 2 {
		t.Fatalf("%d and %d completions, want %d and 2", len(first), len(second), depth)
	}
	for i, wc := range append(first, second...) {
		want := verbs.WorkCompletion{ID: uint64(i % depth), Opcode: verbs.OpRecvRDMAWithImm, Flags: verbs.WithImm,
			ByteLen: 512, Imm: verbs.ImmediateOf(uint32(41 + i)), QPN: uint32(s.qp.QPN())}
		if wc != want {
			t.Errorf("completion %d: %+v, want %+v", i, wc, want)
		}
	}
	if got := s.poll(t); len(got) != 0 {
		t.Errorf("%d completions after the last", len(got))
	}
}

func TestGeneratorAllocatesNothing(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	s.qp.Generate(&scripted.Generator{ByteLen: 4096})
	wcs := make([]verbs.WorkCompletion, depth)
	rs := make([]verbs.ReceiveRequest, depth)
	if n := testing.AllocsPerRun(1000, func() {
		n, err := s.cq.Poll(wcs)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		for i, wc := range wcs[:n] {
			rs[i] = verbs.ReceiveRequest{ID: wc.ID, Address: s.mr.Address(), Length: 4096, LKey: s.mr.LKey()}
		}
		if _, err := s.qp.PostReceive(rs[:n]); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestEventsDropTheOldest(t *testing.T) {
	d, err := scripted.New(scripted.Config{}).Open("")
	if err != nil {
		t.Fatal(err)
	}
	const sent = 100
	for i := range sent {
		d.(*scripted.Device).Emit(verbs.Event{Kind: verbs.EventPortDown, Cause: fmt.Sprint(i)})
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var last string
	n := 0
	for e := range d.Events() {
		last = e.Cause
		n++
	}
	if last != fmt.Sprint(sent-1) || n == sent || n == 0 {
		t.Errorf("%d events, the last %s", n, last)
	}
}

func TestNoSuchDevice(t *testing.T) {
	if _, err := scripted.New(scripted.Config{}).Open("mlx5_0"); !errors.Is(err, verbs.ErrNoDevice) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkGenerator(b *testing.B) {
	const batch = 64
	p := scripted.New(scripted.Config{})
	d, _ := p.Open("")
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(batch)
	qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: batch})
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(qp.Init(verbs.LocalWrite|verbs.RemoteWrite), qp.ReadyToReceive(peer())); err != nil {
		b.Fatal(err)
	}
	wcs := make([]verbs.WorkCompletion, batch)
	rs := make([]verbs.ReceiveRequest, batch)
	if _, err := qp.PostReceive(rs); err != nil {
		b.Fatal(err)
	}
	qp.(*scripted.QueuePair).Generate(&scripted.Generator{Opcode: verbs.OpRecvRDMAWithImm, ByteLen: 4096})
	b.ReportAllocs()
	for n := 0; n < b.N; {
		k, err := cq.Poll(wcs)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := qp.PostReceive(rs[:k]); err != nil {
			b.Fatal(err)
		}
		n += k
	}
}
