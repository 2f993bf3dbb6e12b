package doctor

import (
	"net/netip"
	"strings"
)

// target is what a device's name asks for, in the manner of the ibverbs
// provider: NAME, ADDRESS, SUBNET, NAME@ADDRESS or NAME@SUBNET, where NAME may
// be auto. The zero value asks for nothing.
type target struct {
	device  string
	address netip.Addr
	subnet  netip.Prefix
}

// parseTarget parses a name; ok is false if what is behind an @ is no place.
func parseTarget(name string) (t target, ok bool) {
	name = strings.TrimPrefix(name, "ibverbs:")
	device, where, both := strings.Cut(name, "@")
	if !both {
		if t.place(name) {
			return t, true
		}
	} else if !t.place(where) {
		return target{}, false
	}
	if device != "auto" {
		t.device = device
	}
	return t, true
}

func (t *target) place(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		t.address = a.Unmap()
		return true
	}
	p, err := netip.ParsePrefix(s)
	t.subnet = p.Masked()
	return err == nil
}

// fits reports whether an address will do.
func (t target) fits(a netip.Addr) bool {
	switch {
	case t.address.IsValid():
		return t.address.WithZone("") == a
	case t.subnet.IsValid():
		return t.subnet.Contains(a)
	}
	return true
}

// where names the addresses that will do; "": any.
func (t target) where() string {
	switch {
	case t.address.IsValid():
		return "the address " + t.address.String()
	case t.subnet.IsValid():
		return "an address in " + t.subnet.String()
	}
	return ""
}
