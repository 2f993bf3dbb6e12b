//go:build linux && cgo && ibverbs

package ibverbs

import (
	"fmt"
	"net/netip"
	"strings"

	"rocelink/agent/verbs"
)

// automatic is the name of whatever device is fit.
const automatic = "auto"

// target is what a device's name asks for; the zero value asks for nothing.
type target struct {
	device  string
	address netip.Addr
	subnet  netip.Prefix
}

func parseTarget(name string) (target, error) {
	device, where, both := strings.Cut(name, "@")
	if !both {
		if t, ok := parseWhere(name); ok {
			return t, nil
		}
	}
	if device == automatic {
		device = ""
	}
	if !both {
		return target{device: device}, nil
	}
	t, ok := parseWhere(where)
	if !ok {
		return target{}, fmt.Errorf("%w: %q behind @ is neither an IP address nor a subnet", verbs.ErrNoDevice, where)
	}
	t.device = device
	return t, nil
}

func parseWhere(s string) (target, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return target{address: a.Unmap()}, true
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return target{subnet: p.Masked()}, true
	}
	return target{}, false
}

// automatic: any device will do.
func (t target) automatic() bool { return t.device == "" && !t.placed() }

// placed: only certain addresses will do.
func (t target) placed() bool { return t.address.IsValid() || t.subnet.IsValid() }

// fits reports whether an address will do.
func (t target) fits(a netip.Addr) bool {
	switch {
	case t.address.IsValid():
		return a.WithZone("") == t.address.WithZone("") && (t.address.Zone() == "" || t.address.Zone() == a.Zone())
	case t.subnet.IsValid():
		return t.subnet.Contains(a.WithZone(""))
	}
	return true
}

// where is how an error names the addresses asked for.
func (t target) where() string {
	switch {
	case t.address.IsValid():
		return "address " + t.address.String()
	case t.subnet.IsValid():
		return "subnet " + t.subnet.String()
	}
	return "any address"
}
