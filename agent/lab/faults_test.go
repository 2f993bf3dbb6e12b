//go:build lab

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/lab/remote"
	"rocelink/agent/lab/session"
	hoststream "rocelink/agent/stream"
	"rocelink/fpga/model"
)

// faulty is the whole path of the cases in which something happens to the device.
type faulty struct {
	*whole
	streams []string // arguments of rocelinkd
}

// faultyVerbs has a stream of each kind: one that posts receives, one that does
// not.
var faultyVerbs = []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite}

// newFaulty starts everything but rocelinkd. Interface and device are put back
// when the case ends.
func newFaulty(t *testing.T, settings string) *faulty {
	t.Helper()
	report(t)
	s := segments[1]
	s.restore(t)
	return &faulty{newWhole(bounded(t), t, s), streams(faultyVerbs, settings)}
}

// run starts rocelinkd, by way of other programs if any are named, and waits until
// every stream is in order.
func (w *faulty) run(by ...string) {
	w.t.Helper()
	w.startAs(by, w.streams...)
	w.inOrder()
}

func (w *faulty) inOrder() {
	w.t.Helper()
	w.where(len(faultyVerbs))
}

// restore brings the guest's interface and device back to what they were.
func (s *segment) restore(t *testing.T) {
	t.Cleanup(func() {
		ctx := bounded(t)
		_, _ = guest.Run(ctx, remote.Command{Args: []string{"ip", "addr", "flush", "dev", s.netdev, "scope", "global"}})
		run(ctx, t, "ip", "link", "set", s.netdev, "up")
		run(ctx, t, "ip", "addr", "add", s.guestIP.String()+"/24", "dev", s.netdev)
		if out := run(ctx, t, "rdma", "link", "show"); !strings.Contains(out, s.device+"/") {
			run(ctx, t, "rdma", "link", "add", s.device, "type", "rxe", "netdev", s.netdev)
		}
	})
}

// The address of the interface changes under running streams.
func TestGIDMoved(t *testing.T) {
	w := newFaulty(t, "frame=4096,rate=2M")
	s := w.segment
	w.run()
	old, other := s.guestIP, s.guestIP.Next()
	address := func(verb string, a netip.Addr) {
		// With prefixes of their own neither is secondary to the other, and
		// goes with it.
		bits := map[netip.Addr]int{old: 24, other: 25}[a]
		run(w.ctx, t, "ip", "addr", verb, netip.PrefixFrom(a, bits).String(), "dev", s.netdev)
	}
	running := func(what, at string, opens rocelink.Count) {
		t.Helper()
		w.until(what, func(h rocelink.HostStatus, b []rocelink.BoardStatus) bool {
			return h.Device.Address == at && h.Device.Problem == "" && allRun(h, opens)
		})
		w.inOrder()
	}

	// One more address is nobody's concern.
	address("add", other)
	running("an address is added", old.String(), 1)
	// The one in use goes, the other takes its place.
	address("del", old)
	running("the address in use goes", other.String(), 2)
	// The last one goes: nothing can run, and the device says why.
	address("del", other)
	// The link-local address that is left is not what the board was told.
	st := w.until("the last address goes", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		for _, x := range h.Streams {
			if x.State == hoststream.StateRunning || x.State == hoststream.StateFailed {
				return false
			}
		}
		return !h.Device.Active && strings.Contains(h.Device.Problem, "no address")
	})
	t.Logf("none: %s", st.Hosts[0].Device.Problem)
	// It comes back.
	address("add", old)
	running("an address comes", old.String(), 3)
	w.lost("address changed")
}

// allRun reports whether every stream runs and was opened so often at least, and
// frames came since.
func allRun(h rocelink.HostStatus, opens rocelink.Count) bool {
	n := 0
	for _, s := range h.Streams {
		if s.State == hoststream.StateRunning && s.Opens >= opens && s.Total.Messages > 0 {
			n++
		}
	}
	return n == len(faultyVerbs)
}

// The port goes down and comes up again under running streams.
func TestPortDownAndUpUnderStreams(t *testing.T) {
	needsQEMU(t, "a user-mode port that goes down closes its file for good")
	w := newFaulty(t, "frame=4096,rate=2M")
	s := w.segment
	w.run()
	run(w.ctx, t, "ip", "link", "set", s.netdev, "down")
	st := w.until("the port goes down", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		return !h.Device.Active && h.Device.Problem != ""
	})
	t.Logf("down: %s", st.Hosts[0].Device.Problem)
	run(w.ctx, t, "ip", "link", "set", s.netdev, "up")
	w.until("the port comes up", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		return h.Device.Active && h.Device.Problem == "" && allRun(h, 1)
	})
	w.inOrder()
	w.stop()
}

// The device is deleted under running streams. rxe cannot take a device away
// from its users (it has no disassociate_ucontext): the kernel tells them nothing
// and waits for them. rocelinkd lets go by itself, goes on without the device and
// takes it again when it is back; killed it lets go too.
func TestDeviceRemoved(t *testing.T) {
	w := newFaulty(t, "frame=4096,rate=2M")
	s := w.segment
	remove := func() (finish func()) {
		t.Helper()
		began := time.Now()
		deletion, err := guest.Start(remote.Command{Args: []string{"rdma", "link", "delete", s.device}, Limit: caseTime})
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			const limit = 15 * time.Second // emulated
			bound, cancel := context.WithTimeout(w.ctx, limit)
			defer cancel()
			if _, err := deletion.Finish(bound); err != nil {
				t.Fatalf("the deletion has not ended within %v: %v", limit, err)
			}
			t.Logf("deleted within %v", time.Since(began).Round(time.Millisecond))
		}
	}
	add := func() { run(w.ctx, t, "rdma", "link", "add", s.device, "type", "rxe", "netdev", s.netdev) }

	w.run()
	for opens := rocelink.Count(2); opens < 4; opens++ {
		remove()()
		st := w.until("the device is removed", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
			for _, x := range h.Streams {
				if x.State == hoststream.StateRunning || !strings.Contains(x.Problem, "device removed") {
					return false
				}
			}
			return !h.Device.Active && strings.Contains(h.Device.Problem, "device removed")
		})
		t.Logf("removed: %s", st.Hosts[0].Device.Problem)
		if out, code := w.rocectl("doctor", "--device", s.device); code != 1 {
			t.Errorf("doctor without the device: exit code %d\n%s", code, out)
		}
		add()
		w.until("the device is back", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
			return h.Device.Active && h.Device.Problem == "" && allRun(h, opens)
		})
		w.inOrder()
	}
	w.lost("device removed")

	w.run()
	finish := remove()
	_ = w.agent.Kill()
	<-w.agent.Done()
	finish()
	add()
	w.run()
	w.stop()
}

// Too little memory may be locked: rocelinkd of a user without privileges says
// so and what to do, doctor did before, and with enough it works.
func TestMemlockTooSmall(t *testing.T) {
	w := newFaulty(t, "frame=65536,rate=8M")
	as := func(memlock int) []string {
		return []string{"prlimit", fmt.Sprintf("--memlock=%d:%d", memlock, memlock),
			"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"}
	}
	w.startAs(as(64<<10), w.streams...)
	st := w.until("memlock is too small", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		for _, x := range h.Streams {
			if !strings.Contains(x.Problem, "memlock") || !strings.Contains(x.Problem, "LimitMEMLOCK") {
				return false
			}
		}
		return len(h.Streams) == len(faultyVerbs)
	})
	t.Logf("%s", st.Hosts[0].Streams[0].Problem)
	w.lost("never opened")
	w.run(as(64 << 20)...)
	w.stop()
}

// A completion queue that could overrun is not to be had: the provider refuses
// the queue pair that would need more room, and the next session on the device is
// as good as the first.
func TestCompletionQueueTooSmall(t *testing.T) {
	report(t)
	ctx := bounded(t)
	s := segments[1]
	b, agent := s.boardAndAgent(ctx, t, model.FaultConfig{})
	r := agent.refused(session.Request{Open: &session.Open{Verb: rocelink.VerbSend, Slots: 64, Stride: 1024, FrameBytes: 1024, CQDepth: 8}})
	if !strings.Contains(r, "depth 8") || !strings.Contains(r, "64") {
		t.Errorf("%q does not say what is too small", r)
	}
	takeFromFabric(ctx, t, s, b, agent, rocelink.VerbSend, 1024, patient, nil)
}
