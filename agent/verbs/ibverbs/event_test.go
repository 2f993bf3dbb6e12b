//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
	"rocelink/fpga/roce"
)

func TestEvents(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.connect()
	for _, c := range []struct {
		event int
		port  int
		qp    bool
		kind  verbs.EventKind
	}{
		{double.EventPortError, 1, false, verbs.EventPortDown},
		{double.EventPortActive, 1, false, verbs.EventPortActive},
		{double.EventQPFatal, 0, true, verbs.EventQPFatal},
		{double.EventQPRequest, 0, true, verbs.EventQPFatal},
		{double.EventQPAccess, 0, true, verbs.EventQPFatal},
		{double.EventPathMigration, 0, true, verbs.EventQPFatal},
	} {
		qpn := uint32(0)
		if c.qp {
			qpn = g.qpn()
		}
		g.must(double.Emit(0, c.event, c.port, qpn))
		if e := g.event(); e.Kind != c.kind || e.QPN != roce.QPN(qpn) {
			t.Errorf("event %d: %+v", c.event, e)
		}
	}
	// Those that are none of ours.
	g.must(double.Emit(0, double.EventPortError, 2, 0))
	g.must(double.Emit(0, double.EventGIDChange, 2, 0))
	g.must(double.Emit(0, double.EventClientReg, 1, 0))
	g.must(double.Emit(0, double.EventCommEstablished, 0, g.qpn()))
	g.noEvent()
}

// TestEventsNobodyTakes: no more than a bounded number stays, and closing is not
// held up.
func TestEventsNobodyTakes(t *testing.T) {
	g := newRig(t, 8, 4096)
	events := g.dev.Events()
	for i := range 3 * waiting {
		kind := double.EventPortError
		if i%2 == 1 {
			kind = double.EventPortActive
		}
		until(t, "the event fits", func() bool { return double.Emit(0, kind, 1, 0) == nil })
	}
	g.close()
	n := 0
	for range events {
		n++
	}
	if n == 0 || n > waiting {
		t.Errorf("%d events left", n)
	}
}

func TestCloseIsQuick(t *testing.T) {
	g := newRig(t, 8, 4096)
	events := g.dev.Events()
	begin := time.Now()
	g.close()
	if d := time.Since(begin); d > patience/2 {
		t.Errorf("closing took %v", d)
	}
	if _, ok := <-events; ok {
		t.Error("an event after Close")
	}
}

// TestEventOfDestroyedObject: an event that is not taken when its queue pair is
// destroyed does no harm, and none waits for its acknowledgement.
func TestEventOfDestroyedObject(t *testing.T) {
	for range 100 {
		g := newRig(t, 8, 4096)
		g.connect()
		g.must(double.Emit(0, double.EventQPAccess, 0, g.qpn()))
		g.close()
	}
}

// gidsAt is the table with our address at another index, or gone for -1.
func gidsAt(index int) []double.GID {
	var out []double.GID
	for _, e := range defaultGIDs() {
		if e.Address == hostAddress && e.Port == 1 {
			if e.Type != double.TypeRoCEv2 || index < 0 {
				continue
			}
			e.Index = index
		}
		out = append(out, e)
	}
	return out
}

func TestGIDMoves(t *testing.T) {
	g := newRig(t, 8, 4096)
	changed := func(gids []double.GID, want string) {
		t.Helper()
		double.SetGIDs(0, gids)
		g.must(double.Emit(0, double.EventGIDChange, 1, 0))
		e := g.event()
		if e.Kind != verbs.EventGIDChange || e.Cause != want {
			t.Errorf("%+v, want %q", e, want)
		}
	}
	// Another entry came: that is nobody's concern.
	double.SetGIDs(0, append(defaultGIDs(), double.GID{Index: 20, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: netip.MustParseAddr("203.0.113.7")}))
	g.must(double.Emit(0, double.EventGIDChange, 1, 0))
	g.noEvent()

	changed(gidsAt(11), "192.0.2.7 moved from GID index 7 to 11 of mlx5_0")
	// The queue pair that was told the address uses the new index.
	g.must(g.qp.Init(0))
	g.must(g.qp.ReadyToReceive(peer()))
	if m := double.Modified(); m[len(m)-1].SGIDIndex != 11 {
		t.Errorf("source GID index %d, want 11", m[len(m)-1].SGIDIndex)
	}
	changed(gidsAt(-1), "192.0.2.7 is gone from mlx5_0, 203.0.113.7 takes its place")
	// The one that is used now is kept when the first comes back.
	double.SetGIDs(0, gidsAt(12))
	g.must(double.Emit(0, double.EventGIDChange, 1, 0))
	g.noEvent()
	if p, err := g.dev.Port(); err != nil || p.Address != netip.MustParseAddr("203.0.113.7") {
		t.Errorf("%+v, %v", p, err)
	}
	changed(nil, "no address: 203.0.113.7 is gone from mlx5_0, which has no other IPv4 address for RoCE v2: "+
		"give it one (ip address add); its streams wait for that")
	changed(gidsAt(13), "mlx5_0 has address 203.0.113.7 now")
}

// only is a table with these addresses as RoCE v2.
func only(addresses ...string) []double.GID {
	var out []double.GID
	for i, a := range addresses {
		out = append(out, double.GID{Index: i, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: netip.MustParseAddr(a)})
	}
	return out
}

// An address is followed by one of its family and scope or by none: peers were
// told one of that kind. Whoever looks first, the event or the look at the port,
// there is one event for each change.
func TestAddressKeepsItsClass(t *testing.T) {
	const link, v4, other4, v6 = "fe80::1", "192.0.2.7", "203.0.113.7", "2001:db8::7"
	zoned := link + "%" + ethName
	type step struct {
		table []string
		want  string // "": none
	}
	for _, c := range []struct {
		name, device string
		steps        []step
	}{
		{"IPv4 goes, link-local stays", "mlx5_0", []step{{[]string{link, v4}, v4}, {[]string{link}, ""}, {[]string{link, v6}, ""}, {[]string{link, v4}, v4}}},
		{"another IPv4 comes", "mlx5_0", []step{{[]string{v4, v6}, v4}, {[]string{link, v6}, ""}, {[]string{link, v6, other4}, other4}}},
		{"IPv4 has two", "mlx5_0", []step{{[]string{v4, other4, v6}, v4}, {[]string{v6, other4}, other4}, {[]string{v4, other4}, other4}}},
		{"the one used last comes back", "mlx5_0", []step{{[]string{v4}, v4}, {nil, ""}, {[]string{other4, v4}, v4}}},
		{"IPv6 goes, IPv4 is no match", "mlx5_0", []step{{[]string{v6}, v6}, {[]string{v4, link}, ""}, {[]string{v4, v6}, v6}}},
		{"link-local gives way", "mlx5_0", []step{{[]string{link}, zoned}, {[]string{link, v4}, v4}, {[]string{link}, ""}}},
		{"link-local was asked for", "mlx5_0@fe80::/10", []step{{[]string{link, v4}, zoned}, {[]string{v4}, ""}, {[]string{v4, link}, zoned}}},
	} {
		for _, kernel := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, event %v", c.name, kernel), func(t *testing.T) {
				n := nic("mlx5_0")
				n.GIDs = only(c.steps[0].table...)
				dev, err := world(t, n).Open(c.device)
				if err != nil {
					t.Fatal(err)
				}
				g := &rig{TB: t, dev: dev.(*device)}
				t.Cleanup(g.close)
				was := c.steps[0].want
				for i, s := range c.steps {
					double.SetGIDs(0, only(s.table...))
					if kernel {
						g.must(double.Emit(0, double.EventGIDChange, 1, 0))
						if s.want != was {
							if e := g.event(); e.Kind != verbs.EventGIDChange {
								t.Errorf("step %d: %+v", i, e)
							}
						}
					}
					p, err := dev.Port()
					if s.want == "" {
						wantError(t, err, nil, "no address", "is gone from mlx5_0", "ip address add")
					} else if err != nil || p.Address.String() != s.want {
						t.Errorf("step %d: %v, %v, want %s", i, p.Address, err, s.want)
					}
					if !kernel && s.want != was {
						if e := g.event(); e.Kind != verbs.EventGIDChange {
							t.Errorf("step %d: %+v", i, e)
						}
					}
					g.noEvent()
					was = s.want
				}
			})
		}
	}
}

// sysfsEntry makes the entry of a device, and takes it away again.
func sysfsEntry(t *testing.T, p *provider, uverbs string) (remove func()) {
	t.Helper()
	dir := filepath.Join(p.sysfs, "class/infiniband_verbs", uverbs)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(dir, dir+"-old"); err != nil { // its inode is not free to be another's
			t.Error(err)
		}
	}
}

// A device whose driver cannot take it from its users goes without an event: the
// entry in sysfs is gone, or another device has its number.
func TestRemovalSeenInSysfs(t *testing.T) {
	for _, reused := range []bool{false, true} {
		t.Run(fmt.Sprintf("number reused %v", reused), func(t *testing.T) {
			p := world(t, nic("mlx5_0"))
			remove := sysfsEntry(t, p, "uverbs-test0")
			g := rigOver(t, p, 8, 4096)
			g.connect()
			g.post(g.slot(0))
			woken := make(chan error, 1)
			go func() {
				_, err := g.cq.Wait(-1)
				woken <- err
			}()
			until(t, "the waiter waits", func() bool { return *g.cq.guard.in() != 0 })
			begin := time.Now()
			remove()
			if reused {
				sysfsEntry(t, p, "uverbs-test0")
			}
			if e := g.event(); e.Kind != verbs.EventDeviceRemoved || !strings.Contains(e.Cause, "sysfs") {
				t.Errorf("%+v", e)
			}
			t.Logf("seen after %v", time.Since(begin).Round(time.Millisecond))
			if err := <-woken; err != nil && !errors.Is(err, verbs.ErrNoDevice) {
				t.Error(err)
			}
			_, err := g.dev.Port()
			wantError(t, err, verbs.ErrNoDevice, "removed")
			_, err = g.cq.Poll(make([]verbs.WorkCompletion, 1))
			wantError(t, err, verbs.ErrNoDevice)
			// The kernel still serves who has it open: receives are flushed, and
			// everything is destroyed at the device, for it waits for that.
			g.must(g.qp.SetError())
			if m := double.Modified(); m[len(m)-1].State != int(verbs.Error) {
				t.Errorf("last transition %+v", m[len(m)-1])
			}
			g.poll(1)
			g.close()
		})
	}
}

// TestAddressGoneBeforeRTR: a queue pair whose peer was told an address does not
// come up with another.
func TestAddressGoneBeforeRTR(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.must(g.qp.Init(0))
	double.SetGIDs(0, gidsAt(-1))
	if p, err := g.dev.Port(); err != nil || p.Address == hostAddress {
		t.Fatal(p, err)
	}
	wantError(t, g.qp.ReadyToReceive(peer()), verbs.ErrNoDevice, "192.0.2.7 is not in the GID table", "open the stream again")
	if s := g.qp.State(); s != verbs.Init {
		t.Errorf("state %v", s)
	}
}

// TestRemoval: calls fail with one cause, waiters wake, everything can be closed,
// and the event comes once.
func TestRemoval(t *testing.T) {
	for _, c := range []struct {
		name   string
		remove func(*rig)
	}{
		{"fatal event", func(g *rig) { g.must(double.Emit(0, double.EventDeviceFatal, 0, 0)) }},
		{"unplugged", func(*rig) { double.Remove(0) }},
		{"fatal event, then unplugged", func(g *rig) {
			g.must(double.Emit(0, double.EventDeviceFatal, 0, 0))
			double.Remove(0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, 8, 4096)
			g.connect()
			g.post(g.slot(0), g.slot(1))
			g.must(double.Deliver(g.qpn(), double.Message{}))
			woken := make(chan error)
			go func() {
				_, err := g.cq.Wait(-1)
				woken <- err
			}()
			until(t, "the waiter waits", func() bool { return *g.cq.guard.in() != 0 })
			c.remove(g)
			if e := g.event(); e.Kind != verbs.EventDeviceRemoved {
				t.Errorf("%+v", e)
			}
			if err := <-woken; err != nil && !errors.Is(err, verbs.ErrNoDevice) {
				t.Error(err)
			}
			g.poll(1) // what came before
			_, err := g.cq.Poll(make([]verbs.WorkCompletion, 1))
			wantError(t, err, verbs.ErrNoDevice, "mlx5_0 was removed or has failed")
			g.must(g.qp.SetError())
			if s := g.qp.State(); s != verbs.Error {
				t.Errorf("state %v", s)
			}
			_, err = g.dev.Port()
			wantError(t, err, verbs.ErrNoDevice)
			_, err = g.dev.AllocPD()
			wantError(t, err, verbs.ErrNoDevice)
			_, err = g.pd.Register(g.mem, allAccess)
			wantError(t, err, verbs.ErrNoDevice)
			_, err = g.dev.CreateCQ(1)
			wantError(t, err, verbs.ErrNoDevice)
			events := g.dev.Events()
			g.close()
			for e := range events {
				t.Errorf("one more event: %+v", e)
			}
		})
	}
}

// TestOverrun: what was completed before it comes out, then ErrOverrun for good;
// a waiter wakes.
func TestOverrun(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.connect()
	for i := range 8 {
		g.must(double.Complete(g.qpn(), double.Completion{ID: uint64(i), Opcode: 128}))
	}
	if err := double.Complete(g.qpn(), double.Completion{Opcode: 128}); !errors.Is(err, syscall.EOVERFLOW) {
		t.Fatal(err)
	}
	if e := g.event(); e.Kind != verbs.EventCQError {
		t.Errorf("%+v", e)
	}
	if ok, err := g.cq.Wait(-1); ok || err != nil {
		t.Errorf("Wait: %v, %v", ok, err)
	}
	g.poll(8)
	for range 2 {
		_, err := g.cq.Poll(make([]verbs.WorkCompletion, 1))
		wantError(t, err, verbs.ErrOverrun, "depth 8", "make it deeper")
	}
}
