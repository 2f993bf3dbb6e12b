package soft

import (
	"fmt"
	"sync/atomic"
	"time"

	"rocelink/agent/verbs"
)

// completionQueue is a ring that the responder fills and the caller polls.
type completionQueue struct {
	device *device
	ring   []verbs.WorkCompletion // power of two, no pointers
	depth  uint64
	bell   verbs.Bell

	// Under the device's mutex.
	users    int // queue pairs that name it
	promised int // receives of the queue pairs that complete here

	closed atomic.Bool

	_        [cacheLine]byte
	put      uint64 // the responder's copy of tail
	seenHead uint64
	tail     atomic.Uint64
	overrun  atomic.Bool // written by the responder only
	lost     bool        // the responder has reported the overrun

	_     [cacheLine]byte
	taken uint64 // the poller's copy of head
	head  atomic.Uint64
	armed atomic.Bool
	_     [cacheLine]byte
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(depth int) (verbs.CompletionQueue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, fmt.Errorf("create completion queue on %s: %w", d.name, verbs.ErrClosed)
	case depth < 1 || depth > maxCQE:
		return nil, fmt.Errorf("create completion queue on %s: %w: depth %d, want 1 to %d", d.name, verbs.ErrLimit, depth, maxCQE)
	case d.cqs >= maxCQ:
		return nil, fmt.Errorf("create completion queue on %s: %w: %d exist", d.name, verbs.ErrLimit, d.cqs)
	}
	d.cqs++
	return &completionQueue{
		device: d,
		ring:   make([]verbs.WorkCompletion, ceilPow2(depth)),
		depth:  uint64(depth),
		bell:   verbs.NewBell(),
	}, nil
}

// Depth implements verbs.CompletionQueue.
func (cq *completionQueue) Depth() int { return int(cq.depth) }

// push adds a completion and reports whether there was room. Responder only.
// The first completion that is lost makes the queue unusable: who counts
// completions could never trust it again.
func (cq *completionQueue) push(wc *verbs.WorkCompletion) bool {
	if cq.put-cq.seenHead >= cq.depth {
		cq.seenHead = cq.head.Load()
		if cq.put-cq.seenHead >= cq.depth {
			cq.overrun.Store(true)
		}
	}
	if cq.overrun.Load() {
		cq.signal()
		return false
	}
	cq.ring[cq.put&uint64(len(cq.ring)-1)] = *wc
	cq.put++
	cq.tail.Store(cq.put)
	cq.signal()
	return true
}

// signal wakes the waiter if it asked for it.
func (cq *completionQueue) signal() {
	if cq.armed.Load() && cq.armed.CompareAndSwap(true, false) {
		cq.bell.Ring()
	}
}

// Poll implements verbs.CompletionQueue. After an overrun it first hands out
// what was completed before.
func (cq *completionQueue) Poll(wcs []verbs.WorkCompletion) (int, error) {
	// The overrun first: what came before it is in the ring by then.
	overrun := cq.overrun.Load()
	tail := cq.tail.Load()
	if tail == cq.taken {
		switch {
		case cq.closed.Load():
			return 0, fmt.Errorf("poll completion queue: %w", verbs.ErrClosed)
		case overrun:
			return 0, fmt.Errorf("poll completion queue: %w: depth %d: poll more often or make it deeper", verbs.ErrOverrun, cq.depth)
		}
		return 0, nil
	}
	n := min(len(wcs), int(tail-cq.taken))
	at := int(cq.taken & uint64(len(cq.ring)-1))
	k := copy(wcs[:n], cq.ring[at:])
	copy(wcs[k:n], cq.ring)
	cq.taken += uint64(n)
	cq.head.Store(cq.taken)
	return n, nil
}

// Arm implements verbs.CompletionQueue.
func (cq *completionQueue) Arm() error {
	if cq.closed.Load() {
		return fmt.Errorf("arm completion queue: %w", verbs.ErrClosed)
	}
	cq.bell.Hush()
	cq.armed.Store(true)
	return nil
}

// Wait implements verbs.CompletionQueue. A negative timeout is for ever.
func (cq *completionQueue) Wait(timeout time.Duration) (bool, error) {
	if cq.closed.Load() {
		return false, fmt.Errorf("wait on completion queue: %w", verbs.ErrClosed)
	}
	return cq.bell.Await(timeout), nil
}

// Wake implements verbs.CompletionQueue. With nobody waiting, the next Wait
// returns at once.
func (cq *completionQueue) Wake() { cq.bell.Wake() }

// Close implements verbs.CompletionQueue.
func (cq *completionQueue) Close() error {
	d := cq.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if cq.users > 0 {
		return fmt.Errorf("close completion queue: %w: %d queue pairs use it: close them first", verbs.ErrBusy, cq.users)
	}
	if !cq.closed.Swap(true) {
		d.cqs--
		cq.Wake()
	}
	return nil
}
