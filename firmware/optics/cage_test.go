package optics_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c/i2ctest"

	"rocelink/firmware/optics"
	"rocelink/firmware/optics/opticstest"
	"rocelink/firmware/optics/sff"
)

// bench is a cage behind a PCA9548 with all its lines, and a clock that moves
// when the test says so.
type bench struct {
	t      *testing.T
	now    time.Time
	bus    *opticstest.Bus
	socket *opticstest.Socket
	pins   map[string]*opticstest.Pin
	low    bool // the lines' active level is low
	cage   *optics.Cage
}

const channel = 4

func newBench(t *testing.T, activeLow bool, set func(c *optics.Config, b *bench)) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Unix(1e9, 0), socket: &opticstest.Socket{}, pins: map[string]*opticstest.Pin{}, low: activeLow}
	line := func(name string) optics.Line {
		b.pins[name] = opticstest.NewPin(name, gpio.Level(activeLow))
		return optics.Line{Pin: b.pins[name], ActiveLow: activeLow}
	}
	b.bus = &opticstest.Bus{
		Now:      func() time.Time { return b.now },
		Switches: []*opticstest.Switch{{Address: 0x74}, {Address: 0x75}},
	}
	b.bus.Switches[1].Channels[channel] = []*opticstest.Socket{b.socket}
	// Another device answers at 0x50 behind the other switch.
	b.bus.Switches[0].Channels[0] = []*opticstest.Socket{{Module: opticstest.CR4().Module()}}
	c := optics.Config{
		Name: "qsfp0", Route: []optics.Hop{{Mux: 0x75, Channel: channel}},
		Present: line("present"), ModSel: line("modsel"), Reset: line("reset"), LPMode: line("lpmode"),
		Sleep: func(time.Duration) {},
	}
	b.socket.ModSel = func() bool { return b.active("modsel") }
	b.socket.Held = func() bool { return b.active("reset") }
	if set != nil {
		set(&c, b)
	}
	bus, err := optics.NewBus(b.bus, optics.Mux{Part: "PCA9548", Address: 0x74}, optics.Mux{Part: "tca9548", Address: 0x75})
	if err != nil {
		t.Fatal(err)
	}
	if b.cage, err = optics.New(bus, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range b.bus.Violations() {
			t.Error("violation:", v)
		}
		if open := b.bus.Open(); len(open) != 0 {
			t.Errorf("channels of switches %#x are left open", open)
		}
	})
	return b
}

func (b *bench) active(line string) bool { return bool(b.pins[line].Read()) != b.low }

func (b *bench) plug(m *opticstest.Module) {
	b.socket.Module = m
	b.socket.ReadyAt = b.now.Add(1900 * time.Millisecond)
	b.pins["present"].Set(gpio.Level(!b.low))
}

func (b *bench) pull() {
	b.socket.Module = nil
	b.pins["present"].Set(gpio.Level(b.low))
}

// after steps the cage once, some time later.
func (b *bench) after(d time.Duration) optics.State {
	b.now = b.now.Add(d)
	return b.cage.Step(b.now)
}

// until steps the cage every 10 ms until a phase.
func (b *bench) until(p optics.Phase) (optics.State, time.Duration) {
	b.t.Helper()
	start := b.now
	for range 2000 {
		if s := b.after(10 * time.Millisecond); s.Phase == p {
			return s, b.now.Sub(start)
		}
	}
	b.t.Fatalf("never %s: %+v", p, b.cage.State())
	panic("unreachable")
}

func TestLifeOfAModule(t *testing.T) {
	for _, low := range []bool{false, true} {
		b := newBench(t, low, nil)
		if s := b.after(0); s.Phase != optics.Empty || s.Module.Present {
			t.Fatalf("%+v", s)
		}
		if len(b.bus.Log()) != 0 {
			t.Error("an empty cage was addressed")
		}
		if b.active("reset") || !b.active("lpmode") || b.active("modsel") {
			t.Error("lines of an empty cage: want low power, no reset, not selected")
		}
		b.plug(opticstest.SR4().Module())
		if s := b.after(time.Millisecond); s.Phase != optics.Plugged {
			t.Fatalf("%+v", s)
		}
		if s := b.after(20 * time.Millisecond); s.Phase != optics.Reset || !b.active("reset") {
			t.Fatalf("%+v", s)
		}
		if s := b.after(10 * time.Millisecond); s.Phase != optics.Starting || b.active("reset") {
			t.Fatalf("%+v", s)
		}
		if len(b.bus.Log()) != 0 {
			t.Error("a module that starts was addressed")
		}
		s, took := b.until(optics.Ready)
		if took != 2*time.Second {
			t.Errorf("ready after %v", took)
		}
		if !s.Module.Present || s.Module.Serial != "T0001" || *s.Module.TemperatureC != 35.5 || s.Module.Thresholds == nil ||
			s.Insertions != 1 || s.Problem != "" || b.active("lpmode") {
			t.Errorf("%+v", s)
		}
		b.socket.Module.A0[22] = 40
		if s := b.after(time.Second); *s.Module.TemperatureC != 40.5 {
			t.Errorf("temperature %v", *s.Module.TemperatureC)
		}
		b.pull()
		if s := b.after(time.Second); s.Phase != optics.Empty || s.Module.Present || s.Module.TemperatureC != nil || !b.active("lpmode") {
			t.Errorf("pulled: %+v", s)
		}
		b.plug(opticstest.CR4().Module())
		if s, _ := b.until(optics.Ready); s.Insertions != 2 || !s.Module.Copper || s.Module.TemperatureC != nil || s.Module.Thresholds != nil {
			t.Errorf("cable: %+v", s)
		}
	}
}

func TestContactsBounce(t *testing.T) {
	b := newBench(t, true, nil)
	b.after(0)
	m := opticstest.SR4().Module()
	for range 5 {
		b.plug(m)
		if s := b.after(5 * time.Millisecond); s.Phase != optics.Plugged {
			t.Fatalf("%+v", s)
		}
		b.pull()
		if s := b.after(5 * time.Millisecond); s.Phase != optics.Empty {
			t.Fatalf("%+v", s)
		}
	}
	if len(b.bus.Log()) != 0 || b.active("reset") {
		t.Error("a bouncing contact was taken for a module")
	}
}

func TestModulePluggedBeforeTheStartIsNotDisturbed(t *testing.T) {
	b := newBench(t, true, func(_ *optics.Config, b *bench) {
		b.plug(opticstest.SR4().Module())
		b.socket.ReadyAt = b.now
	})
	if b.active("lpmode") {
		t.Error("a running module was put into low power")
	}
	b.after(0)
	if s := b.after(time.Millisecond); s.Phase != optics.Ready {
		t.Fatalf("%+v", s)
	}
}

func TestInterruptEndsTheWait(t *testing.T) {
	b := newBench(t, true, func(c *optics.Config, b *bench) {
		b.pins["intl"] = opticstest.NewPin("intl", gpio.High)
		c.Interrupt = optics.Line{Pin: b.pins["intl"], ActiveLow: true}
	})
	b.after(0)
	b.plug(opticstest.SR4().Module())
	b.until(optics.Starting)
	b.socket.ReadyAt = b.now.Add(300 * time.Millisecond)
	b.after(300 * time.Millisecond)
	b.pins["intl"].Set(gpio.Low)
	if s := b.after(time.Millisecond); s.Phase != optics.Ready {
		t.Fatalf("%+v", s)
	}
}

func TestModulePulledInTheMiddleOfASample(t *testing.T) {
	for n := range 8 {
		b := newBench(t, true, nil)
		b.after(0)
		b.plug(opticstest.SR4().Module())
		b.until(optics.Ready)
		b.bus.Log()
		left := n
		b.socket.OnTransfer = func() {
			if left--; left < 0 {
				b.pull()
			}
		}
		s := b.after(time.Second)
		if left < 0 && (s.Phase != optics.Empty || s.Module.Present || s.Module.TemperatureC != nil || len(s.Module.Lanes) != 0) {
			t.Errorf("pulled at transfer %d: %+v", n, s)
		}
	}
}

func TestModuleThatStopsAnswering(t *testing.T) {
	b := newBench(t, true, nil)
	b.after(0)
	b.plug(opticstest.SR4().Module())
	b.until(optics.Ready)
	m := b.socket.Module
	b.socket.Module = nil // but the line says present
	s := b.after(time.Second)
	if s.Phase != optics.Starting || s.Module.Present || !strings.Contains(s.Problem, "0x50") {
		t.Fatalf("%+v", s)
	}
	s, took := b.until(optics.Failed)
	if took > 4*time.Second || !strings.Contains(s.Problem, "does not answer") {
		t.Errorf("after %v: %+v", took, s)
	}
	b.socket.Module, b.socket.ReadyAt = m, b.now
	if s, took := b.until(optics.Ready); took > 8*time.Second || s.Insertions != 2 {
		t.Errorf("back after %v: %+v", took, s)
	}
}

func TestModuleThatIsNotReady(t *testing.T) {
	b := newBench(t, true, nil)
	b.after(0)
	m := opticstest.SR4().Module()
	m.A0[2] = 1
	b.plug(m)
	b.until(optics.Starting)
	b.after(2 * time.Second)
	if s := b.after(100 * time.Millisecond); s.Phase != optics.Starting || !strings.Contains(s.Problem, "not ready") {
		t.Fatalf("%+v", s)
	}
	m.A0[2] = 0
	if s := b.after(100 * time.Millisecond); s.Phase != optics.Ready {
		t.Fatalf("%+v", s)
	}
}

func TestModuleExchangedUnseen(t *testing.T) {
	b := newBench(t, true, func(c *optics.Config, b *bench) { c.Present, c.Reset = optics.Line{}, optics.Line{} })
	if s := b.after(0); s.Phase != optics.Empty {
		t.Fatalf("%+v", s)
	}
	b.plug(opticstest.SR4().Module())
	b.socket.ReadyAt = b.now
	if s, _ := b.until(optics.Ready); s.Module.Serial != "T0001" {
		t.Fatalf("%+v", s)
	}
	q := opticstest.SR4()
	q.Serial = "T0002"
	b.socket.Module = q.Module()
	if s := b.after(time.Second); s.Phase != optics.Starting || s.Module.Present {
		t.Errorf("%+v", s)
	}
	if s, _ := b.until(optics.Ready); s.Module.Serial != "T0002" || s.Insertions != 2 {
		t.Errorf("%+v", s)
	}
	b.socket.Module = nil
	if s := b.after(time.Second); s.Phase != optics.Empty || s.Module.Present {
		t.Errorf("%+v", s)
	}
}

// The latched flags clear when they are read: once a sample, whatever else is
// read, and what was latched is shown.
func TestLatchedFlagsAreReadOnceASample(t *testing.T) {
	b := newBench(t, true, nil)
	b.after(0)
	m := opticstest.SR4().Module()
	m.A0[9] = 0x40 // Rx power low alarm of lane 1
	b.plug(m)
	s, _ := b.until(optics.Ready)
	want := sff.Alarm{Quantity: sff.RxPower, Lane: 1, Bound: "low", Latched: true}
	if b.bus.FlagReads() != 1 || !slices.Equal(s.Module.Alarms, []sff.Alarm{want}) {
		t.Errorf("%d reads, alarms %v", b.bus.FlagReads(), s.Module.Alarms)
	}
	for n := range 3 {
		if s := b.after(time.Second); len(s.Module.Alarms) != 0 {
			t.Errorf("alarms %v", s.Module.Alarms)
		}
		if got := b.bus.FlagReads(); got != n+2 {
			t.Errorf("%d reads of the flags in %d samples", got, n+2)
		}
	}
}

// Speed: a sample of one module at 400 kHz, with the switch.
func TestSampleTakesLessThan5ms(t *testing.T) {
	for name, m := range map[string]*opticstest.Module{"QSFP": opticstest.SR4().Module(), "SFP": opticstest.SR().Module()} {
		for _, wired := range []bool{true, false} {
			b := newBench(t, true, func(c *optics.Config, _ *bench) {
				if !wired {
					c.Present = optics.Line{}
				}
			})
			b.after(0)
			b.plug(m)
			b.socket.ReadyAt = b.now
			b.until(optics.Ready)
			b.bus.Log()
			b.after(time.Second)
			log := b.bus.Log()
			d := opticstest.Duration(log, 400e3)
			t.Logf("%s, presence line %v: %d transfers, %v", name, wired, len(log), d)
			if d > 5*time.Millisecond || d == 0 {
				t.Errorf("a sample takes %v", d)
			}
		}
	}
}

// Two cages behind one channel, told apart by ModSel alone.
func TestSharedChannel(t *testing.T) {
	fake := &opticstest.Bus{Switches: []*opticstest.Switch{{Address: 0x74}}}
	bus, err := optics.NewBus(fake, optics.Mux{Part: "pca9548", Address: 0x74})
	if err != nil {
		t.Fatal(err)
	}
	var cages []*optics.Cage
	slept := time.Duration(0)
	for n := range 2 {
		sel, present := opticstest.NewPin("modsel", gpio.Low), opticstest.NewPin("present", gpio.High)
		q := opticstest.SR4()
		q.Serial = string(rune('A' + n))
		fake.Switches[0].Channels[6] = append(fake.Switches[0].Channels[6],
			&opticstest.Socket{Module: q.Module(), ModSel: func() bool { return sel.Read() == gpio.Low }})
		c, err := optics.New(bus, optics.Config{
			Name: q.Serial, Route: []optics.Hop{{Mux: 0x74, Channel: 6}},
			Present: optics.Line{Pin: present}, ModSel: optics.Line{Pin: sel, ActiveLow: true},
			Sleep: func(d time.Duration) { slept += d },
		})
		if err != nil {
			t.Fatal(err)
		}
		cages = append(cages, c)
	}
	now := time.Unix(1e9, 0)
	for range 4 {
		for n, c := range cages {
			s := c.Step(now)
			if s.Phase == optics.Ready && s.Module.Serial != string(rune('A'+n)) {
				t.Errorf("cage %d shows %q", n, s.Module.Serial)
			}
		}
	}
	for n, c := range cages {
		if s := c.State(); s.Phase != optics.Ready {
			t.Errorf("cage %d: %+v", n, s)
		}
	}
	if v := fake.Violations(); len(v) != 0 {
		t.Error(v)
	}
	if slept == 0 {
		t.Error("a module was addressed as soon as it was selected")
	}
}

func TestControls(t *testing.T) {
	b := newBench(t, true, nil)
	b.after(0)
	if err := b.cage.SetTxDisable(1); !errors.Is(err, optics.ErrEmpty) {
		t.Errorf("empty cage: %v", err)
	}
	m := opticstest.SR4().Module()
	b.plug(m)
	b.until(optics.Ready)
	if err := b.cage.SetTxDisable(0b0101); err != nil || m.A0[86] != 0b0101 {
		t.Errorf("%v, byte 86 is %#x", err, m.A0[86])
	}
	if err := b.cage.SetCDR(0b0011, 0b1100); err != nil || m.A0[98] != 0xC3 {
		t.Errorf("%v, byte 98 is %#x", err, m.A0[98])
	}
	if s := b.after(time.Second); !*s.Module.Lanes[0].TxDisabled || *s.Module.Lanes[1].TxDisabled || *s.Module.Lanes[0].TxCDR || !*s.Module.Lanes[0].RxCDR {
		t.Errorf("%+v", s.Module.Lanes[0])
	}
	if err := b.cage.SetLowPower(true); err != nil || !b.active("lpmode") {
		t.Errorf("low power: %v", err)
	}
	if err := b.cage.SetLowPower(false); err != nil || b.active("lpmode") {
		t.Errorf("full power: %v", err)
	}
	m.NoWrite = []byte{86}
	if err := b.cage.SetTxDisable(0xF); !errors.Is(err, optics.ErrNotHeld) {
		t.Errorf("register that does not hold: %v", err)
	}
	b.pull()
	b.after(time.Second)
	b.plug(opticstest.CR4().Module())
	b.until(optics.Ready)
	if err := b.cage.SetTxDisable(1); !errors.Is(err, optics.ErrUnsupported) {
		t.Errorf("cable: %v", err)
	}
	if err := b.cage.SetCDR(0, 0); !errors.Is(err, optics.ErrUnsupported) {
		t.Errorf("cable: %v", err)
	}
}

func TestPowerClass(t *testing.T) {
	for _, c := range []struct {
		name     string
		extID    byte
		maxClass int
		line     bool
		register byte // byte 93
		low      bool
	}{
		{"class 4 with a line", 0xC0, 0, true, 0, false},
		{"class 4 without", 0xC0, 0, false, 0x01, false},
		{"class 6, cage of class 7, with a line", 0xC2, 7, true, 0x04, false},
		{"class 6, cage of class 7, without", 0xC2, 7, false, 0x05, false},
		{"class 6, cage of class 4, with a line", 0xC2, 0, true, 0, true},
		{"class 6, cage of class 4, without", 0xC2, 0, false, 0x03, true},
		{"class 8, cage of class 8", 0x20, 8, true, 0x0C, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, true, func(cfg *optics.Config, _ *bench) {
				cfg.MaxClass = c.maxClass
				if !c.line {
					cfg.LPMode = optics.Line{}
				}
			})
			b.after(0)
			q := opticstest.SR4()
			q.ExtID = c.extID
			m := q.Module()
			b.plug(m)
			s, _ := b.until(optics.Ready)
			if m.A0[93] != c.register || c.line && b.active("lpmode") != c.low || (s.Problem != "") != c.low {
				t.Errorf("byte 93 is %#x, low power %v, problem %q", m.A0[93], b.active("lpmode"), s.Problem)
			}
		})
	}
}

func TestSFPCage(t *testing.T) {
	b := newBench(t, false, func(c *optics.Config, b *bench) {
		c.ModSel, c.Reset, c.LPMode = optics.Line{}, optics.Line{}, optics.Line{}
		b.socket.ModSel, b.socket.Held = nil, nil
		b.pins["txdisable"] = opticstest.NewPin("txdisable", gpio.High)
		c.TxDisable = optics.Line{Pin: b.pins["txdisable"]}
	})
	b.after(0)
	b.plug(opticstest.SR().Module())
	s, took := b.until(optics.Ready)
	if took < 2*time.Second || s.Module.Management != sff.SFF8472 || *s.Module.TemperatureC != 30.25 || len(s.Module.Lanes) != 1 {
		t.Errorf("after %v: %+v", took, s)
	}
	if b.active("txdisable") {
		t.Error("the transmitter is off")
	}
	if err := b.cage.SetTxDisable(1); err != nil || !b.active("txdisable") {
		t.Errorf("%v", err)
	}
	b.socket.Module.A2[96] = 50
	if s := b.after(time.Second); *s.Module.TemperatureC != 50.25 {
		t.Errorf("%v", *s.Module.TemperatureC)
	}
	b.pull()
	b.after(time.Second)
	b.plug(opticstest.SFP{Copper: true, Vendor: "V"}.Module())
	if s, _ := b.until(optics.Ready); !s.Module.Copper || s.Module.TemperatureC != nil {
		t.Errorf("cable: %+v", s)
	}
}

// The transfers themselves, for a cage without switch and lines and a cable
// with flat memory: nothing is written.
func TestTransfersOfACable(t *testing.T) {
	d := opticstest.CR4().Dump(false)
	read := func(at, n int) i2ctest.IO {
		return i2ctest.IO{Addr: 0x50, W: []byte{byte(at)}, R: d[at : at+n]}
	}
	bus := &i2ctest.Playback{DontPanic: true, Ops: []i2ctest.IO{
		read(0, 1),
		read(0, 3), read(128, 128), read(99, 28), read(0, 58), read(86, 13), read(196, 16),
		read(0, 58), read(86, 13), read(196, 16),
	}}
	b, err := optics.NewBus(bus)
	if err != nil {
		t.Fatal(err)
	}
	c, err := optics.New(b, optics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []optics.Phase{optics.Starting, optics.Ready, optics.Ready} {
		if s := c.Step(time.Unix(1e9, 0)); s.Phase != want {
			t.Fatalf("%+v", s)
		}
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
}

func TestWrongDescriptions(t *testing.T) {
	for _, muxes := range [][]optics.Mux{{{Part: "pca9999", Address: 0x70}}, {{Part: "pca9548", Address: 0x70}, {Part: "pca9544", Address: 0x70}}} {
		if _, err := optics.NewBus(&opticstest.Bus{}, muxes...); err == nil {
			t.Errorf("%v accepted", muxes)
		}
	}
	bus, err := optics.NewBus(&opticstest.Bus{}, optics.Mux{Part: "pca9544", Address: 0x70}, optics.Mux{Part: "pca9548", Address: 0x71, Nested: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range [][]optics.Hop{{{Mux: 0x72}}, {{Mux: 0x70, Channel: 4}}, {{Mux: 0x70, Channel: -1}}, {{Mux: 0x71}}, {{Mux: 0x70}, {Mux: 0x70}}} {
		if _, err := optics.New(bus, optics.Config{Route: route}); err == nil {
			t.Errorf("%v accepted", route)
		}
	}
	if _, err := optics.New(bus, optics.Config{Route: []optics.Hop{{Mux: 0x70, Channel: 3}, {Mux: 0x71, Channel: 7}}}); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	fake := &opticstest.Bus{Trunk: []*opticstest.Socket{{Module: opticstest.SR4().Module()}}}
	bus, err := optics.NewBus(fake)
	if err != nil {
		t.Fatal(err)
	}
	c, err := optics.New(bus, optics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ready := false
	c.Run(ctx, time.Millisecond, func(s optics.State) {
		if s.Phase == optics.Ready {
			ready = true
			cancel()
		}
	})
	if !ready {
		t.Error("never ready")
	}
}

// A bus that answers with anything never leads to a panic, to an open channel or
// to values without a module.
func FuzzCage(f *testing.F) {
	f.Add(opticstest.SR4().Dump(true), uint8(0))
	f.Add(opticstest.SR().Dump(), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, fail uint8) {
		m := &opticstest.Module{A0: make([]byte, 256), A2: make([]byte, 256), Upper: map[uint8][]byte{3: make([]byte, 128)}}
		n := copy(m.A0, data)
		n += copy(m.A2, data[n:])
		copy(m.Upper[3], data[n:])
		m.SFP = sff.Layout(m.A0[0]) == sff.SFF8472
		s := &opticstest.Socket{Module: m}
		fake := &opticstest.Bus{Switches: []*opticstest.Switch{{Address: 0x75}}}
		fake.Switches[0].Channels[1] = []*opticstest.Socket{s}
		bus, err := optics.NewBus(fake, optics.Mux{Part: "pca9548", Address: 0x75})
		if err != nil {
			t.Fatal(err)
		}
		transfers := 0
		s.OnTransfer = func() {
			s.Module = m
			if transfers++; fail > 0 && transfers%(int(fail)+1) == 0 {
				s.Module = nil
			}
		}
		c, err := optics.New(bus, optics.Config{Route: []optics.Hop{{Mux: 0x75, Channel: 1}}, Sleep: func(time.Duration) {}})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1e9, 0)
		for range 6 {
			now = now.Add(time.Second)
			st := c.Step(now)
			if st.Module.Present != (st.Phase == optics.Ready) {
				t.Fatalf("%+v", st)
			}
			if open := fake.Open(); len(open) != 0 {
				t.Fatalf("left open: %#x", open)
			}
		}
		for _, v := range fake.Violations() {
			t.Error(v)
		}
	})
}
