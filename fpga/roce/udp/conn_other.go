//go:build !linux

package udp

import (
	"net/netip"
	"time"

	"rocelink/fpga/roce"
)

type (
	batchSys struct{}
	sendSys  struct{}
	sockaddr struct{}
)

func (*sendSys) resolve(addr netip.AddrPort) destination { return destination{addr: addr} }

func (*sendSys) gso(*destination) bool { return false }

// Conn is a socket that carries RoCE v2 packets.
type Conn struct{}

// Listen returns [ErrNotSupported].
func Listen(netip.AddrPort, Config) (*Conn, error) { return nil, ErrNotSupported }

// NewBatch returns an empty batch.
func (*Conn) NewBatch(int) *Batch { return &Batch{} }

// NewSendQueue returns a queue that holds nothing.
func (*Conn) NewSendQueue(int) *SendQueue { return &SendQueue{} }

// Receive returns [ErrNotSupported].
func (*Conn) Receive(*Batch) (int, error) { return 0, ErrNotSupported }

// Send returns [ErrNotSupported].
func (*Conn) Send(*SendQueue) (int, error) { return 0, ErrNotSupported }

// Wait returns [ErrNotSupported].
func (*Conn) Wait(time.Duration) (bool, error) { return false, ErrNotSupported }

// WaitSend returns [ErrNotSupported].
func (*Conn) WaitSend(time.Duration) (bool, error) { return false, ErrNotSupported }

// Wake does nothing.
func (*Conn) Wake() {}

// Close does nothing.
func (*Conn) Close() error { return nil }

// LocalAddr returns nothing.
func (*Conn) LocalAddr() netip.AddrPort { return netip.AddrPort{} }

// FlowTo returns nothing.
func (*Conn) FlowTo(netip.AddrPort) roce.Flow { return roce.Flow{} }

// FlowFrom returns nothing.
func (*Conn) FlowFrom(netip.AddrPort) roce.Flow { return roce.Flow{} }

// Buffers returns nothing.
func (*Conn) Buffers() (receive, send int) { return 0, 0 }

// Offloads returns nothing.
func (*Conn) Offloads() (gso, gro bool) { return false, false }

// Counters returns nothing.
func (*Conn) Counters() Counters { return (&counters{}).read() }
