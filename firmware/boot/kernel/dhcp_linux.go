package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"rocelink/firmware/boot"
)

const (
	// The client doubles the wait after each try: 2, 4 and 8 s.
	dhcpWait  = 2 * time.Second
	dhcpTries = 3
	// defaultLease is for a server that gives no time, which it must.
	defaultLease = time.Hour
)

// Lease gets or renews a lease.
func (k *Kernel) Lease(ctx context.Context, on boot.Interface, before *boot.Lease) (*boot.Lease, error) {
	c, err := nclient4.New(on.Name, nclient4.WithTimeout(dhcpWait), nclient4.WithRetry(dhcpTries), nclient4.WithHWAddr(on.MAC))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ask := []dhcpv4.Modifier{dhcpv4.WithRequestedOptions(
		dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionNTPServers)}
	if name, err := os.Hostname(); err == nil && name != "" {
		ask = append(ask, dhcpv4.WithOption(dhcpv4.OptHostName(name)))
	}
	var l *nclient4.Lease
	if before == nil {
		l, err = c.Request(ctx, ask...)
	} else if state, ok := before.State.(*nclient4.Lease); ok {
		l, err = c.Renew(ctx, state, ask...)
	} else {
		return nil, errors.New("the lease before is not of this program")
	}
	var nak *nclient4.ErrNak
	switch {
	case errors.As(err, &nak):
		return nil, fmt.Errorf("%w: %w", boot.ErrRefused, err)
	case err != nil:
		return nil, err
	}
	got, err := leaseOf(l.ACK)
	if err != nil {
		return nil, err
	}
	got.State = l
	return got, nil
}

// leaseOf reads what a server granted.
func leaseOf(ack *dhcpv4.DHCPv4) (*boot.Lease, error) {
	ip, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() {
		return nil, fmt.Errorf("DHCP server grants %v, no address of a host", ack.YourIPAddr)
	}
	mask := ack.SubnetMask()
	if mask == nil {
		mask = ack.YourIPAddr.DefaultMask()
	}
	ones, bits := mask.Size()
	if bits != 32 || ones == 0 {
		return nil, fmt.Errorf("DHCP server grants %v with the mask %v", ip, mask)
	}
	l := &boot.Lease{Prefix: netip.PrefixFrom(ip, ones), DNS: addresses(ack.DNS()), NTP: addresses(ack.NTPServers())}
	if routers := addresses(ack.Router()); len(routers) > 0 {
		l.Gateway = routers[0]
	}
	l.Expires = ack.IPAddressLeaseTime(defaultLease)
	// Half the time unless the server says otherwise (RFC 2131, 4.4.5).
	l.Renew = min(ack.IPAddressRenewalTime(l.Expires/2), l.Expires)
	return l, nil
}

func addresses(list []net.IP) []netip.Addr {
	var out []netip.Addr
	for _, ip := range list {
		if a, ok := netip.AddrFromSlice(ip); ok && !a.IsUnspecified() && !a.IsMulticast() {
			out = append(out, a.Unmap())
		}
	}
	return out
}
