package cmac

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"rocelink/firmware/fabrictest"
	"rocelink/firmware/link"
	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
)

func fast(fec FEC) Config {
	var now time.Time
	return Config{FEC: fec, Poll: poll.Poll{
		Timeout: 100 * time.Millisecond,
		Now:     func() time.Time { return now },
		Sleep:   func(d time.Duration) { now = now.Add(d) },
	}}
}

func open(t *testing.T, f *fabrictest.Fabric, fec FEC) *MAC {
	t.Helper()
	m, err := Open(regs.At(f, fabrictest.CMACBase), fast(fec))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestProbe(t *testing.T) {
	word := func(v uint32) *uint32 { return &v }
	for _, c := range []struct {
		name string
		f    *fabrictest.Fabric
	}{
		{"zeros", &fabrictest.Fabric{Dead: word(0)}},
		{"ones", &fabrictest.Fabric{Dead: word(0xFFFFFFFF)}},
		{"something else", &fabrictest.Fabric{Dead: word(0x524C0001)}},
		{"bus error", &fabrictest.Fabric{Fault: io.ErrUnexpectedEOF}},
	} {
		dead, fault := c.f.Dead, c.f.Fault
		f := fabrictest.New()
		f.Dead, f.Fault = dead, fault
		if m, err := Open(regs.At(f, fabrictest.CMACBase), fast(RSFEC)); !errors.Is(err, ErrMissing) || m != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if w := f.Writes(); len(w) != 0 {
			t.Errorf("%s: wrote %v", c.name, w)
		}
	}
	if _, err := Open(fabrictest.New(), Config{FEC: "maybe"}); err == nil {
		t.Error("unknown FEC accepted")
	}
}

// Error correction is configured before the reset that takes it over, and the
// receiver is on before anything is sent.
func TestBringUpOrder(t *testing.T) {
	const (
		c = fabrictest.CMACBase
	)
	for _, x := range []struct {
		fec  FEC
		want string
	}{
		{RSFEC, "c=0 14=0 1000=7 107c=3 4=c0000000 4=0 14=1 c=10 c=1"},
		{FECOff, "c=0 14=0 1000=0 107c=0 4=c0000000 4=0 14=1 c=10 c=1"},
		{NoFEC, "c=0 14=0 4=c0000000 4=0 14=1 c=10 c=1"},
	} {
		f := fabrictest.New()
		f.HasFEC = x.fec != NoFEC // an access would be a bus error
		m := open(t, f, x.fec)
		for _, step := range []func() error{m.Reset, m.Listen, m.Transmit} {
			if err := step(); err != nil {
				t.Fatal(x.fec, err)
			}
		}
		if _, err := m.Sample(); err != nil {
			t.Fatal(x.fec, err)
		}
		var got []string
		for _, w := range f.Writes() {
			if w.Offset != c+uint32(regs.CMACTick) {
				got = append(got, fmt.Sprintf("%x=%x", w.Offset-c, w.Value))
			}
		}
		if s := strings.Join(got, " "); s != x.want {
			t.Errorf("%s: wrote %s, want %s", x.fec, s, x.want)
		}
		if m.Readable(0x1000) != (x.fec != NoFEC) || !m.Readable(0x204) {
			t.Errorf("%s: Readable", x.fec)
		}
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		rx, lock, sync, err uint32
		want                link.Reading
	}{
		{rx: 0x3, want: link.Reading{Good: true, Aligned: true}},
		{rx: 0xC0, want: link.Reading{LocalFault: true}},
		{rx: 0xE0, want: link.Reading{LocalFault: true, RemoteFault: true}},
		{rx: 0x22, want: link.Reading{Aligned: true, RemoteFault: true}},
		{rx: 0x23, want: link.Reading{Aligned: true, RemoteFault: true}},
		{rx: 0x20, want: link.Reading{RemoteFault: true}},
		{rx: 0x13, want: link.Reading{HighBER: true}},
		{rx: 0xC0, lock: 0xFFFFF, sync: 0xFFFFF, err: 3, want: link.Reading{LocalFault: true, Locked: 0xFFFFF, Synced: 0xFFFFC}},
		{rx: 0xC8, lock: 0xFFFFFFFF, want: link.Reading{LocalFault: true, MarkersLost: true, Locked: 0xFFFFF}},
		{rx: 0x143, want: link.Reading{LocalFault: true, PeerFault: true}},
		{rx: 0x0, want: link.Reading{}},
		{rx: 0x1003, want: link.Reading{Aligned: true}},
		{rx: 0x7, want: link.Reading{}},
		{rx: 0xFFFFFFFF, lock: 0xFFFFFFFF, want: link.Reading{Silent: true}},
	} {
		s := Status{Rx: c.rx, BlockLock: c.lock, LaneSync: c.sync, SyncErr: c.err}
		c.want.Lanes, c.want.Status = 20, fmt.Sprintf("%#x", c.rx)
		if got := s.reading(); got != c.want {
			t.Errorf("%#x: %+v, want %+v", c.rx, got, c.want)
		}
	}
}

// The transceivers are ready when the bit clears itself, which takes a clock.
func TestTransceivers(t *testing.T) {
	f := fabrictest.New()
	m := open(t, f, RSFEC)
	f.NoClock = true
	if err := m.ResetTransceivers(); err != nil {
		t.Fatal(err)
	}
	if ready, err := m.TransceiversReady(); ready || err != nil {
		t.Errorf("without a clock: %v, %v", ready, err)
	}
	f.NoClock = false
	if err := m.ResetTransceivers(); err != nil {
		t.Fatal(err)
	}
	if ready, err := m.TransceiversReady(); !ready || err != nil {
		t.Errorf("%v, %v", ready, err)
	}
}

// The core leaves reset as soon as it shows that it was there, and after a bound
// if it never does.
func TestResetPulse(t *testing.T) {
	for _, shows := range []bool{true, false} {
		f := fabrictest.New()
		f.ShowsReset = shows
		var slept time.Duration
		now := time.Unix(1e9, 0)
		m, err := Open(regs.At(f, fabrictest.CMACBase), Config{Poll: poll.Poll{
			Now: func() time.Time { return now }, Sleep: func(d time.Duration) { now = now.Add(d); slept += d },
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Reset(); err != nil {
			t.Fatal(err)
		}
		if shows && slept != 0 || !shows && (slept < 10*time.Millisecond || slept > 15*time.Millisecond) {
			t.Errorf("shows its reset %v: held for %v", shows, slept)
		}
		if v := f.Get(fabrictest.CMACBase, regs.CMACReset); v != 0 {
			t.Errorf("left in reset: %#x", v)
		}
	}
}

// What was latched before does not count as the present.
func TestStaleLatch(t *testing.T) {
	f := fabrictest.New()
	m := open(t, f, RSFEC)
	f.SetRx(0xC0)
	f.SetRx(fabrictest.GoodRx)
	if r, err := m.Read(); err != nil || !r.Good {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCounters(t *testing.T) {
	f := fabrictest.New()
	m := open(t, f, RSFEC)
	set := func(r regs.Reg64, v uint64) {
		f.Set(fabrictest.CMACBase, regs.Reg(r), uint32(v))
		f.Set(fabrictest.CMACBase, regs.Reg(r)+4, uint32(v>>32))
	}
	set(regs.CMACRxBytes, 1<<47)
	set(regs.CMACRSFECCorrected, 3)
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	f.Writes()
	if c, err := m.Sample(); err != nil || c != (Counters{}) {
		t.Errorf("first sample after configuration: %+v, %v", c, err)
	}
	// The 48-bit deltas become a 64-bit sum; bits above are not the counter's.
	set(regs.CMACRxBytes, 0xABCD<<48|(1<<48-1))
	for range 3 {
		if _, err := m.Sample(); err != nil {
			t.Fatal(err)
		}
	}
	c := m.Total()
	if c.RxBytes != 3*(1<<48-1) || c.RSFECCorrected != 9 {
		t.Errorf("%+v", c)
	}
	ticks := 0
	for _, w := range f.Writes() {
		if w.Offset == fabrictest.CMACBase+uint32(regs.CMACTick) {
			ticks++
		}
	}
	if ticks != 4 {
		t.Errorf("%d ticks for 4 samples", ticks)
	}
	names := map[string]uint64{}
	m.Each(func(n string, v uint64) { names[n] = v })
	if names["rx_bytes"] != c.RxBytes || names["rsfec_corrected"] != 9 {
		t.Errorf("%v", names)
	}
}

func TestTickThatNeverEnds(t *testing.T) {
	f := fabrictest.New()
	f.TickHangs = true
	m := open(t, f, NoFEC)
	for range 3 {
		if _, err := m.Sample(); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "snapshot") {
			t.Error(err)
		}
	}
	// A second tick would throw the events of the first away.
	if w := f.Writes(); len(w) != 1 {
		t.Errorf("%d ticks while one is under way", len(w))
	}
	f.TickHangs = false
	f.Set(fabrictest.CMACBase, regs.CMACTick, 0)
	if _, err := m.Sample(); err != nil {
		t.Error(err)
	}
	if w := f.Writes(); len(w) != 0 {
		t.Errorf("the late snapshot was thrown away: %v", w)
	}
}

func TestRegisterThatDoesNotStick(t *testing.T) {
	f := fabrictest.New()
	f.Stuck = map[uint32]bool{fabrictest.CMACBase + uint32(regs.CMACConfigTx): true}
	m := open(t, f, NoFEC)
	if err := m.Listen(); !errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), "ConfigTx") {
		t.Error(err)
	}
}

// Driver and machine together: never aligned, remote fault, up, loss, recovery.
func TestLink(t *testing.T) {
	f := fabrictest.New()
	f.SetRx(0xC0)
	m := open(t, f, RSFEC)
	var now time.Time
	l := link.New(m, link.Config{Now: func() time.Time { return now }})
	steps := func(n int) link.Status {
		for range n {
			l.Step()
			now = now.Add(50 * time.Millisecond)
		}
		return l.Status()
	}
	tx := func() uint32 { return f.Get(fabrictest.CMACBase, regs.CMACConfigTx) }
	if s := steps(50); s.Up || s.State != link.Align || !s.Reading.LocalFault || tx() != 0x10 {
		t.Errorf("no signal: %+v, ConfigTx %#x", s, tx())
	}
	f.SetRx(0x22)
	if s := steps(20); s.Up || s.State != link.Settle || s.Reading.Status != "0x22" || tx() != 1 {
		t.Errorf("remote fault: %+v, ConfigTx %#x", s, tx())
	}
	f.SetRx(0x3)
	if s := steps(6); !s.Up || s.Err != nil {
		t.Errorf("good: %+v", s)
	}
	f.SetRx(0x13)
	if s := steps(1); s.Up || s.Losses != 1 || tx() != 0x10 {
		t.Errorf("loss: %+v, ConfigTx %#x", s, tx())
	}
	f.SetRx(0x3)
	if s := steps(12); !s.Up || s.Losses != 1 {
		t.Errorf("recovery: %+v", s)
	}
}
