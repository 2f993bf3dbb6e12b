package kernel

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestLeaseOf(t *testing.T) {
	mask := dhcpv4.WithNetmask(net.IPv4Mask(255, 255, 255, 0))
	for _, c := range []struct {
		name           string
		ip             net.IP
		mods           []dhcpv4.Modifier
		prefix, says   string
		gateway        string
		renew, expires time.Duration
		dns, ntp       int
	}{
		{name: "everything", ip: net.IPv4(10, 0, 2, 15), mods: []dhcpv4.Modifier{
			mask, dhcpv4.WithRouter(net.IPv4(10, 0, 2, 2), net.IPv4(10, 0, 2, 9)), dhcpv4.WithDNS(net.IPv4(10, 0, 2, 3), net.IPv4zero),
			dhcpv4.WithOption(dhcpv4.OptNTPServers(net.IPv4(10, 0, 2, 4))), dhcpv4.WithLeaseTime(7200),
			dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(time.Minute)),
		}, prefix: "10.0.2.15/24", gateway: "10.0.2.2", renew: time.Minute, expires: 2 * time.Hour, dns: 1, ntp: 1},
		{name: "the least", ip: net.IPv4(10, 0, 2, 15), prefix: "10.0.2.15/8", renew: defaultLease / 2, expires: defaultLease},
		{name: "renew after the end", ip: net.IPv4(10, 0, 2, 15), mods: []dhcpv4.Modifier{
			mask, dhcpv4.WithLeaseTime(60), dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(time.Hour)),
		}, prefix: "10.0.2.15/24", renew: time.Minute, expires: time.Minute},
		{name: "for ever", ip: net.IPv4(10, 0, 2, 15), mods: []dhcpv4.Modifier{mask, dhcpv4.WithLeaseTime(0xFFFFFFFF)},
			prefix: "10.0.2.15/24", renew: 0xFFFFFFFF * time.Second / 2, expires: 0xFFFFFFFF * time.Second},
		{name: "no address", ip: net.IPv4zero, mods: []dhcpv4.Modifier{mask}, says: "no address"},
		{name: "multicast", ip: net.IPv4(224, 0, 0, 1), mods: []dhcpv4.Modifier{mask}, says: "no address"},
		{name: "holes in the mask", ip: net.IPv4(10, 0, 2, 15), mods: []dhcpv4.Modifier{dhcpv4.WithNetmask(net.IPv4Mask(255, 0, 255, 0))}, says: "mask"},
		{name: "no mask at all", ip: net.IPv4(10, 0, 2, 15), mods: []dhcpv4.Modifier{dhcpv4.WithNetmask(net.IPv4Mask(0, 0, 0, 0))}, says: "mask"},
	} {
		ack, err := dhcpv4.New(append(c.mods, dhcpv4.WithYourIP(c.ip))...)
		if err != nil {
			t.Fatal(err)
		}
		// As it comes over the wire.
		if ack, err = dhcpv4.FromBytes(ack.ToBytes()); err != nil {
			t.Fatal(err)
		}
		l, err := leaseOf(ack)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		gateway := ""
		if l.Gateway.IsValid() {
			gateway = l.Gateway.String()
		}
		if l.Prefix.String() != c.prefix || gateway != c.gateway || l.Renew != c.renew || l.Expires != c.expires || len(l.DNS) != c.dns || len(l.NTP) != c.ntp {
			t.Errorf("%s: %+v", c.name, l)
		}
	}
}

func TestBroadcast(t *testing.T) {
	for p, want := range map[string]string{"10.0.2.15/24": "10.0.2.255", "10.0.2.15/30": "10.0.2.15", "10.1.2.3/9": "10.127.255.255", "1.2.3.4/0": "255.255.255.255"} {
		if got := broadcast(netip.MustParsePrefix(p)).String(); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
}

func TestOnlyProcess1(t *testing.T) {
	if k, err := New(); k != nil || err != ErrNotInit {
		t.Errorf("%v, %v", k, err)
	}
}
