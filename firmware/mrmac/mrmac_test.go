package mrmac

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rocelink/firmware/link"
	"rocelink/firmware/mrmac/mrmactest"
	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
)

// world is a core, its driver and time.
type world struct {
	t   *testing.T
	at  time.Duration
	bus *mrmactest.MAC
	mac *MAC
}

func (w *world) now() time.Time        { return time.Unix(0, 0).Add(w.at) }
func (w *world) sleep(d time.Duration) { w.at += d }

func newWorld(t *testing.T, fec FEC) *world {
	t.Helper()
	w := &world{t: t}
	w.bus = mrmactest.New(w.now)
	m, err := Open(w.bus, Config{FEC: fec, Poll: poll.Poll{Now: w.now, Sleep: w.sleep}})
	if err != nil {
		t.Fatal(err)
	}
	w.mac = m
	return w
}

func (w *world) run(l *link.Machine, d time.Duration) link.Status {
	for end := w.at + d; w.at < end; w.at += 50 * time.Millisecond {
		l.Step()
	}
	return l.Status()
}

// The machine brings the port up against each peer, or says what it reads, and
// comes up once the peer is right.
func TestLink(t *testing.T) {
	for _, c := range []struct {
		name  string
		fec   FEC
		peer  mrmactest.Peer
		up    bool
		reads func(link.Reading) bool
	}{
		{"healthy", RSFEC, mrmactest.Peer{FEC: true}, true, nil},
		{"without FEC", FECOff, mrmactest.Peer{}, true, nil},
		{"dark", RSFEC, mrmactest.Peer{Dark: true, FEC: true}, false, func(r link.Reading) bool { return r.Locked == 0 && r.LocalFault && !r.MarkersLost }},
		{"the peer has no FEC", RSFEC, mrmactest.Peer{}, false, func(r link.Reading) bool { return r.AllLocked() && r.MarkersLost }},
		{"only the peer has FEC", FECOff, mrmactest.Peer{FEC: true}, false, func(r link.Reading) bool { return r.MarkersLost }},
		{"the peer does not see us", RSFEC, mrmactest.Peer{FEC: true, RemoteFault: true}, false, func(r link.Reading) bool { return r.Aligned && r.RemoteFault && !r.Good }},
		{"bit errors", RSFEC, mrmactest.Peer{FEC: true, HighBER: true}, false, func(r link.Reading) bool { return r.HighBER }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.fec)
			w.bus.Set(c.peer)
			l := link.New(w.mac, link.Config{Now: w.now})
			if s := w.run(l, 3*time.Second); s.Up != c.up || s.Err != nil || !c.up && !c.reads(s.Reading) {
				t.Fatalf("%+v", s)
			}
			good := mrmactest.Peer{FEC: c.fec == RSFEC}
			w.bus.Set(good)
			if s := w.run(l, 5*time.Second); !s.Up {
				t.Fatalf("the peer is right: %+v", s)
			}
			dark := good
			dark.Dark = true
			w.bus.Set(dark)
			if s := w.run(l, time.Second); s.Up || s.Losses == 0 {
				t.Fatalf("dark: %+v", s)
			}
			// A partner that comes back late is found by another reset.
			w.run(l, 20*time.Second)
			w.bus.Set(good)
			before := w.bus.Resets()
			if s := w.run(l, 2*time.Second); !s.Up || w.bus.Resets() == before {
				t.Fatalf("light again: %+v, %d resets", s, w.bus.Resets()-before)
			}
		})
	}
}

// While nothing is received the port's reset is repeated, at the pace of the
// manual's designs and no faster.
func TestResetIsRepeated(t *testing.T) {
	w := newWorld(t, RSFEC)
	w.bus.Set(mrmactest.Peer{Dark: true})
	if err := errors.Join(w.mac.Reset(), w.mac.Listen()); err != nil {
		t.Fatal(err)
	}
	before := w.bus.Resets()
	for range 200 {
		if _, err := w.mac.Read(); err != nil {
			t.Fatal(err)
		}
		w.at += 10 * time.Millisecond
	}
	if n := w.bus.Resets() - before; n < 7 || n > 8 {
		t.Errorf("%d resets in 2 s, want one in 250 ms", n)
	}
	if err := w.mac.Down(); err != nil {
		t.Fatal(err)
	}
	before = w.bus.Resets()
	w.at += time.Second
	if _, err := w.mac.Read(); err != nil || w.bus.Resets() != before {
		t.Errorf("a port that is down was reset: %v", err)
	}
}

// Mode and FEC are written while the port is in reset, which takes them over.
func TestOrder(t *testing.T) {
	w := newWorld(t, RSFEC)
	if err := w.mac.Reset(); err != nil {
		t.Fatal(err)
	}
	want := []uint32{uint32(regs.MRMACConfigTx), uint32(regs.MRMACConfigRx), uint32(regs.MRMACReset), uint32(regs.MRMACMode), uint32(regs.MRMACFEC), uint32(regs.MRMACRxMTU), uint32(regs.MRMACReset)}
	if got := w.bus.Writes(); !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
	for r, want := range map[regs.Reg]uint32{regs.MRMACFEC: 0x1008, regs.MRMACMode: 0x4000_0A64, regs.MRMACRxMTU: 9600<<16 | 64} {
		if v, _ := r.Read(w.bus); v != want {
			t.Errorf("%#x reads %#x, want %#x", uint32(r), v, want)
		}
	}
	if err := w.mac.Listen(); err != nil {
		t.Fatal(err)
	}
	for r, want := range map[regs.Reg]uint32{regs.MRMACConfigTx: 0xC03, regs.MRMACConfigRx: 0x33} {
		if v, _ := r.Read(w.bus); v != want {
			t.Errorf("%#x reads %#x, want %#x", uint32(r), v, want)
		}
	}
	if ready, err := w.mac.TransceiversReady(); err != nil || !ready {
		t.Error(ready, err)
	}
}

func TestCounters(t *testing.T) {
	w := newWorld(t, RSFEC)
	w.bus.Set(mrmactest.Peer{FEC: true, Corrected: 1 << 40, Uncorrected: 3})
	value := func(name string) (v uint64) {
		w.mac.Each(func(n string, x uint64) {
			if n == name {
				v = x
			}
		})
		return v
	}
	for i := range 11 {
		w.at += time.Second
		if err := w.mac.Sample(); err != nil {
			t.Fatal(err)
		}
		// What was before the driver came is not its own.
		if got := value("rsfec_corrected"); got != uint64(i)<<40 {
			t.Fatalf("sample %d: %d", i, got)
		}
	}
	if got := value("rsfec_uncorrected"); got != 30 {
		t.Errorf("uncorrected %d", got)
	}
}

func TestProbe(t *testing.T) {
	w := newWorld(t, RSFEC)
	for name, spoil := range map[string]func(){"dead": func() { w.bus.Dead = true }, "ones": func() { w.bus.Ones = true }} {
		spoil()
		if _, err := Open(w.bus, Config{}); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: %v", name, err)
		}
		w.bus.Dead, w.bus.Ones = false, false
	}
	w.bus.Ones = true
	if r, err := w.mac.Read(); err != nil || !r.Silent || r.Good || r.Aligned {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Open(w.bus, Config{FEC: "x"}); err == nil {
		t.Error("FEC x")
	}
	if _, err := Open(w.bus, Config{MaxPacket: 1 << 15}); err == nil {
		t.Error("packets beyond the register")
	}
}

// noise answers anything.
type noise struct{ *rand.Rand }

func (n noise) Read32(uint32) (uint32, error) { return n.Uint32(), nil }
func (n noise) Write32(uint32, uint32) error  { return nil }

// Whatever the registers say, the driver ends and panics nowhere.
func TestNoise(t *testing.T) {
	for seed := range uint64(200) {
		m := &MAC{bus: noise{rand.New(rand.NewPCG(seed, 0))}, cfg: Config{FEC: RSFEC, Again: 1}, now: time.Now, sleep: func(time.Duration) {}}
		l := link.New(m, link.Config{})
		for range 50 {
			l.Step()
			_ = m.Sample()
		}
	}
}
