package soft

import (
	"bytes"
	"errors"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// share makes n queue pairs on one shared receive queue of depth receives.
func share(t testing.TB, n, depth int, o options) []*rig {
	o.shared, o.depth = depth, 2*depth
	gs := []*rig{newRig(t, o)}
	for len(gs) < n {
		o.with = gs[0]
		gs = append(gs, newRig(t, o))
	}
	return gs
}

func (g *rig) postShared(n, stride int, length uint32) {
	g.t.Helper()
	for i := range n {
		r := verbs.ReceiveRequest{ID: uint64(100 + i), Address: g.mr.base + uint64(i*stride), Length: length, LKey: g.mr.lkey}
		if k, err := g.srq.PostReceive([]verbs.ReceiveRequest{r}); err != nil || k != 1 {
			g.t.Fatalf("posted %d: %v", k, err)
		}
	}
}

// Messages take the oldest receive of all, whoever sends; the completion says
// who did, and an empty queue is "receiver not ready" that costs nothing.
func TestSharedQueueServesAllInTurn(t *testing.T) {
	const stride = 4096
	gs := share(t, 3, 8, options{})
	g := gs[0]
	g.postShared(6, stride, stride)
	for i := range 6 {
		from := gs[i%3]
		data := pattern(2000+i, i)
		from.acks(from.exchange(from.message(roce.SendOnly, data, roce.RETH{}, 0)...), from.psn.Add(-1), uint32(i/3+1))
		got := g.poll()
		want := verbs.WorkCompletion{ID: uint64(100 + i), Opcode: verbs.OpRecv, ByteLen: uint32(len(data)), QPN: uint32(from.qp.qpn)}
		if len(got) != 1 || got[0] != want {
			t.Fatalf("message %d: completions %+v, want %+v", i, got, want)
		}
		if !bytes.Equal(g.memory.Bytes()[i*stride:][:len(data)], data) {
			t.Fatalf("message %d is wrong", i)
		}
	}
	for _, from := range gs {
		psn := from.psn
		ps := from.message(roce.SendOnly, pattern(10, 1), roce.RETH{}, 0)
		from.one(from.exchange(ps...), roce.RNRNak(12), psn)
		g.postShared(1, stride, stride)
		from.acks(from.exchange(ps...), psn, 3)
		if got := g.poll(); len(got) != 1 || got[0].QPN != uint32(from.qp.qpn) {
			t.Fatalf("completions %+v", got)
		}
	}
}

// A queue pair that fails or is set to error flushes what a message has taken
// and nothing else; the others go on.
func TestSharedQueueOutlivesQueuePairs(t *testing.T) {
	gs := share(t, 3, 8, options{mtu: 256})
	a, b, c := gs[0], gs[1], gs[2]
	a.postShared(4, 4096, 1024)

	// The first packet of a message of three takes a receive.
	ps := a.message(roce.SendOnly, pattern(600, 1), roce.RETH{}, 0)
	a.exchange(ps[0])
	if err := a.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	if e := a.event(); e.Kind != verbs.EventLastWQE || e.QPN != a.qp.qpn {
		t.Fatalf("event %+v", e)
	}
	got := a.poll()
	if len(got) != 1 || got[0].ID != 100 || got[0].Status != verbs.WorkRequestFlushed || got[0].QPN != uint32(a.qp.qpn) {
		t.Fatalf("completions %+v", got)
	}

	// Too long for its receive: an error for b alone.
	b.exchange(b.message(roce.SendOnly, pattern(1025, 1), roce.RETH{}, 0)...)
	if e := b.event(); e.Kind != verbs.EventQPFatal || e.QPN != b.qp.qpn {
		t.Fatalf("event %+v", e)
	}
	if e := b.event(); e.Kind != verbs.EventLastWQE || e.QPN != b.qp.qpn {
		t.Fatalf("event %+v", e)
	}
	got = a.poll()
	if len(got) != 1 || got[0].ID != 101 || got[0].Status != verbs.LocalLengthError {
		t.Fatalf("completions %+v", got)
	}
	if err := b.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	if n := len(a.d.events); n != 0 {
		t.Fatalf("%d events more: the last receive is reached once", n)
	}

	for i := range 2 {
		c.acks(c.exchange(c.message(roce.SendOnlyImm, pattern(1024, i), roce.RETH{}, uint32(i))...), c.psn.Add(-1), uint32(i+1))
		if got = a.poll(); len(got) != 1 || got[0].ID != uint64(102+i) || got[0].Status != verbs.Success {
			t.Fatalf("completions %+v", got)
		}
	}
}

func TestSharedQueueLimit(t *testing.T) {
	gs := share(t, 2, 4, options{})
	g := gs[0]
	g.postShared(4, 64, 64)
	if err := g.srq.Limit(5); !errors.Is(err, verbs.ErrLimit) {
		t.Fatalf("error %v", err)
	}
	if err := g.srq.Limit(3); err != nil {
		t.Fatal(err)
	}
	for i, from := range []*rig{gs[0], gs[1], gs[0]} {
		from.exchange(from.message(roce.SendOnly, pattern(8, i), roce.RETH{}, 0)...)
		want := 0
		if i == 1 {
			want = 1 // and only once
		}
		if n := len(g.d.events); n != want {
			t.Fatalf("%d events after message %d, want %d", n, i, want)
		}
		if want == 1 {
			if e := g.event(); e.Kind != verbs.EventSRQLimit {
				t.Fatalf("event %+v", e)
			}
		}
	}
}

func TestSharedQueueRefusals(t *testing.T) {
	gs := share(t, 2, 4, options{})
	g := gs[0]
	other := newRig(t, options{device: g.d, shared: 4})
	for _, n := range []int{0, -1, maxReceivesShared + 1} {
		if _, err := g.pd.CreateSRQ(n); !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("%d receives: %v", n, err)
		}
	}
	if _, err := g.qp.PostReceive(make([]verbs.ReceiveRequest, 1)); !errors.Is(err, verbs.ErrShared) {
		t.Errorf("post on a queue pair: %v", err)
	}
	foreign := verbs.ReceiveRequest{Address: other.mr.base, Length: 1, LKey: other.mr.lkey}
	if n, err := g.srq.PostReceive([]verbs.ReceiveRequest{{}, foreign, {}}); n != 1 || !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("memory of another domain: %d, %v", n, err)
	}
	if n, err := g.srq.PostReceive(make([]verbs.ReceiveRequest, 5)); n != 3 || !errors.Is(err, verbs.ErrFull) {
		t.Errorf("5 more into 4: %d, %v", n, err)
	}
	if _, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, SRQ: other.srq}); !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("shared queue of another domain: %v", err)
	}
	small, err := g.d.CreateCQ(3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: small, SRQ: g.srq}); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("completion queue of 3 for a shared queue of 4: %v", err)
	}
	if err := small.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.srq.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("close in use: %v", err)
	}
	promised := g.cq.promised
	for i := len(gs) - 1; i >= 0; i-- {
		if err := gs[i].qp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if promised != 4 || g.cq.promised != 0 {
		t.Errorf("promised %d, and then %d", promised, g.cq.promised)
	}
	if err := g.pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("close the domain: %v", err)
	}
	for range 2 {
		if err := g.srq.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.srq.PostReceive(make([]verbs.ReceiveRequest, 1)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("post after close: %v", err)
	}
	if err := g.srq.Limit(1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("limit after close: %v", err)
	}
	if _, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, SRQ: g.srq}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("queue pair on a closed queue: %v", err)
	}
}
