//go:build linux && cgo && ibverbs && rdmacm

package cm

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -lrdmacm -libverbs
#include <rdma/rdma_cma.h>
#include "cm.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

var (
	// ErrNoListener: nobody listens at the address, not yet perhaps.
	ErrNoListener = errors.New("nobody listens there")
	// ErrEvent: something else happened than what was waited for.
	ErrEvent = errors.New("unexpected event of the connection manager")
)

// invalidServiceID is the reason of a rejection by a host where nobody listens
// (InfiniBand Architecture Specification 1.4, table 111).
const invalidServiceID = 8

// Attributes are what the manager says of a connection.
type Attributes struct {
	Access verbs.Access // for INIT
	Peer   verbs.PeerAttributes
	PSN    roce.PSN // first that we send
	// GIDIndex is that of our address on Device.
	GIDIndex int
	Device   string
}

// Connection is one connection to be, or that is. But for Disconnect, its methods
// are called by one goroutine at a time.
type Connection struct {
	c      *C.struct_cm_connection
	active bool
	within time.Duration
}

func errno(rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return syscall.Errno(-rc)
}

// create makes a connection that begins with an address, by fill.
func create(step string, at netip.AddrPort, within time.Duration, fill func(*Connection, *C.uint8_t, C.uint16_t) C.int) (*Connection, error) {
	if !at.Addr().Is4() {
		return nil, fmt.Errorf("%s %v: not an IPv4 address", step, at)
	}
	c := &Connection{within: within}
	if err := errno(C.cm_open(&c.c)); err != nil {
		return nil, fmt.Errorf("%s %v: open the connection manager (module rdma_ucm, /dev/infiniband/rdma_cm): %w", step, at, err)
	}
	var address [4]C.uint8_t
	for i, b := range at.Addr().As4() {
		address[i] = C.uint8_t(b)
	}
	if err := errno(fill(c, &address[0], C.uint16_t(at.Port()))); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s %v: %w", step, at, err)
	}
	return c, nil
}

// Dial finds the way to an address. Each wait, this one and those of Connect and
// HungUp, is at most as long as within.
func Dial(to netip.AddrPort, within time.Duration) (*Connection, error) {
	c, err := create("find the way to", to, within, func(c *Connection, address *C.uint8_t, port C.uint16_t) C.int {
		return C.cm_resolve(c.c, address, port, C.int(within.Milliseconds()))
	})
	if err == nil {
		c.active = true
	}
	return c, err
}

// Listen makes a connection of the first peer that asks for one; Answer waits for
// it. A second peer is rejected.
func Listen(at netip.AddrPort, within time.Duration) (*Connection, error) {
	return create("listen at", at, within, func(c *Connection, address *C.uint8_t, port C.uint16_t) C.int {
		return C.cm_listen(c.c, address, port)
	})
}

// Answer waits for a peer.
func (c *Connection) Answer() error { return c.expect(C.RDMA_CM_EVENT_CONNECT_REQUEST) }

// Device is the RDMA device; known after Dial or Answer.
func (c *Connection) Device() string { return C.GoString(C.cm_device(c.c)) }

// expect waits for an event.
func (c *Connection) expect(want C.int) error {
	var event, status C.int
	err := errno(C.cm_wait(c.c, C.int(c.within.Milliseconds()), &event, &status))
	switch {
	case err != nil:
		return fmt.Errorf("wait %v for %s: %w", c.within, C.GoString(C.cm_event(want)), err)
	case event == want:
		return nil
	case event == C.RDMA_CM_EVENT_REJECTED && status == invalidServiceID:
		return ErrNoListener
	}
	return fmt.Errorf("wait for %s: %w: %s, status %d", C.GoString(C.cm_event(want)), ErrEvent, C.GoString(C.cm_event(event)), status)
}

// Connect connects the queue pair of number qpn, of which the peer may have so
// many READs outstanding. ready is called when the peer's attributes are known, and
// must leave the queue pair ready; only then does the peer learn that it is.
func (c *Connection) Connect(qpn roce.QPN, reads int, ready func(Attributes) error) error {
	if c.active {
		if err := errno(C.cm_connect(c.c, C.uint32_t(qpn), C.int(reads))); err != nil {
			return fmt.Errorf("ask for a connection: %w", err)
		}
		if err := c.expect(C.RDMA_CM_EVENT_CONNECT_RESPONSE); err != nil {
			return err
		}
	}
	a, err := c.attributes()
	if err != nil {
		return err
	}
	if err := ready(a); err != nil {
		return err
	}
	if c.active {
		if err := errno(C.cm_establish(c.c)); err != nil {
			return fmt.Errorf("establish the connection: %w", err)
		}
		return nil
	}
	if err := errno(C.cm_accept(c.c, C.uint32_t(qpn), C.int(reads))); err != nil {
		return fmt.Errorf("accept the connection: %w", err)
	}
	return c.expect(C.RDMA_CM_EVENT_ESTABLISHED)
}

func (c *Connection) attributes() (Attributes, error) {
	var q C.struct_cm_attributes
	if err := errno(C.cm_query(c.c, &q)); err != nil {
		return Attributes{}, fmt.Errorf("ask for the peer's attributes: %w", err)
	}
	mtu, err := roce.MTUFromCode(uint8(q.mtu))
	if err != nil {
		return Attributes{}, fmt.Errorf("peer's attributes: %w", err)
	}
	var gid [16]byte
	for i := range gid {
		gid[i] = byte(q.gid[i])
	}
	return Attributes{
		Access: verbs.Access(q.access), PSN: roce.PSN(q.sq_psn), GIDIndex: int(q.gid_index), Device: c.Device(),
		Peer: verbs.PeerAttributes{QPN: roce.QPN(q.qpn), PSN: roce.PSN(q.rq_psn), Address: netip.AddrFrom16(gid).Unmap(), MTU: mtu,
			MinRNRTimer: uint8(q.min_rnr_timer), MaxReads: int(q.reads)},
	}, nil
}

// Disconnect hangs up. HungUp tells when the peer has heard it.
func (c *Connection) Disconnect() error {
	if err := errno(C.cm_disconnect(c.c)); err != nil {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}

// HungUp waits until either side hangs up, and answers a peer that does. Disconnect
// may be called meanwhile.
func (c *Connection) HungUp() error {
	if err := c.expect(C.RDMA_CM_EVENT_DISCONNECTED); err != nil {
		return err
	}
	return c.Disconnect()
}

// Close frees the connection.
func (c *Connection) Close() { C.cm_close(c.c) }
