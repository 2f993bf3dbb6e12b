//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
	"rocelink/fpga/roce"
)

// setUp makes everything up to RTS and says at which step it failed; whatever
// was made is closed in reverse.
func setUp(p *provider, mem *verbs.Memory) (step string, err error) {
	var open []interface{ Close() error }
	defer func() {
		for _, c := range slices.Backward(open) {
			err = errors.Join(err, c.Close())
		}
	}()
	dev, err := p.Open("mlx5_0")
	if err != nil {
		return "open", err
	}
	open = append(open, dev)
	pd, err := dev.AllocPD()
	if err != nil {
		return "pd", err
	}
	open = append(open, pd)
	mr, err := pd.Register(mem, allAccess)
	if err != nil {
		return "mr", err
	}
	open = append(open, mr)
	cq, err := dev.CreateCQ(8)
	if err != nil {
		return "cq", err
	}
	open = append(open, cq)
	qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 8})
	if err != nil {
		return "qp", err
	}
	open = append(open, qp)
	if err := qp.Init(allAccess); err != nil {
		return "init", err
	}
	if _, err := qp.PostReceive([]verbs.ReceiveRequest{{ID: 1}}); err != nil {
		return "post", err
	}
	if err := qp.ReadyToReceive(peer()); err != nil {
		return "rtr", err
	}
	if err := qp.ReadyToSend(1); err != nil {
		return "rts", err
	}
	return "", nil
}

// TestFailureAtEachStep has every call of a set-up fail: the steps before it are
// undone in reverse, nothing stays open, and the next set-up succeeds.
func TestFailureAtEachStep(t *testing.T) {
	mem, err := verbs.AllocMemory(4096, false)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	for _, c := range []struct {
		call  string
		after int
		errno syscall.Errno
		step  string
		is    error
		says  string
	}{
		{"get_device_list", 1, syscall.ENOMEM, "open", syscall.ENOMEM, "open mlx5_0"},
		{"open_device", 0, syscall.EACCES, "open", syscall.EACCES, "permission"},
		{"query_device", 0, syscall.EINVAL, "open", syscall.EINVAL, "query device"},
		{"query_port", 0, syscall.EINVAL, "open", syscall.EINVAL, "query port"},
		{"query_gid_table", 0, syscall.EACCES, "open", syscall.EACCES, "GID table"},
		{"alloc_pd", 0, syscall.ENOMEM, "pd", verbs.ErrLimit, "it has 1024 protection domains"},
		{"reg_mr", 0, syscall.ENOMEM, "mr", verbs.ErrLimit, "it has 1024 memory regions"},
		{"reg_mr", 0, syscall.EFAULT, "mr", syscall.EFAULT, "register 4096 bytes"},
		{"create_comp_channel", 0, syscall.EMFILE, "cq", syscall.EMFILE, "create completion queue"},
		{"create_cq", 0, syscall.ENOMEM, "cq", verbs.ErrLimit, "it has 1024 completion queues"},
		{"create_qp", 0, syscall.ENOMEM, "qp", verbs.ErrLimit, "it has 1024 queue pairs"},
		{"create_qp", 0, syscall.EINVAL, "qp", syscall.EINVAL, "create queue pair"},
		{"modify_qp", 0, syscall.EINVAL, "init", syscall.EINVAL, "to INIT"},
		{"post_recv", 0, syscall.ENOMEM, "post", verbs.ErrFull, "post receive 1 of 1"},
		{"query_port", 1, syscall.EINVAL, "rtr", syscall.EINVAL, "to RTR"},
		{"query_gid_table", 1, syscall.EACCES, "rtr", syscall.EACCES, "to RTR"},
		{"modify_qp", 1, syscall.EINVAL, "rtr", syscall.EINVAL, "does not take these attributes"},
		{"modify_qp", 1, syscall.ETIMEDOUT, "rtr", syscall.ETIMEDOUT, "ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:09"},
		{"modify_qp", 1, syscall.EHOSTUNREACH, "rtr", syscall.EHOSTUNREACH, "no way from 192.0.2.7 to 192.0.2.9"},
		{"modify_qp", 2, syscall.EINVAL, "rts", syscall.EINVAL, "to RTS"},
		{"modify_qp", 2, syscall.EIO, "rts", verbs.ErrNoDevice, "removed or has failed"},
	} {
		t.Run(c.step+"/"+c.call+"/"+c.errno.Error(), func(t *testing.T) {
			p := world(t, nic("mlx5_0"))
			double.Fail(c.call, c.errno, c.after, 1)
			step, err := setUp(p, mem)
			if step != c.step {
				t.Errorf("failed at %q, want %q", step, c.step)
			}
			wantError(t, err, c.is, c.says)
			if s := double.Live(); s != "" {
				t.Errorf("still open: %s", s)
			}
			if step, err := setUp(p, mem); err != nil {
				t.Errorf("the next set-up failed at %s: %v", step, err)
			}
		})
	}
}

func TestTeardownOrder(t *testing.T) {
	mem, err := verbs.AllocMemory(4096, false)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	p := world(t, nic("mlx5_0"))
	if step, err := setUp(p, mem); err != nil {
		t.Fatal(step, err)
	}
	calls := double.Calls()
	from := slices.Index(calls, "destroy_qp")
	want := []string{"destroy_qp", "destroy_cq", "destroy_comp_channel", "dereg_mr", "dealloc_pd", "close_device"}
	if from < 0 || !slices.Equal(calls[from:], want) {
		t.Errorf("calls %v", calls)
	}
	if calls[0] != "fork_init" || slices.Contains(calls[1:], "fork_init") {
		t.Errorf("fork_init is not the first call, once: %v", calls)
	}
}

// TestWrongOrder closes in every wrong order: ErrBusy, and nothing changes.
func TestWrongOrder(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.must(g.qp.Init(allAccess))
	all := g.closers()
	before := len(double.Calls())
	for _, c := range all[1:] {
		wantError(t, c.Close(), verbs.ErrBusy, "close")
	}
	if after := double.Calls(); len(after) != before {
		t.Errorf("the library was called: %v", after[before:])
	}
	// With the queue pair in error the region may go.
	g.must(g.qp.SetError())
	g.must(g.mr.Close())
	wantError(t, g.pd.Close(), verbs.ErrBusy, "1 queue pairs, 0 shared receive queues and 0 memory regions")
	wantError(t, g.dev.Close(), verbs.ErrBusy, "1 protection domains and 1 completion queues")
	g.must(g.qp.Close())
	g.must(g.cq.Close())
	wantError(t, g.dev.Close(), verbs.ErrBusy, "1 protection domains and 0 completion queues")
}

// TestDestructionFails: an error is reported, the object stays, and closing it
// again works.
func TestDestructionFails(t *testing.T) {
	for i, call := range []string{"destroy_qp", "destroy_cq", "destroy_comp_channel", "dereg_mr", "dealloc_pd"} {
		g := newRig(t, 8, 4096)
		order := []interface{ Close() error }{g.qp, g.cq, g.cq, g.mr, g.pd}
		for _, c := range order[:i] {
			if c != order[i] {
				g.must(c.Close())
			}
		}
		double.Fail(call, syscall.EBUSY, 0, 1)
		wantError(t, order[i].Close(), verbs.ErrBusy, "close")
		if i == 0 {
			g.must(g.qp.Init(0)) // it still works
		}
		if i == 1 {
			g.poll(0)
		}
		g.close()
	}
}

func TestAfterClose(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.connect()
	g.must(g.qp.Close())
	n, err := g.qp.PostReceive([]verbs.ReceiveRequest{{}})
	if n != 0 {
		t.Errorf("%d posted", n)
	}
	wantError(t, err, verbs.ErrClosed)
	wantError(t, g.qp.SetError(), verbs.ErrClosed)
	wantError(t, g.qp.Init(0), verbs.ErrClosed)
	if s := g.qp.State(); s != verbs.Reset {
		t.Errorf("state %v", s)
	}
	g.must(g.cq.Close())
	_, err = g.cq.Poll(make([]verbs.WorkCompletion, 1))
	wantError(t, err, verbs.ErrClosed, "poll")
	wantError(t, g.cq.Arm(), verbs.ErrClosed, "arm")
	_, err = g.cq.Wait(0)
	wantError(t, err, verbs.ErrClosed, "wait")
	g.cq.Wake()
	_, err = g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, MaxReceives: 1})
	wantError(t, err, verbs.ErrClosed, "completion queue")
	g.must(g.mr.Close())
	g.must(g.pd.Close())
	_, err = g.pd.Register(g.mem, allAccess)
	wantError(t, err, verbs.ErrClosed, "protection domain")
}

// TestAttributes checks every field that ibv_modify_qp is given.
func TestAttributes(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.must(g.qp.Init(verbs.LocalWrite | verbs.RemoteRead))
	p := peer()
	g.must(g.qp.ReadyToReceive(p))
	g.must(g.qp.ReadyToSend(0xfedcba))
	g.must(g.qp.SetError())
	got := double.Modified()
	if len(got) != 4 {
		t.Fatalf("%d calls of ibv_modify_qp: %+v", len(got), got)
	}
	want := []double.Modify{
		{Mask: double.MaskInit, State: 1, Access: double.LocalWrite | double.RemoteRead, PKeyIndex: 0, Port: 1},
		{Mask: double.MaskRTR, State: 2, MTU: 4, DestQPN: 0xabcdef, RQPSN: 0x123456, Reads: 16, RNRTimer: 12, Global: 1, AVPort: 1,
			SGIDIndex: 7, HopLimit: 64, DGID: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 9}},
		{Mask: double.MaskRTS, State: 3, SQPSN: 0xfedcba, Timeout: 14, Retries: 7, RNRRetries: 7, OwnReads: 0},
		{Mask: double.MaskState, State: 6},
	}
	for i := range got {
		want[i].QPN = g.qpn()
		if got[i] != want[i] {
			t.Errorf("call %d:\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	if sends, receives, a, b := double.Created(); sends != 1 || receives != 8 || a != 1 || b != 1 {
		t.Errorf("queue pair for %d sends, %d receives, %d and %d elements", sends, receives, a, b)
	}
	if a := double.Access(g.mr.RKey()); a != double.LocalWrite|double.RemoteWrite|double.RemoteRead {
		t.Errorf("region registered for %#x", a)
	}
	if g.mr.LKey() == g.mr.RKey() || g.mr.Address() != g.mem.Address() || g.mr.Length() != 4096 {
		t.Errorf("region %#x %#x at %#x+%d", g.mr.LKey(), g.mr.RKey(), g.mr.Address(), g.mr.Length())
	}
	if verbs.LocalWrite != double.LocalWrite || verbs.RemoteWrite != double.RemoteWrite || verbs.RemoteRead != double.RemoteRead {
		t.Error("access flags are not those of the library")
	}
}

func TestIPv6Peer(t *testing.T) {
	for _, c := range []struct{ host, peer string }{{"2001:db8::7", "2001:db8::9"}, {"fe80::1", "fe80::9%eth9"}} {
		p := world(t, nic("mlx5_0"))
		dev, err := p.Open("mlx5_0@" + c.host)
		if err != nil {
			t.Fatal(err)
		}
		g := &rig{TB: t, dev: dev.(*device)}
		pd, err := dev.AllocPD()
		g.must(err)
		cq, err := dev.CreateCQ(2)
		g.must(err)
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: 1, MaxSends: 4})
		g.must(err)
		g.pd, g.cq, g.qp = pd.(*domain), cq.(*completionQueue), qp.(*queuePair)
		g.must(qp.Init(0))
		a := peer()
		err = qp.ReadyToReceive(a)
		wantError(t, err, nil, "peer's address 192.0.2.9", "family of "+c.host)
		a.Address = netip.MustParseAddr(c.peer)
		g.must(qp.ReadyToReceive(a))
		g.must(qp.ReadyToSend(0))
		m := double.Modified()
		if want := a.Address.As16(); m[1].DGID != want {
			t.Errorf("destination GID %x, want %x", m[1].DGID, want)
		}
		if m[2].OwnReads != 16 {
			t.Errorf("%d READs of our own, with a send queue", m[2].OwnReads)
		}
		g.close()
	}
}

func TestPeerRefusals(t *testing.T) {
	g := newRig(t, 8, 4096)
	wantError(t, g.qp.ReadyToReceive(peer()), verbs.ErrState, "RESET", "want INIT")
	g.must(g.qp.Init(0))
	wantError(t, g.qp.Init(0), verbs.ErrState, "it is in INIT")
	wantError(t, g.qp.ReadyToSend(0), verbs.ErrState, "want RTR")
	for _, c := range []struct {
		change func(*verbs.PeerAttributes)
		is     error
		says   string
	}{
		{func(a *verbs.PeerAttributes) { a.MTU = 0 }, nil, "path MTU 0"},
		{func(a *verbs.PeerAttributes) { a.MTU = 8192 }, nil, "path MTU 8192"},
		{func(a *verbs.PeerAttributes) { a.QPN = 1 << 24 }, nil, "QPN 0x1000000"},
		{func(a *verbs.PeerAttributes) { a.PSN = 1 << 24 }, nil, "PSN 0x1000000"},
		{func(a *verbs.PeerAttributes) { a.MinRNRTimer = 32 }, nil, "RNR timer code 32"},
		{func(a *verbs.PeerAttributes) { a.MaxReads = 17 }, verbs.ErrLimit, "17 outstanding READs, want 0 to 16"},
		{func(a *verbs.PeerAttributes) { a.MaxReads = -1 }, verbs.ErrLimit, "-1 outstanding"},
		{func(a *verbs.PeerAttributes) { a.Address = netip.Addr{} }, nil, "peer's address"},
		{func(a *verbs.PeerAttributes) { a.Address = netip.IPv4Unspecified() }, nil, "peer's address 0.0.0.0"},
		{func(a *verbs.PeerAttributes) { a.Address = netip.MustParseAddr("224.0.0.1") }, nil, "unicast"},
		{func(a *verbs.PeerAttributes) { a.Address = netip.MustParseAddr("2001:db8::9") }, nil, "family of 192.0.2.7"},
	} {
		a := peer()
		c.change(&a)
		wantError(t, g.qp.ReadyToReceive(a), c.is, "to RTR", c.says)
		if s := g.qp.State(); s != verbs.Init {
			t.Fatalf("%s: state %v", c.says, s)
		}
	}
	lower := defaultPort()
	lower.MTU = 3
	double.SetPort(0, lower)
	wantError(t, g.qp.ReadyToReceive(peer()), nil, "path MTU 2048: the port carries 256 to 1024")
	double.SetPort(0, defaultPort())
	g.must(g.qp.ReadyToReceive(peer()))
	wantError(t, g.qp.ReadyToSend(roce.PSN(1<<24)), nil, "PSN 0x1000000")
	g.must(g.qp.ReadyToSend(0))
}

func TestCreationRefusals(t *testing.T) {
	small := nic("mlx5_0")
	small.Limits = double.Limits{CQE: 16, Receives: 8, MRBytes: 1 << 20}
	p := world(t, small, nic("mlx5_1"))
	g := &rig{TB: t}
	dev, err := p.Open("mlx5_0")
	g.must(err)
	g.dev = dev.(*device)
	defer g.close()
	other, err := p.Open("mlx5_1")
	g.must(err)
	defer other.Close()
	for _, depth := range []int{0, -1, 17} {
		_, err := dev.CreateCQ(depth)
		wantError(t, err, verbs.ErrLimit, "want 1 to 16")
	}
	pd, err := dev.AllocPD()
	g.must(err)
	g.pd = pd.(*domain)
	cq, err := dev.CreateCQ(12)
	g.must(err)
	g.cq = cq.(*completionQueue)
	foreign, err := other.CreateCQ(12)
	g.must(err)
	defer foreign.Close()
	if cq.Depth() != 12 {
		t.Errorf("depth %d", cq.Depth())
	}
	for _, c := range []struct {
		config verbs.QPConfig
		is     error
		says   string
	}{
		{verbs.QPConfig{MaxReceives: 1}, verbs.ErrAccess, "another device"},
		{verbs.QPConfig{RecvCQ: foreign, MaxReceives: 1}, verbs.ErrAccess, "another device"},
		{verbs.QPConfig{RecvCQ: cq, SendCQ: foreign, MaxReceives: 1}, verbs.ErrAccess, "another device"},
		{verbs.QPConfig{RecvCQ: cq}, verbs.ErrLimit, "0 receives, want 1 to 8"},
		{verbs.QPConfig{RecvCQ: cq, MaxReceives: 9}, verbs.ErrLimit, "9 receives, want 1 to 8"},
		{verbs.QPConfig{RecvCQ: cq, MaxReceives: 1, MaxSends: 9}, verbs.ErrLimit, "9 sends"},
		{verbs.QPConfig{RecvCQ: cq, MaxReceives: 1, MaxSends: -1}, verbs.ErrLimit, "-1 sends"},
	} {
		_, err := pd.CreateQP(c.config)
		wantError(t, err, c.is, c.says)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 8})
	g.must(err)
	g.qp = qp.(*queuePair)
	_, err = pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 5})
	wantError(t, err, verbs.ErrLimit, "depth 12", "would need 13")

	mem, err := verbs.AllocMemory(2<<20, false)
	g.must(err)
	defer mem.Free()
	_, err = pd.Register(mem, allAccess)
	wantError(t, err, verbs.ErrLimit, "at most 1048576")
	_, err = pd.Register(nil, allAccess)
	wantError(t, err, verbs.ErrAccess, "no memory")
	page, err := verbs.AllocMemory(4096, false)
	g.must(err)
	defer page.Free()
	_, err = pd.Register(page, 1<<9)
	wantError(t, err, verbs.ErrAccess, "access flags 0x200")
	_, err = pd.Register(page, verbs.RemoteWrite)
	wantError(t, err, verbs.ErrAccess, "RemoteWrite needs LocalWrite")
}

func TestMemlockTooSmall(t *testing.T) {
	g := newRig(t, 8, 4096)
	mem, err := verbs.AllocMemory(8<<20, false)
	g.must(err)
	defer mem.Free()
	// Drivers make different things of it.
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.ENOENT, syscall.EINVAL, syscall.EFAULT, syscall.EPERM} {
		double.Fail("reg_mr", errno, 0, 1)
		_, err = g.pd.Register(mem, allAccess)
		wantError(t, err, errno, "memlock", "is 8388608 bytes", "1048576 are in use", "8388608 more are needed", "LimitMEMLOCK=infinity", "ulimit -l")
		if errors.Is(err, verbs.ErrLimit) {
			t.Errorf("%v is blamed on the device", err)
		}
	}
	// What fits under the limit failed for another reason.
	double.Fail("reg_mr", syscall.ENOENT, 0, 1)
	if _, err := g.pd.Register(g.mem, allAccess); err == nil || strings.Contains(err.Error(), "memlock") {
		t.Errorf("a region that fits: %v", err)
	}
	double.Fail("reg_mr", syscall.ENODEV, 0, 1)
	if _, err := g.pd.Register(mem, allAccess); !errors.Is(err, verbs.ErrNoDevice) || strings.Contains(err.Error(), "memlock") {
		t.Errorf("a device that is gone: %v", err)
	}
	mr, err := g.pd.Register(mem, allAccess)
	g.must(err)
	g.must(mr.Close())
}

// TestSetErrorFromAnyState includes RESET, which the kernel has no way from.
func TestSetErrorFromAnyState(t *testing.T) {
	steps := []func(*rig){
		func(*rig) {},
		func(g *rig) { g.must(g.qp.Init(0)) },
		func(g *rig) { g.must(g.qp.ReadyToReceive(peer())) },
		func(g *rig) { g.must(g.qp.ReadyToSend(0)) },
		func(g *rig) { g.must(g.qp.SetError()) },
	}
	for i := range steps {
		g := newRig(t, 8, 4096)
		for _, s := range steps[:i+1] {
			s(g)
		}
		g.must(g.qp.SetError())
		if s := g.qp.State(); s != verbs.Error {
			t.Errorf("after step %d: %v", i, s)
		}
		g.close()
	}
	g := newRig(t, 8, 4096)
	double.Fail("modify_qp", syscall.EINVAL, 0, 1)
	wantError(t, g.qp.SetError(), syscall.EINVAL, "to ERR")
	if s := g.qp.State(); s != verbs.Reset {
		t.Errorf("after a failure: %v", s)
	}
}

func TestStateFollowsTheDevice(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.connect()
	if s := g.qp.State(); s != verbs.ReadyToSend {
		t.Errorf("state %v", s)
	}
	g.must(double.Fault(g.qpn(), 0, 0))
	if s := g.qp.State(); s != verbs.Error {
		t.Errorf("state %v after a fault", s)
	}
	h := newRig(t, 8, 4096)
	h.connect()
	double.Fail("query_qp", syscall.EINVAL, 0, 1)
	if s := h.qp.State(); s != verbs.ReadyToSend {
		t.Errorf("state %v after a failed query", s)
	}
}

// TestConcurrentClose closes everything while other goroutines poll, post, wait
// and wake: no call reaches what is gone.
func TestConcurrentClose(t *testing.T) {
	for range 50 {
		g := newRig(t, 64, 1<<16)
		g.connect()
		double.Generate(g.qpn(), int(verbs.OpRecv), 0, 64, true)
		var wg sync.WaitGroup
		started := make(chan struct{}, 3)
		check := func(err error) bool {
			if err != nil && !errors.Is(err, verbs.ErrClosed) && !errors.Is(err, verbs.ErrFull) {
				t.Error(err)
			}
			return errors.Is(err, verbs.ErrClosed)
		}
		wg.Go(func() {
			wcs := make([]verbs.WorkCompletion, 16)
			for n := 0; ; n++ {
				if _, err := g.cq.Poll(wcs); check(err) || check(g.cq.Arm()) {
					return
				}
				if _, err := g.cq.Wait(time.Millisecond); check(err) {
					return
				}
				if n == 1 {
					started <- struct{}{}
				}
			}
		})
		wg.Go(func() {
			rs := make([]verbs.ReceiveRequest, 16)
			for n := 0; ; n++ {
				if _, err := g.qp.PostReceive(rs); check(err) {
					return
				}
				if n == 1 {
					started <- struct{}{}
				}
			}
		})
		stop := make(chan struct{})
		wg.Go(func() {
			for n := 0; ; n++ {
				g.cq.Wake()
				g.qp.State()
				if n == 1 {
					started <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		for range 3 {
			<-started
		}
		g.close()
		close(stop)
		wg.Wait()
	}
}

// TestCloseWakesWaiter: a Wait without end does not hold up Close.
func TestCloseWakesWaiter(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.must(g.qp.Close())
	ended := make(chan error)
	go func() {
		for {
			if _, err := g.cq.Wait(-1); err != nil {
				ended <- err
				return
			}
		}
	}()
	until(t, "the waiter waits", func() bool { return *g.cq.guard.in() != 0 })
	begin := time.Now()
	g.must(g.cq.Close())
	wantError(t, <-ended, verbs.ErrClosed)
	if d := time.Since(begin); d > patience {
		t.Errorf("Close took %v", d)
	}
}

func TestNames(t *testing.T) {
	p := world(t, nic("mlx5_0"))
	if p.Name() != "ibverbs" || !Available || New(Config{}).Name() != "ibverbs" {
		t.Error(p.Name())
	}
	for looks, want := range map[int]int{0: DefaultLooks, -1: 1, 5: 5} {
		if got := New(Config{Looks: looks}).(*provider).looks; got != want {
			t.Errorf("Looks %d becomes %d", looks, got)
		}
	}
	if err := p.lib.replace("no_such_call", nil); err == nil || !strings.Contains(err.Error(), "no_such_call") {
		t.Error(err)
	}
}
