//go:build linux && cgo && ibverbs

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// Events implements verbs.Device.
//
// A change of the GID table is an event only if it moves or takes away the
// address in use, or brings one where there was none.
func (d *device) Events() <-chan verbs.Event { return d.events }

// watch takes asynchronous events until stopFD is readable or the device is
// gone.
func (d *device) watch() {
	defer close(d.ended)
	e := new(C.struct_rl_event)
	for {
		switch rc := C.rl_next_event(d.c, C.int(d.stopFD), e); {
		case rc == 0:
			return
		case rc < 0:
			d.lost(fmt.Sprintf("%s was removed: %v", d.name, errno(rc)))
			return
		}
		d.happened(e)
	}
}

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
			d.readdressed()
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
	d.mu.Lock()
	for _, cq := range d.cqs {
		cq.Wake()
	}
	d.mu.Unlock()
	d.emit(verbs.Event{Kind: verbs.EventDeviceRemoved, Cause: cause})
}

// readdressed looks whether the address in use is still where it was.
func (d *device) readdressed() {
	d.mu.Lock()
	was := d.selected
	d.mu.Unlock()
	is, err := d.choose(was.address)
	if err != nil {
		is = gid{}
	}
	if is.address == was.address && is.index == was.index {
		return
	}
	d.mu.Lock()
	d.selected = is
	d.mu.Unlock()
	var cause string
	switch {
	case !is.address.IsValid():
		cause = fmt.Sprintf("%v is gone from %s: %v", was.address, d.name, err)
	case !was.address.IsValid():
		cause = fmt.Sprintf("%s has address %v now", d.name, is.address)
	case is.address == was.address:
		cause = fmt.Sprintf("%v moved from GID index %d to %d of %s", is.address, was.index, is.index, d.name)
	default:
		cause = fmt.Sprintf("%v is gone from %s, %v takes its place", was.address, d.name, is.address)
	}
	d.emit(verbs.Event{Kind: verbs.EventGIDChange, Cause: cause})
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
