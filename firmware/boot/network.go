package boot

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
)

const (
	resolvFile = "/etc/resolv.conf"

	// dhcpTime bounds one attempt to get a lease.
	dhcpTime      = 15 * time.Second
	firstLeaseTry = time.Second
	lastLeaseTry  = 30 * time.Second
	// minRenew keeps a server with absurd leases from being flooded.
	minRenew = 10 * time.Second
	// watchRetry is the wait after the kernel did not say what it has.
	watchRetry = time.Second
)

// port is the network port that is in use.
type port struct {
	init    *Init
	changes <-chan struct{}
	lease   *Lease
	expires time.Time
	on      Interface
	prefix  netip.Prefix
	said    string // the last trouble, told once
}

// keepNetwork brings the network up and keeps it so. Cables may come late, go
// and come back.
func (i *Init) keepNetwork(ctx context.Context) {
	p := &port{init: i}
	for ctx.Err() == nil {
		changes, err := i.sys.Changes(ctx)
		if err == nil {
			p.changes = changes
			p.run(ctx)
			continue
		}
		p.trouble("watch the network interfaces", err)
		pause(ctx, watchRetry)
	}
}

// pause waits and tells whether there is a reason to go on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (p *port) trouble(what string, err error) {
	if text := what + ": " + err.Error(); text != p.said {
		p.said = text
		p.init.log.Warn(what, "err", err)
	}
}

// run uses the first interface with a carrier until the changes end.
func (p *port) run(ctx context.Context) {
	for ctx.Err() == nil {
		on, ok, err := p.pick()
		switch {
		case err != nil:
			p.trouble("list the network interfaces", err)
			if !pause(ctx, watchRetry) {
				return
			}
		case !ok:
			p.trouble("network", errors.New("no interface has a carrier yet: is the cable in?"))
			select {
			case <-ctx.Done():
				return
			case _, open := <-p.changes:
				if !open {
					return
				}
			}
		default:
			p.said = ""
			if !p.use(ctx, on) {
				return
			}
		}
	}
}

// pick switches the interfaces on and returns the one to use: that in use, or
// the first with a carrier.
func (p *port) pick() (on Interface, ok bool, err error) {
	all, err := p.init.sys.Interfaces()
	if err != nil {
		return on, false, err
	}
	wanted := p.init.set.netdev
	for _, x := range all {
		ours := x.Ethernet && (wanted == "" || x.Name == wanted)
		if !x.Loopback && !ours {
			continue
		}
		if !x.Up {
			if err := p.init.sys.Up(x.Index); err != nil {
				p.trouble("switch "+x.Name+" on", err)
				continue
			}
		}
		if !ours || !x.Carrier || ok && x.Index != p.on.Index {
			continue
		}
		on, ok = x, true
	}
	return on, ok, nil
}

// use configures an interface and keeps it until it loses its carrier. It
// returns false when the changes ended.
func (p *port) use(ctx context.Context, on Interface) bool {
	if p.on.Index != on.Index {
		p.drop()
		p.on = on
	}
	i := p.init
	i.log.Info("network: carrier", "interface", on.Name, "mac", on.MAC.String())
	linked, lost := context.WithCancel(ctx)
	configured := make(chan struct{})
	go func() {
		defer close(configured)
		switch ip := i.set.ip; {
		case ip.none:
		case ip.dhcp:
			p.dhcp(linked)
		default:
			p.static(linked, ip)
		}
	}()
	defer func() { lost(); <-configured }()
	for {
		select {
		case <-ctx.Done():
			return false
		case _, open := <-p.changes:
			if !open {
				return false
			}
			all, err := i.sys.Interfaces()
			if err != nil {
				return true
			}
			still := false
			for _, x := range all {
				still = still || x.Index == on.Index && x.Carrier
			}
			if !still {
				i.log.Warn("network: carrier lost", "interface", on.Name)
				return true
			}
		}
	}
}

// static sets a fixed address; should that fail, again until it works.
func (p *port) static(ctx context.Context, ip ipSetting) {
	for wait := firstLeaseTry; ; wait = min(2*wait, lastLeaseTry) {
		err := p.set(ip.prefix, ip.gateway, nil, nil)
		if err == nil {
			return
		}
		p.trouble("set the address "+ip.prefix.String(), err)
		if !pause(ctx, wait) {
			return
		}
	}
}

// dhcp gets a lease and renews it as long as ctx lasts. Attempts are bounded
// and repeated; a lease that ran out is not used any longer.
func (p *port) dhcp(ctx context.Context) {
	i := p.init
	wait := firstLeaseTry
	for ctx.Err() == nil {
		if p.lease != nil && !time.Now().Before(p.expires) {
			i.log.Warn("network: the lease ran out", "address", p.prefix)
			p.drop()
		}
		attempt, cancel := context.WithTimeout(ctx, dhcpTime)
		l, err := i.sys.Lease(attempt, p.on, p.lease)
		cancel()
		if err == nil {
			dns := i.set.dns
			if dns == nil {
				dns = l.DNS
			}
			err = p.set(l.Prefix, l.Gateway, dns, l.NTP)
		}
		if err == nil {
			p.said = ""
		}
		if errors.Is(err, errGateway) {
			// The lease is good, and the server asked for may be near.
			p.trouble("network: DHCP on "+p.on.Name, err)
			err = nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			p.trouble("network: DHCP on "+p.on.Name, err)
			if errors.Is(err, ErrRefused) {
				p.drop()
			}
			next := wait
			if p.lease != nil {
				next = min(next, max(time.Until(p.expires), 0))
			}
			pause(ctx, next)
			wait = min(2*wait, lastLeaseTry)
			continue
		}
		p.lease, p.expires = l, time.Now().Add(l.Expires)
		wait = firstLeaseTry
		pause(ctx, max(min(l.Renew, l.Expires), minRenew))
	}
}

// errGateway: the address is set, but nothing beyond its network is reached.
var errGateway = errors.New("no default route")

// set gives the port its address, the name servers and the route.
func (p *port) set(prefix netip.Prefix, gateway netip.Addr, dns, ntp []netip.Addr) error {
	i := p.init
	if p.prefix.IsValid() && p.prefix != prefix {
		if err := i.sys.RemoveAddress(p.on.Index, p.prefix); err != nil {
			p.trouble("remove the address "+p.prefix.String(), err)
		}
	}
	if err := i.sys.AddAddress(p.on.Index, prefix); err != nil {
		return err
	}
	if dns == nil {
		dns = i.set.dns
	}
	if err := writeResolv(i.path(resolvFile), dns); err != nil {
		p.trouble("name servers", err)
	}
	if p.prefix != prefix {
		p.said = ""
		i.log.Info("network: up", "interface", p.on.Name, "address", prefix, "gateway", gateway)
	}
	p.prefix = prefix
	servers := make([]string, len(ntp))
	for n, a := range ntp {
		servers[n] = a.String()
	}
	i.mu.Lock()
	i.state.netdev, i.state.prefix, i.state.ntp = p.on.Name, prefix.String(), servers
	i.mu.Unlock()
	select {
	case i.network <- struct{}{}:
	default:
	}
	if gateway.IsValid() {
		if err := i.sys.SetGateway(p.on.Index, gateway); err != nil {
			return fmt.Errorf("gateway %v: %w: %w", gateway, errGateway, err)
		}
	}
	return nil
}

// drop takes the address back.
func (p *port) drop() {
	if p.prefix.IsValid() {
		if err := p.init.sys.RemoveAddress(p.on.Index, p.prefix); err != nil {
			p.trouble("remove the address "+p.prefix.String(), err)
		}
	}
	p.prefix, p.lease = netip.Prefix{}, nil
	i := p.init
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state.netdev, i.state.prefix = "", ""
}

// writeResolv replaces the list of name servers.
func writeResolv(name string, dns []netip.Addr) error {
	if len(dns) == 0 {
		return nil
	}
	var b strings.Builder
	for _, a := range dns {
		fmt.Fprintf(&b, "nameserver %v\n", a)
	}
	part := name + ".part"
	if err := os.WriteFile(part, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(part, name)
}
