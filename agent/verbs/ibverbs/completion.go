//go:build linux && cgo && ibverbs

package ibverbs

/*
#cgo noescape rl_poll
#cgo nocallback rl_poll
#cgo noescape rl_post_poll
#cgo nocallback rl_post_poll
#cgo noescape rl_arm
#cgo nocallback rl_arm
#cgo noescape rl_wait
#cgo nocallback rl_wait
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocelink/agent/verbs"
)

// The library writes verbs.WorkCompletions as struct ibv_wc, which shim.c holds
// against struct rl_wc: these do not compile if the layouts differ.
var (
	wcGo verbs.WorkCompletion
	wcC  C.struct_rl_wc

	_ [unsafe.Sizeof(wcGo)]byte               = [unsafe.Sizeof(wcC)]byte{}
	_ [unsafe.Offsetof(wcGo.ID)]byte          = [unsafe.Offsetof(wcC.id)]byte{}
	_ [unsafe.Offsetof(wcGo.Status)]byte      = [unsafe.Offsetof(wcC.status)]byte{}
	_ [unsafe.Offsetof(wcGo.Opcode)]byte      = [unsafe.Offsetof(wcC.opcode)]byte{}
	_ [unsafe.Offsetof(wcGo.Flags)]byte       = [unsafe.Offsetof(wcC.flags)]byte{}
	_ [unsafe.Offsetof(wcGo.ByteLen)]byte     = [unsafe.Offsetof(wcC.byte_len)]byte{}
	_ [unsafe.Offsetof(wcGo.Imm)]byte         = [unsafe.Offsetof(wcC.imm)]byte{}
	_ [unsafe.Offsetof(wcGo.QPN)]byte         = [unsafe.Offsetof(wcC.qpn)]byte{}
	_ [unsafe.Offsetof(wcGo.VendorError)]byte = [unsafe.Offsetof(wcC.vendor_error)]byte{}
)

// completionQueue is a completion queue with a channel of its own.
type completionQueue struct {
	device *device
	c      *C.struct_rl_cq
	id     uint64
	depth  int
	guard  guard

	// Under the device's mutex.
	closing  bool
	users    int // queue pairs that name it
	promised int // receives of the queue pairs that complete here

	mu     sync.Mutex // Close
	closed bool

	wakeMu sync.Mutex
	wakeFD int // -1 when closed
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(depth int) (verbs.CompletionQueue, error) {
	const step = "create completion queue"
	if most := int(d.limits.max_cqe); depth < 1 || depth > most {
		return nil, fmt.Errorf("%s on %s: %w: depth %d, want 1 to %d", step, d.name, verbs.ErrLimit, depth, most)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("%s: eventfd: %w: raise the limit of open files (LimitNOFILE=, ulimit -n)", step, err)
	}
	cq := &completionQueue{device: d, depth: depth, wakeFD: fd}
	if err := d.begin(&d.pds, step); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	defer d.end(&d.pds)
	d.mu.Lock()
	d.sequence++
	cq.id = d.sequence
	d.mu.Unlock()
	// One interrupt vector after another, so that queues do not share a CPU.
	vector := cq.id % uint64(max(C.rl_vectors(d.c), 1))
	if rc := C.rl_create_cq(d.c, C.int(depth), C.int(vector), C.uint64_t(cq.id), C.int(fd), &cq.c); rc < 0 {
		_ = unix.Close(fd)
		return nil, d.exhausted(step, "completion queues", int(d.limits.max_cq), errno(rc))
	}
	d.mu.Lock()
	d.cqs[cq.id] = cq
	d.mu.Unlock()
	return cq, nil
}

// Depth implements verbs.CompletionQueue.
func (cq *completionQueue) Depth() int { return cq.depth }

// Poll implements verbs.CompletionQueue. One call of C looks up to Config.Looks
// times for the first completion. After an overrun, and when the device is
// gone, it first hands out what was completed before.
func (cq *completionQueue) Poll(wcs []verbs.WorkCompletion) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	n := C.rl_poll(&cq.guard.c, cq.c, (*C.struct_rl_wc)(unsafe.Pointer(unsafe.SliceData(wcs))), C.int(len(wcs)), C.int(cq.device.looks))
	if n < 0 {
		return 0, cq.failure("poll completion queue", errno(n))
	}
	return int(n), nil
}

// PostPoll implements verbs.PostPoller: one call of C for both.
func (cq *completionQueue) PostPoll(to verbs.ReceiveQueue, rs []verbs.ReceiveRequest, wcs []verbs.WorkCompletion) (posted int, postErr error, found int, err error) {
	var g *guard
	var qp *C.struct_rl_qp
	var srq *C.struct_rl_srq
	switch q := to.(type) {
	case *queuePair:
		if q.shared == nil && q.state.Load() != uint32(verbs.Reset) {
			g, qp = &q.guard, q.c
		}
	case *sharedQueue:
		g, srq = &q.guard, q.c
	}
	if g == nil || len(rs) == 0 || len(rs) > maxPostPoll || len(wcs) == 0 {
		posted, postErr = to.PostReceive(rs)
		found, err = cq.Poll(wcs)
		return posted, postErr, found, err
	}
	r := C.rl_post_poll(&g.c, qp, srq, (*C.struct_rl_receive)(unsafe.Pointer(unsafe.SliceData(rs))), C.int(len(rs)),
		&cq.guard.c, cq.c, (*C.struct_rl_wc)(unsafe.Pointer(unsafe.SliceData(wcs))), C.int(len(wcs)), C.int(cq.device.looks))
	posted = int(uint16(r >> 32))
	if e := syscall.Errno(uint64(r) >> 48); e != 0 {
		postErr = to.(poster).postFailure(posted, len(rs), e)
	}
	if n := int32(r); n < 0 {
		err = cq.failure("poll completion queue", errno(n))
	} else {
		found = int(n)
	}
	return posted, postErr, found, err
}

// maxPostPoll is the most receives that rl_post_poll can count.
const maxPostPoll = 1<<16 - 1

// poster says why a receive was not posted.
type poster interface {
	postFailure(posted, of int, err syscall.Errno) error
}

// failure is the error of a call of C.
func (cq *completionQueue) failure(step string, err syscall.Errno) error {
	switch err {
	case syscall.EBADF:
		return fmt.Errorf("%s: %w", step, verbs.ErrClosed)
	case syscall.EOVERFLOW:
		return fmt.Errorf("%s: %w: depth %d: poll more often or make it deeper", step, verbs.ErrOverrun, cq.depth)
	}
	return cq.device.failure(step, err)
}

// Arm implements verbs.CompletionQueue.
func (cq *completionQueue) Arm() error {
	if rc := C.rl_arm(&cq.guard.c, cq.c); rc < 0 {
		return cq.failure("arm completion queue", errno(rc))
	}
	return nil
}

// Wait implements verbs.CompletionQueue. A negative timeout is for ever.
func (cq *completionQueue) Wait(timeout time.Duration) (bool, error) {
	rc := C.rl_wait(&cq.guard.c, cq.c, C.int64_t(timeout))
	if rc < 0 {
		return false, cq.failure("wait on completion queue", errno(rc))
	}
	return rc == 1, nil
}

// Wake implements verbs.CompletionQueue. With nobody waiting, the next Wait
// returns at once.
func (cq *completionQueue) Wake() {
	cq.wakeMu.Lock()
	if cq.wakeFD >= 0 {
		poke(cq.wakeFD)
	}
	cq.wakeMu.Unlock()
}

// Close implements verbs.CompletionQueue. It wakes who waits, and acknowledges
// all notifications, which the library would wait for.
func (cq *completionQueue) Close() error {
	const step = "close completion queue"
	d := cq.device
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.closed {
		return nil
	}
	d.mu.Lock()
	users := cq.users
	cq.closing = users == 0
	d.mu.Unlock()
	if users > 0 {
		return fmt.Errorf("%s: %w: %d queue pairs use it: close them first", step, verbs.ErrBusy, users)
	}
	reopen, err := cq.guard.shut(C.rl_closed, cq.Wake)
	if err != nil {
		err = fmt.Errorf("%s: %w", step, err)
	} else if err = d.destroyed(step, C.rl_destroy_cq(cq.c)); err != nil {
		reopen()
	}
	if err != nil {
		d.mu.Lock()
		cq.closing = false
		d.mu.Unlock()
		return err
	}
	cq.closed = true
	cq.wakeMu.Lock()
	_ = unix.Close(cq.wakeFD)
	cq.wakeFD = -1
	cq.wakeMu.Unlock()
	d.mu.Lock()
	delete(d.cqs, cq.id)
	d.mu.Unlock()
	return nil
}
