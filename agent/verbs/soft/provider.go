package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// Limits of a device. They bound what a mistake can cost; memory is what limits
// in earnest.
const (
	maxQP       = 1024
	maxReceives = 1 << 16
	maxCQ       = 1024
	maxCQE      = 1 << 20
	maxMR       = 4096
	maxSRQ      = 256
	maxReads    = 16

	maxReceivesShared = 1 << 18

	// maxMessage is half of IBTA's 2^31 bytes, so that the PSNs of one READ
	// at path MTU 256 stay within the window in which a PSN is new or old.
	maxMessage = 1 << 30
)

// defaultName is the device that an empty name opens.
const defaultName = "127.0.0.1"

type provider struct{}

// New returns the provider. A device's name is the local IP address that it
// binds, IPv4 or IPv6; the empty name is 127.0.0.1.
func New() verbs.Provider { return provider{} }

// Name implements verbs.Provider.
func (provider) Name() string { return "soft" }

// Open implements verbs.Provider.
func (provider) Open(name string) (verbs.Device, error) {
	if name == "" {
		name = defaultName
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return nil, fmt.Errorf("open soft device %q: %w: the name is the local IP address to bind: %w", name, verbs.ErrNoDevice, err)
	}
	addr = addr.Unmap()
	if addr.IsUnspecified() || addr.IsMulticast() {
		return nil, fmt.Errorf("open soft device %q: %w: the invariant CRC covers the address, so give one of an interface", name, verbs.ErrNoDevice)
	}
	d, err := openDevice(name, addr)
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("open soft device %q: %w: another device or program has UDP port %d of this address: %w", name, verbs.ErrBusy, roce.Port, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("open soft device %q: %w: no interface has this address: %w", name, verbs.ErrNoDevice, err)
	}
	return nil, fmt.Errorf("open soft device %q: %w", name, err)
}
