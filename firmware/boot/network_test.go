package boot

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const dhcpLine = "rocelink.nats=nats://10.0.2.2:4222 rocelink.address=10.9.0.2 rocelink.card=none"

func lease(prefix string, renew, expires time.Duration) *Lease {
	return &Lease{
		Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr("10.0.2.2"),
		DNS: []netip.Addr{netip.MustParseAddr("10.0.2.3")}, NTP: []netip.Addr{netip.MustParseAddr("10.0.2.4")},
		Renew: renew, Expires: expires,
	}
}

// A server that never answers costs nothing but tries, each with an end.
func TestDHCPThatNeverAnswers(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", dhcpLine)
	m.boot(func() {
		if len(m.programs()) != 1 || m.programs()[0].at != 0 {
			t.Error("boardd waits for the network")
		}
		m.pass(10 * time.Minute)
		m.mu.Lock()
		tries := m.leases
		m.mu.Unlock()
		if len(tries) < 10 || len(tries) > 20 {
			t.Fatalf("%d tries in ten minutes", len(tries))
		}
		for n, want := range []time.Duration{16, 17, 19, 23, 31, 45, 45} {
			if got := tries[n+1].Sub(tries[n]); got != want*time.Second {
				t.Errorf("from try %d to the next: %v, want %v", n, got, want*time.Second)
			}
		}
		if n := strings.Count(m.text(), "DHCP on eth0"); n != 1 {
			t.Errorf("told %d times", n)
		}
		m.mu.Lock()
		m.lease = func(context.Context, *Lease) (*Lease, error) {
			return lease("10.0.2.15/24", time.Hour, 2*time.Hour), nil
		}
		m.mu.Unlock()
		m.pass(time.Minute)
		if m.count("address 2 10.0.2.15/24") != 1 {
			t.Error("no address when it answers at last")
		}
		if len(m.programs()) != 1 {
			t.Error("boardd was started again")
		}
	})
}

func TestLeaseIsRenewed(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", dhcpLine)
	var answers atomic.Bool
	answers.Store(true)
	m.lease = func(ctx context.Context, before *Lease) (*Lease, error) {
		if !answers.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return lease("10.0.2.15/24", 30*time.Minute, time.Hour), nil
	}
	m.boot(func() {
		if s := m.status(); s.Interface != "eth0" || s.Address != "10.0.2.15/24" {
			t.Errorf("status %+v", s)
		}
		if data, err := os.ReadFile(m.root + resolvFile); err != nil || string(data) != "nameserver 10.0.2.3\n" {
			t.Errorf("resolv.conf %q, %v", data, err)
		}
		m.pass(31 * time.Minute)
		if m.count("lease eth0 renew=true") != 1 || m.count("no address") != 0 {
			t.Errorf("%q", m.log())
		}
		// Not answered until it ran out: the address goes, and not before.
		answers.Store(false)
		m.pass(58 * time.Minute)
		if m.count("no address") != 0 {
			t.Error("dropped too early")
		}
		m.pass(5 * time.Minute)
		if m.count("no address 2 10.0.2.15/24") != 1 {
			t.Error("used after it ran out")
		}
		if s := m.status(); s.Address != "" {
			t.Errorf("status %+v", s)
		}
		answers.Store(true)
		m.pass(time.Minute)
		if m.count("address 2 10.0.2.15/24") < 2 || m.status().Address == "" {
			t.Error("no address again")
		}
	})
}

func TestLeaseThatIsTakenBack(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", dhcpLine)
	n := 0
	m.lease = func(ctx context.Context, before *Lease) (*Lease, error) {
		switch n++; n {
		case 2:
			return nil, fmt.Errorf("nak: %w", ErrRefused)
		case 3:
			if before != nil {
				t.Error("a refused lease is renewed")
			}
			return lease("10.0.2.77/24", 30*time.Minute, time.Hour), nil
		}
		return lease("10.0.2.15/24", 30*time.Minute, time.Hour), nil
	}
	m.boot(func() { m.pass(32 * time.Minute) })
	inOrder(t, m.log(), "address 2 10.0.2.15/24", "no address 2 10.0.2.15/24", "address 2 10.0.2.77/24")
}

func TestAbsurdLease(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", dhcpLine)
	m.lease = func(context.Context, *Lease) (*Lease, error) { return lease("10.0.2.15/24", 0, 0), nil }
	m.boot(func() { m.pass(time.Minute) })
	if n := m.count("lease"); n > 7 {
		t.Errorf("%d requests in a minute", n)
	}
}

func TestLinkComesLate(t *testing.T) {
	for _, ip := range []string{"", " rocelink.ip=10.0.2.15/24"} {
		m := newMachine(t)
		m.file("/proc/cmdline", dhcpLine+ip)
		m.ports[1].Carrier = false
		m.lease = func(context.Context, *Lease) (*Lease, error) {
			return lease("10.0.2.15/24", time.Hour, 2*time.Hour), nil
		}
		m.boot(func() {
			m.pass(time.Hour)
			if m.count("up 2") != 1 || m.count("address")+m.count("lease") != 0 {
				t.Errorf("%q", m.log())
			}
			if n := len(m.programs()); n != 1 {
				t.Errorf("boardd started %d times", n)
			}
			m.carrier("eth0", true)
			if m.count("address 2 10.0.2.15/24") != 1 {
				t.Errorf("no address at once: %q", m.log())
			}
			// Out and in again: the address stays, the lease is asked for again.
			m.carrier("eth0", false)
			m.pass(time.Minute)
			if m.count("no address") != 0 {
				t.Error("dropped with the carrier")
			}
			m.carrier("eth0", true)
			if ip == "" && m.count("lease eth0 renew=true") != 1 {
				t.Errorf("%q", m.log())
			}
		})
	}
}

func TestInterfaceThatComesLate(t *testing.T) {
	m := newMachine(t)
	late := m.ports[1]
	m.ports = m.ports[:1]
	m.boot(func() {
		m.mu.Lock()
		m.ports = append(m.ports, late)
		m.mu.Unlock()
		m.carrier("eth0", true)
		if m.count("address 2") != 1 {
			t.Errorf("%q", m.log())
		}
	})
}

func TestWhichInterface(t *testing.T) {
	second := Interface{Index: 3, Name: "eth1", Ethernet: true, Carrier: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	other := Interface{Index: 4, Name: "can0", Carrier: true}
	for _, c := range []struct {
		line   string
		first  bool // eth0 has a carrier
		expect string
		up     int
	}{
		{"", true, "address 2", 3},
		{"", false, "address 3", 3},
		{" rocelink.interface=eth1", true, "address 3", 2},
		{" rocelink.interface=eth7", true, "", 1},
		{" rocelink.ip=none", true, "", 3},
	} {
		m := newMachine(t)
		m.file("/proc/cmdline", goodLine+c.line)
		m.ports[1].Carrier = c.first
		m.ports = append(m.ports, second, other)
		m.boot(func() { m.pass(time.Minute) })
		if n := m.count("address"); c.expect == "" && n != 0 || c.expect != "" && (n != 1 || m.count(c.expect) != 1) || m.count("up") != c.up {
			t.Errorf("%q, carrier %t: %q", c.line, c.first, m.log())
		}
	}
}

// With two cables the one in use stays in use; when it is pulled the other
// takes over.
func TestSecondCable(t *testing.T) {
	m := newMachine(t)
	m.ports = append(m.ports, Interface{Index: 3, Name: "eth1", Ethernet: true})
	m.boot(func() {
		m.carrier("eth1", true)
		if m.count("address 3") != 0 {
			t.Error("changed without need")
		}
		m.carrier("eth0", false)
		inOrder(t, m.log(), "address 2", "no address 2", "address 3")
	})
}

// Without a route the board still reaches what is near.
func TestGatewayThatIsRefused(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", dhcpLine)
	m.fail["gateway"] = errFake
	m.lease = func(context.Context, *Lease) (*Lease, error) {
		return lease("10.0.2.15/24", time.Hour, 2*time.Hour), nil
	}
	m.boot(func() {
		m.pass(30 * time.Minute)
		if m.count("lease") != 1 || m.count("address 2") != 1 || m.status().Address == "" {
			t.Errorf("%q", m.log())
		}
	})
	if !strings.Contains(m.text(), "no default route") {
		t.Errorf("console:\n%s", m.text())
	}
}
