//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

// limit bounds every wait of the tests.
const limit = 20 * time.Second

var (
	hostAddress = netip.MustParseAddr("192.0.2.7")
	peerAddress = netip.MustParseAddr("192.0.2.9")
	peerMAC     = [6]byte{2, 0, 0, 0, 0, 9}
)

const (
	ethIndex = 4
	ethName  = "eth9"
)

// defaultGIDs is a table as a NIC has it: each address as RoCE v1 and v2, the
// link-local default first, and entries that are none of ours.
func defaultGIDs() []double.GID {
	link := netip.MustParseAddr("fe80::1")
	return []double.GID{
		{Index: 0, Port: 1, Type: double.TypeRoCEv1, Netdev: ethIndex, Address: link},
		{Index: 1, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: link},
		{Index: 2, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex}, // zero
		{Index: 3, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: netip.MustParseAddr("2001:db8::7")},
		{Index: 4, Port: 1, Type: double.TypeRoCEv1, Netdev: ethIndex, Address: hostAddress},
		{Index: 5, Port: 1, Type: double.TypeRoCEv2, Netdev: 77, Address: netip.MustParseAddr("198.51.100.1")},
		{Index: 6, Port: 2, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: hostAddress},
		{Index: 7, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: hostAddress},
		{Index: 8, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: netip.MustParseAddr("203.0.113.7")},
	}
}

func defaultPort() double.Port {
	return double.Port{State: double.PortActive, LinkLayer: double.Ethernet, MTU: 5, Width: 2, Speed: 32}
}

// nic is a device of the world.
func nic(name string) double.Device {
	return double.Device{Name: name, Uverbs: "uverbs-test" + name[len(name)-1:], Port: defaultPort(), GIDs: defaultGIDs()}
}

// testNetdevs are the interfaces of the world.
func testNetdevs() ([]netdev, error) {
	var a []netip.Addr
	for _, s := range []string{"fe80::1", "2001:db8::7", "192.0.2.7", "203.0.113.7"} {
		a = append(a, netip.MustParseAddr(s))
	}
	return []netdev{{index: 1, name: "lo"}, {index: ethIndex, name: ethName, mac: [6]byte{2, 0, 0, 0, 0, 7}, addresses: a}}, nil
}

// world makes a world of devices and a provider over it. When the test ends,
// nothing may be open in it.
func world(t testing.TB, devices ...double.Device) *provider {
	t.Helper()
	double.Reset(devices...)
	lib := newLibrary()
	for name, f := range double.Functions() {
		if err := lib.replace(name, f); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if s := double.Live(); s != "" && !t.Failed() {
			t.Errorf("still open: %s", s)
		}
		if n := double.Hangs(); n > 0 {
			t.Errorf("%d destructions would have hung", n)
		}
	})
	return &provider{lib: lib, looks: DefaultLooks, sysfs: t.TempDir(), netdevs: testNetdevs,
		memlock: func() (memlock, error) { return memlock{limit: 8 << 20, pinned: 1 << 20}, nil }}
}

// rig is an open device with one of everything.
type rig struct {
	testing.TB
	p   *provider
	dev *device
	pd  *domain
	mem *verbs.Memory
	mr  *region
	cq  *completionQueue
	qp  *queuePair
}

const allAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead

// newRig opens everything, with the queue pair in RESET. It is closed when the
// test ends.
func newRig(t testing.TB, depth, bytes int) *rig {
	t.Helper()
	return rigOver(t, world(t, nic("mlx5_0")), depth, bytes)
}

// rigOver is a rig of a world that is there.
func rigOver(t testing.TB, p *provider, depth, bytes int) *rig {
	t.Helper()
	g := &rig{TB: t, p: p}
	dev, err := g.p.Open("mlx5_0")
	g.must(err)
	g.dev = dev.(*device)
	t.Cleanup(g.close)
	pd, err := dev.AllocPD()
	g.must(err)
	g.pd = pd.(*domain)
	g.mem, err = verbs.AllocMemory(bytes, false)
	g.must(err)
	mr, err := pd.Register(g.mem, allAccess)
	g.must(err)
	g.mr = mr.(*region)
	cq, err := dev.CreateCQ(depth)
	g.must(err)
	g.cq = cq.(*completionQueue)
	qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: depth})
	g.must(err)
	g.qp = qp.(*queuePair)
	return g
}

func (g *rig) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// closers are what is open, in the order in which it must be closed.
func (g *rig) closers() []interface{ Close() error } {
	var out []interface{ Close() error }
	if g.qp != nil {
		out = append(out, g.qp)
	}
	if g.cq != nil {
		out = append(out, g.cq)
	}
	if g.mr != nil {
		out = append(out, g.mr)
	}
	if g.pd != nil {
		out = append(out, g.pd)
	}
	return append(out, g.dev)
}

func (g *rig) close() {
	for _, c := range g.closers() {
		for range 2 { // closing twice is fine
			if err := c.Close(); err != nil {
				g.Errorf("close %T: %v", c, err)
			}
		}
	}
	if g.mem != nil {
		_ = g.mem.Free()
	}
}

// connect brings the queue pair to RTS.
func (g *rig) connect() {
	g.Helper()
	if g.qp.State() == verbs.Reset {
		g.must(g.qp.Init(allAccess))
	}
	g.must(g.qp.ReadyToReceive(peer()))
	g.must(g.qp.ReadyToSend(0x33))
}

func peer() verbs.PeerAttributes {
	return verbs.PeerAttributes{QPN: 0xabcdef, PSN: 0x123456, Address: peerAddress, MAC: peerMAC, MTU: 2048, MinRNRTimer: 12, MaxReads: 16}
}

func (g *rig) qpn() uint32 { return uint32(g.qp.qpn) }

// poll polls once and checks that so many come.
func (g *rig) poll(want int) []verbs.WorkCompletion {
	g.Helper()
	wcs := make([]verbs.WorkCompletion, 64)
	n, err := g.cq.Poll(wcs)
	if err != nil || n != want {
		g.Fatalf("Poll: %d, %v, want %d: %+v", n, err, want, wcs[:n])
	}
	return wcs[:n]
}

// event waits for an asynchronous event.
func (g *rig) event() verbs.Event {
	g.Helper()
	select {
	case e, ok := <-g.dev.Events():
		if !ok {
			g.Fatal("the channel of events is closed")
		}
		if e.Time.IsZero() || e.Cause == "" {
			g.Errorf("event without time or cause: %+v", e)
		}
		return e
	case <-time.After(limit):
		g.Fatal("no event")
	}
	panic("unreachable")
}

// noEvent checks that nothing was emitted before: it has a port event follow,
// which must be the next.
func (g *rig) noEvent() {
	g.Helper()
	g.must(double.Emit(0, double.EventPortActive, 1, 0))
	if e := g.event(); e.Kind != verbs.EventPortActive {
		g.Errorf("unexpected event %+v", e)
	}
}

// until polls a condition, with a bound.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// wantError checks that an error is what it should be and says what it should.
func wantError(t testing.TB, err, is error, says ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Errorf("error %v, want %v", err, is)
		return
	}
	s := err.Error()
	for _, part := range says {
		if !strings.Contains(s, part) {
			t.Errorf("%q does not say %q", s, part)
		}
	}
	if strings.ContainsAny(s, "\n") {
		t.Errorf("%q is more than one line", s)
	}
}
