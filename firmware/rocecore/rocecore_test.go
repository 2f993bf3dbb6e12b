package rocecore

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rocelink/firmware/fabrictest"
	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

var (
	localMAC  = roce.MAC{2, 0, 0, 0, 0, 1}
	remoteMAC = roce.MAC{0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f}
	localIP   = netip.MustParseAddr("10.0.0.1")
	remoteIP  = netip.MustParseAddr("10.0.0.2")
)

// fast gives up after a bound of a clock that only sleeping moves.
func fast() Config {
	var now time.Time
	return Config{Poll: poll.Poll{
		Timeout: 100 * time.Millisecond,
		Now:     func() time.Time { return now },
		Sleep:   func(d time.Duration) { now = now.Add(d) },
	}}
}

func open(t *testing.T, f *fabrictest.Fabric) *Core {
	t.Helper()
	c, err := Open(f, fabrictest.Size, fast())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetUp(localMAC, localIP); err != nil {
		t.Fatal(err)
	}
	f.Writes()
	return c
}

func goodQP() QP {
	return QP{
		MTU: 4096, Timeout: 14, RetryCount: 7, RNRRetry: 7, LocalQPN: 0x12, RemoteQPN: 0xABCDEF,
		StartPSN: 0xFFFFFE, Window: 64, SourcePort: 0xC123, TrafficClass: 0x68, HopLimit: 64, PKey: 0xFFFF,
		RemoteMAC: remoteMAC, RemoteIP: remoteIP,
	}
}

func goodStream() Stream {
	return Stream{
		Verb: regs.StreamConfigVerbWrite, FrameBytes: 8176, Slots: 16, Stride: 8192,
		Base: 0x00007F1280000000, RKey: 0x1234, Credit: 0x00007F1280000000 + 16*8192,
	}
}

// The command part is shared code, so it must be at the same place in both
// blocks.
func TestCommandPartIsShared(t *testing.T) {
	if regs.CoreCommand != regs.StreamCommand || regs.CoreCommandStatus != regs.StreamCommandStatus ||
		regs.CoreCommandDetail != regs.StreamCommandDetail || regs.CoreCommandOp != regs.StreamCommandOp ||
		regs.CoreCommandIndex != regs.StreamCommandIndex || regs.CoreSpan != regs.StreamSpan {
		t.Error("the command parts of Core and Stream differ: the driver addresses both by the Core's names")
	}
}

func TestOpen(t *testing.T) {
	c := open(t, fabrictest.New())
	i := c.Info()
	if i.Version != "1.0" || i.QueuePairs != fabrictest.QueuePairs || i.MaxMTU != 4096 || i.MaxWindow != 256 ||
		i.MaxFrameBytes != 16<<20 || !i.Read || !i.IPv6 || !i.External || i.Emulated || i.Blocks["Stream"] != fabrictest.StreamBase {
		t.Errorf("%+v", i)
	}
}

// What must be left alone is left alone: one read, no write.
func TestOpenRefuses(t *testing.T) {
	word := func(v uint32) *uint32 { return &v }
	for _, c := range []struct {
		name  string
		spoil func(*fabrictest.Fabric)
		want  error
		reads int // at most
	}{
		{"all zeros", func(f *fabrictest.Fabric) { f.Dead = word(0) }, ErrNoFabric, 1},
		{"all ones", func(f *fabrictest.Fabric) { f.Dead = word(0xFFFFFFFF) }, ErrNoFabric, 1},
		{"another design", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreIdent, 0xDEADBEEF) }, ErrIncompatible, 1},
		{"stream first", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreIdent, regs.IdentStream) }, ErrIncompatible, 1},
		{"bus error", func(f *fabrictest.Fabric) { f.Fault = io.ErrUnexpectedEOF }, ErrNoFabric, 0},
		{"major version", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreVersion, 2<<16) }, ErrIncompatible, 2},
		{"stream major version", func(f *fabrictest.Fabric) { f.Set(0x1000, regs.CoreVersion, 9<<16) }, ErrIncompatible, 6},
		{"length 0", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreLength, 0) }, ErrIncompatible, 4},
		{"length past the aperture", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreLength, fabrictest.Size+4) }, ErrIncompatible, 4},
		{"next inside", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreNext, 0x200) }, ErrIncompatible, 4},
		{"next misaligned", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreNext, 0x1002) }, ErrIncompatible, 4},
		{"next past the aperture", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreNext, fabrictest.Size) }, ErrIncompatible, 4},
		{"chain ends early", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreNext, 0) }, ErrIncompatible, 4},
		{"loop", func(f *fabrictest.Fabric) { f.Set(0x1000, regs.CoreNext, 0x1000) }, ErrIncompatible, 8},
		{"no queue pairs", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreCaps, 0x500) }, ErrIncompatible, 30},
		{"no MTU", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreCaps, 0x704) }, ErrIncompatible, 30},
		{"no window", func(f *fabrictest.Fabric) { f.Set(0, regs.CoreMaxWindow, 0) }, ErrIncompatible, 30},
		{"too few streams", func(f *fabrictest.Fabric) { f.Set(0x1000, regs.StreamStreams, 1) }, ErrIncompatible, 30},
	} {
		f := fabrictest.New()
		c.spoil(f)
		b := &counting{Bus: f}
		core, err := Open(b, fabrictest.Size, fast())
		if !errors.Is(err, c.want) || core != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if b.reads > c.reads && c.name != "bus error" {
			t.Errorf("%s: %d reads, want at most %d", c.name, b.reads, c.reads)
		}
		if w := f.Writes(); len(w) != 0 {
			t.Errorf("%s: wrote %v", c.name, w)
		}
	}
}

type counting struct {
	regs.Bus
	reads int
}

func (c *counting) Read32(o uint32) (uint32, error) {
	c.reads++
	return c.Bus.Read32(o)
}

// A larger minor version and a block of ours that is newer than this program
// are no obstacle.
func TestOpenSkipsUnknownBlocks(t *testing.T) {
	f := fabrictest.New()
	f.Set(0, regs.CoreVersion, 1<<16|7)
	f.Set(0, regs.CoreNext, 0x3000)
	f.Set(0x3000, regs.CoreIdent, 0x524C0099)
	f.Set(0x3000, regs.CoreVersion, 5<<16)
	f.Set(0x3000, regs.CoreLength, 0x40)
	f.Set(0x3000, regs.CoreNext, 0x1000)
	c := open(t, f)
	if c.Info().Version != "1.7" {
		t.Error(c.Info().Version)
	}
}

func TestRegisterThatDoesNotStick(t *testing.T) {
	for _, c := range []struct {
		name string
		at   uint32
	}{
		{"Core.Scratch", uint32(regs.CoreScratch)},
		{"Core.Control", uint32(regs.CoreControl)},
		{"Core.LocalIP3", uint32(regs.CoreLocalIP3)},
	} {
		f := fabrictest.New()
		f.Stuck = map[uint32]bool{c.at: true}
		core, err := Open(f, fabrictest.Size, fast())
		if err == nil {
			err = core.SetUp(localMAC, localIP)
		}
		if !errors.Is(err, ErrNoFabric) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAddressesAndSettingsReachTheRegisters(t *testing.T) {
	f := fabrictest.New()
	c := open(t, f)
	if err := c.ConfigureQP(2, goodQP()); err != nil {
		t.Fatal(err)
	}
	if err := c.ConfigureStream(2, goodStream()); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		base uint32
		reg  regs.Reg
		want uint32
	}{
		{0, regs.CoreLocalMACLow, 1}, {0, regs.CoreLocalMACHigh, 0x0200},
		{0, regs.CoreLocalIP0, 0}, {0, regs.CoreLocalIP2, 0xFFFF}, {0, regs.CoreLocalIP3, 0x0A000001},
		{0, regs.CoreControl, 1},
		{0, regs.CoreQpRemoteMACLow, 0x2C3D4E5F}, {0, regs.CoreQpRemoteMACHigh, 0x0A1B},
		{0, regs.CoreQpRemoteIP3, 0x0A000002}, {0, regs.CoreQpConfig, 5 | 14<<8 | 7<<16 | 7<<20},
		{0, regs.CoreQpTraffic, 0x68 | 64<<8}, {0, regs.CoreQpStartPSN, 0xFFFFFE},
		{0x1000, regs.Reg(regs.StreamBase), 0x80000000}, {0x1000, regs.Reg(regs.StreamBase) + 4, 0x00007F12},
		{0x1000, regs.StreamConfig, regs.StreamConfigVerbWrite},
	} {
		if got := f.Get(w.base, w.reg); got != w.want {
			t.Errorf("register %#x holds %#x, want %#x", w.base+uint32(w.reg), got, w.want)
		}
	}
	if qp, s := f.States(2); qp != regs.CoreStatStateStateReady || s != regs.StreamStatStateStateConfigured {
		t.Errorf("states %d, %d", qp, s)
	}
}

// Each bad setting is named, and no register is written.
func TestSettings(t *testing.T) {
	f := fabrictest.New()
	c := open(t, f)
	for _, x := range []struct {
		name    string
		change  func(*QP)
		setting string
	}{
		{"MTU 0", func(q *QP) { q.MTU = 0 }, "path MTU"},
		{"MTU 1000", func(q *QP) { q.MTU = 1000 }, "path MTU"},
		{"MTU 8192", func(q *QP) { q.MTU = 8192 }, "path MTU"},
		{"timeout", func(q *QP) { q.Timeout = 32 }, "timeout"},
		{"retry", func(q *QP) { q.RetryCount = 8 }, "retry count"},
		{"RNR", func(q *QP) { q.RNRRetry = 8 }, "RNR retry"},
		{"local QPN 1", func(q *QP) { q.LocalQPN = 1 }, "local QPN"},
		{"local QPN 2^24", func(q *QP) { q.LocalQPN = 1 << 24 }, "local QPN"},
		{"remote QPN 0", func(q *QP) { q.RemoteQPN = 0 }, "remote QPN"},
		{"remote QPN 2^24", func(q *QP) { q.RemoteQPN = 1 << 24 }, "remote QPN"},
		{"PSN", func(q *QP) { q.StartPSN = 1 << 24 }, "start PSN"},
		{"window 0", func(q *QP) { q.Window = 0 }, "window"},
		{"window 257", func(q *QP) { q.Window = 257 }, "window"},
		{"port", func(q *QP) { q.SourcePort = 0 }, "source port"},
		{"hop limit", func(q *QP) { q.HopLimit = 0 }, "hop limit"},
		{"MAC zero", func(q *QP) { q.RemoteMAC = roce.MAC{} }, "remote MAC"},
		{"MAC multicast", func(q *QP) { q.RemoteMAC[0] = 3 }, "remote MAC"},
		{"MAC broadcast", func(q *QP) { q.RemoteMAC = roce.MAC{255, 255, 255, 255, 255, 255} }, "remote MAC"},
		{"no address", func(q *QP) { q.RemoteIP = netip.Addr{} }, "remote address"},
		{"address 0", func(q *QP) { q.RemoteIP = netip.IPv4Unspecified() }, "remote address"},
		{"multicast", func(q *QP) { q.RemoteIP = netip.MustParseAddr("ff02::1") }, "remote address"},
		{"zone", func(q *QP) { q.RemoteIP = netip.MustParseAddr("fe80::1%eth0") }, "remote address"},
		{"broadcast", func(q *QP) { q.RemoteIP = netip.MustParseAddr("255.255.255.255") }, "remote address"},
	} {
		q := goodQP()
		x.change(&q)
		wantSetting(t, f, x.name, c.ConfigureQP(0, q), x.setting)
	}
	const base = 0x00007F1280000000
	for _, x := range []struct {
		name    string
		change  func(*Stream)
		setting string
	}{
		{"verb", func(s *Stream) { s.Verb = 5 }, "verb"},
		{"pattern", func(s *Stream) { s.Pattern = 2 }, "pattern"},
		{"frame bytes", func(s *Stream) { s.FrameBytes = 16<<20 + 1 }, "frame bytes"},
		{"frame without CRC", func(s *Stream) { s.CRC, s.FrameBytes = true, 3 }, "frame bytes"},
		{"empty external", func(s *Stream) { s.External, s.FrameBytes = true, 0 }, "frame bytes"},
		{"read external", func(s *Stream) { s.Verb, s.External = regs.StreamConfigVerbRead, true }, "source"},
		{"no slots", func(s *Stream) { s.Slots = 0 }, "slots"},
		{"stride 4", func(s *Stream) { s.Stride = 8196 }, "stride"},
		{"no room for the trailer", func(s *Stream) { s.FrameBytes = 8177 }, "stride"},
		{"stride 0", func(s *Stream) { s.Stride, s.FrameBytes, s.Verb, s.Credit = 0, 0, regs.StreamConfigVerbWriteImm, 0 }, "stride"},
		{"4 GiB", func(s *Stream) { s.Slots = 1 << 19 }, "slots"},
		{"64-bit product", func(s *Stream) { s.Slots, s.Stride = 0xFFFFFFFF, 0xFFFFFFF8 }, "slots"},
		{"address wraps", func(s *Stream) { s.Base = 1<<64 - 8192 }, "address"},
		{"address 0", func(s *Stream) { s.Base = 0 }, "address"},
		{"address odd", func(s *Stream) { s.Base++ }, "address"},
		{"credit odd", func(s *Stream) { s.Credit += 4 }, "credit"},
		{"credit in a slot", func(s *Stream) { s.Credit = base + 8 }, "credit"},
		{"credit over the end", func(s *Stream) { s.Credit = base + 16*8192 - 8 }, "credit"},
		{"credit before the start", func(s *Stream) { s.Credit = base - 1<<32 }, "credit"},
		{"credit far", func(s *Stream) { s.Credit = base + 1<<32 }, "credit"},
		{"credit wraps", func(s *Stream) { s.Credit = 1<<64 - 8 }, "credit"},
		{"credit of another verb", func(s *Stream) { s.Verb = regs.StreamConfigVerbWriteImm }, "credit"},
		{"credit of send", func(s *Stream) { s.Verb = regs.StreamConfigVerbSend }, "credit"},
	} {
		s := goodStream()
		x.change(&s)
		wantSetting(t, f, x.name, c.ConfigureStream(0, s), x.setting)
	}
	for _, i := range []int{-1, fabrictest.QueuePairs, 255} {
		wantSetting(t, f, "index", c.ConfigureQP(i, goodQP()), "queue pair")
		wantSetting(t, f, "index", c.ResetQP(i), "queue pair")
		wantSetting(t, f, "index", c.Start(i), "queue pair")
	}
	wantSetting(t, f, "local MAC", c.SetAddresses(roce.MAC{1}, localIP), "local MAC")
	wantSetting(t, f, "local address", c.SetAddresses(localMAC, netip.Addr{}), "local address")
}

func wantSetting(t *testing.T, f *fabrictest.Fabric, name string, err error, want string) {
	t.Helper()
	var s *SettingError
	if !errors.As(err, &s) || !errors.Is(err, ErrSetting) || s.Setting != want || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want setting %q", name, err, want)
	}
	if w := f.Writes(); len(w) != 0 {
		t.Errorf("%s: wrote %v before it refused", name, w)
	}
}

// The last legal byte is accepted, one more is not.
func TestRegionBounds(t *testing.T) {
	c := open(t, fabrictest.New())
	s := Stream{Verb: regs.StreamConfigVerbWriteImm, FrameBytes: 8, Slots: 2, Stride: 8, RKey: 1}
	for _, x := range []struct {
		base uint64
		ok   bool
	}{{1<<64 - 17, true}, {1<<64 - 16, false}, {1<<64 - 15, false}, {1, true}} {
		s.Base = x.base
		if err := c.CheckStream(s); (err == nil) != x.ok {
			t.Errorf("base %#x: %v", x.base, err)
		}
	}
	s.Base, s.Stride, s.Slots = 0x1000, 8, 1<<29-1
	if err := c.CheckStream(s); err != nil {
		t.Errorf("largest ring: %v", err)
	}
	if s.Slots++; c.CheckStream(s) == nil {
		t.Error("a ring of 4 GiB was accepted")
	}
}

func TestUnsupported(t *testing.T) {
	f := fabrictest.New()
	f.Set(0, regs.CoreCaps, regs.CoreCapsMaxMTU.Put(regs.CoreCapsQueuePairs.Of(4), 3))
	c := open(t, f)
	q := goodQP()
	q.MTU = 1024
	q.RemoteIP = netip.MustParseAddr("fd00::2")
	for name, err := range map[string]error{
		"IPv6":     c.ConfigureQP(0, q),
		"read":     c.ConfigureStream(0, Stream{Verb: regs.StreamConfigVerbRead, FrameBytes: 8, Slots: 1, Stride: 8, Base: 8}),
		"external": c.ConfigureStream(0, Stream{External: true, FrameBytes: 8}),
		"credit":   c.ConfigureStream(0, goodStream()),
	} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q = goodQP()
	q.MTU = 2048
	wantSetting(t, f, "MTU above the fabric's", c.ConfigureQP(0, q), "path MTU")
}

func TestRefusedCommands(t *testing.T) {
	f := fabrictest.New()
	c := open(t, f)
	f.Refuse = func(string, uint32, uint32) (uint32, uint32) {
		return regs.CoreCommandStatusCodeBadValue, uint32(regs.CoreQpWindow)
	}
	err := c.ConfigureQP(1, goodQP())
	var e *CommandError
	if !errors.As(err, &e) || !errors.Is(err, ErrRefused) || e.Register != "Core.QpWindow" || e.Command != "Commit" || e.Index != 1 {
		t.Errorf("%v", err)
	}
	// The high word of a wide register is named too.
	f.Refuse = func(string, uint32, uint32) (uint32, uint32) {
		return regs.StreamCommandStatusCodeBadValue, uint32(regs.StreamBase) + 4
	}
	if err := c.ConfigureStream(1, goodStream()); !errors.As(err, &e) || e.Register != "Stream.Base" {
		t.Errorf("%v", err)
	}
	f.Refuse = nil
	if err := c.Start(1); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "Idle") {
		t.Errorf("start before commit: %v", err)
	}
	if err := c.ConfigureQP(1, goodQP()); err != nil {
		t.Fatal(err)
	}
	if err := c.ConfigureQP(1, goodQP()); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "Ready") {
		t.Errorf("second commit: %v", err)
	}
}

func TestCommandThatNeverEnds(t *testing.T) {
	f := fabrictest.New()
	c := open(t, f)
	f.Hang = func(string, uint32, uint32) bool { return true }
	err := c.ResetQP(3)
	var e *CommandError
	if !errors.As(err, &e) || !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	for _, word := range []string{"Core", "Reset", "queue pair 3", "reload", "100ms"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %q", err, word)
		}
	}
	if e.After < 100*time.Millisecond {
		t.Errorf("gave up after %v", e.After)
	}
	// The next command does not write while the one before is under way.
	f.Writes()
	if err := c.ConfigureQP(0, goodQP()); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	if w := f.Writes(); len(w) != 0 {
		t.Errorf("wrote %v into a busy block", w)
	}
	// When it ends after all, the driver goes on.
	f.Hang = nil
	f.Set(0, regs.CoreCommand, 0)
	if err := c.ConfigureQP(0, goodQP()); err != nil {
		t.Error(err)
	}
}

func TestRestartIsNoticed(t *testing.T) {
	f := fabrictest.New()
	c := open(t, f)
	f.Restart(2)
	if err := c.ConfigureQP(0, goodQP()); !errors.Is(err, ErrRestarted) {
		t.Errorf("before the command: %v", err)
	}
	if w := f.Writes(); len(w) != 0 {
		t.Errorf("wrote %v into another fabric", w)
	}
	// In the middle of a command.
	c = open(t, f)
	f.Refuse = func(string, uint32, uint32) (uint32, uint32) {
		f.Unlock()
		f.Restart(3)
		f.Lock()
		return 0, 0
	}
	if err := c.ResetQP(0); !errors.Is(err, ErrRestarted) {
		t.Errorf("in the command: %v", err)
	}
	f.Refuse = nil
	// A fabric that cannot tell its starts apart comes back disabled.
	f.Restart(0)
	c = open(t, f)
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	f.Restart(0)
	if err := c.Check(); !errors.Is(err, ErrRestarted) {
		t.Errorf("same boot identifier: %v", err)
	}
	dead := uint32(0xFFFFFFFF)
	f.Dead = &dead
	if err := c.ResetQP(0); !errors.Is(err, ErrNoFabric) {
		t.Errorf("gone: %v", err)
	}
}

// Every counter of the port has its name from the register table.
func TestPortNames(t *testing.T) {
	var p Port
	if len(portNames) != len(p.counters()) {
		t.Fatalf("%d names for %d counters", len(portNames), len(p.counters()))
	}
	for i, c := range p.counters() {
		name := strings.TrimPrefix(registerName("Core", uint32(c.reg)), "Core.")
		if got := strings.ReplaceAll(portNames[i], "_", ""); got != strings.ToLower(name) {
			t.Errorf("%s is called %s", name, portNames[i])
		}
	}
}

func TestLatch(t *testing.T) {
	f := fabrictest.New()
	c := open(t, f)
	f.FailQP(2, regs.CoreStatStateCauseRemoteAccess)
	f.Set(0, regs.Reg(regs.CoreStatPacketsSent), 0x89ABCDEF)
	f.Set(0, regs.Reg(regs.CoreStatPacketsSent)+4, 0x01234567)
	f.Set(0, regs.Reg(regs.CoreRxBadICRC), 5)
	f.Set(0, regs.CoreStatNextPSN, 7)
	s, p, err := c.LatchQP(2)
	if err != nil {
		t.Fatal(err)
	}
	if s.State != "Error" || !s.Failed || s.Cause != "RemoteAccess" || s.PacketsSent != 0x0123456789ABCDEF || p.RxBadICRC != 5 || s.NextPSN != 7 {
		t.Errorf("%+v %+v", s, p)
	}
	f.Frames(1, 1<<40|3)
	f.EndSource(1)
	st, err := c.LatchStream(1)
	if err != nil || st.FramesDone != 1<<40|3 || st.State != "Stopped" || !st.Ended {
		t.Errorf("%+v, %v", st, err)
	}
	// Another program that drives the same window is noticed: the command
	// ended, but not for the queue pair that was asked for.
	f.Hang = func(string, uint32, uint32) bool {
		f.Mem(uint32(regs.CoreCommand), 0)
		return true
	}
	if _, _, err := c.LatchQP(1); !errors.Is(err, ErrNoFabric) {
		t.Errorf("wrong index: %v", err)
	}
}
