//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"net/netip"
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
	double.SetGIDs(0, nil)
	g.must(double.Emit(0, double.EventGIDChange, 1, 0))
	if e := g.event(); e.Kind != verbs.EventGIDChange {
		t.Errorf("%+v", e)
	}
	changed(gidsAt(13), "mlx5_0 has address 203.0.113.7 now")
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
