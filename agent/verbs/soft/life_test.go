package soft

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

func TestOpen(t *testing.T) {
	for _, name := range []string{"mlx5_0", "0.0.0.0", "::", "224.0.0.1", "192.0.2.77"} {
		if d, err := New().Open(name); !errors.Is(err, verbs.ErrNoDevice) {
			t.Errorf("open %q: %v, %v; want no device", name, d, err)
		}
	}
	d := openAny(t)
	if _, err := New().Open(d.Name()); !errors.Is(err, verbs.ErrBusy) || !strings.Contains(err.Error(), "4791") {
		t.Errorf("second device on %s: %v", d.Name(), err)
	}
	p, err := d.Port()
	if err != nil || !p.Active || p.MTU != 4096 || p.Address != d.address || p.MAC == [6]byte{} || p.MAC[0]&1 != 0 {
		t.Errorf("port %+v, %v", p, err)
	}
	if a := d.Attributes(); a.Provider != "soft" || New().Name() != "soft" || a.MaxQP == 0 || a.MaxCQE == 0 {
		t.Errorf("attributes %+v", a)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := <-d.Events(); ok {
		t.Error("an event from a closed device")
	}
	_, pd := d.AllocPD()
	_, cq := d.CreateCQ(1)
	_, port := d.Port()
	if !errors.Is(pd, verbs.ErrClosed) || !errors.Is(cq, verbs.ErrClosed) || !errors.Is(port, verbs.ErrClosed) {
		t.Errorf("after Close: %v; %v; %v", pd, cq, port)
	}
	// The address is free again at once.
	again, err := New().Open(d.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestIPv6(t *testing.T) {
	d, err := New().Open("::1")
	if errors.Is(err, verbs.ErrNoDevice) || errors.Is(err, verbs.ErrBusy) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(4)
	qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _, _ = qp.Close(), cq.Close(), pd.Close() }()
	if err := qp.Init(everything); err != nil {
		t.Fatal(err)
	}
	a := verbs.PeerAttributes{QPN: peerQPN, MTU: 1024, Address: netip.MustParseAddr("127.0.0.1")}
	if err := qp.ReadyToReceive(a); err == nil {
		t.Error("a peer of the other family was taken")
	}
	// One machine has one ::1, so the requester is the other port of it, and
	// the answers go to the device itself: it counts them.
	a.Address = netip.MustParseAddr("::1")
	if err := qp.ReadyToReceive(a); err != nil {
		t.Fatal(err)
	}
	if _, err := qp.PostReceive(make([]verbs.ReceiveRequest, 1)); err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, d: d.(*device), qp: qp.(*queuePair), total: new(atomic.Uint64)}
	g.to = netip.AddrPortFrom(a.Address, roce.Port)
	g.flow = roce.Flow{Src: a.Address}
	c := otherPort(t, g)
	g.flow = c.FlowTo(g.to)
	q := c.NewSendQueue(0)
	q.Add(g.to, g.encode(g.packet(roce.SendOnlyImm, 0, nil)))
	if n, err := c.Send(q); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	g.total.Add(2) // the answer
	g.settle()
	wcs := make([]verbs.WorkCompletion, 4)
	if n, err := cq.Poll(wcs); n != 1 || err != nil || wcs[0].Opcode != verbs.OpRecv {
		t.Errorf("%d completions, %v: %+v", n, err, wcs[0])
	}
	g.count(map[string]uint64{"rx_unknown_qp": 1, "rx_icrc_error": 0, "acks_sent": 1})
}

func TestStates(t *testing.T) {
	g := newRig(t, options{})
	cq, err := g.d.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	create := func() verbs.QueuePair {
		qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 2})
		if err != nil {
			t.Fatal(err)
		}
		return qp
	}
	good := g.qp.peer
	rtr := func(qp verbs.QueuePair) error { return qp.ReadyToReceive(good) }
	rts := func(qp verbs.QueuePair) error { return qp.ReadyToSend(1) }
	toInit := func(qp verbs.QueuePair) error { return qp.Init(everything) }
	post := func(qp verbs.QueuePair) error {
		_, err := qp.PostReceive(make([]verbs.ReceiveRequest, 1))
		return err
	}
	steps := []func(verbs.QueuePair) error{toInit, rtr, rts}
	for reached := range 4 {
		for next, step := range steps {
			qp := create()
			for _, s := range steps[:reached] {
				if err := s(qp); err != nil {
					t.Fatal(err)
				}
			}
			if want := verbs.State(reached); qp.State() != want {
				t.Errorf("state %v, want %v", qp.State(), want)
			}
			if err := step(qp); (next == reached) != (err == nil) || err != nil && !errors.Is(err, verbs.ErrState) {
				t.Errorf("from %v to %v: %v", verbs.State(reached), verbs.State(next+1), err)
			}
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		}
		qp := create()
		for _, s := range steps[:reached] {
			_ = s(qp)
		}
		if err := post(qp); (err == nil) != (reached > 0) {
			t.Errorf("post in %v: %v", verbs.State(reached), err)
		}
		if err := qp.SetError(); err != nil || qp.State() != verbs.Error {
			t.Errorf("from %v to ERR: %v", verbs.State(reached), err)
		}
		wcs := make([]verbs.WorkCompletion, 8)
		if n, _ := cq.Poll(wcs); n != min(reached, 1) {
			t.Errorf("%d completions after ERR from %v", n, verbs.State(reached))
		}
		for _, s := range steps {
			if err := s(qp); !errors.Is(err, verbs.ErrState) {
				t.Errorf("out of ERR: %v", err)
			}
		}
		for range 2 {
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(toInit(qp)); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := post(qp); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("post, closed: %v", err)
		}
		if err := qp.SetError(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("error, closed: %v", err)
		}
	}
	for name, change := range map[string]func(*verbs.PeerAttributes){
		"MTU":       func(a *verbs.PeerAttributes) { a.MTU = 1000 },
		"large MTU": func(a *verbs.PeerAttributes) { a.MTU = 8192 },
		"QPN":       func(a *verbs.PeerAttributes) { a.QPN = 1 << 24 },
		"PSN":       func(a *verbs.PeerAttributes) { a.PSN = 1 << 24 },
		"timer":     func(a *verbs.PeerAttributes) { a.MinRNRTimer = 32 },
		"reads":     func(a *verbs.PeerAttributes) { a.MaxReads = maxReads + 1 },
		"address":   func(a *verbs.PeerAttributes) { a.Address = netip.Addr{} },
		"family":    func(a *verbs.PeerAttributes) { a.Address = netip.IPv6Loopback() },
		"any":       func(a *verbs.PeerAttributes) { a.Address = netip.IPv4Unspecified() },
	} {
		qp := create()
		a := good
		change(&a)
		if err := errors.Join(qp.Init(everything)); err != nil {
			t.Fatal(err)
		}
		if err := qp.ReadyToReceive(a); err == nil || qp.State() != verbs.Init {
			t.Errorf("RTR with bad %s: %v, state %v", name, err, qp.State())
		}
		if err := errors.Join(rtr(qp), qp.Close()); err != nil {
			t.Errorf("RTR after bad %s: %v", name, err)
		}
	}
}

func TestPostReceive(t *testing.T) {
	g := newRig(t, options{receives: 3})
	read, err := g.pd.Register(g.memory, verbs.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(len(g.mr.bytes))
	end := g.mr.base + size
	for _, c := range []struct {
		name string
		r    verbs.ReceiveRequest
		want error
	}{
		{"past the end", verbs.ReceiveRequest{Address: end - 7, Length: 8, LKey: g.mr.lkey}, verbs.ErrAccess},
		{"before the start", verbs.ReceiveRequest{Address: g.mr.base - 1, Length: 8, LKey: g.mr.lkey}, verbs.ErrAccess},
		{"wraps", verbs.ReceiveRequest{Address: ^uint64(0), Length: 8, LKey: g.mr.lkey}, verbs.ErrAccess},
		{"rkey", verbs.ReceiveRequest{Address: g.mr.base, Length: 8, LKey: g.mr.rkey}, verbs.ErrAccess},
		{"not writable", verbs.ReceiveRequest{Address: g.mr.base, Length: 8, LKey: read.LKey()}, verbs.ErrAccess},
		{"no buffer", verbs.ReceiveRequest{}, nil},
		{"to the end", verbs.ReceiveRequest{Address: end - 8, Length: 8, LKey: g.mr.lkey}, nil},
		{"all of it", verbs.ReceiveRequest{Address: g.mr.base, Length: uint32(size), LKey: g.mr.lkey}, nil},
		{"one too many", verbs.ReceiveRequest{}, verbs.ErrFull},
	} {
		n, err := g.qp.PostReceive([]verbs.ReceiveRequest{c.r})
		if !errors.Is(err, c.want) || (n == 1) != (c.want == nil) {
			t.Errorf("%s: posted %d, %v; want %v", c.name, n, err, c.want)
		}
	}
	if err := g.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	if got := g.poll(); len(got) != 3 {
		t.Errorf("%d flushed, want 3", len(got))
	}
	// In part: the good ones before the bad one are taken. Nothing but the post
	// tells the responder.
	if err := g.cq.Arm(); err != nil {
		t.Fatal(err)
	}
	n, err := g.qp.PostReceive([]verbs.ReceiveRequest{{ID: 1}, {ID: 2, Length: 1}, {ID: 3}})
	if n != 1 || !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("posted %d, %v", n, err)
	}
	if ok, err := g.cq.Wait(patient); !ok || err != nil {
		t.Errorf("nothing was flushed: %v", err)
	}
	if got := g.poll(); len(got) != 1 || got[0].ID != 1 || got[0].Status != verbs.WorkRequestFlushed {
		t.Errorf("posted in ERR: %+v", got)
	}
	if err := read.Close(); err != nil {
		t.Error(err)
	}
}

func TestTeardownOrder(t *testing.T) {
	g := newRig(t, options{})
	busy := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("close %s: %v, want busy", name, err)
		}
	}
	busy("device", g.d.Close())
	busy("domain", g.pd.Close())
	busy("region", g.mr.Close())
	busy("completion queue", g.cq.Close())
	if err := g.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	busy("domain", g.pd.Close())
	busy("completion queue", g.cq.Close())
	if err := g.mr.Close(); err != nil { // nothing can reach it any more
		t.Error(err)
	}
	if err := g.qp.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := errors.Join(g.mr.Close(), g.cq.Close(), g.pd.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := g.pd.Register(g.memory, everything); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("register in a closed domain: %v", err)
	}
	wcs := make([]verbs.WorkCompletion, 1)
	_, poll := g.cq.Poll(wcs)
	_, wait := g.cq.Wait(0)
	if !errors.Is(poll, verbs.ErrClosed) || !errors.Is(wait, verbs.ErrClosed) || !errors.Is(g.cq.Arm(), verbs.ErrClosed) {
		t.Errorf("closed completion queue: %v; %v", poll, wait)
	}
}

func TestRegister(t *testing.T) {
	g := newRig(t, options{})
	var freed verbs.Memory
	for name, f := range map[string]func() (verbs.MemoryRegion, error){
		"nil":           func() (verbs.MemoryRegion, error) { return g.pd.Register(nil, everything) },
		"freed":         func() (verbs.MemoryRegion, error) { return g.pd.Register(&freed, everything) },
		"remote only":   func() (verbs.MemoryRegion, error) { return g.pd.Register(g.memory, verbs.RemoteWrite) },
		"unknown flags": func() (verbs.MemoryRegion, error) { return g.pd.Register(g.memory, 1<<20) },
	} {
		if mr, err := f(); !errors.Is(err, verbs.ErrAccess) {
			t.Errorf("%s: %v, %v", name, mr, err)
		}
	}
	keys := map[uint32]bool{}
	var all []verbs.MemoryRegion
	for range 50 {
		mr, err := g.pd.Register(g.memory, everything)
		if err != nil {
			t.Fatal(err)
		}
		if mr.LKey() == mr.RKey() || keys[mr.LKey()] || keys[mr.RKey()] || mr.Length() != uint64(len(g.memory.Bytes())) || mr.Address() != g.memory.Address() {
			t.Errorf("lkey %#x, rkey %#x", mr.LKey(), mr.RKey())
		}
		keys[mr.LKey()], keys[mr.RKey()] = true, true
		all = append(all, mr)
	}
	if err := g.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	for _, mr := range all {
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCompletionQueueDepth(t *testing.T) {
	g := newRig(t, options{receives: 4, depth: 10})
	_, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, MaxReceives: 7})
	if !errors.Is(err, verbs.ErrLimit) || !strings.Contains(err.Error(), "11") {
		t.Errorf("4 and 7 receives on a queue of 10: %v", err)
	}
	qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, MaxReceives: 6})
	if err != nil {
		t.Fatalf("4 and 6 receives: %v", err)
	}
	if err := qp.Close(); err != nil {
		t.Error(err)
	}
	if qp, err = g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, MaxReceives: 6}); err != nil {
		t.Fatalf("the room of a closed queue pair is not free: %v", err)
	}
	if err := qp.Close(); err != nil {
		t.Error(err)
	}
	for _, depth := range []int{0, -1, maxCQE + 1} {
		if _, err := g.d.CreateCQ(depth); !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	other := newRig(t, options{})
	if _, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: other.cq, MaxReceives: 1}); !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("completion queue of another device: %v", err)
	}
}

func TestQueuePairNumbersAreNotReused(t *testing.T) {
	g := newRig(t, options{})
	cq, err := g.d.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	seen := map[roce.QPN]bool{g.qp.qpn: true}
	for range 300 {
		qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 1})
		if err != nil {
			t.Fatal(err)
		}
		if n := qp.QPN(); seen[n] || n < 2 || n >= roce.QPNMask {
			t.Fatalf("QPN %#x", n)
		}
		seen[qp.QPN()] = true
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOverrun(t *testing.T) {
	g := newRig(t, options{receives: 4})
	other, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: mustCQ(t, g.d, 1), MaxReceives: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	g.post(4, 64, 64)
	for range 4 {
		g.acks(g.exchange(g.message(roce.SendOnly, nil, roce.RETH{}, 0)...), g.psn.Add(-1), uint32(g.psn))
	}
	// Posted again without a poll: there is no room for what they complete.
	g.post(4, 64, 64)
	if err := g.cq.Arm(); err != nil {
		t.Fatal(err)
	}
	g.one(g.exchange(g.message(roce.SendOnly, nil, roce.RETH{}, 0)...), roce.Nak(roce.RemoteOperational), 4)
	if e := g.event(); e.Kind != verbs.EventCQError {
		t.Errorf("event %v", e.Kind)
	}
	if e := g.event(); e.Kind != verbs.EventQPFatal || e.QPN != g.qp.qpn {
		t.Errorf("event %v of %#x", e.Kind, e.QPN)
	}
	if g.qp.State() != verbs.Error {
		t.Errorf("state %v", g.qp.State())
	}
	if ok, err := g.cq.Wait(patient); !ok || err != nil {
		t.Errorf("the waiter was not told: %v, %v", ok, err)
	}
	if got := g.poll(); len(got) != 4 {
		t.Errorf("%d completions, want the 4 from before", len(got))
	}
	for range 2 {
		if n, err := g.cq.Poll(make([]verbs.WorkCompletion, 4)); n != 0 || !errors.Is(err, verbs.ErrOverrun) {
			t.Errorf("poll: %d, %v", n, err)
		}
	}
}

func mustCQ(t *testing.T, d *device, depth int) verbs.CompletionQueue {
	t.Helper()
	cq, err := d.CreateCQ(depth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cq.Close() })
	return cq
}

func TestArmWaitWake(t *testing.T) {
	g := newRig(t, options{receives: 8})
	g.post(8, 64, 64)
	send := func() { g.exchange(g.message(roce.SendOnly, nil, roce.RETH{}, 0)...) }
	wait := func(timeout time.Duration, want bool) {
		t.Helper()
		if got, err := g.cq.Wait(timeout); got != want || err != nil {
			t.Errorf("wait: %v, %v; want %v", got, err, want)
		}
	}
	arm := func() {
		t.Helper()
		if err := g.cq.Arm(); err != nil {
			t.Fatal(err)
		}
	}
	send()
	wait(0, false) // not armed
	arm()
	wait(0, false) // the completion came before
	send()
	wait(patient, true)
	send()
	wait(0, false) // one notification a call of Arm
	arm()
	send()
	arm() // takes back the notification nobody waited for
	wait(0, false)
	g.cq.Wake()
	wait(-1, false)
	var done sync.WaitGroup
	done.Go(func() { wait(-1, false) })
	g.cq.Wake()
	done.Wait()
}

// SetError comes while messages arrive and another thread posts: every receive
// that was taken completes exactly once, and nothing is outstanding after.
func TestFlushIsExact(t *testing.T) {
	for round := range 30 {
		t.Run("", func(t *testing.T) {
			const receives, messages = 64, 100_000
			g := newRig(t, options{receives: receives, depth: receives + messages, memory: receives * 64})
			var posted, succeeded, flushed atomic.Uint64
			var group sync.WaitGroup
			stop := make(chan struct{})
			started := make(chan struct{})

			// The poster counts IDs up. Now and then it is refused for room.
			group.Go(func() {
				id := uint64(1)
				rs := make([]verbs.ReceiveRequest, 8)
				for id < messages {
					select {
					case <-stop:
						return
					default:
					}
					for i := range rs {
						rs[i] = verbs.ReceiveRequest{ID: id + uint64(i), Address: g.mr.base, Length: 64, LKey: g.mr.lkey}
					}
					n, err := g.qp.PostReceive(rs)
					if err != nil && !errors.Is(err, verbs.ErrFull) {
						t.Error(err)
						return
					}
					id += uint64(n)
					posted.Add(uint64(n))
					if n == 0 {
						runtime.Gosched()
					}
				}
			})
			// The poller expects the IDs in order.
			group.Go(func() {
				wcs := make([]verbs.WorkCompletion, 32)
				next := uint64(1)
				for {
					// First this: what was posted and flushed before it is seen below.
					var stopped bool
					select {
					case <-stop:
						stopped = true
					default:
					}
					n, err := g.cq.Poll(wcs)
					if err != nil {
						t.Error(err)
						return
					}
					for _, wc := range wcs[:n] {
						if wc.ID != next {
							t.Errorf("completion of %d, want %d", wc.ID, next)
							return
						}
						next++
						switch wc.Status {
						case verbs.Success:
							if flushed.Load() > 0 {
								t.Error("success after a flush")
							}
							if succeeded.Add(1) == 200 {
								close(started)
							}
						case verbs.WorkRequestFlushed:
							flushed.Add(1)
						default:
							t.Errorf("status %v", wc.Status)
						}
					}
					if n == 0 && stopped {
						return
					}
					if n == 0 {
						runtime.Gosched()
					}
				}
			})
			sending := make(chan struct{})
			group.Go(func() {
				w := newWindow(g, 32, g.packet(roce.SendOnly, 0, []byte("payload!")))
				for {
					select {
					case <-sending:
						return
					default:
					}
					if err := w.fill(); err != nil {
						t.Error(err)
						return
					}
					if _, err := w.take(time.Millisecond); err != nil {
						t.Error(err)
						return
					}
				}
			})
			select {
			case <-started:
			case <-time.After(patient):
				t.Error("no load")
			}
			// A little further on each time.
			for range rand.IntN(200 * (round + 1)) {
				runtime.Gosched()
			}
			if err := g.qp.SetError(); err != nil {
				t.Error(err)
			}
			g.sync() // let the poster meet the error
			close(stop)
			close(sending)
			group.Wait()
			g.sync()
			rest := g.poll()
			for _, wc := range rest {
				if wc.Status != verbs.WorkRequestFlushed {
					t.Errorf("status %v at the end", wc.Status)
				}
			}
			if got := succeeded.Load() + flushed.Load() + uint64(len(rest)); got != posted.Load() {
				t.Errorf("%d posted, %d completed", posted.Load(), got)
			}
			if n := g.d.Counters()["receives_flushed"]; n != flushed.Load()+uint64(len(rest)) {
				t.Errorf("counted %d flushed, found %d", n, flushed.Load()+uint64(len(rest)))
			}
		})
	}
}

// A message under way holds a receive that nobody sees: it is flushed too.
func TestFlushInTheMiddleOfAMessage(t *testing.T) {
	g := newRig(t, options{mtu: 256})
	g.post(3, 1024, 1024)
	g.exchange(g.message(roce.SendOnly, make([]byte, 600), roce.RETH{}, 0)[:2]...)
	if err := g.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	got := g.poll()
	for i, wc := range got {
		if wc.ID != uint64(100+i) || wc.Status != verbs.WorkRequestFlushed || wc.QPN != uint32(g.qp.qpn) {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d completions, want 3", len(got))
	}
}

// Once a region is closed its memory may go: a write after that would end the
// process.
func TestMemoryMayGoAfterClose(t *testing.T) {
	for range 20 {
		g := newRig(t, options{memory: 1 << 20, mtu: 4096})
		m, err := verbs.AllocMemory(1<<20, false)
		if err != nil {
			t.Fatal(err)
		}
		mr, err := g.pd.Register(m, everything)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		stop, running := make(chan struct{}), make(chan struct{})
		group.Go(func() {
			p := g.packet(roce.WriteOnly, 0, make([]byte, 4096))
			p.RETH = roce.RETH{Address: mr.Address() + 1<<20 - 4096, RKey: mr.RKey(), Length: 4096}
			w := newWindow(g, 64, p)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := w.fill(); err != nil {
					t.Error(err)
					return
				}
				if n == 5 {
					close(running)
					read := g.packet(roce.ReadRequest, g.psn, nil)
					read.RETH = roce.RETH{Address: mr.Address(), RKey: mr.RKey(), Length: 1 << 20}
					g.transmit(g.encode(read), g.encode(read))
				}
				if _, err := w.take(time.Millisecond); err != nil {
					t.Error(err)
					return
				}
			}
		})
		<-running
		if err := errors.Join(g.qp.SetError(), mr.Close(), m.Free()); err != nil {
			t.Error(err)
		}
		g.sync()
		close(stop)
		group.Wait()
	}
}

// A consumer of plain WRITEs watches the word that the peer writes last.
func TestSequenceWordComesLast(t *testing.T) {
	const frame, mtu, frames = 3 * 1024, 1024, 2000
	g := newRig(t, options{mtu: mtu, memory: frame})
	last := (*uint64)(unsafe.Pointer(&g.memory.Bytes()[frame-8]))
	var group sync.WaitGroup
	var seen atomic.Uint64
	group.Go(func() {
		b := g.memory.Bytes()
		deadline := time.Now().Add(6 * patient)
		for n := uint64(1); n <= frames; n++ {
			for atomic.LoadUint64(last) != n {
				if time.Now().After(deadline) {
					t.Errorf("frame %d did not come", n)
					return
				}
				runtime.Gosched()
			}
			for i := 0; i < frame; i += 8 {
				if got := binary.NativeEndian.Uint64(b[i:]); got != n {
					t.Errorf("frame %d: word %d is of frame %d", n, i/8, got)
					return
				}
			}
			seen.Store(n)
		}
	})
	data := make([]byte, frame)
	for n := uint64(1); n <= frames && !t.Failed(); n++ {
		for i := 0; i < frame; i += 8 {
			binary.NativeEndian.PutUint64(data[i:], n)
		}
		g.transmit(g.encodeAll(g.message(roce.WriteOnly, data, roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: frame}, 0)...)...)
		for seen.Load() < n && !t.Failed() {
			runtime.Gosched()
		}
	}
	group.Wait()
}

// The responder, the poller and the poster allocate nothing for a message.
func TestMessagesAllocateNothing(t *testing.T) {
	for _, op := range []roce.Opcode{roce.SendOnly, roce.WriteOnly, roce.WriteOnlyImm, roce.ReadRequest} {
		t.Run(op.String(), func(t *testing.T) {
			g := newRig(t, options{mtu: 4096, receives: 64, memory: 64 * 4096, maxReads: 16})
			rs := make([]verbs.ReceiveRequest, 64)
			for i := range rs {
				rs[i] = verbs.ReceiveRequest{ID: uint64(i), Address: g.mr.base + uint64(i)*4096, Length: 4096, LKey: g.mr.lkey}
			}
			if _, err := g.qp.PostReceive(rs); err != nil {
				t.Fatal(err)
			}
			p := g.packet(op, 0, nil)
			size := 16
			if op != roce.ReadRequest {
				p.Payload = make([]byte, 4096)
			}
			p.RETH = roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: 4096}
			w := newWindow(g, size, p)
			wcs := make([]verbs.WorkCompletion, 64)
			run := func() {
				if err := w.fill(); err != nil {
					t.Fatal(err)
				}
				for w.acked != g.psn {
					if _, err := w.take(patient); err != nil {
						t.Fatal(err)
					}
					if _, err := g.repost(wcs, rs); err != nil {
						t.Fatal(err)
					}
				}
			}
			run()
			if n := testing.AllocsPerRun(200, run); n != 0 {
				t.Errorf("%v allocations for %d messages", n, size)
			}
			if w.naks > 0 {
				t.Errorf("%d NAKs", w.naks)
			}
		})
	}
}

func TestEventsDropTheOldest(t *testing.T) {
	d := openAny(t)
	for i := range 3 * waiting {
		d.emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: roce.QPN(i)})
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	n, last := 0, roce.QPN(0)
	for e := range d.Events() {
		n, last = n+1, e.QPN
	}
	if n != waiting || last != 3*waiting-1 {
		t.Errorf("%d events, the last of %d", n, last)
	}
}

// When the socket fails, nobody waits for ever and nothing stays outstanding.
func TestSocketFails(t *testing.T) {
	g := newRig(t, options{})
	g.post(3, 64, 64)
	g.d.link.conn.Close()
	if e := g.event(); e.Kind != verbs.EventDeviceRemoved {
		t.Errorf("event %v", e.Kind)
	}
	if e := g.event(); e.Kind != verbs.EventQPFatal {
		t.Errorf("event %v", e.Kind)
	}
	select {
	case <-g.d.ended:
	case <-time.After(patient):
		t.Fatal("the responder goes on")
	}
	if got := g.poll(); len(got) != 3 || g.qp.State() != verbs.Error {
		t.Errorf("completions %+v, state %v", got, g.qp.State())
	}
	g.post(1, 64, 64)
	if got := g.poll(); len(got) != 1 || got[0].Status != verbs.WorkRequestFlushed {
		t.Errorf("posted after: %+v", got)
	}
	if err := g.qp.SetError(); err != nil {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	tab := newTable[int](0)
	model := map[uint32]*int{}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		k := uint32(r.IntN(200))
		if r.IntN(2) == 0 {
			k = uint32(r.IntN(8)) << 29 // collide
		}
		if _, ok := model[k]; ok {
			delete(model, k)
			tab = tab.without(k)
		} else {
			model[k] = new(int)
			tab = tab.with(k, model[k])
		}
		if tab.used != len(model) {
			t.Fatalf("%d used, want %d", tab.used, len(model))
		}
		for k := range uint32(200) {
			if tab.get(k) != model[k] || tab.get(k<<29) != model[k<<29] {
				t.Fatalf("key %d: %p, want %p", k, tab.get(k), model[k])
			}
		}
	}
}
