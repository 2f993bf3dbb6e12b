package scripted_test

import (
	"errors"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// Two queue pairs on one shared queue: each message takes the oldest receive,
// an error flushes nothing, and the queue is busy until both are closed.
func TestSharedQueue(t *testing.T) {
	s := mustOpen(t, scripted.Config{})
	pd, err := s.p.Devices()[0].AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.Register(s.memory, verbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := s.p.Devices()[0].CreateCQ(4)
	if err != nil {
		t.Fatal(err)
	}
	srq, err := pd.CreateSRQ(4)
	if err != nil {
		t.Fatal(err)
	}
	var qps []*scripted.QueuePair
	for range 2 {
		qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, SRQ: srq})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(qp.Init(verbs.LocalWrite), qp.ReadyToReceive(peer())); err != nil {
			t.Fatal(err)
		}
		qps = append(qps, qp.(*scripted.QueuePair))
	}
	if n, err := qps[0].PostReceive(make([]verbs.ReceiveRequest, 1)); n != 0 || !errors.Is(err, verbs.ErrShared) {
		t.Errorf("post on a queue pair: %d, %v", n, err)
	}
	for i := range 4 {
		r := verbs.ReceiveRequest{ID: uint64(i), Address: mr.Address() + uint64(i)*64, Length: 64, LKey: mr.LKey()}
		if _, err := srq.PostReceive([]verbs.ReceiveRequest{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := srq.Limit(2); err != nil {
		t.Fatal(err)
	}
	expect := func(id uint64, from int, status verbs.Status) {
		t.Helper()
		var wcs [8]verbs.WorkCompletion
		n, err := cq.Poll(wcs[:])
		if err != nil || n != 1 || wcs[0].ID != id || wcs[0].QPN != uint32(qps[from].QPN()) || wcs[0].Status != status {
			t.Fatalf("%d completions, %+v, %v", n, wcs[0], err)
		}
	}
	event := func(k verbs.EventKind) {
		t.Helper()
		select {
		case e := <-s.p.Devices()[0].Events():
			if e.Kind != k {
				t.Fatalf("event %+v, want %v", e, k)
			}
		default:
			t.Fatalf("no event, want %v", k)
		}
	}
	for i, from := range []int{0, 1} {
		if err := qps[from].Deliver(scripted.Message{Data: []byte("frame")}); err != nil {
			t.Fatal(err)
		}
		expect(uint64(i), from, verbs.Success)
	}
	qps[0].Fail(verbs.LocalLengthError, 1)
	expect(2, 0, verbs.LocalLengthError)
	event(verbs.EventSRQLimit)
	event(verbs.EventLastWQE)
	if n := srq.(*scripted.SharedReceiveQueue).Outstanding(); n != 1 {
		t.Fatalf("%d receives are posted, want 1: an error of one queue pair flushes none", n)
	}
	if err := qps[1].Deliver(scripted.Message{Data: []byte("frame")}); err != nil {
		t.Fatal(err)
	}
	expect(3, 1, verbs.Success)
	if err := qps[1].Deliver(scripted.Message{}); !errors.Is(err, scripted.ErrNoReceive) {
		t.Errorf("deliver without a receive: %v", err)
	}
	if err := srq.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("close in use: %v", err)
	}
	if err := errors.Join(qps[1].Close(), qps[0].Close()); err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("close the domain: %v", err)
	}
	if err := errors.Join(srq.Close(), srq.Close(), cq.Close(), mr.Close(), pd.Close()); err != nil {
		t.Fatal(err)
	}
}
