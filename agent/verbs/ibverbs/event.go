//go:build linux && cgo && ibverbs

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// Events implements verbs.Device.
//
// A change of the GID table is an event only if it moves or takes away the
// address in use, or brings one where there was none.
func (d *device) Events() <-chan verbs.Event { return d.events }

// presence is how often watch looks whether the device is still there. The
// kernel (drivers/infiniband/core/uverbs_main.c, ib_uverbs_remove_one) tells the
// users of a device that is removed only if its driver can take it away from
// them (disassociate_ucontext). Software devices (rdma_rxe, siw) cannot: their
// entry in sysfs goes, no event comes, and the removal waits until the last
// user has closed. A uevent would be quicker, but does not get into every
// network namespace.
const presence = time.Second

// watch takes asynchronous events until stopFD is readable or the device is
// gone.
func (d *device) watch() {
	defer close(d.ended)
	e := new(C.struct_rl_event)
	next := time.Now().Add(presence)
	for {
		// Events do not put off the look.
		left := max(time.Until(next), 0)
		switch rc := C.rl_next_event(d.c, C.int(d.stopFD), C.int((left+time.Millisecond-1)/time.Millisecond), e); {
		case rc == 0:
			return
		case rc == 2:
			if d.vanished() {
				d.lost(fmt.Sprintf("%s is gone from sysfs", d.name))
			}
			next = time.Now().Add(presence)
			continue
		case rc < 0:
			d.lost(fmt.Sprintf("%s was removed: %v", d.name, errno(rc)))
			return
		}
		d.happened(e)
	}
}

// identity is the inode of the device's entry in sysfs, 0 if there is none: a
// number (uverbs0) may be given to another device, an inode is not.
func (d *device) identity() uint64 {
	var s unix.Stat_t
	if unix.Stat(filepath.Join(d.sysfs, "class/infiniband_verbs", d.uverbs), &s) != nil {
		return 0
	}
	return s.Ino
}

// vanished reports whether the entry that was there when the device was opened
// has gone.
func (d *device) vanished() bool { return d.entry != 0 && d.identity() != d.entry }

// happened hands on what concerns this package's objects.
func (d *device) happened(e *C.struct_rl_event) {
	switch e._type {
	case C.IBV_EVENT_PORT_ACTIVE:
		if e.port == portNumber {
			d.emit(verbs.Event{Kind: verbs.EventPortActive, Cause: fmt.Sprintf("port %d of %s is up", portNumber, d.name)})
		}
	case C.IBV_EVENT_PORT_ERR:
		if e.port == portNumber {
			d.emit(verbs.Event{Kind: verbs.EventPortDown,
				Cause: fmt.Sprintf("port %d of %s went down: look at cable, optics and the network interface", portNumber, d.name)})
		}
	case C.IBV_EVENT_GID_CHANGE:
		if e.port == portNumber {
			_, _ = d.reselect()
		}
	case C.IBV_EVENT_QP_FATAL:
		d.emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: roce.QPN(e.qpn),
			Cause: "the device failed the queue pair (QP_FATAL): see the kernel log"})
	case C.IBV_EVENT_QP_REQ_ERR:
		d.emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: roce.QPN(e.qpn),
			Cause: "the peer sent an invalid request (QP_REQ_ERR): check verb, frame length and path MTU on both sides"})
	case C.IBV_EVENT_QP_ACCESS_ERR:
		d.emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: roce.QPN(e.qpn),
			Cause: "the peer named memory outside the region or not permitted (QP_ACCESS_ERR): check address, rkey and length given to the board"})
	case C.IBV_EVENT_PATH_MIG_ERR:
		d.emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: roce.QPN(e.qpn), Cause: "the path migrated (PATH_MIG_ERR)"})
	case C.IBV_EVENT_QP_LAST_WQE_REACHED:
		d.emit(verbs.Event{Kind: verbs.EventLastWQE, QPN: roce.QPN(e.qpn), Cause: "the queue pair is in error (QP_LAST_WQE_REACHED)"})
	case C.IBV_EVENT_SRQ_LIMIT_REACHED:
		d.emit(verbs.Event{Kind: verbs.EventSRQLimit, Cause: "few receives are posted (SRQ_LIMIT_REACHED): the consumers are too slow"})
	case C.IBV_EVENT_SRQ_ERR:
		d.lost(fmt.Sprintf("a shared receive queue of %s failed (SRQ_ERR): see the kernel log", d.name))
	case C.IBV_EVENT_CQ_ERR:
		d.mu.Lock()
		cq := d.cqs[uint64(e.cq)]
		d.mu.Unlock()
		cause := "a completion queue lost completions (CQ_ERR)"
		if cq != nil {
			cause = fmt.Sprintf("completion queue of depth %d lost completions (CQ_ERR): poll more often or make it deeper", cq.depth)
			cq.Wake()
		}
		d.emit(verbs.Event{Kind: verbs.EventCQError, Cause: cause})
	case C.IBV_EVENT_DEVICE_FATAL:
		d.lost(fmt.Sprintf("%s failed (DEVICE_FATAL): see the kernel log", d.name))
	}
}

// lost notes that the device is gone, once, and wakes whoever waits for it.
func (d *device) lost(cause string) {
	if d.gone.Swap(true) {
		return
	}
	C.rl_lost(d.c)
	d.mu.Lock()
	for _, cq := range d.cqs {
		cq.Wake()
	}
	d.mu.Unlock()
	d.emit(verbs.Event{Kind: verbs.EventDeviceRemoved, Cause: cause})
}

func (d *device) emit(e verbs.Event) {
	e.Time = time.Now()
	d.eventsMu.Lock()
	defer d.eventsMu.Unlock()
	for !d.eventsClosed {
		select {
		case d.events <- e:
			return
		default:
		}
		select {
		case <-d.events:
		default:
		}
	}
}
