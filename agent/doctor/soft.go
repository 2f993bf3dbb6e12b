package doctor

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"rocelink/fpga/roce"
)

// likeliest is the address that the software provider would most probably be
// given: that of an interface that is up, IPv4 before IPv6, large MTU first.
func (x *examination) likeliest() netip.Addr {
	best, rank := netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0
	for _, name := range slices.Sorted(maps.Keys(x.interfaces)) {
		i := x.interfaces[name]
		if !i.Up || i.Loopback {
			continue
		}
		for _, p := range i.Addresses {
			a := p.Addr().Unmap()
			if !a.IsGlobalUnicast() {
				continue
			}
			r := 1 + min(max(i.MTU, 0), 1<<20)
			if a.Is4() {
				r += 1 << 21
			}
			if r > rank {
				best, rank = a, r
			}
		}
	}
	return best
}

// softDevice examines the software provider on an address.
func (x *examination) softDevice(a netip.Addr) {
	name := softPrefix + a.String()
	d := Device{Name: name, Address: a.String()}
	defer func() { x.report.Devices = append(x.report.Devices, d) }()
	if a.IsUnspecified() || a.IsMulticast() {
		x.add(name, "address", Fail, "not the address of an interface", "give a definite one: the invariant CRC covers it")
		return
	}
	i, ok := x.interfaceOf(a)
	switch {
	case !ok && x.blind:
		x.add(name, "address", Warn, "not known", "look at it: ip address show")
	case !ok:
		x.add(name, "address", Fail, "no interface has it", "give one of these: "+x.addressList())
		return
	case !i.Up:
		d.Netdev = i.Name
		x.add(name, "address", Fail, i.Name+" is down", "ip link set dev "+i.Name+" up; if it stays down there is no carrier")
	case i.Loopback:
		d.Netdev = i.Name
		x.add(name, "address", OK, "loopback: reaches only a fabric on this host", "")
	default:
		d.Netdev = i.Name
		x.add(name, "address", OK, "on "+i.Name, "")
	}
	if ok {
		d.MTU = x.checkMTU(name, i.Name)
	}
	switch err := x.system.BindUDP(netip.AddrPortFrom(a, roce.Port)); {
	case err == nil:
		x.add(name, "udp port", OK, fmt.Sprintf("%d is free", roce.Port), "")
	case errors.Is(err, syscall.EADDRINUSE):
		x.add(name, "udp port", Fail, fmt.Sprintf("%d is taken", roce.Port),
			fmt.Sprintf("a rocelinkd that runs already, rdma_rxe, or another program has it: ss -ulnp sport = :%d; stop it or take another address", roce.Port))
	default:
		x.add(name, "udp port", Fail, fmt.Sprintf("%d cannot be bound: %s", roce.Port, clean(err.Error())), "take an address of this host that this process may use")
	}
	x.socketBuffers(name)
}

// interfaceOf finds the interface that has an address; all of a loopback
// network's addresses are the host's.
func (x *examination) interfaceOf(a netip.Addr) (found Interface, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(x.interfaces)) {
		i := x.interfaces[name]
		if a.Zone() != "" && a.Zone() != name {
			continue
		}
		if i.has(a.WithZone("")) {
			return i, true
		}
		for _, p := range i.Addresses {
			if i.Loopback && p.Contains(a) {
				found, ok = i, true
			}
		}
	}
	return found, ok
}

func (x *examination) addressList() string {
	const most = 8
	text, n := "", 0
	for _, name := range slices.Sorted(maps.Keys(x.interfaces)) {
		for _, p := range x.interfaces[name].Addresses {
			if p.Addr().IsLinkLocalUnicast() {
				continue
			}
			if n++; n > most {
				return text + ", ..."
			}
			if text != "" {
				text += ", "
			}
			text += p.Addr().String()
		}
	}
	if text == "" {
		return "127.0.0.1"
	}
	return text
}
