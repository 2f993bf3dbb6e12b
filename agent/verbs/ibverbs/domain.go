//go:build linux && cgo && ibverbs

package ibverbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"rocelink/agent/verbs"
)

func freeString(s *C.char) { C.free(unsafe.Pointer(s)) }

// domain is a protection domain.
type domain struct {
	device *device
	c      *C.struct_ibv_pd

	mu      sync.Mutex // counts; never held over a call of the library
	closed  bool
	regions int
	srqs    int
	making  int // queue pairs that are about to exist
	qps     map[*queuePair]struct{}
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.ProtectionDomain, error) {
	const step = "allocate protection domain"
	if err := d.begin(&d.pds, step); err != nil {
		return nil, err
	}
	pd := &domain{device: d, qps: map[*queuePair]struct{}{}}
	if rc := C.rl_alloc_pd(d.c, &pd.c); rc < 0 {
		d.end(&d.pds)
		return nil, d.exhausted(step, "protection domains", int(d.limits.max_pd), errno(rc))
	}
	return pd, nil
}

// begin counts one more child before it is made.
func (pd *domain) begin(count *int, step string) error {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		return fmt.Errorf("%s: protection domain: %w", step, verbs.ErrClosed)
	}
	*count++
	return nil
}

func (pd *domain) end(count *int) {
	pd.mu.Lock()
	*count--
	pd.mu.Unlock()
}

// Close implements verbs.ProtectionDomain.
func (pd *domain) Close() error {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		return nil
	}
	if n := len(pd.qps) + pd.making; n+pd.srqs+pd.regions > 0 {
		return fmt.Errorf("close protection domain: %w: %d queue pairs, %d shared receive queues and %d memory regions are open: close them first",
			verbs.ErrBusy, n, pd.srqs, pd.regions)
	}
	if err := pd.device.destroyed("close protection domain", C.rl_dealloc_pd(pd.device.c, pd.c)); err != nil {
		return err
	}
	pd.closed = true
	pd.device.end(&pd.device.pds)
	return nil
}

// destroyed makes an error of the result of destroying something, unless it is
// gone together with the device.
func (d *device) destroyed(step string, rc C.int) error {
	switch {
	case rc >= 0 || !d.survives(errno(rc)):
		return nil
	case errno(rc) == syscall.EBUSY:
		return fmt.Errorf("%s: %w: the device says that something uses it: %w", step, verbs.ErrBusy, errno(rc))
	}
	return d.failure(step, errno(rc))
}

// region is a memory region.
type region struct {
	pd         *domain
	c          *C.struct_ibv_mr
	base, size uint64
	lkey, rkey uint32

	mu     sync.Mutex
	closed bool
}

// Register implements verbs.ProtectionDomain.
func (pd *domain) Register(m *verbs.Memory, access verbs.Access) (verbs.MemoryRegion, error) {
	const known = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
	d := pd.device
	switch {
	case m == nil || len(m.Bytes()) == 0:
		return nil, fmt.Errorf("register memory: %w: no memory, or freed", verbs.ErrAccess)
	case access&^known != 0:
		return nil, fmt.Errorf("register memory: %w: access flags %#x, known are %#x", verbs.ErrAccess, access, known)
	case access&verbs.RemoteWrite != 0 && access&verbs.LocalWrite == 0:
		return nil, fmt.Errorf("register memory: %w: RemoteWrite needs LocalWrite", verbs.ErrAccess)
	}
	r := &region{pd: pd, base: m.Address(), size: uint64(len(m.Bytes()))}
	step := fmt.Sprintf("register %d bytes", r.size)
	if most := uint64(d.limits.max_mr_size); r.size > most {
		return nil, fmt.Errorf("%s on %s: %w: a region has at most %d", step, d.name, verbs.ErrLimit, most)
	}
	if err := pd.begin(&pd.regions, step); err != nil {
		return nil, err
	}
	if err := d.begin(&d.regions, step); err != nil {
		pd.end(&pd.regions)
		return nil, err
	}
	if rc := C.rl_reg_mr(d.c, pd.c, C.uint64_t(r.base), C.uint64_t(r.size), C.int(access), &r.c); rc < 0 {
		d.end(&d.regions)
		pd.end(&pd.regions)
		return nil, d.registerError(step, r.size, errno(rc))
	}
	r.lkey, r.rkey = uint32(r.c.lkey), uint32(r.c.rkey)
	return r, nil
}

// registerError tells a memlock limit that is too small from a device that is
// full.
func (d *device) registerError(step string, size uint64, err syscall.Errno) error {
	// The errno of a full limit differs: ENOMEM by the kernel's own pinning,
	// others by what a driver makes of it.
	if d.survives(err) {
		if m, e := d.memlock(); e == nil && m.short(size) {
			return fmt.Errorf("%s on %s: %w: %s", step, d.name, err, m.remedy(size))
		}
	}
	return d.exhausted(step, "memory regions", int(d.limits.max_mr), err)
}

// Address implements verbs.MemoryRegion.
func (r *region) Address() uint64 { return r.base }

// Length implements verbs.MemoryRegion.
func (r *region) Length() uint64 { return r.size }

// LKey implements verbs.MemoryRegion.
func (r *region) LKey() uint32 { return r.lkey }

// RKey implements verbs.MemoryRegion.
func (r *region) RKey() uint32 { return r.rkey }

// Close implements verbs.MemoryRegion. A queue pair of the domain in INIT, RTR
// or RTS could reach the region.
func (r *region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	for _, qp := range r.pd.queuePairs() {
		if s := qp.State(); s != verbs.Reset && s != verbs.Error {
			return fmt.Errorf("close memory region: %w: queue pair %#06x is in %v: close it or set it to error first", verbs.ErrBusy, uint32(qp.qpn), s)
		}
	}
	if err := r.pd.device.destroyed("close memory region", C.rl_dereg_mr(r.pd.device.c, r.c)); err != nil {
		return err
	}
	r.closed = true
	r.pd.device.end(&r.pd.device.regions)
	r.pd.end(&r.pd.regions)
	return nil
}

func (pd *domain) queuePairs() []*queuePair {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	qps := make([]*queuePair, 0, len(pd.qps))
	for qp := range pd.qps {
		qps = append(qps, qp)
	}
	return qps
}

var errOtherDevice = errors.New("the completion queue is of another device")
