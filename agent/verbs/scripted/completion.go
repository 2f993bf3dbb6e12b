package scripted

import (
	"fmt"
	"sync"
	"time"

	"rocelink/agent/verbs"
)

// CompletionQueue implements verbs.CompletionQueue.
type CompletionQueue struct {
	p      *Provider
	d      *Device
	object string

	mu      sync.Mutex // also guards the receive queues of its queue pairs
	ring    []verbs.WorkCompletion
	head    int // next to poll
	held    int
	overrun bool
	closed  bool
	armed   bool
	qps     []*QueuePair // whose receives complete here
	users   int          // queue pairs that name it at all

	bell verbs.Bell
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(depth int) (verbs.CompletionQueue, error) {
	err := d.p.enter(StepCreateCQ)
	switch a := d.Attributes(); {
	case err != nil:
	case d.isClosed():
		err = verbs.ErrClosed
	case depth < 1 || depth > a.MaxCQE:
		err = fmt.Errorf("%w: depth %d, want 1 to %d", verbs.ErrLimit, depth, a.MaxCQE)
	case int(d.cqs.Load()) >= a.MaxCQ:
		err = fmt.Errorf("%w: %d completion queues", verbs.ErrLimit, a.MaxCQ)
	}
	if err != nil {
		return nil, d.p.record(StepCreateCQ, "cq", fmt.Errorf("create completion queue: %w", err))
	}
	cq := &CompletionQueue{p: d.p, d: d, ring: make([]verbs.WorkCompletion, depth), bell: verbs.NewBell()}
	d.p.mu.Lock()
	cq.object = fmt.Sprintf("cq %d", len(d.p.cqs)+1)
	d.p.cqs = append(d.p.cqs, cq)
	d.p.mu.Unlock()
	d.cqs.Add(1)
	_ = d.p.record(StepCreateCQ, cq.object, nil)
	return cq, nil
}

// Depth implements verbs.CompletionQueue.
func (cq *CompletionQueue) Depth() int { return len(cq.ring) }

// Push adds completions as they are: no receive is consumed and nothing is
// checked, as a broken device would do it. More than fit overrun the queue.
func (cq *CompletionQueue) Push(wcs ...verbs.WorkCompletion) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	for i := range wcs {
		cq.push(&wcs[i])
	}
}

// push runs under the lock.
func (cq *CompletionQueue) push(wc *verbs.WorkCompletion) {
	if cq.closed {
		return
	}
	if cq.held == len(cq.ring) {
		if !cq.overrun {
			cq.overrun = true
			cq.d.Emit(verbs.Event{Kind: verbs.EventCQError, Cause: cq.object + " is full"})
		}
	} else {
		at := cq.head + cq.held
		if at >= len(cq.ring) {
			at -= len(cq.ring)
		}
		cq.ring[at] = *wc
		cq.held++
	}
	cq.signal()
}

// signal runs under the lock.
func (cq *CompletionQueue) signal() {
	if !cq.armed {
		return
	}
	cq.armed = false
	cq.bell.Ring()
}

// Poll implements verbs.CompletionQueue. Generators fill what room there is
// first.
func (cq *CompletionQueue) Poll(wcs []verbs.WorkCompletion) (int, error) {
	if err := cq.p.enter(StepPoll); err != nil {
		return 0, fmt.Errorf("poll %s: %w", cq.object, err)
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	n := 0
	for n < len(wcs) && cq.held > 0 {
		k := copy(wcs[n:], cq.ring[cq.head:min(cq.head+cq.held, len(cq.ring))])
		n += k
		cq.held -= k
		if cq.head += k; cq.head == len(cq.ring) {
			cq.head = 0
		}
	}
	for _, qp := range cq.qps {
		n += qp.generate(wcs[n:])
	}
	if n > 0 {
		return n, nil
	}
	switch {
	case cq.closed:
		return 0, fmt.Errorf("poll %s: %w", cq.object, verbs.ErrClosed)
	case cq.overrun:
		return 0, fmt.Errorf("poll %s: %w: depth %d", cq.object, verbs.ErrOverrun, len(cq.ring))
	}
	return 0, nil
}

// Arm implements verbs.CompletionQueue.
func (cq *CompletionQueue) Arm() error {
	if err := cq.p.enter(StepArm); err != nil {
		return fmt.Errorf("arm %s: %w", cq.object, err)
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.closed {
		return fmt.Errorf("arm %s: %w", cq.object, verbs.ErrClosed)
	}
	cq.bell.Hush()
	cq.armed = true
	for _, qp := range cq.qps {
		if qp.generates() {
			cq.signal()
		}
	}
	return nil
}

// Wait implements verbs.CompletionQueue. A negative timeout is for ever.
func (cq *CompletionQueue) Wait(timeout time.Duration) (bool, error) {
	if err := cq.p.enter(StepWait); err != nil {
		return false, fmt.Errorf("wait on %s: %w", cq.object, err)
	}
	cq.mu.Lock()
	closed := cq.closed
	cq.mu.Unlock()
	if closed {
		return false, fmt.Errorf("wait on %s: %w", cq.object, verbs.ErrClosed)
	}
	return cq.bell.Await(timeout), nil
}

// Wake implements verbs.CompletionQueue. With nobody waiting, the next Wait
// returns at once.
func (cq *CompletionQueue) Wake() { cq.bell.Wake() }

// Close implements verbs.CompletionQueue.
func (cq *CompletionQueue) Close() error {
	if err := cq.p.enter(StepCloseCQ); err != nil {
		return cq.p.record(StepCloseCQ, cq.object, fmt.Errorf("close %s: %w", cq.object, err))
	}
	cq.mu.Lock()
	users, closed := cq.users, cq.closed
	cq.closed = closed || users == 0
	cq.mu.Unlock()
	if users > 0 {
		return cq.p.record(StepCloseCQ, cq.object,
			fmt.Errorf("close %s: %w: %d queue pairs use it", cq.object, verbs.ErrBusy, users))
	}
	if closed {
		return nil
	}
	cq.d.cqs.Add(-1)
	cq.Wake()
	return cq.p.record(StepCloseCQ, cq.object, nil)
}
