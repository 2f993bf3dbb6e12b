package soft

import (
	"fmt"
	"sync/atomic"

	"rocelink/agent/verbs"
)

// sharedQueue is a receive queue of several queue pairs. There is one responder
// a device, so that it has one taker as every other ring.
type sharedQueue struct {
	receiveQueue
	limit  atomic.Int64 // 0: no event is asked for
	closed atomic.Bool
}

// CreateSRQ implements verbs.ProtectionDomain.
func (pd *domain) CreateSRQ(maxReceives int) (verbs.SharedReceiveQueue, error) {
	const step = "create shared receive queue"
	d := pd.device
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case pd.closed:
		return nil, fmt.Errorf("%s: protection domain: %w", step, verbs.ErrClosed)
	case maxReceives < 1 || maxReceives > maxReceivesShared:
		return nil, fmt.Errorf("%s: %w: %d receives, want 1 to %d", step, verbs.ErrLimit, maxReceives, maxReceivesShared)
	case d.srqs >= maxSRQ:
		return nil, fmt.Errorf("%s: %w: %d exist", step, verbs.ErrLimit, d.srqs)
	}
	d.srqs++
	pd.srqs++
	q := &sharedQueue{receiveQueue: receiveQueue{pd: pd}}
	q.init(maxReceives)
	return q, nil
}

// completes reports whether a queue pair of the shared queue completes on cq.
// It runs under the device's mutex.
func (q *sharedQueue) completes(cq *completionQueue) bool {
	for _, qp := range q.pd.qps {
		if qp.shared == q && qp.recvCQ == cq {
			return true
		}
	}
	return false
}

// PostReceive implements verbs.SharedReceiveQueue.
func (q *sharedQueue) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	n, err := 0, verbs.ErrClosed
	if !q.closed.Load() {
		n, err = q.post(rs)
	}
	if err != nil {
		return n, fmt.Errorf("post receive %d of %d on a shared receive queue of %d: %w", n+1, len(rs), q.depth, err)
	}
	return n, nil
}

// Limit implements verbs.SharedReceiveQueue.
func (q *sharedQueue) Limit(below int) error {
	switch {
	case q.closed.Load():
		return fmt.Errorf("limit of a shared receive queue: %w", verbs.ErrClosed)
	case below < 0 || below > int(q.depth):
		return fmt.Errorf("limit of a shared receive queue: %w: %d, want 0 to %d", verbs.ErrLimit, below, q.depth)
	}
	q.limit.Store(int64(below))
	return nil
}

// took is called by the responder after it took a receive.
func (q *sharedQueue) took() {
	limit := q.limit.Load()
	if limit == 0 || int64(q.tail.Load()-q.taken) >= limit || !q.limit.CompareAndSwap(limit, 0) {
		return
	}
	q.pd.device.emit(verbs.Event{Kind: verbs.EventSRQLimit,
		Cause: fmt.Sprintf("fewer than %d of %d receives are posted: the consumers are too slow", limit, q.depth)})
}

// Close implements verbs.SharedReceiveQueue.
func (q *sharedQueue) Close() error {
	d := q.pd.device
	d.mu.Lock()
	defer d.mu.Unlock()
	users := 0
	for _, qp := range q.pd.qps {
		if qp.shared == q {
			users++
		}
	}
	if users > 0 {
		return fmt.Errorf("close shared receive queue: %w: %d queue pairs take from it: close them first", verbs.ErrBusy, users)
	}
	if !q.closed.Swap(true) {
		d.srqs--
		q.pd.srqs--
	}
	return nil
}
