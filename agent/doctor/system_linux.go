package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

type host struct{}

func thisHost() (System, error) { return host{}, nil }

// Interfaces implements System by netlink.
func (host) Interfaces() ([]Interface, error) {
	is, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	list := make([]Interface, 0, len(is))
	for _, i := range is {
		// An interface that has just gone has no addresses.
		addresses, _ := i.Addrs()
		n := Interface{
			Name: i.Name, MTU: i.MTU, Loopback: i.Flags&net.FlagLoopback != 0,
			Up: i.Flags&(net.FlagUp|net.FlagRunning) == net.FlagUp|net.FlagRunning,
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Addresses = append(n.Addresses, p)
			}
		}
		list = append(list, n)
	}
	return list, nil
}

// Access implements System. It opens the file: that a device cgroup or a
// device that is gone stands in the way, modes do not tell.
func (host) Access(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// LockLimit implements System.
func (host) LockLimit() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return 0, fmt.Errorf("read RLIMIT_MEMLOCK: %w", err)
	}
	return l.Cur, nil // RLIM_INFINITY is Unlimited
}

// BindUDP implements System.
func (host) BindUDP(a netip.AddrPort) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(a))
	if err != nil {
		return err
	}
	return c.Close()
}
