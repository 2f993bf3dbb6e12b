//go:build linux && cgo && ibverbs

package ibverbs

import (
	"testing"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

// Posting and polling in one call is what both are one after the other: what
// either says, how many there were, and that neither keeps the other from its
// work.
func TestPostPoll(t *testing.T) {
	g := newSharedRig(t, 1)
	wcs := make([]verbs.WorkCompletion, 4)
	both := func(to verbs.ReceiveQueue, n, posted int, postErr error, found int) {
		t.Helper()
		gotPosted, gotPostErr, gotFound, err := g.cq.PostPoll(to, g.requests(0, n), wcs)
		if gotPosted != posted || gotFound != found || err != nil {
			t.Errorf("%d posted, %d found, %v; want %d and %d", gotPosted, gotFound, err, posted, found)
		}
		if postErr == nil && gotPostErr != nil {
			t.Error(gotPostErr)
		} else if postErr != nil {
			wantError(t, gotPostErr, postErr, "post receive")
		}
	}
	deliver := func() { g.must(double.Deliver(g.qpn(0), double.Message{Data: []byte("x")})) }

	both(g.srq, 3, 3, nil, 0)
	deliver()
	deliver()
	both(g.srq, 4, 4, nil, 2)
	if wcs[0].ID != 0 || wcs[1].ID != 1 || wcs[1].QPN != g.qpn(0) {
		t.Errorf("found %+v", wcs[:2])
	}
	both(g.srq, sharedDepth, sharedDepth-5, verbs.ErrFull, 0)
	deliver()
	both(g.srq, 0, 0, nil, 1)
	deliver()
	both(g.srq, 3, 1, verbs.ErrFull, 1) // the room of a message is there when it was polled
	both(g.srq, 2, 1, verbs.ErrFull, 0)
	deliver()
	both(g.qps[0], 1, 0, verbs.ErrShared, 1)
	both(g.qp, 1, 0, verbs.ErrState, 0)
	if n, _, found, err := g.cq.PostPoll(g.srq, g.requests(0, 1), nil); n != 1 || found != 0 || err != nil {
		t.Errorf("without room for completions: %d posted, %d found, %v", n, found, err)
	}

	// The rig's own queue pair and completion queue.
	g.connect()
	own := func(n int) (int, error, int, error) {
		return g.rig.cq.PostPoll(g.qp, []verbs.ReceiveRequest{{ID: 1, Address: g.mr.base, Length: 64, LKey: g.mr.lkey}, {ID: 2, Address: g.mr.base, Length: 64, LKey: g.mr.lkey}}[:n], wcs)
	}
	if n, postErr, found, err := own(2); n != 2 || postErr != nil || found != 0 || err != nil {
		t.Errorf("%d posted, %v, %d found, %v", n, postErr, found, err)
	}
	g.must(double.Deliver(g.rig.qpn(), double.Message{Data: []byte("y")}))
	if n, postErr, found, err := own(1); n != 1 || postErr != nil || found != 1 || err != nil || wcs[0].ID != 1 {
		t.Errorf("%d posted, %v, %d found (%+v), %v", n, postErr, found, wcs[0], err)
	}
	g.must(g.qp.SetError())
	n, postErr, found, err := own(1)
	wantError(t, postErr, verbs.ErrState, "post receive 1 of 1")
	if n != 0 || found != 2 || err != nil || wcs[0].Status != verbs.WorkRequestFlushed {
		t.Errorf("%d posted, %d found (%+v), %v", n, found, wcs[0], err)
	}
	g.must(g.qp.Close())
	n, postErr, found, err = own(1)
	wantError(t, postErr, verbs.ErrClosed, "post receive 1 of 1")
	if n != 0 || found != 0 || err != nil {
		t.Errorf("%d posted, %d found, %v", n, found, err)
	}
	g.must(g.rig.cq.Close())
	n, postErr, found, err = g.rig.cq.PostPoll(g.srq, g.requests(0, 1), wcs)
	wantError(t, err, verbs.ErrClosed, "poll")
	if n != 0 || found != 0 {
		t.Errorf("%d posted, %v, %d found", n, postErr, found)
	}
}

// A look that takes receives with it allocates nothing either.
func TestPostPollAllocatesNothing(t *testing.T) {
	g := newRig(t, 64, 64*64)
	g.connect()
	double.Generate(g.qpn(), int(verbs.OpRecv), 0, 8, true)
	rs, wcs := make([]verbs.ReceiveRequest, 64), make([]verbs.WorkCompletion, 64)
	for i := range rs {
		rs[i] = g.slot(i)
	}
	g.post(rs...)
	n, total := 0, 0
	if allocs := testing.AllocsPerRun(1000, func() {
		for i := range n {
			rs[i].ID = wcs[i].ID
		}
		var postErr, err error
		if _, postErr, n, err = g.cq.PostPoll(g.qp, rs[:n], wcs); postErr != nil || err != nil {
			t.Fatal(postErr, err)
		}
		total += n
	}); allocs != 0 || total < 60_000 {
		t.Errorf("%v allocations a call, %d messages", allocs, total)
	}
}
