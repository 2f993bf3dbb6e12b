//go:build lab

package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/lab/remote"
	"rocelink/agent/lab/session"
	hoststream "rocelink/agent/stream"
	"rocelink/agent/verbs"
	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
)

// faulty are the streams of the cases in which something happens to the device.
var faulty = []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite}

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
	report(t)
	ctx := bounded(t)
	s := segments[1]
	s.restore(t)
	w := newWhole(ctx, t, s)
	w.start(streams(faulty, "frame=4096,rate=2M")...)
	w.where(len(faulty))
	old, other := s.guestIP, s.guestIP.Next()
	address := func(verb, a string) { run(ctx, t, "ip", "addr", verb, a+"/24", "dev", s.netdev) }
	running := func(what, at string, opens rocelink.Count) {
		t.Helper()
		w.until(what, func(h rocelink.HostStatus, b []rocelink.BoardStatus) bool {
			return h.Device.Address == at && h.Device.Problem == "" && allRun(h, len(faulty), opens)
		})
		w.where(len(faulty))
	}

	// One more address is nobody's concern.
	address("add", other.String())
	running("an address is added", old.String(), 1)
	// The one in use goes, the other takes its place.
	address("del", old.String())
	running("the address in use goes", other.String(), 2)
	// The last one goes: nothing can run, and the device says why.
	address("del", other.String())
	w.until("the last address goes", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		for _, x := range h.Streams {
			if x.State == hoststream.StateRunning {
				return false
			}
		}
		return true
	})
	// It comes back.
	address("add", old.String())
	running("an address comes", old.String(), 3)
	w.stop()
}

// allRun reports whether so many streams run and were opened so often at least,
// and frames came since.
func allRun(h rocelink.HostStatus, count int, opens rocelink.Count) bool {
	n := 0
	for _, s := range h.Streams {
		if s.State == hoststream.StateRunning && s.Opens >= opens && s.Total.Messages > 0 {
			n++
		}
	}
	return n == count
}

// The port goes down and comes up again under running streams.
func TestPortDownAndUpUnderStreams(t *testing.T) {
	report(t)
	ctx := bounded(t)
	s := segments[1]
	s.restore(t)
	w := newWhole(ctx, t, s)
	w.start(streams(faulty, "frame=4096,rate=2M")...)
	w.where(len(faulty))
	run(ctx, t, "ip", "link", "set", s.netdev, "down")
	st := w.until("the port goes down", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		return !h.Device.Active && h.Device.Problem != ""
	})
	t.Logf("down: %s", st.Hosts[0].Device.Problem)
	run(ctx, t, "ip", "link", "set", s.netdev, "up")
	w.until("the port comes up", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		return h.Device.Active && h.Device.Problem == "" && allRun(h, len(faulty), 1)
	})
	w.where(len(faulty))
	w.stop()
}

// The device is deleted under running streams.
func TestDeviceRemoved(t *testing.T) {
	report(t)
	ctx := bounded(t)
	s := segments[1]
	s.restore(t)
	w := newWhole(ctx, t, s)
	w.start(streams(faulty, "frame=4096,rate=2M")...)
	w.where(len(faulty))
	began := time.Now()
	deletion, err := guest.Start(remote.Command{Args: []string{"rdma", "link", "delete", s.device}, Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		time.Sleep(2 * time.Second)
		select {
		case <-deletion.Done():
			t.Logf("deletion done after %v", time.Since(began))
		default:
			t.Logf("deletion waits after %v", time.Since(began))
		}
		_, out, _ := w.tryStatus()
		t.Logf("status %s", out)
		o, _ := guest.Run(ctx, remote.Command{Args: []string{"ls", "/dev/infiniband", "/sys/class/infiniband", "/sys/class/infiniband_verbs"}})
		t.Logf("%s", o)
	}
	w.agent.Signal(15)
	<-w.agent.Done()
	t.Logf("agent ended %v", time.Since(began))
	_, err = deletion.Finish(ctx)
	t.Logf("deletion done after %v: %v", time.Since(began), err)
	t.Logf("rocelinkd: %s", w.agent.Stderr())
}

// Too little memory may be locked: rocelinkd of a user without privileges says
// so and what to do, doctor did before, and with enough it works.
func TestMemlockTooSmall(t *testing.T) {
	report(t)
	ctx := bounded(t)
	s := segments[1]
	as := func(memlock int) []string {
		return []string{"prlimit", fmt.Sprintf("--memlock=%d:%d", memlock, memlock),
			"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"}
	}
	w := newWhole(ctx, t, s)
	args := streams(faulty, "frame=65536,rate=8M")
	w.startAs(as(64<<10), args...)
	st := w.until("memlock is too small", func(h rocelink.HostStatus, _ []rocelink.BoardStatus) bool {
		for _, x := range h.Streams {
			if !strings.Contains(x.Problem, "memlock") || !strings.Contains(x.Problem, "LimitMEMLOCK") {
				return false
			}
		}
		return len(h.Streams) == len(faulty)
	})
	t.Logf("%s", st.Hosts[0].Streams[0].Problem)
	_ = w.agent.Signal(15)
	if e, err := w.agent.Wait(); err != nil && e.Code < 0 {
		t.Error(err)
	}
	w.startAs(as(64<<20), args...)
	w.where(len(faulty))
	w.stop()
}

// A completion queue that nobody empties overruns: the device says so, and the
// next session on it is as good as the first.
func TestCompletionQueueOverrun(t *testing.T) {
	report(t)
	ctx := bounded(t)
	const slots, size, depth = 64, 1024, 8
	s := segments[1]
	b := newBoard(t, s, model.FaultConfig{}, nil)
	s.attach(t, b.Take)
	agent := s.startAgent(ctx, t)
	o := agent.ask(session.Request{Open: &session.Open{Verb: rocelink.VerbSend, Slots: slots, Stride: size, FrameBytes: size,
		Pattern: pattern.Counter, MinRNRTimer: 12, CQDepth: depth, Deaf: true}}).Opened
	b.connect(o.QPN, boardQPN, s.mtu, quick)
	agent.ask(session.Request{Peer: b.peer(s.mtu)})
	b.begin(stream{verb: streamVerbs[rocelink.VerbSend], size: size, slots: slots, stride: size, address: o.Address, rkey: o.RKey, count: slots})
	l := until(ctx, t, agent, "the overrun", func(l *session.Looked) bool {
		return strings.Contains(strings.Join(l.Events, "\n"), verbs.EventCQError.String())
	})
	st, qp, cause := b.state()
	t.Logf("events %v; the fabric: stream in state %d, queue pair %d, cause %d, %v", l.Events, st, qp, cause, b.counters())
	agent.ask(session.Request{Close: true})
	takeFromFabric(ctx, t, s, b, agent, rocelink.VerbSend, 1024, quick, nil)
}

var _ = context.Background
