//go:build linux && cgo && ibverbs

package ibverbs

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// netdev is a network interface.
type netdev struct {
	index     int
	name      string
	mac       [6]byte
	addresses []netip.Addr
}

// has reports whether the interface has the address.
func (n *netdev) has(a netip.Addr) bool {
	return slices.Contains(n.addresses, a)
}

// netdevs lists the interfaces of this network namespace.
func netdevs() ([]netdev, error) {
	is, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := make([]netdev, 0, len(is))
	for i := range is {
		n := netdev{index: is[i].Index, name: is[i].Name}
		if len(is[i].HardwareAddr) == len(n.mac) {
			n.mac = [6]byte(is[i].HardwareAddr)
		}
		addrs, err := is[i].Addrs()
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.addresses = append(n.addresses, p.Addr().Unmap().WithZone(""))
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// speed is what the kernel says of an interface's speed in Gb/s, 0 if it does
// not know.
func speed(sysfs, name string) float64 {
	b, err := os.ReadFile(filepath.Join(sysfs, "class/net", name, "speed"))
	if err != nil {
		return 0
	}
	mbps, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || mbps <= 0 {
		return 0
	}
	return float64(mbps) / 1000
}

// standInMAC is a locally administered MAC made from an address, for interfaces
// that have none: boards refuse zero.
func standInMAC(a netip.Addr) [6]byte {
	b := a.AsSlice()
	mac := [6]byte{0x02}
	copy(mac[2:], b[len(b)-4:])
	return mac
}
