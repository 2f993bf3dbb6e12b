//go:build linux && cgo && ibverbs

package ibverbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rocelink/agent/verbs"
)

// waiting is how many asynchronous events wait for a taker.
const waiting = 64

// device is an open device.
type device struct {
	*provider
	name   string
	uverbs string // its entry in sysfs
	entry  uint64 // identity of that
	target target
	c      *C.struct_rl_device
	limits C.struct_ibv_device_attr
	gone   atomic.Bool // removed, or failed for good

	mu       sync.Mutex // counts and maps; never held over a call of the library
	closed   bool
	pds      int
	regions  int
	qps      int
	srqs     int
	cqs      map[uint64]*completionQueue
	sequence uint64     // of completion queues
	selected gid        // as last chosen; no address: none now
	last     netip.Addr // the last one that was chosen

	selectMu sync.Mutex // held while choosing; before mu

	stopFD int // an eventfd that ends watch
	ended  chan struct{}

	eventsMu     sync.Mutex
	events       chan verbs.Event
	eventsClosed bool
}

func (p *provider) openDevice(l listed, t target) (*device, error) {
	d := &device{
		provider: p, name: l.name, uverbs: l.uverbs, target: t, cqs: map[uint64]*completionQueue{},
		ended: make(chan struct{}), events: make(chan verbs.Event, waiting),
	}
	name := C.CString(l.name)
	rc := C.rl_open(p.lib.c, name, &d.c)
	freeString(name)
	if rc < 0 {
		return nil, openError(l, errno(rc))
	}
	rc = C.rl_query_device(d.c, &d.limits)
	if rc < 0 {
		err := d.failure("query device", errno(rc))
		C.rl_close(d.c)
		return nil, err
	}
	var err error
	if d.stopFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		C.rl_close(d.c)
		return nil, fmt.Errorf("open %s: eventfd: %w", l.name, err)
	}
	d.entry = d.identity()
	go d.watch()
	return d, nil
}

// fit checks that the port is one for RoCE v2 and chooses its address.
func (d *device) fit() error {
	a, err := d.queryPort()
	if err != nil {
		return err
	}
	if d.target.automatic() && a.state != C.IBV_PORT_ACTIVE {
		return fmt.Errorf("port %d of %s is %s: connect the cable and bring its network interface up (ip link set dev IFACE up)",
			portNumber, d.name, portState(a.state))
	}
	switch _, err := d.reselect(); {
	case err == nil:
	case a.state == C.IBV_PORT_ACTIVE || d.target.placed():
		return err
	}
	return nil
}

// failure is the error of a call of the library.
func (d *device) failure(step string, err syscall.Errno) error {
	if err == syscall.ENODEV || err == syscall.EIO || d.gone.Load() {
		return fmt.Errorf("%s: %w: %s was removed or has failed: see the kernel log: %w", step, verbs.ErrNoDevice, d.name, err)
	}
	return fmt.Errorf("%s on %s: %w", step, d.name, err)
}

// exhausted is failure, where a lack of memory or room means that the device's
// limit is reached.
func (d *device) exhausted(step, what string, limit int, err syscall.Errno) error {
	switch err {
	case syscall.ENOMEM, syscall.ENOSPC, syscall.EAGAIN:
		return fmt.Errorf("%s on %s: %w: it has %d %s, or the host no memory: close others or look who holds them (rdma resource): %w",
			step, d.name, verbs.ErrLimit, limit, what, err)
	}
	return d.failure(step, err)
}

// Name implements verbs.Device.
func (d *device) Name() string { return d.name }

// Attributes implements verbs.Device.
func (d *device) Attributes() verbs.DeviceAttributes {
	return verbs.DeviceAttributes{
		Provider: "ibverbs", MaxQP: int(d.limits.max_qp), MaxQPReceives: int(d.limits.max_qp_wr), MaxCQ: int(d.limits.max_cq),
		MaxCQE: int(d.limits.max_cqe), MaxMR: int(d.limits.max_mr), MaxMRBytes: uint64(d.limits.max_mr_size),
		MaxSRQ: int(d.limits.max_srq), MaxSRQReceives: int(d.limits.max_srq_wr),
	}
}

// begin counts one more child before it is made, so that the device is not
// closed meanwhile.
func (d *device) begin(count *int, step string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s on %s: %w", step, d.name, verbs.ErrClosed)
	}
	if d.gone.Load() {
		return d.failure(step, syscall.ENODEV)
	}
	*count++
	return nil
}

// end takes it back.
func (d *device) end(count *int) {
	d.mu.Lock()
	*count--
	d.mu.Unlock()
}

// survives reports whether an object is still there after the library failed to
// destroy it: with the device gone nothing is.
func (d *device) survives(err syscall.Errno) bool {
	return !d.gone.Load() && err != syscall.EIO && err != syscall.ENODEV
}

// Close implements verbs.Device. It is idempotent and bounded.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.pds+len(d.cqs) > 0 {
		return fmt.Errorf("close device %s: %w: %d protection domains and %d completion queues are open: close them first",
			d.name, verbs.ErrBusy, d.pds, len(d.cqs))
	}
	// watch may want the mutex on its way out.
	d.closed = true
	d.mu.Unlock()
	err := d.close()
	d.mu.Lock()
	if err != nil {
		return fmt.Errorf("close device %s: %w", d.name, err)
	}
	return nil
}

func (d *device) close() error {
	poke(d.stopFD)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-d.ended:
	case <-late.C:
		// A leak is better than a fault.
		return fmt.Errorf("asynchronous events: their taker did not end within %v; the device stays open", patience)
	}
	d.eventsMu.Lock()
	d.eventsClosed = true
	close(d.events)
	d.eventsMu.Unlock()
	var err error
	if rc := C.rl_close(d.c); rc < 0 && d.survives(errno(rc)) {
		err = errno(rc)
	}
	return errors.Join(err, unix.Close(d.stopFD))
}

var one = [8]byte{1} // in either byte order more than 0

// poke makes an eventfd readable.
func poke(fd int) { _, _ = unix.Write(fd, one[:]) }
