// Package verbs is the RDMA verbs vocabulary in Go: devices, protection
// domains, memory regions, completion queues, queue pairs, work requests and
// work completions, behind interfaces that a provider implements.
//
// The names and numbers are those of libibverbs, so that a provider over the
// real library converts nothing. Data-path calls (CompletionQueue.Poll,
// QueuePair.PostReceive) allocate nothing and take no lock.
//
// Whoever creates an object closes it, in reverse order of creation: queue
// pairs, then completion queues and memory regions, then the protection
// domain, then the device. No finalizer does it.
package verbs

import (
	"errors"
	"net/netip"
	"time"

	"rocelink/fpga/roce"
)

// Errors that callers decide on. Providers wrap them with the step and value.
var (
	// ErrNoDevice: no device of that name, or none at all.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrState: the queue pair is not in a state that allows the call.
	ErrState = errors.New("queue pair in the wrong state")
	// ErrShared: the queue pair takes its receives from a shared queue; post
	// them there.
	ErrShared = errors.New("receives come from a shared receive queue")
	// ErrFull: the receive queue holds its full number of receives.
	ErrFull = errors.New("receive queue full")
	// ErrAccess: an address, length, key or permission does not fit the region.
	ErrAccess = errors.New("outside the memory region or not permitted")
	// ErrLimit: a limit of the device is exhausted.
	ErrLimit = errors.New("device limit reached")
	// ErrBusy: the object is still in use by another.
	ErrBusy = errors.New("still in use")
	// ErrClosed: the object was closed.
	ErrClosed = errors.New("closed")
	// ErrOverrun: the completion queue lost completions; it is unusable.
	ErrOverrun = errors.New("completion queue overrun")
)

// Provider finds and opens devices.
type Provider interface {
	// Name is "soft", "ibverbs" or what else the provider calls itself.
	Name() string
	// Open opens a device by its name; what a name looks like is the provider's.
	Open(name string) (Device, error)
}

// Device is one opened RDMA device, port 1.
type Device interface {
	Name() string
	Attributes() DeviceAttributes
	Port() (PortAttributes, error)
	AllocPD() (ProtectionDomain, error)
	CreateCQ(depth int) (CompletionQueue, error)
	// Events delivers asynchronous events until Close closes the channel.
	// Events that nobody takes are dropped, oldest first.
	Events() <-chan Event
	// Counters reads the device's own counters. Those a device lacks are not
	// in the map.
	Counters() map[string]uint64
	Close() error
}

// DeviceAttributes are limits of a device.
type DeviceAttributes struct {
	Provider      string
	MaxQP         int
	MaxQPReceives int // receives that one queue pair holds
	MaxCQ         int
	MaxCQE        int // completions that one queue holds
	MaxMR         int
	MaxMRBytes    uint64
	// MaxSRQ shared receive queues, each of MaxSRQReceives; 0: it has none.
	MaxSRQ         int
	MaxSRQReceives int
}

// PortAttributes is the state of the device's port.
type PortAttributes struct {
	Active    bool
	MTU       roce.MTU // path MTU the port can carry
	Address   netip.Addr
	MAC       [6]byte
	GIDIndex  int
	SpeedGbps float64 // 0: not known
	// InFlight is how many bytes all peers together may have on their way
	// before the device drops packets; 0: as many as they like. Devices that
	// are sockets have such a bound, NICs do not.
	InFlight int
}

// Access is what a memory region or queue pair permits.
type Access uint32

// Access flags; the values are those of enum ibv_access_flags.
const (
	LocalWrite  Access = 1 << 0
	RemoteWrite Access = 1 << 1
	RemoteRead  Access = 1 << 2
)

// ProtectionDomain groups memory regions and queue pairs that may work
// together.
type ProtectionDomain interface {
	// Register makes memory known to the device. The memory must live outside
	// the Go heap (AllocMemory) and outlive the region. RemoteWrite needs
	// LocalWrite.
	Register(m *Memory, access Access) (MemoryRegion, error)
	CreateQP(QPConfig) (QueuePair, error)
	// CreateSRQ makes a shared receive queue of maxReceives for queue pairs of
	// this domain. ErrLimit: the device has none, or not such a one.
	CreateSRQ(maxReceives int) (SharedReceiveQueue, error)
	Close() error
}

// MemoryRegion is registered memory.
type MemoryRegion interface {
	Address() uint64
	Length() uint64
	LKey() uint32
	// RKey is what a peer uses. It may differ from LKey.
	RKey() uint32
	// Close fails with ErrBusy while a queue pair could still reach the
	// region; afterwards no access to it is under way.
	Close() error
}

// EventKind is the kind of an asynchronous event.
type EventKind int

// Asynchronous events.
const (
	EventPortActive EventKind = iota + 1
	EventPortDown
	EventGIDChange
	EventQPFatal
	EventCQError
	// EventDeviceRemoved: the device is gone or is to go. For those who have it
	// open it may still work, and further events come, until all have closed it:
	// close everything, the device last.
	EventDeviceRemoved
	// EventLastWQE: a queue pair in error takes no more receives from its
	// shared queue. What it took before has its completion in the queue.
	EventLastWQE
	// EventSRQLimit: a shared receive queue ran below what Limit named.
	EventSRQLimit
)

// String returns a short description.
func (k EventKind) String() string {
	switch k {
	case EventPortActive:
		return "port active"
	case EventPortDown:
		return "port down"
	case EventGIDChange:
		return "address changed"
	case EventQPFatal:
		return "queue pair in error"
	case EventCQError:
		return "completion queue overrun"
	case EventDeviceRemoved:
		return "device removed"
	case EventLastWQE:
		return "last receive of the queue pair reached"
	case EventSRQLimit:
		return "shared receive queue below its limit"
	}
	return "unknown event"
}

// Event is an asynchronous event of a device.
type Event struct {
	Kind  EventKind
	QPN   roce.QPN // for EventQPFatal and EventLastWQE
	Cause string   // what the provider knows of the reason
	Time  time.Time
}
