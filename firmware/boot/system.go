package boot

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"rocelink/fpga/regs"
)

// Errors of a System that Init decides by.
var (
	// ErrPresent: what was asked for is there already: the module is loaded, the
	// file system mounted.
	ErrPresent = errors.New("present already")
	// ErrNoVolume: no volume has the label.
	ErrNoVolume = errors.New("no such volume")
	// ErrNoWatchdog: the machine has no watchdog.
	ErrNoWatchdog = errors.New("no watchdog")
	// ErrRefused: the DHCP server took the lease back.
	ErrRefused = errors.New("the DHCP server refused the lease")
)

// System is what Init needs of the kernel. Package kernel is the real one.
//
// Calls without a context return at once or within a few milliseconds.
type System interface {
	// Mount mounts. The error matches ErrPresent when the same file system is
	// mounted there.
	Mount(Mount) error
	Unmount(target string) error
	// LoadModule loads a kernel module from a file. The error matches ErrPresent
	// when it is loaded or built in.
	LoadModule(file string) error
	SetHostname(name string) error
	// SetTime sets the wall clock.
	SetTime(time.Time) error
	// Volume returns the block device of the FAT volume with the label. It
	// waits for one to appear as long as ctx lasts and such a device can.
	Volume(ctx context.Context, label string) (device string, err error)
	// KernelLog opens the kernel's log; each Write is one line.
	KernelLog() (io.WriteCloser, error)
	// Map maps registers.
	Map(file string, base, size uint64) (Registers, error)
	// Listen opens the socket for requests, only for this user.
	Listen(path string) (net.Listener, error)
	// Watchdog opens the watchdog: unless it is fed within the timeout, the
	// machine resets. The error matches ErrNoWatchdog when there is none.
	Watchdog(timeout time.Duration) (Watchdog, error)

	// Start starts a program.
	Start(Command) (pid int, err error)
	// Terminate asks a process to end, Kill ends it. Process 0 is all but
	// this one.
	Terminate(pid int) error
	Kill(pid int) error
	// Reap returns the processes that have ended, Init's own and orphans, and
	// whether there are others left.
	Reap() (ended []Exit, others bool)
	// Events delivers what happens to this process.
	Events() <-chan Event

	// Sync writes what is cached to disks.
	Sync()
	// Reset ends the machine's run. It returns only when that failed.
	Reset(How) error

	Network
	// AskTime returns by how much the local clock is behind that of an NTP
	// server.
	AskTime(ctx context.Context, server string) (behind time.Duration, err error)
}

// Network is the machine's network, without the fabric's port.
type Network interface {
	Interfaces() ([]Interface, error)
	// Changes delivers after each change of an interface until ctx is done.
	Changes(ctx context.Context) (<-chan struct{}, error)
	// Up switches an interface on.
	Up(index int) error
	// AddAddress gives an interface an address, which it may have already.
	AddAddress(index int, p netip.Prefix) error
	RemoveAddress(index int, p netip.Prefix) error
	// SetGateway replaces the default route.
	SetGateway(index int, gateway netip.Addr) error
	// Lease gets a lease by DHCP, or renews the one before. The error matches
	// ErrRefused when that must no longer be used.
	Lease(ctx context.Context, on Interface, before *Lease) (*Lease, error)
}

// Mount is a file system to mount.
type Mount struct {
	Source, Target, Type string
	// ReadOnly, and what its files cannot do.
	ReadOnly, NoExec, NoDevices, NoSetUID bool
	Data                                  string // options of the file system
}

// Command is a program to start.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string
	// Output takes both outputs. Nil connects the program to the console, of
	// which it becomes the owner.
	Output io.Writer
}

// Exit is how a process ended.
type Exit struct {
	PID    int
	Code   int    // exit code, if no signal ended it
	Signal string // name of the signal that ended it, or ""
}

// String says how the process ended.
func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return "exit code " + itoa(e.Code)
}

// Event is something that happens to the process.
type Event int

// The events.
const (
	EventChild    Event = iota // a child may have ended
	EventReboot                // SIGINT (control-alt-delete), SIGTERM
	EventHalt                  // SIGUSR1
	EventPowerOff              // SIGUSR2
)

// How is a way to end the machine's run.
type How int

// The ways.
const (
	Reboot How = iota
	PowerOff
	Halt
)

// String is the request's name.
func (h How) String() string { return [...]string{"reboot", "power-off", "halt"}[h] }

// Registers is a mapped range of registers.
type Registers interface {
	regs.Bus
	io.Closer
}

// Watchdog resets the machine unless it is fed.
type Watchdog interface {
	Feed() error
	// Timeout is the time it really gives.
	Timeout() time.Duration
	// Disarm switches it off where the hardware can.
	Disarm() error
}

// Interface is a network interface.
type Interface struct {
	Index    int
	Name     string
	MAC      net.HardwareAddr
	Loopback bool
	Ethernet bool
	Up       bool
	Carrier  bool
}

// Lease is an address from a DHCP server.
type Lease struct {
	Prefix   netip.Prefix
	Gateway  netip.Addr // may be invalid
	DNS, NTP []netip.Addr
	// Renew is when it should be renewed, Expires when it must no longer be
	// used, both from now.
	Renew, Expires time.Duration
	// State belongs to the System.
	State any
}
