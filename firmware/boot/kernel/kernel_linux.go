// Package kernel is Linux as firmware/boot needs it: each method is one or two
// system calls and decides nothing.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"rocelink/bsp"
	"rocelink/firmware/boot"
	"rocelink/firmware/boot/sntp"
)

// ErrNotInit: this is not process 1. What Kernel does to a machine is only for
// one that is ours.
var ErrNotInit = errors.New("not process 1: this program is the /init of a board")

// Kernel is the running kernel.
type Kernel struct {
	events chan boot.Event

	mu    sync.Mutex
	route *rtnetlink.Conn // nil until it is used
}

var _ boot.System = (*Kernel)(nil)

// New returns the running kernel. The process must be process 1.
func New() (*Kernel, error) {
	if os.Getpid() != 1 {
		return nil, ErrNotInit
	}
	// Control-alt-delete becomes SIGINT (reboot(2)). A namespace has none.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("take control-alt-delete: %w", err)
	}
	k := &Kernel{events: make(chan boot.Event, 16)}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP)
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPWR)
	go func() {
		for s := range signals {
			k.events <- eventOf[s.(syscall.Signal)]
		}
	}()
	return k, nil
}

// eventOf are the signals of busybox's init.
var eventOf = map[syscall.Signal]boot.Event{
	unix.SIGCHLD: boot.EventChild,
	unix.SIGINT:  boot.EventReboot,
	unix.SIGTERM: boot.EventReboot,
	unix.SIGUSR1: boot.EventHalt,
	unix.SIGUSR2: boot.EventPowerOff,
	unix.SIGPWR:  boot.EventPowerOff,
}

// Events delivers signals.
func (k *Kernel) Events() <-chan boot.Event { return k.events }

// Mount mounts a file system.
func (k *Kernel) Mount(m boot.Mount) error {
	var flags uintptr
	for _, f := range []struct {
		on   bool
		flag uintptr
	}{{m.ReadOnly, unix.MS_RDONLY}, {m.NoExec, unix.MS_NOEXEC}, {m.NoDevices, unix.MS_NODEV}, {m.NoSetUID, unix.MS_NOSUID}} {
		if f.on {
			flags |= f.flag
		}
	}
	err := unix.Mount(m.Source, m.Target, m.Type, flags, m.Data)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w", boot.ErrPresent, err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("the kernel knows no file system %s: is its module in the image? %w", m.Type, err)
	}
	return err
}

// Unmount unmounts; what is in use disappears when it no longer is.
func (k *Kernel) Unmount(target string) error {
	err := unix.Unmount(target, 0)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(target, unix.MNT_DETACH)
	}
	return err
}

// LoadModule loads a module.
func (k *Kernel) LoadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %w", boot.ErrPresent, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("a symbol is unknown: a module it needs must come before it: %w", err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("not a module for this kernel: %w", err)
	}
	return err
}

// SetHostname sets the host name.
func (k *Kernel) SetHostname(name string) error { return unix.Sethostname([]byte(name)) }

// SetTime sets the wall clock.
func (k *Kernel) SetTime(t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// AskTime asks an NTP server.
func (k *Kernel) AskTime(ctx context.Context, server string) (time.Duration, error) {
	return sntp.Query(ctx, server)
}

// Map maps registers.
func (k *Kernel) Map(file string, base, size uint64) (boot.Registers, error) {
	r, err := bsp.Map(file, base, size)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Listen opens a socket that only root may use.
func (k *Kernel) Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	before := unix.Umask(0o177)
	defer unix.Umask(before)
	return net.Listen("unix", path)
}

// KernelLog opens /dev/kmsg. Lines get the lowest priority: they are on the
// console already.
func (k *Kernel) KernelLog() (io.WriteCloser, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	// Else the kernel keeps ten lines in five seconds (Linux,
	// Documentation/admin-guide/sysctl/kernel.rst, printk_devkmsg). Lines lost
	// for want of it are no reason to fail.
	_ = os.WriteFile("/proc/sys/kernel/printk_devkmsg", []byte("on\n"), 0)
	return kernelLog{f}, nil
}

type kernelLog struct{ *os.File }

// Write adds a record of facility daemon (3), priority debug (7).
func (l kernelLog) Write(p []byte) (int, error) {
	if _, err := l.File.Write(append([]byte("<31>"), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString is Write; that of the file would leave the priority out.
func (l kernelLog) WriteString(s string) (int, error) { return l.Write([]byte(s)) }

// Sync writes what is cached.
func (k *Kernel) Sync() { unix.Sync() }

// Reset ends the machine's run.
func (k *Kernel) Reset(how boot.How) error {
	return unix.Reboot(map[boot.How]int{
		boot.Reboot:   unix.LINUX_REBOOT_CMD_RESTART,
		boot.PowerOff: unix.LINUX_REBOOT_CMD_POWER_OFF,
		boot.Halt:     unix.LINUX_REBOOT_CMD_HALT,
	}[how])
}

// Hold never returns: a kernel whose process 1 ends panics.
func (k *Kernel) Hold() {
	for {
		_ = unix.Pause() // ends with each signal
	}
}
