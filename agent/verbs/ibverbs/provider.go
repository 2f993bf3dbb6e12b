//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"rocelink/agent/verbs"
)

// Available reports whether this program was built with libibverbs.
const Available = true

type provider struct {
	lib     *library
	looks   int
	sysfs   string
	netdevs func() ([]netdev, error)
	memlock func() (memlock, error)
}

// New returns the provider; see the package comment for the names of devices.
func New(c Config) verbs.Provider {
	switch {
	case c.Looks == 0:
		c.Looks = DefaultLooks
	case c.Looks < 0:
		c.Looks = 1
	}
	return &provider{lib: realLibrary(), looks: c.Looks, sysfs: "/sys", netdevs: netdevs, memlock: readMemlock}
}

// Name implements verbs.Provider.
func (*provider) Name() string { return "ibverbs" }

// Open implements verbs.Provider.
//
// A port that is down does not keep a device from being opened by its name: its
// address then is chosen when it is up. Otherwise the device must have a RoCE
// v2 GID that fits.
func (p *provider) Open(name string) (verbs.Device, error) {
	t, err := parseTarget(name)
	if err != nil {
		return nil, fmt.Errorf("open RDMA device %q: %w", name, err)
	}
	d, err := p.find(t)
	if err != nil {
		return nil, fmt.Errorf("open RDMA device %q: %w", name, err)
	}
	return d, nil
}

func (p *provider) find(t target) (*device, error) {
	p.lib.forkSafe()
	devices, err := p.lib.list()
	if err != nil || len(devices) == 0 {
		return nil, p.noDevices(err)
	}
	if t.device != "" {
		names := make([]string, 0, len(devices))
		for _, l := range devices {
			if l.name == t.device {
				return p.open(l, t)
			}
			names = append(names, l.name)
		}
		return nil, fmt.Errorf("%w: there are %s: choose one of them, or auto", verbs.ErrNoDevice, strings.Join(names, ", "))
	}
	var reasons []error
	for _, l := range devices {
		d, err := p.open(l, t)
		if err == nil {
			return d, nil
		}
		reasons = append(reasons, err)
	}
	if len(reasons) == 1 {
		return nil, reasons[0]
	}
	return nil, fmt.Errorf("none is fit for %s: %w", t.where(), &unfit{reasons})
}

// unfit is why none of several devices was opened, in one line.
type unfit struct{ reasons []error }

func (u *unfit) Error() string {
	s := make([]string, len(u.reasons))
	for i, err := range u.reasons {
		s[i] = err.Error()
	}
	return strings.Join(s, "; ")
}

func (u *unfit) Unwrap() []error { return u.reasons }

// noDevices is the error for a host without devices.
func (p *provider) noDevices(err error) error {
	const soft = "or use the soft provider"
	known, _ := filepath.Glob(filepath.Join(p.sysfs, "class/infiniband/*"))
	for i := range known {
		known[i] = filepath.Base(known[i])
	}
	switch {
	case len(known) > 0 && (err == nil || errors.Is(err, syscall.ENOSYS)):
		return fmt.Errorf("%w: the kernel has %s, but libibverbs does not: install its drivers (Debian: ibverbs-providers) and load ib_uverbs (modprobe ib_uverbs), %s",
			verbs.ErrNoDevice, strings.Join(known, ", "), soft)
	case err == nil || errors.Is(err, syscall.ENOSYS):
		return fmt.Errorf("%w: this host has none: load the driver of its NIC, make a software one (rdma link add rxe0 type rxe netdev IFACE), %s",
			verbs.ErrNoDevice, soft)
	}
	return fmt.Errorf("list devices: %w", err)
}

// open opens one device and checks its port.
func (p *provider) open(l listed, t target) (*device, error) {
	d, err := p.openDevice(l, t)
	if err != nil {
		return nil, err
	}
	if err := d.fit(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openError is the error of a device that the library cannot open.
func openError(l listed, err error) error {
	file := "/dev/infiniband/" + l.uverbs
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("open %s: no permission on %s: %w: run as a user of its group (udev rule: KERNEL==\"uverbs*\", GROUP=\"rdma\", MODE=\"0660\")",
			l.name, file, err)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		_, missing := os.Stat(file)
		if missing != nil {
			return fmt.Errorf("open %s: %w: %s is missing: load ib_uverbs (modprobe ib_uverbs) and let udev make it: %w", l.name, verbs.ErrNoDevice, file, err)
		}
		return fmt.Errorf("open %s: %w: it has just gone: %w", l.name, verbs.ErrNoDevice, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("open %s: %w: raise the limit of open files (LimitNOFILE=, ulimit -n)", l.name, err)
	}
	return fmt.Errorf("open %s (%s): %w: see the kernel log", l.name, file, err)
}
