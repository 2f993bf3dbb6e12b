//go:build linux && cgo && ibverbs

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"rocelink/agent/verbs"
)

// portNumber is the port that is used (verbs.Device).
const portNumber = 1

// gid is an entry of the port's GID table that can be used.
type gid struct {
	index   int
	address netip.Addr // IPv4, or IPv6 with a zone if it is link-local
	netdev  netdev
}

// linkLocal is the rank of link-local IPv6 addresses.
const linkLocal = 2

// rank orders entries: the lower the better.
func (g gid) rank() int {
	switch {
	case g.address.Is4():
		return 0
	case !g.address.IsLinkLocalUnicast():
		return 1
	}
	return linkLocal
}

// class is the family and scope of an address. Peers were told an address of one
// class; they need not have any of another.
type class struct{ v4, link bool }

func classOf(a netip.Addr) class { return class{a.Is4(), a.IsLinkLocalUnicast()} }

// entry is an entry of the GID table as the library gives it.
type entry struct {
	index   int
	port    int
	kind    int // enum ibv_gid_type
	ifindex int
	raw     [16]byte
}

// entries reads the GID table of all ports.
func (d *device) entries() ([]entry, error) {
	size := 256
	for {
		raw := make([]C.struct_ibv_gid_entry, size)
		n := C.rl_query_gids(d.c, &raw[0], C.int(size))
		switch {
		case n < 0 && errno(n) == syscall.EINVAL && size < 1<<16:
			// The library refuses a table that is too small for all entries.
			size *= 4
			continue
		case n < 0:
			return nil, d.failure("read GID table", errno(n))
		}
		out := make([]entry, n)
		for i := range out {
			e := &raw[i]
			out[i] = entry{int(e.gid_index), int(e.port_num), int(e.gid_type), int(e.ndev_ifindex), e.gid}
		}
		return out, nil
	}
}

// usable returns the entries that can be used, best first, and says what is
// wrong with the others.
func (d *device) usable() (good []gid, others []string, err error) {
	es, err := d.entries()
	if err != nil {
		return nil, nil, err
	}
	nds, err := d.netdevs()
	if err != nil {
		return nil, nil, fmt.Errorf("list network interfaces: %w", err)
	}
	for _, e := range es {
		a := netip.AddrFrom16(e.raw).Unmap()
		reason := ""
		n := netdevOf(nds, e.ifindex, a)
		switch {
		case e.port != portNumber || e.raw == [16]byte{}:
			continue
		case e.kind != C.IBV_GID_TYPE_ROCE_V2:
			reason = "is not RoCE v2"
		case a.IsUnspecified() || a.IsMulticast():
			reason = "is no unicast address"
		case n == nil:
			reason = "is of no network interface here"
		case !n.has(a):
			reason = "is not an address of " + n.name
		}
		if reason != "" {
			others = append(others, fmt.Sprintf("entry %d (%v) %s", e.index, a, reason))
			continue
		}
		if a.IsLinkLocalUnicast() && a.Is6() {
			a = a.WithZone(n.name)
		}
		good = append(good, gid{e.index, a, *n})
	}
	slices.SortStableFunc(good, func(a, b gid) int {
		if r := a.rank() - b.rank(); r != 0 {
			return r
		}
		return a.index - b.index
	})
	return good, others, nil
}

// netdevOf finds the interface of an entry. Libraries that do not know it say 0.
func netdevOf(nds []netdev, ifindex int, a netip.Addr) *netdev {
	for i := range nds {
		if ifindex != 0 && nds[i].index == ifindex || ifindex == 0 && nds[i].has(a) {
			return &nds[i]
		}
	}
	return nil
}

// choose chooses an entry for the target: the one with the address used last, if
// there is one, else one of that address's class; the best of all where none was
// used yet. A link-local IPv6 address is what an interface has before it is given
// one: it gives way, and never takes another's place.
func (d *device) choose(last netip.Addr) (gid, error) {
	good, others, err := d.usable()
	if err != nil {
		return gid{}, err
	}
	fit := -1
	for i := range good {
		if !d.target.fits(good[i].address) {
			continue
		}
		if rank := (gid{address: last}).rank(); last.IsValid() && rank == linkLocal && good[i].rank() < rank {
			return good[i], nil
		}
		if good[i].address == last {
			return good[i], nil
		}
		if fit < 0 && (!last.IsValid() || classOf(good[i].address) == classOf(last)) {
			fit = i
		}
	}
	if fit >= 0 {
		return good[fit], nil
	}
	if last.IsValid() {
		others = slices.Concat(names(good), others)
		return gid{}, d.noneLike(last, others)
	}
	return gid{}, d.noGID(good, others)
}

func names(gs []gid) []string {
	var s []string
	for _, g := range gs {
		s = append(s, fmt.Sprintf("%v (%s)", g.address, g.netdev.name))
	}
	return s
}

// noneLike is the error for a port that had a fit entry.
func (d *device) noneLike(last netip.Addr, has []string) error {
	kind := "IPv6"
	if last.Is4() {
		kind = "IPv4"
	}
	if last.IsLinkLocalUnicast() {
		kind = "link-local " + kind
	}
	rest := ""
	if len(has) > 0 {
		rest = ", only " + strings.Join(has, ", ")
	}
	return fmt.Errorf("no address: %v is gone from %s, which has no other %s address for RoCE v2%s: give it one (ip address add); its streams wait for that",
		last, d.name, kind, rest)
}

// reselect chooses the address anew and makes an event of it if that concerns
// whoever was told one. Whoever looks first finds out: the event of the kernel or
// the regular look at the port.
func (d *device) reselect() (gid, error) {
	d.selectMu.Lock()
	defer d.selectMu.Unlock()
	d.mu.Lock()
	was, last := d.selected, d.last
	d.mu.Unlock()
	is, err := d.choose(last)
	if d.gone.Load() {
		return is, err // the device's own event says more
	}
	if is.address == was.address && is.index == was.index {
		if err == nil {
			d.use(is)
		}
		return is, err
	}
	d.use(is)
	var cause string
	switch {
	case !is.address.IsValid():
		cause = err.Error()
	case !last.IsValid():
		return is, nil // the first one
	case !was.address.IsValid():
		cause = fmt.Sprintf("%s has address %v now", d.name, is.address)
	case is.address == was.address:
		cause = fmt.Sprintf("%v moved from GID index %d to %d of %s", is.address, was.index, is.index, d.name)
	default:
		cause = fmt.Sprintf("%v is gone from %s, %v takes its place", was.address, d.name, is.address)
	}
	d.emit(verbs.Event{Kind: verbs.EventGIDChange, Cause: cause})
	return is, err
}

// use notes what was chosen.
func (d *device) use(g gid) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.selected = g
	if g.address.IsValid() {
		d.last = g.address
	}
}

// noGID is the error for a port without a fit entry.
func (d *device) noGID(good []gid, others []string) error {
	has := names(good)
	switch {
	case len(has) > 0:
		return fmt.Errorf("no RoCE v2 GID for %s on %s: %w: it has %s: use one of these or add the address to the interface (ip address add)",
			d.target.where(), d.name, verbs.ErrNoDevice, strings.Join(has, ", "))
	case len(others) > 0:
		return fmt.Errorf("no RoCE v2 GID for %s on %s: %w: %s: give its interface an address (ip address add), and RoCE v2 if it is off",
			d.target.where(), d.name, verbs.ErrNoDevice, strings.Join(others, ", "))
	}
	return fmt.Errorf("no RoCE v2 GID for %s on %s: %w: its GID table is empty: bring its network interface up and give it an address (ip address add)",
		d.target.where(), d.name, verbs.ErrNoDevice)
}

// indexOf looks up where an address is in the table now.
func (d *device) indexOf(a netip.Addr) (int, error) {
	good, _, err := d.usable()
	if err != nil {
		return 0, err
	}
	for _, g := range good {
		if g.address == a {
			return g.index, nil
		}
	}
	return 0, fmt.Errorf("%w: %v is not in the GID table of %s any more: open the stream again", verbs.ErrNoDevice, a, d.name)
}
