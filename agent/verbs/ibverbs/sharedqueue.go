//go:build linux && cgo && ibverbs

package ibverbs

/*
#cgo noescape rl_post_srq
#cgo nocallback rl_post_srq
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"rocelink/agent/verbs"
)

// sharedQueue is a shared receive queue.
type sharedQueue struct {
	pd    *domain
	c     *C.struct_rl_srq
	depth int
	guard guard

	control sync.Mutex // held over every call for control

	// Under the device's mutex.
	users  map[*completionQueue]int // queue pairs by where they complete
	closed bool
}

// CreateSRQ implements verbs.ProtectionDomain.
func (pd *domain) CreateSRQ(maxReceives int) (verbs.SharedReceiveQueue, error) {
	const step = "create shared receive queue"
	d := pd.device
	if most := int(d.limits.max_srq_wr); maxReceives < 1 || maxReceives > most {
		return nil, fmt.Errorf("%s on %s: %w: %d receives, the device takes up to %d", step, d.name, verbs.ErrLimit, maxReceives, most)
	}
	if err := pd.begin(&pd.srqs, step); err != nil {
		return nil, err
	}
	if err := d.begin(&d.srqs, step); err != nil {
		pd.end(&pd.srqs)
		return nil, err
	}
	q := &sharedQueue{pd: pd, depth: maxReceives, users: map[*completionQueue]int{}}
	if rc := C.rl_create_srq(d.c, pd.c, C.int(maxReceives), &q.c); rc < 0 {
		d.end(&d.srqs)
		pd.end(&pd.srqs)
		return nil, d.exhausted(step, "shared receive queues", int(d.limits.max_srq), errno(rc))
	}
	return q, nil
}

// leave counts one queue pair less and reports whether none is left that
// completes on cq. It runs under the device's mutex.
func (q *sharedQueue) leave(cq *completionQueue) bool {
	if q.users[cq]--; q.users[cq] > 0 {
		return false
	}
	delete(q.users, cq)
	return true
}

// PostReceive implements verbs.SharedReceiveQueue. It is one call of C, which
// posts the whole batch as one chain.
func (q *sharedQueue) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	if len(rs) == 0 {
		return 0, nil
	}
	r := C.rl_post_srq(&q.guard.c, q.c, (*C.struct_rl_receive)(unsafe.Pointer(unsafe.SliceData(rs))), C.int(len(rs)))
	n := int(uint32(r))
	if err := syscall.Errno(r >> 32); err != 0 {
		return n, q.postFailure(n, len(rs), err)
	}
	return n, nil
}

func (q *sharedQueue) postFailure(n, of int, err syscall.Errno) error {
	where := fmt.Sprintf("post receive %d of %d on a shared receive queue of %d", n+1, of, q.depth)
	switch err {
	case syscall.EBADF:
		return fmt.Errorf("%s: %w", where, verbs.ErrClosed)
	case syscall.ENOMEM:
		return fmt.Errorf("%s: %w", where, verbs.ErrFull)
	case syscall.EINVAL:
		return fmt.Errorf("%s: %w: %w", where, verbs.ErrAccess, err)
	}
	return q.pd.device.failure(where, err)
}

// Limit implements verbs.SharedReceiveQueue.
func (q *sharedQueue) Limit(below int) error {
	const step = "limit of a shared receive queue"
	q.control.Lock()
	defer q.control.Unlock()
	switch {
	case q.isClosed():
		return fmt.Errorf("%s: %w", step, verbs.ErrClosed)
	case below < 0 || below > q.depth:
		return fmt.Errorf("%s: %w: %d, want 0 to %d", step, verbs.ErrLimit, below, q.depth)
	}
	if rc := C.rl_limit_srq(q.c, C.int(below)); rc < 0 {
		return q.pd.device.failure(step, errno(rc))
	}
	return nil
}

func (q *sharedQueue) isClosed() bool {
	q.pd.device.mu.Lock()
	defer q.pd.device.mu.Unlock()
	return q.closed
}

// Close implements verbs.SharedReceiveQueue.
func (q *sharedQueue) Close() error {
	const step = "close shared receive queue"
	d := q.pd.device
	q.control.Lock()
	defer q.control.Unlock()
	d.mu.Lock()
	users, closed := 0, q.closed
	for _, n := range q.users {
		users += n
	}
	if users == 0 {
		q.closed = true // no queue pair comes any more
	}
	d.mu.Unlock()
	switch {
	case closed:
		return nil
	case users > 0:
		return fmt.Errorf("%s: %w: %d queue pairs take from it: close them first", step, verbs.ErrBusy, users)
	}
	reopen, err := q.guard.shut(C.rl_closed, func() {})
	if err == nil {
		if err = d.destroyed(step, C.rl_destroy_srq(q.c)); err != nil {
			reopen()
		}
	}
	if err != nil {
		d.mu.Lock()
		q.closed = false
		d.mu.Unlock()
		return fmt.Errorf("%s: %w", step, err)
	}
	d.end(&d.srqs)
	q.pd.end(&q.pd.srqs)
	return nil
}
