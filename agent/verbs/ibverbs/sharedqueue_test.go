//go:build linux && cgo && ibverbs

package ibverbs

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

// sharedRig is a rig whose own queue pair stays in RESET, and n queue pairs in
// RTS on a shared receive queue of depth receives.
type sharedRig struct {
	*rig
	srq *sharedQueue
	cq  *completionQueue
	qps []*queuePair
}

const sharedDepth = 300 // more than one chain

func newSharedRig(t testing.TB, n int) *sharedRig {
	g := &sharedRig{rig: newRig(t, 8, sharedDepth*64)}
	cq, err := g.dev.CreateCQ(sharedDepth)
	g.must(err)
	g.cq = cq.(*completionQueue)
	t.Cleanup(func() { g.must(cq.Close()) })
	srq, err := g.pd.CreateSRQ(sharedDepth)
	g.must(err)
	g.srq = srq.(*sharedQueue)
	t.Cleanup(func() { g.must(errors.Join(srq.Close(), srq.Close())) })
	for range n {
		qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: cq, SRQ: srq})
		g.must(err)
		t.Cleanup(func() { g.must(errors.Join(qp.Close(), qp.Close())) })
		g.must(qp.Init(verbs.LocalWrite))
		g.must(qp.ReadyToReceive(peer()))
		g.must(qp.ReadyToSend(1))
		g.qps = append(g.qps, qp.(*queuePair))
	}
	return g
}

func (g *sharedRig) qpn(i int) uint32 { return uint32(g.qps[i].qpn) }

func (g *sharedRig) requests(first, n int) []verbs.ReceiveRequest {
	rs := make([]verbs.ReceiveRequest, n)
	for i := range rs {
		id := uint64(first + i)
		rs[i] = verbs.ReceiveRequest{ID: id, Address: g.mr.base + id%sharedDepth*64, Length: 64, LKey: g.mr.lkey}
	}
	return rs
}

func (g *sharedRig) post(first, n int) {
	g.Helper()
	if k, err := g.srq.PostReceive(g.requests(first, n)); err != nil || k != n {
		g.Fatalf("posted %d of %d: %v", k, n, err)
	}
}

func (g *sharedRig) one(want verbs.WorkCompletion) {
	g.Helper()
	wcs := make([]verbs.WorkCompletion, 4)
	n, err := g.cq.Poll(wcs)
	if err != nil || n != 1 {
		g.Fatalf("poll: %d, %v", n, err)
	}
	got := wcs[0]
	if got.ID != want.ID || got.Status != want.Status || got.QPN != want.QPN || got.Status == verbs.Success && got.ByteLen != want.ByteLen {
		g.Fatalf("completion %+v, want %+v", got, want)
	}
}

// Messages of several queue pairs take the receives in the order of posting,
// for many times the depth of the queue.
func TestSharedQueueServesAllInTurn(t *testing.T) {
	g := newSharedRig(t, 3)
	g.post(0, sharedDepth)
	if n := double.Posted(g.qpn(1)); n != sharedDepth {
		t.Fatalf("the hardware has %d receives", n)
	}
	for i := range 3 * sharedDepth {
		data := bytes.Repeat([]byte{byte(i)}, 1+i%64)
		qp := i * i % 3
		g.must(double.Deliver(g.qpn(qp), double.Message{Data: data}))
		g.one(verbs.WorkCompletion{ID: uint64(i), QPN: g.qpn(qp), ByteLen: uint32(len(data))})
		if at := i % sharedDepth * 64; !bytes.Equal(g.mem.Bytes()[at:at+len(data)], data) {
			t.Fatalf("message %d is wrong", i)
		}
		g.post(i+sharedDepth, 1)
	}
	if n, err := g.srq.PostReceive(g.requests(0, 1)); n != 0 || !errors.Is(err, verbs.ErrFull) {
		t.Errorf("one more than fit: %d, %v", n, err)
	}
}

func TestSharedQueueOutlivesQueuePairs(t *testing.T) {
	g := newSharedRig(t, 3)
	g.post(0, 4)
	g.must(g.srq.Limit(3))
	g.must(g.qps[0].SetError())
	g.must(g.qps[0].SetError())
	if e := g.event(); e.Kind != verbs.EventLastWQE || e.QPN != g.qps[0].qpn {
		t.Fatalf("event %+v", e)
	}
	g.noEvent()
	if err := double.Deliver(g.qpn(1), double.Message{Data: make([]byte, 65)}); !errors.Is(err, syscall.EMSGSIZE) {
		t.Fatal(err)
	}
	g.one(verbs.WorkCompletion{ID: 0, QPN: g.qpn(1), Status: verbs.LocalLengthError})
	if e := g.event(); e.Kind != verbs.EventLastWQE || e.QPN != g.qps[1].qpn {
		t.Fatalf("event %+v", e)
	}
	if s := g.qps[1].State(); s != verbs.Error {
		t.Fatalf("state %v", s)
	}
	g.must(g.qps[1].SetError())
	g.noEvent()
	g.must(double.Deliver(g.qpn(2), double.Message{Data: make([]byte, 64)}))
	g.one(verbs.WorkCompletion{ID: 1, QPN: g.qpn(2), ByteLen: 64})
	if e := g.event(); e.Kind != verbs.EventSRQLimit {
		t.Fatalf("event %+v", e)
	}
	for i := range 2 {
		g.must(double.Deliver(g.qpn(2), double.Message{Data: make([]byte, 64)}))
		g.one(verbs.WorkCompletion{ID: uint64(2 + i), QPN: g.qpn(2), ByteLen: 64})
	}
	g.noEvent()
	if err := double.Deliver(g.qpn(2), double.Message{}); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("deliver without a receive: %v", err)
	}
}

func TestSharedQueueRefusals(t *testing.T) {
	g := newSharedRig(t, 1)
	if a := g.dev.Attributes(); a.MaxSRQ != 256 || a.MaxSRQReceives != 1<<15 {
		t.Errorf("attributes %+v", a)
	}
	for _, n := range []int{0, 1<<15 + 1} {
		_, err := g.pd.CreateSRQ(n)
		wantError(t, err, verbs.ErrLimit, "up to 32768")
	}
	double.Fail("create_srq", syscall.ENOMEM, 0, 1)
	_, err := g.pd.CreateSRQ(1)
	wantError(t, err, verbs.ErrLimit, "256 shared receive queues")
	double.Fail("modify_srq", syscall.EINVAL, 0, 1)
	wantError(t, g.srq.Limit(1), syscall.EINVAL, "limit")
	wantError(t, g.srq.Limit(sharedDepth+1), verbs.ErrLimit)
	_, err = g.qps[0].PostReceive(g.requests(0, 1))
	wantError(t, err, verbs.ErrShared)
	double.Fail("post_srq_recv", syscall.ENOMEM, 2, 1)
	n, err := g.srq.PostReceive(g.requests(0, 5))
	wantError(t, err, verbs.ErrFull, "3 of 5")
	if n != 2 || double.Posted(g.qpn(0)) != 2 {
		t.Errorf("%d posted, the hardware has %d", n, double.Posted(g.qpn(0)))
	}
	_, err = g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.rig.cq, SRQ: g.srq})
	wantError(t, err, verbs.ErrLimit, "create it that deep")
	other, err := g.dev.AllocPD()
	g.must(err)
	_, err = other.CreateQP(verbs.QPConfig{RecvCQ: g.cq, SRQ: g.srq})
	wantError(t, err, verbs.ErrAccess, "protection domain")
	g.must(other.Close())
	wantError(t, g.srq.Close(), verbs.ErrBusy, "1 queue pairs")
	g.must(g.qps[0].Close())
	if g.cq.promised != 0 {
		t.Errorf("promised %d", g.cq.promised)
	}
	double.Fail("destroy_srq", syscall.EBUSY, 0, 1)
	wantError(t, g.srq.Close(), verbs.ErrBusy)
	g.post(0, 1) // it is still there
	g.must(g.srq.Close())
	_, err = g.srq.PostReceive(g.requests(0, 1))
	wantError(t, err, verbs.ErrClosed)
	wantError(t, g.srq.Limit(1), verbs.ErrClosed)
	_, err = g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, SRQ: g.srq})
	wantError(t, err, verbs.ErrClosed)
}

func TestSharedPostAllocatesNothing(t *testing.T) {
	g := newSharedRig(t, 1)
	rs := g.requests(0, 1)
	if n := testing.AllocsPerRun(sharedDepth-2, func() {
		if k, err := g.srq.PostReceive(rs); k != 1 || err != nil {
			t.Fatal(k, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a post", n)
	}
}
