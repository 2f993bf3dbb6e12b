package scripted

import (
	"fmt"
	"sync"

	"rocelink/agent/verbs"
)

// receiveQueue is a ring of receives. That of one queue pair is under the
// completion queue's mutex; a shared one has its own, which is taken last.
type receiveQueue struct {
	mu     *sync.Mutex // nil unless it is shared
	d      *Device     // of a shared one, for its events
	object string
	limit  int

	ring       []verbs.ReceiveRequest
	head, held int
	lastRegion *MemoryRegion
}

func (q *receiveQueue) lock() {
	if q.mu != nil {
		q.mu.Lock()
	}
}

func (q *receiveQueue) unlock() {
	if q.mu != nil {
		q.mu.Unlock()
	}
}

func (q *receiveQueue) count() int {
	q.lock()
	defer q.unlock()
	return q.held
}

// take removes the oldest receive. It runs under the lock.
func (q *receiveQueue) take() (r verbs.ReceiveRequest, ok bool) {
	if q.held == 0 {
		return r, false
	}
	r = q.ring[q.head]
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
	q.held--
	if q.held < q.limit {
		q.limit = 0
		q.d.Emit(verbs.Event{Kind: verbs.EventSRQLimit, Cause: q.object + " is low"})
	}
	return r, true
}

// put adds a receive of a queue pair or shared queue of pd. It runs under the
// lock.
func (q *receiveQueue) put(pd *ProtectionDomain, r *verbs.ReceiveRequest) error {
	if r.Length > 0 && q.region(pd, r) == nil {
		return verbs.ErrAccess
	}
	if q.held == len(q.ring) {
		return verbs.ErrFull
	}
	at := q.head + q.held
	if at >= len(q.ring) {
		at -= len(q.ring)
	}
	q.ring[at] = *r
	q.held++
	return nil
}

// region returns the region of the domain that covers the receive, or nil. It
// runs under the lock and remembers the last answer.
func (q *receiveQueue) region(pd *ProtectionDomain, r *verbs.ReceiveRequest) *MemoryRegion {
	if mr := q.lastRegion; mr != nil && mr.takes(pd, r) {
		return mr
	}
	p := pd.d.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mr := range p.regions {
		if mr.takes(pd, r) {
			q.lastRegion = mr
			return mr
		}
	}
	return nil
}

// SharedReceiveQueue implements verbs.SharedReceiveQueue.
type SharedReceiveQueue struct {
	receiveQueue
	own    sync.Mutex
	pd     *ProtectionDomain
	users  int
	closed bool
}

// CreateSRQ implements verbs.ProtectionDomain.
func (pd *ProtectionDomain) CreateSRQ(maxReceives int) (verbs.SharedReceiveQueue, error) {
	p := pd.d.p
	a := pd.d.Attributes()
	err := p.enter(StepCreateSRQ)
	switch {
	case err != nil:
	case pd.closed.Load():
		err = verbs.ErrClosed
	case maxReceives < 1 || maxReceives > a.MaxSRQReceives:
		err = fmt.Errorf("%w: %d receives, want 1 to %d", verbs.ErrLimit, maxReceives, a.MaxSRQReceives)
	case int(pd.d.srqs.Load()) >= a.MaxSRQ:
		err = fmt.Errorf("%w: %d shared receive queues", verbs.ErrLimit, a.MaxSRQ)
	}
	if err != nil {
		return nil, p.record(StepCreateSRQ, "srq", fmt.Errorf("create shared receive queue: %w", err))
	}
	q := &SharedReceiveQueue{pd: pd}
	q.receiveQueue = receiveQueue{mu: &q.own, d: pd.d, ring: make([]verbs.ReceiveRequest, maxReceives)}
	p.mu.Lock()
	p.srqs++
	q.object = fmt.Sprintf("srq %d", p.srqs)
	p.mu.Unlock()
	pd.srqs.Add(1)
	pd.d.srqs.Add(1)
	_ = p.record(StepCreateSRQ, q.object, nil)
	return q, nil
}

// use counts one more queue pair, unless the queue is closed.
func (q *SharedReceiveQueue) use() bool {
	q.own.Lock()
	defer q.own.Unlock()
	if !q.closed {
		q.users++
	}
	return !q.closed
}

func (q *SharedReceiveQueue) leave() {
	q.own.Lock()
	q.users--
	q.own.Unlock()
}

// PostReceive implements verbs.SharedReceiveQueue.
func (q *SharedReceiveQueue) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	f := q.pd.d.p.fails(StepPostReceive)
	if f != nil {
		rs = rs[:min(f.Posted, len(rs))]
	}
	q.own.Lock()
	defer q.own.Unlock()
	if q.closed {
		return 0, fmt.Errorf("post receive on %s: %w", q.object, verbs.ErrClosed)
	}
	for n := range rs {
		if err := q.put(q.pd, &rs[n]); err != nil {
			return n, fmt.Errorf("post receive %d of %d on %s: %w", n+1, len(rs), q.object, err)
		}
	}
	if f != nil {
		return len(rs), fmt.Errorf("post receive on %s: %w", q.object, f.Err)
	}
	return len(rs), nil
}

// Outstanding returns how many receives are posted and not taken.
func (q *SharedReceiveQueue) Outstanding() int { return q.count() }

// Limit implements verbs.SharedReceiveQueue.
func (q *SharedReceiveQueue) Limit(below int) error {
	q.own.Lock()
	defer q.own.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("limit of %s: %w", q.object, verbs.ErrClosed)
	case below < 0 || below > len(q.ring):
		return fmt.Errorf("limit of %s: %w: %d, want 0 to %d", q.object, verbs.ErrLimit, below, len(q.ring))
	}
	q.limit = below
	return nil
}

// Close implements verbs.SharedReceiveQueue.
func (q *SharedReceiveQueue) Close() error {
	p := q.pd.d.p
	if err := p.enter(StepCloseSRQ); err != nil {
		return p.record(StepCloseSRQ, q.object, fmt.Errorf("close %s: %w", q.object, err))
	}
	q.own.Lock()
	users, closed := q.users, q.closed
	q.closed = closed || users == 0
	q.own.Unlock()
	switch {
	case users > 0:
		return p.record(StepCloseSRQ, q.object, fmt.Errorf("close %s: %w: %d queue pairs take from it", q.object, verbs.ErrBusy, users))
	case closed:
		return nil
	}
	q.pd.srqs.Add(-1)
	q.pd.d.srqs.Add(-1)
	return p.record(StepCloseSRQ, q.object, nil)
}
