package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rocelink/firmware/boot"
)

// conn returns the connection to the kernel's routing. The caller holds mu.
func (k *Kernel) conn() (*rtnetlink.Conn, error) {
	if k.route == nil {
		c, err := rtnetlink.Dial(nil)
		if err != nil {
			return nil, err
		}
		k.route = c
	}
	return k.route, nil
}

// with runs one exchange with the kernel.
func (k *Kernel) with(what string, do func(*rtnetlink.Conn) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, err := k.conn()
	if err == nil {
		err = do(c)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Interfaces lists the network interfaces.
func (k *Kernel) Interfaces() (list []boot.Interface, err error) {
	err = k.with("list interfaces", func(c *rtnetlink.Conn) error {
		links, err := c.Link.List()
		for _, l := range links {
			x := boot.Interface{
				Index:    int(l.Index),
				Loopback: l.Flags&unix.IFF_LOOPBACK != 0,
				Ethernet: l.Type == unix.ARPHRD_ETHER,
				Up:       l.Flags&unix.IFF_UP != 0,
			}
			if a := l.Attributes; a != nil {
				x.Name, x.MAC = a.Name, a.Address
				// The kernel says "running" when traffic can pass.
				x.Carrier = l.Flags&unix.IFF_RUNNING != 0 && (a.Carrier == nil || *a.Carrier == 1)
			}
			list = append(list, x)
		}
		return err
	})
	return list, err
}

// Changes delivers after each change of an interface.
func (k *Kernel) Changes(ctx context.Context) (<-chan struct{}, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: unix.RTMGRP_LINK})
	if err != nil {
		return nil, fmt.Errorf("watch interfaces: %w", err)
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	go func() {
		defer close(changes)
		defer stop()
		for {
			// More events than fit are one event.
			if _, err := c.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				_ = c.Close()
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}

// Up switches an interface on.
func (k *Kernel) Up(index int) error {
	return k.with("switch interface on", func(c *rtnetlink.Conn) error {
		return c.Link.Set(&rtnetlink.LinkMessage{Index: uint32(index), Flags: unix.IFF_UP, Change: unix.IFF_UP})
	})
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func address(index int, p netip.Prefix) *rtnetlink.AddressMessage {
	m := &rtnetlink.AddressMessage{
		Family: family(p.Addr()), PrefixLength: uint8(p.Bits()), Index: uint32(index), Scope: unix.RT_SCOPE_UNIVERSE,
		Attributes: &rtnetlink.AddressAttributes{Address: p.Addr().AsSlice(), Local: p.Addr().AsSlice()},
	}
	if p.Addr().Is4() && p.Bits() < 31 {
		m.Attributes.Broadcast = broadcast(p)
	}
	return m
}

// broadcast is the last address of an IPv4 network.
func broadcast(p netip.Prefix) net.IP {
	b := p.Addr().As4()
	for n := p.Bits(); n < 32; n++ {
		b[n/8] |= 0x80 >> (n % 8)
	}
	return b[:]
}

// AddAddress gives an interface an address.
func (k *Kernel) AddAddress(index int, p netip.Prefix) error {
	return k.with("add address "+p.String(), func(c *rtnetlink.Conn) error {
		if err := c.Address.New(address(index, p)); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	})
}

// RemoveAddress takes an address back.
func (k *Kernel) RemoveAddress(index int, p netip.Prefix) error {
	return k.with("remove address "+p.String(), func(c *rtnetlink.Conn) error {
		if err := c.Address.Delete(address(index, p)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
		return nil
	})
}

// SetGateway replaces the default route. The gateway may lie outside the
// interface's network, as with leases of a single address.
func (k *Kernel) SetGateway(index int, gateway netip.Addr) error {
	return k.with("set default route", func(c *rtnetlink.Conn) error {
		return c.Route.Replace(&rtnetlink.RouteMessage{
			Family: family(gateway), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT,
			Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST, Flags: unix.RTNH_F_ONLINK,
			Attributes: rtnetlink.RouteAttributes{Gateway: gateway.AsSlice(), OutIface: uint32(index)},
		})
	})
}
