package stream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/firmware/fabrictest"
	"rocelink/firmware/poll"
	"rocelink/firmware/rocecore"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// bench is a manager on a played-back fabric, with a clock that stands still.
type bench struct {
	t      *testing.T
	f      *fabrictest.Fabric
	core   *rocecore.Core
	m      *Manager
	now    time.Time
	link   bool
	events []rocelink.Event
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, f: fabrictest.New(), now: time.Unix(1e9, 0), link: true}
	core, err := rocecore.Open(b.f, fabrictest.Size, rocecore.Config{Poll: poll.Poll{
		Timeout: 100 * time.Millisecond,
		Now:     func() time.Time { return b.now }, Sleep: func(d time.Duration) { b.now = b.now.Add(d) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	mac, addr := roce.MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.0.0.1")
	if err := core.SetUp(mac, addr); err != nil {
		t.Fatal(err)
	}
	b.core = core
	b.m = New(Config{
		MAC: mac, Address: addr,
		LinkUp: func() (bool, string) { return b.link, "no signal" },
		Event:  func(e rocelink.Event) { b.events = append(b.events, e) },
		Now:    func() time.Time { return b.now },
		Random: rand.NewChaCha8([32]byte{1}),
	})
	b.m.Attach(core)
	b.f.Writes()
	return b
}

func (b *bench) kinds() string {
	var k []string
	for _, e := range b.events {
		k = append(k, e.Kind)
	}
	b.events = nil
	return strings.Join(k, " ")
}

func request() rocelink.OpenRequest {
	return rocelink.OpenRequest{
		Version: 1, Host: "host", Stream: "s", Verb: rocelink.VerbWrite, QPN: 0x1234, PSN: 7,
		Address: "10.0.0.2", MAC: "02:00:00:00:00:02", MTU: 4096,
		Region: rocelink.Region{Address: 0x7F1280000000, RKey: 9, Slots: 8, Stride: 8192, FrameBytes: 8000},
		Source: rocelink.Source{Kind: rocelink.SourceCounter},
	}
}

func (b *bench) open(change func(*rocelink.OpenRequest)) rocelink.OpenReply {
	b.t.Helper()
	req := request()
	if change != nil {
		change(&req)
	}
	r, err := b.m.Open(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func of(r rocelink.OpenReply) rocelink.SessionRequest {
	return rocelink.SessionRequest{Version: 1, Session: r.Session, Epoch: r.Epoch, Ready: true}
}

func wantCode(t *testing.T, what string, err error, want rocelink.Code) {
	t.Helper()
	if rocelink.CodeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func TestLife(t *testing.T) {
	b := newBench(t)
	r := b.open(func(r *rocelink.OpenRequest) { r.MTU = 1024 })
	if r.MTU != 1024 || r.QPN < 2 || r.QPN > roce.QPNMask || r.PSN > roce.PSNMask || r.Session == 0 || r.Epoch == 0 ||
		r.LeaseMillis != rocelink.DefaultLeaseMillis || r.Address != "10.0.0.1" || r.MAC != "02:00:00:00:00:01" {
		t.Errorf("%+v", r)
	}
	// What the host was told is what the fabric does.
	for _, w := range []struct {
		reg  regs.Reg
		want uint32
	}{
		{regs.CoreQpLocalQPN, r.QPN}, {regs.CoreQpStartPSN, r.PSN}, {regs.CoreQpRemoteQPN, 0x1234},
		{regs.CoreQpRemoteMACLow, 2}, {regs.CoreQpWindow, 256},
	} {
		if got := b.f.Get(0, w.reg); got != w.want {
			t.Errorf("register %#x holds %#x, want %#x", uint32(w.reg), got, w.want)
		}
	}
	if p := b.f.Get(0, regs.CoreQpSourcePort); p < 0xC000 || p > 0xFFFF {
		t.Errorf("source port %#x", p)
	}
	st, err := b.m.Start(of(r))
	if err != nil || st.State != rocelink.StreamRunning || st.Version != rocelink.Version {
		t.Fatalf("%+v, %v", st, err)
	}
	// A repeated start, as after a lost answer, changes nothing.
	b.f.Writes()
	if st, err = b.m.Start(of(r)); err != nil || st.State != rocelink.StreamRunning {
		t.Errorf("%+v, %v", st, err)
	}
	b.f.Frames(0, 42)
	if st, err = b.m.Renew(of(r)); err != nil || st.FramesDone != 42 {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err = b.m.Stop(of(r)); err != nil || st.State != rocelink.StreamStopped {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = b.m.Start(of(r))
	wantCode(t, "start after stop", err, rocelink.CodeState)
	for range 3 {
		// The last counters stay visible.
		if st, err = b.m.Close(of(r)); err != nil || st.State != rocelink.StreamClosed || st.FramesDone != 42 || st.Problem != "" {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if qp, s := b.f.States(0); qp != 0 || s != 0 {
		t.Errorf("left in the fabric: queue pair %d, stream %d", qp, s)
	}
	if k := b.kinds(); k != "stream-open stream-start stream-stop stream-stopped stream-close" {
		t.Errorf("events %s", k)
	}
	_, err = b.m.Renew(of(r))
	wantCode(t, "renew after close", err, rocelink.CodeUnknown)
	if st := b.m.Status(); len(st) != 1 || st[0].State != rocelink.StreamClosed {
		t.Errorf("%+v", st)
	}
	b.now = b.now.Add(time.Minute)
	if st := b.m.Status(); len(st) != 0 {
		t.Errorf("%+v", st)
	}
}

// Each bad setting is named, and no register is written.
func TestBadSettings(t *testing.T) {
	b := newBench(t)
	ptr := func(v int) *int { return &v }
	type R = rocelink.OpenRequest
	for _, c := range []struct {
		name   string
		change func(*R)
		field  string
	}{
		{"no host", func(r *R) { r.Host = "" }, "host"},
		{"long stream", func(r *R) { r.Stream = strings.Repeat("x", 65) }, "stream"},
		{"control character", func(r *R) { r.Stream = "a\nb" }, "stream"},
		{"verb", func(r *R) { r.Verb = "push" }, "verb"},
		{"QPN 0", func(r *R) { r.QPN = 0 }, "qpn"},
		{"QPN 1", func(r *R) { r.QPN = 1 }, "qpn"},
		{"QPN 2^24", func(r *R) { r.QPN = 1 << 24 }, "qpn"},
		{"PSN", func(r *R) { r.PSN = 1 << 24 }, "psn"},
		{"address", func(r *R) { r.Address = "host.example" }, "address"},
		{"multicast address", func(r *R) { r.Address = "239.0.0.1" }, "address"},
		{"other family", func(r *R) { r.Address = "fd00::1" }, "address"},
		{"own address", func(r *R) { r.Address = "::ffff:10.0.0.1" }, "address"},
		{"MAC", func(r *R) { r.MAC = "" }, "mac"},
		{"MAC zero", func(r *R) { r.MAC = "00:00:00:00:00:00" }, "mac"},
		{"MAC multicast", func(r *R) { r.MAC = "01:00:5e:00:00:01" }, "mac"},
		{"MAC broadcast", func(r *R) { r.MAC = "ff:ff:ff:ff:ff:ff" }, "mac"},
		{"MTU 0", func(r *R) { r.MTU = 0 }, "mtu"},
		{"MTU 1500", func(r *R) { r.MTU = 1500 }, "mtu"},
		{"MTU negative", func(r *R) { r.MTU = -4096 }, "mtu"},
		{"lease short", func(r *R) { r.LeaseMillis = 1 }, "lease_ms"},
		{"lease long", func(r *R) { r.LeaseMillis = rocelink.MaxLeaseMillis + 1 }, "lease_ms"},
		{"lease negative", func(r *R) { r.LeaseMillis = -1000 }, "lease_ms"},
		{"timeout", func(r *R) { r.Timeout = ptr(32) }, "timeout"},
		{"timeout negative", func(r *R) { r.Timeout = ptr(-1) }, "timeout"},
		{"retry", func(r *R) { r.RetryCount = ptr(8) }, "retry_count"},
		{"RNR", func(r *R) { r.RNRRetry = ptr(256) }, "rnr_retry"},
		{"window", func(r *R) { r.Window = -1 }, "window"},
		{"frame", func(r *R) { r.Region.FrameBytes = 16<<20 + 1 }, "region.frame_bytes"},
		{"largest frame", func(r *R) { r.Region.FrameBytes = 1<<30 + 1 }, "region.frame_bytes"},
		{"CRC", func(r *R) { r.Source.CRC, r.Region.FrameBytes = true, 2 }, "region.frame_bytes"},
		{"slots", func(r *R) { r.Region.Slots = 0 }, "region.slots"},
		{"stride", func(r *R) { r.Region.Stride = 8001 }, "region.stride"},
		{"trailer", func(r *R) { r.Region.Stride = 8008 }, "region.stride"},
		{"send stride", func(r *R) { r.Verb, r.Region.Stride = rocelink.VerbSend, 4096 }, "region.stride"},
		{"4 GiB", func(r *R) { r.Region.Slots = 1 << 19 }, "region.slots"},
		{"wrap", func(r *R) { r.Region.Address = 1<<64 - 4096 }, "region.address"},
		{"credit", func(r *R) { r.Region.Credit = r.Region.Address + 8 }, "region.credit"},
		{"credit of write-imm", func(r *R) { r.Verb, r.Region.Credit = rocelink.VerbWriteImm, 8 }, "region.credit"},
		{"source", func(r *R) { r.Source.Kind = "sine" }, "source.kind"},
		{"read external", func(r *R) { r.Verb, r.Source.Kind = rocelink.VerbRead, rocelink.SourceExternal }, "source.kind"},
		{"external count", func(r *R) { r.Source.Kind, r.Source.Count = rocelink.SourceExternal, 5 }, "source.count"},
	} {
		req := request()
		c.change(&req)
		_, err := b.m.Open(req)
		wantCode(t, c.name, err, rocelink.CodeBadRequest)
		if err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v does not name %s", c.name, err, c.field)
		}
		if w := b.f.Writes(); len(w) != 0 {
			t.Errorf("%s: wrote %v", c.name, w)
		}
	}
	if b.m.Fault() != nil || b.m.Count() != 0 || len(b.events) != 0 {
		t.Error("a bad request left something behind")
	}
}

func TestEveryVerbOpens(t *testing.T) {
	for _, v := range rocelink.Verbs {
		b := newBench(t)
		r := b.open(func(r *rocelink.OpenRequest) { r.Verb = v })
		if _, err := b.m.Start(of(r)); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// The largest window is what the fabric has, whatever the host would take.
func TestWindow(t *testing.T) {
	for want, ask := range map[uint32]int{256: 100000, 16: 16} {
		b := newBench(t)
		b.open(func(r *rocelink.OpenRequest) { r.Window = ask })
		if got := b.f.Get(0, regs.CoreQpWindow); got != want {
			t.Errorf("asked for %d: %d, want %d", ask, got, want)
		}
	}
}

func TestMTUIsTheSmaller(t *testing.T) {
	b := newBench(t)
	b.m.cfg.MTU = 2048
	if r := b.open(nil); r.MTU != 2048 {
		t.Errorf("MTU %d", r.MTU)
	}
	if got := regs.CoreQpConfigMTU.Get(b.f.Get(0, regs.CoreQpConfig)); got != 4 {
		t.Errorf("MTU code %d in the fabric", got)
	}
}

func TestStartIsRefused(t *testing.T) {
	b := newBench(t)
	r := b.open(func(r *rocelink.OpenRequest) { r.LeaseMillis = 1000 })
	b.f.Writes()
	refused := func(what string, req rocelink.SessionRequest, code rocelink.Code) {
		t.Helper()
		_, err := b.m.Start(req)
		wantCode(t, what, err, code)
		if w := b.f.Writes(); len(w) != 0 {
			t.Errorf("%s: wrote %v", what, w)
		}
	}
	req := of(r)
	req.Ready = false
	refused("not ready", req, rocelink.CodeNotReady)
	req = of(r)
	req.Epoch++
	refused("old epoch", req, rocelink.CodeOldEpoch)
	req = of(r)
	req.Session++
	refused("before open", req, rocelink.CodeUnknown)
	b.link = false
	refused("link down", of(r), rocelink.CodeLinkDown)
	_, err := b.m.Open(request())
	wantCode(t, "open without link", err, rocelink.CodeLinkDown)
	b.link = true
	// Renewing keeps the session, not the host's readiness.
	b.now = b.now.Add(900 * time.Millisecond)
	if _, err := b.m.Renew(of(r)); err != nil {
		t.Fatal(err)
	}
	b.f.Writes()
	b.now = b.now.Add(200 * time.Millisecond)
	refused("too late", of(r), rocelink.CodeNotReady)
	// The lease lapses.
	b.now = b.now.Add(2 * time.Second)
	if !b.m.Expire() {
		t.Error("the lease did not lapse")
	}
	b.f.Writes()
	refused("after the lease", of(r), rocelink.CodeNotReady)
}

func TestLeaseLapse(t *testing.T) {
	b := newBench(t)
	r := b.open(func(r *rocelink.OpenRequest) { r.LeaseMillis = 1000 })
	if _, err := b.m.Start(of(r)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b.now = b.now.Add(900 * time.Millisecond)
		if b.m.Expire() {
			t.Fatal("closed although renewed")
		}
		if _, err := b.m.Renew(of(r)); err != nil {
			t.Fatal(err)
		}
	}
	b.f.Frames(0, 5)
	b.kinds()
	b.now = b.now.Add(1000 * time.Millisecond)
	if !b.m.Expire() {
		t.Fatal("not closed")
	}
	if qp, s := b.f.States(0); qp != 0 || s != 0 {
		t.Errorf("left in the fabric: queue pair %d, stream %d", qp, s)
	}
	if k := b.kinds(); k != "lease-lapsed stream-stopped stream-close" {
		t.Errorf("events %s", k)
	}
	st := b.m.Status()
	if len(st) != 1 || st[0].State != rocelink.StreamClosed || !strings.Contains(st[0].Problem, "lease") || st[0].FramesDone != 5 {
		t.Errorf("%+v", st)
	}
	// The board is ready for the next.
	if _, err := b.m.Start(of(b.open(nil))); err != nil {
		t.Error(err)
	}
}

// While the NATS server is away nobody can renew: what runs goes on, with a full
// lease when the server is back; what was never started lapses all the same.
func TestHold(t *testing.T) {
	b := newBench(t)
	running := b.open(func(r *rocelink.OpenRequest) { r.LeaseMillis = 1000 })
	if _, err := b.m.Start(of(running)); err != nil {
		t.Fatal(err)
	}
	opened := b.open(func(r *rocelink.OpenRequest) { r.Stream, r.LeaseMillis = "other", 1000 })
	for range 10 {
		b.now = b.now.Add(900 * time.Millisecond)
		b.m.Hold()
		b.m.Expire()
	}
	if _, err := b.m.Start(of(opened)); err == nil {
		t.Error("a stream that was only open outlived its lease")
	}
	b.now = b.now.Add(999 * time.Millisecond)
	if b.m.Expire() {
		t.Error("the running stream lapsed before its lease after the server was back")
	}
	b.now = b.now.Add(time.Millisecond)
	if !b.m.Expire() {
		t.Error("the running stream did not lapse after its lease")
	}
}

// The PSN is never carried over: queue pair and stream are reset before each
// set-up, and four restarts in a row pass.
func TestReopenReplaces(t *testing.T) {
	b := newBench(t)
	seen := map[uint32]bool{}
	var before rocelink.OpenReply
	for i := range 5 {
		b.f.Writes()
		r := b.open(nil)
		if seen[r.PSN] {
			t.Errorf("PSN %#x again", r.PSN)
		}
		seen[r.PSN] = true
		var ops []string
		for _, w := range b.f.Writes() {
			switch w.Offset {
			case uint32(regs.CoreCommand):
				ops = append(ops, fmt.Sprintf("core %d", w.Value))
			case fabrictest.StreamBase + uint32(regs.StreamCommand):
				ops = append(ops, fmt.Sprintf("stream %d", w.Value))
			}
		}
		tail := strings.Join(ops[max(0, len(ops)-4):], ", ")
		if tail != "stream 4, core 2, core 1, stream 1" {
			t.Errorf("set-up %d: %s", i, tail)
		}
		if i > 0 {
			_, err := b.m.Renew(of(before))
			wantCode(t, "replaced session", err, rocelink.CodeUnknown)
		}
		if _, err := b.m.Start(of(r)); err != nil {
			t.Fatal(err)
		}
		before = r
	}
	if b.m.Count() != 1 {
		t.Errorf("%d sessions", b.m.Count())
	}
}

func TestBusy(t *testing.T) {
	b := newBench(t)
	for i := range fabrictest.QueuePairs {
		b.open(func(r *rocelink.OpenRequest) {
			r.Stream = fmt.Sprint(i)
			if i == 0 {
				r.Source.Kind = rocelink.SourceExternal
			}
		})
	}
	req := request()
	_, err := b.m.Open(req)
	wantCode(t, "no queue pair", err, rocelink.CodeBusy)
	// The same stream of the same host takes its own place.
	b.open(func(r *rocelink.OpenRequest) { r.Stream = "1" })
	req.Stream, req.Source.Kind = "2", rocelink.SourceExternal
	_, err = b.m.Open(req)
	wantCode(t, "external source", err, rocelink.CodeBusy)
	if err == nil || !strings.Contains(err.Error(), "external") {
		t.Error(err)
	}
}

// Whatever step of the set-up fails, the earlier ones are undone in reverse,
// the error names the step, and the next open succeeds.
func TestHalfDoneSetUp(t *testing.T) {
	for _, c := range []struct {
		block string
		op    uint32
		step  string
		undo  string // commands after the refused one
	}{
		{"Stream", regs.StreamCommandOpReset, "reset stream", ""},
		{"Core", regs.CoreCommandOpReset, "reset queue pair", ""},
		{"Core", regs.CoreCommandOpCommit, "configure queue pair", ""},
		{"Stream", regs.StreamCommandOpCommit, "configure stream", "core 2"},
	} {
		b := newBench(t)
		var after []string
		hit := false
		b.f.Refuse = func(block string, op, _ uint32) (uint32, uint32) {
			if hit {
				after = append(after, fmt.Sprintf("%s %d", strings.ToLower(block), op))
				return 0, 0
			}
			if block == c.block && op == c.op {
				hit = true
				return regs.CoreCommandStatusCodeBadValue, uint32(regs.CoreQpWindow)
			}
			return 0, 0
		}
		_, err := b.m.Open(request())
		wantCode(t, c.step, err, rocelink.CodeFailed)
		if err == nil || !strings.Contains(err.Error(), c.step) {
			t.Errorf("%v does not name %q", err, c.step)
		}
		if got := strings.Join(after, ", "); got != c.undo {
			t.Errorf("%s: undone by %q, want %q", c.step, got, c.undo)
		}
		if qp, s := b.f.States(0); qp != 0 || s != 0 || b.m.Count() != 0 {
			t.Errorf("%s: left queue pair %d, stream %d", c.step, qp, s)
		}
		b.f.Refuse = nil
		b.open(nil)
	}
}

func TestQueuePairError(t *testing.T) {
	b := newBench(t)
	r := b.open(nil)
	if _, err := b.m.Start(of(r)); err != nil {
		t.Fatal(err)
	}
	b.kinds()
	b.f.FailQP(0, regs.CoreStatStateCauseRetryExceeded)
	if !b.m.Sample() {
		t.Error("the change went unseen")
	}
	b.m.Sample()
	st := b.m.Status()[0]
	if st.State != rocelink.StreamError || st.QPState != "Error" || !strings.Contains(st.Problem, "RetryExceeded") {
		t.Errorf("%+v", st)
	}
	if k := b.kinds(); k != "stream-error" {
		t.Errorf("events %s", k)
	}
	if st, err := b.m.Close(of(r)); err != nil || !strings.Contains(st.Problem, "RetryExceeded") {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestSourceEnds(t *testing.T) {
	b := newBench(t)
	r := b.open(nil)
	if _, err := b.m.Start(of(r)); err != nil {
		t.Fatal(err)
	}
	b.kinds()
	b.f.EndSource(0)
	st, err := b.m.Renew(of(r))
	if err != nil || !st.Ended || st.State != rocelink.StreamStopped {
		t.Errorf("%+v, %v", st, err)
	}
	if k := b.kinds(); k != "stream-ended stream-stopped" {
		t.Errorf("events %s", k)
	}
}

// A fabric that stops answering or restarts: sessions end with the reason, the
// epoch changes, close still succeeds.
func TestFabricFault(t *testing.T) {
	b := newBench(t)
	r := b.open(nil)
	if _, err := b.m.Start(of(r)); err != nil {
		t.Fatal(err)
	}
	b.f.Hang = func(string, uint32, uint32) bool { return true }
	b.m.Sample()
	err := b.m.Fault()
	if !errors.Is(err, rocecore.ErrTimeout) {
		t.Fatal(err)
	}
	if b.m.Fault() != nil {
		t.Error("a fault is reported once")
	}
	b.f.Writes()
	b.m.Detach("the fabric stopped")
	if w := b.f.Writes(); len(w) != 0 {
		t.Errorf("wrote %v into a lost fabric", w)
	}
	if st := b.m.Status(); len(st) != 1 || st[0].State != rocelink.StreamClosed || st[0].Problem != "the fabric stopped" {
		t.Errorf("%+v", st)
	}
	_, err = b.m.Renew(of(r))
	wantCode(t, "renew", err, rocelink.CodeOldEpoch)
	_, err = b.m.Open(request())
	wantCode(t, "open", err, rocelink.CodeNoFabric)
	if st, err := b.m.Close(of(r)); err != nil || st.State != rocelink.StreamClosed {
		t.Errorf("%+v, %v", st, err)
	}
	b.f.Hang = nil
	b.f.Restart(2)
	core, err := rocecore.Open(b.f, fabrictest.Size, rocecore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.SetUp(b.m.cfg.MAC, b.m.cfg.Address); err != nil {
		t.Fatal(err)
	}
	b.m.Attach(core)
	if next := b.open(nil); next.Epoch == r.Epoch {
		t.Error("the epoch did not change")
	}
}

// A close whose commands do not end still runs every step and says so.
func TestCloseOfAHangingFabric(t *testing.T) {
	b := newBench(t)
	r := b.open(nil)
	var tried []string
	b.f.Hang = func(block string, op, _ uint32) bool {
		tried = append(tried, fmt.Sprintf("%s %d", block, op))
		return block == "Stream"
	}
	st, err := b.m.Close(of(r))
	if err != nil || st.State != rocelink.StreamClosed || !strings.Contains(st.Problem, "closing it failed") {
		t.Errorf("%+v, %v", st, err)
	}
	if got := strings.Join(tried, ", "); !strings.HasSuffix(got, "Core 2") {
		t.Errorf("commands %s: the queue pair was not reset", got)
	}
	if b.m.Fault() == nil {
		t.Error("the fault went unnoticed")
	}
}

func TestCloseAll(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		r := b.open(func(r *rocelink.OpenRequest) { r.Stream = fmt.Sprint(i) })
		if i < 2 {
			if _, err := b.m.Start(of(r)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.m.CloseAll("the board stops", time.Second, func(d time.Duration) { b.now = b.now.Add(d) })
	if b.m.Count() != 0 {
		t.Errorf("%d sessions left", b.m.Count())
	}
	for i := range 3 {
		if qp, s := b.f.States(i); qp != 0 || s != 0 {
			t.Errorf("left in the fabric: queue pair %d, stream %d", qp, s)
		}
	}
	for _, st := range b.m.Status() {
		if st.State != rocelink.StreamClosed || st.Problem != "the board stops" {
			t.Errorf("%+v", st)
		}
	}
}

// Closing many is remembered within bounds.
func TestHistoryIsBounded(t *testing.T) {
	b := newBench(t)
	for i := range 3 * maxHistory {
		r := b.open(func(r *rocelink.OpenRequest) { r.Stream = fmt.Sprint(i) })
		if _, err := b.m.Close(of(r)); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.m.closed) != maxHistory {
		t.Errorf("%d remembered", len(b.m.closed))
	}
	st, err := b.m.Close(rocelink.SessionRequest{Version: 1, Session: 5, Epoch: 6})
	if err != nil || st.State != rocelink.StreamClosed {
		t.Errorf("close of what never was: %+v, %v", st, err)
	}
}
