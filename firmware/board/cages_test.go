package board

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/fabrictest"
	"rocelink/firmware/link"
	"rocelink/firmware/optics/opticstest"
	"rocelink/firmware/optics/sff"
	"rocelink/firmware/wiring"
	"rocelink/fpga/regs"
)

// pins are the lines of a played GPIO chip.
type pins map[int]*opticstest.Pin

func (p pins) Pin(n int) (gpio.PinIO, error) { return p[n], nil }

// The lines of the cage, all active low.
const (
	linePresent = iota
	lineReset
	lineLPMode
)

// caged is a bench with a QSFP28 cage behind a switch.
type caged struct {
	*bench
	bus    *opticstest.Bus
	socket *opticstest.Socket
	pins   pins
}

func newCaged(t *testing.T) *caged { return newCagedOf(t, func(*boards.Board) {}) }

func newCagedOf(t *testing.T, change func(*boards.Board)) *caged {
	x := &caged{socket: &opticstest.Socket{}, pins: pins{}}
	for n := range 3 {
		x.pins[n] = opticstest.NewPin(fmt.Sprint(n), gpio.High)
	}
	x.bus = &opticstest.Bus{Switches: []*opticstest.Switch{{Address: 0x74}}}
	x.bus.Switches[0].Channels[2] = []*opticstest.Socket{x.socket}
	x.socket.Held = func() bool { return x.pins[lineReset].Read() == gpio.Low }
	d := *description(t)
	line := func(n int) *boards.Line { return &boards.Line{GPIO: "gpio0", Number: n, ActiveLow: true} }
	d.I2C = []boards.I2C{{Name: "i2c0", Driver: wiring.Linux, Switches: []boards.Switch{{Part: "tca9548", Address: 0x74}}}}
	d.GPIO = []boards.GPIO{{Name: "gpio0", Driver: wiring.Linux}}
	d.Cages = []boards.Cage{{
		Name: "qsfp0", Form: "qsfp28", I2C: "i2c0", Route: []boards.Hop{{Switch: 0x74, Channel: 2}},
		Present: line(linePresent), Reset: line(lineReset), LPMode: line(lineLPMode),
	}}
	change(&d)
	x.bench = newBenchOf(t, func(c *Config) {
		c.Description = &d
		c.Wiring = wiring.Config{
			I2C:  func(boards.I2C) (i2c.Bus, error) { return x.bus, nil },
			GPIO: func(boards.GPIO) (wiring.Lines, error) { return x.pins, nil },
		}
	})
	x.bus.Now = func() time.Time { return x.now }
	return x
}

func (x *caged) plug(m *opticstest.Module) {
	x.socket.Module, x.socket.ReadyAt = m, x.now.Add(1900*time.Millisecond)
	x.pins[linePresent].Set(gpio.Low)
}

func (x *caged) pull() {
	x.socket.Module = nil
	x.pins[linePresent].Set(gpio.High)
}

func (x *caged) ready() *caged {
	x.t.Helper()
	x.plug(opticstest.SR4().Module())
	x.run(4 * time.Second)
	x.up()
	x.events()
	return x
}

// events are those since the last call, as "kind: text".
func (x *bench) events() (list []string) {
	for {
		select {
		case e := <-x.b.up.events:
			list = append(list, e.Kind+": "+e.Text)
		default:
			return list
		}
	}
}

func has(events []string, parts ...string) bool {
	return slices.ContainsFunc(events, func(e string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e, p) })
	})
}

// From an empty cage to a link, by way of everything that can be in its way; each
// has its cause, and the link comes back when it ends.
func TestBringUpWithAModule(t *testing.T) {
	x := newCaged(t)
	dark := func(m *opticstest.Module, lanes ...int) {
		for _, l := range lanes {
			m.A0[34+2*(l-1)], m.A0[35+2*(l-1)] = 0, 0
		}
		x.f.SetRx(0xC0)
	}
	x.f.SetRx(0xC0)
	x.run(2 * time.Second)
	s := x.b.Status()
	if s.Link.Cause != rocelink.CauseNoModule || s.Link.Cage != "qsfp0" || s.Link.State != string(link.Module) || s.Link.Remedy == "" ||
		len(s.Modules) != 1 || s.Modules[0].Phase != "empty" || !slices.Equal(s.Link.Cages, []string{"qsfp0"}) || s.Link.FEC != "rs" {
		t.Fatalf("%+v %+v", s.Link, s.Modules)
	}
	// Nothing touches the transceivers before the module is there.
	for _, w := range x.f.Writes() {
		if w.Offset == fabrictest.CMACBase+uint32(regs.CMACGTReset) {
			t.Error("the transceivers were reset without a module")
		}
	}
	m := opticstest.SR4().Module()
	x.plug(m)
	x.run(500 * time.Millisecond)
	if s := x.b.Status(); s.Link.Cause != rocelink.CauseModuleStarts {
		t.Errorf("plugged: %+v", s.Link)
	}
	x.f.SetRx(fabrictest.GoodRx)
	x.run(2500 * time.Millisecond)
	x.up()
	s = x.b.Status()
	if mod := s.Modules[0]; mod.Serial != "T0001" || len(mod.Lanes) != 4 || *mod.Lanes[0].RxPowerMW != 0.5 || s.Link.Cause != "" || s.Link.Problem != "" {
		t.Errorf("%+v %+v", mod, s.Link)
	}
	if e := x.events(); !has(e, "module-inserted", "qsfp0", "SR4-100G, serial number T0001") || !has(e, "link-up") {
		t.Errorf("events %q", e)
	}
	for _, c := range []struct {
		name  string
		begin func()
		end   func()
		cause string
		lane  int
		event string
	}{
		{"one lane dark", func() { dark(m, 3) }, func() { m.A0[38] = 0x10; x.f.SetRx(3) }, rocelink.CauseNoLight, 3, "no light on lane 3 of cage qsfp0"},
		{"all dark", func() { dark(m, 1, 2, 3, 4) }, func() {
			copy(m.A0[34:42], []byte{0x10, 0, 0x10, 0, 0x10, 0, 0x10, 0})
			x.f.SetRx(3)
		}, rocelink.CauseNoLight, 1, "no light on all 4 lanes"},
		{"the peer is blind", func() { x.f.SetRx(0x22) }, func() { x.f.SetRx(3) }, rocelink.CausePeerBlind, 0, "does not see us"},
		{"our transmitter is off", func() { m.A0[86] = 2; x.f.SetRx(0x22) }, func() { m.A0[86] = 0; x.f.SetRx(3) }, rocelink.CauseTxDisabled, 2, "switched off"},
		{"FEC differs", func() { x.f.SetRx(0xC8) }, func() { x.f.SetRx(3) }, rocelink.CauseFECMismatch, 0, "FEC differs"},
		{"bit errors", func() { x.f.SetRx(0x13) }, func() { x.f.SetRx(3) }, rocelink.CauseHighBER, 0, "bit error rate"},
		{"wrong rate", func() { m.A0[5] = 0xFF; x.f.SetRx(0xC0) }, func() { x.f.SetRx(3) }, rocelink.CauseWrongRate, 1, "clock recovery"},
		{"pulled", func() { x.pull(); x.f.SetRx(0xC0) }, func() { x.plug(m); x.f.SetRx(3) }, rocelink.CauseNoModule, 0, "is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := x.b.Status().Link.Losses
			x.events()
			c.begin()
			x.run(500 * time.Millisecond)
			if c.cause == rocelink.CauseWrongRate {
				m.A0[5] = 0xFF // latched again as long as it lasts
			}
			s := x.b.Status()
			if s.Link.Up || s.Link.Cause != c.cause || s.Link.Lane != c.lane || s.Link.Losses != before+1 || s.Link.Remedy == "" {
				t.Errorf("%+v", s.Link)
			}
			if e := x.events(); !has(e, "link-down", c.event) {
				t.Errorf("events %q", e)
			}
			c.end()
			x.run(8 * time.Second)
			if s := x.up().b.Status(); s.Link.Cause != "" || s.Link.Problem != "" {
				t.Errorf("recovered: %+v", s.Link)
			}
			if e := x.events(); !has(e, "link-up") {
				t.Errorf("events %q", e)
			}
		})
	}
	for _, v := range x.bus.Violations() {
		t.Error("violation:", v)
	}
}

// A module that is plugged again makes the transceivers be reset again.
func TestInsertionResetsTheTransceivers(t *testing.T) {
	x := newCaged(t).ready()
	x.pull()
	x.f.SetRx(0xC0)
	x.run(time.Second)
	x.f.Writes()
	x.plug(opticstest.SR4().Module())
	x.run(3 * time.Second)
	n := 0
	for _, w := range x.f.Writes() {
		if w.Offset == fabrictest.CMACBase+uint32(regs.CMACGTReset) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d resets of the transceivers", n)
	}
	if e := x.events(); !has(e, "module-removed", "T0001") || !has(e, "module-inserted") {
		t.Errorf("events %q", e)
	}
}

// An alarm is told once, not with each sample in which it lasts or is latched.
func TestAlarmsAreToldOnce(t *testing.T) {
	x := newCaged(t).ready()
	m := x.socket.Module
	m.A0[22] = 90 // °C
	x.run(5 * time.Second)
	s := x.b.Status()
	if e := x.events(); len(e) != 1 || !has(e, "module-alarm: cage qsfp0: temperature high") || len(s.Modules[0].Alarms) != 1 {
		t.Errorf("events %q, alarms %q", e, s.Modules[0].Alarms)
	}
	m.A0[22] = 40
	x.run(alarmQuiet + 2*time.Second)
	m.A0[22] = 90
	x.run(2 * time.Second)
	if e := x.events(); len(e) != 1 {
		t.Errorf("events %q", e)
	}
}

func TestModuleRequest(t *testing.T) {
	x := newCaged(t)
	var r rocelink.ModuleReply
	if err := x.ask(rocelink.EndpointModule, rocelink.ModuleRequest{Version: 1, Cage: "qsfp0"}, &r); err != nil || r.State.Phase == "ready" || r.Lower != nil {
		t.Errorf("%+v, %v", r, err)
	}
	x.ready()
	if err := x.ask(rocelink.EndpointModule, rocelink.ModuleRequest{Version: 1, Cage: "qsfp0"}, &r); err != nil {
		t.Fatal(err)
	}
	m, err := sff.Decode(sff.Memory{Lower: r.Lower, Upper: r.Upper, Diagnostics: r.Diagnostics})
	if err != nil || m.Serial != "T0001" || m.Thresholds == nil || *m.TemperatureC != 35.5 || r.State.Phase != "ready" {
		t.Errorf("%+v, %v", m, err)
	}
	wantCode(t, "no such cage", x.ask(rocelink.EndpointModule, rocelink.ModuleRequest{Version: 1, Cage: "x"}, &r), rocelink.CodeBadRequest)
	wantCode(t, "no cages", newBench(t).ask(rocelink.EndpointModule, rocelink.ModuleRequest{Version: 1, Cage: "x"}, &r), rocelink.CodeUnsupported)
}

func TestWriteRegister(t *testing.T) {
	x := newBench(t).up()
	x.events()
	for _, c := range []struct {
		block, reg string
		value      *rocelink.Count
		code       rocelink.Code
	}{
		{"CMAC", "UserReg0", new(rocelink.Count(0xCAFE)), ""},
		{"CMAC", "UserReg0", nil, rocelink.CodeBadRequest},
		{"CMAC", "UserReg0", new(rocelink.Count(1 << 32)), rocelink.CodeBadRequest},
		{"CMAC", "CoreVersion", new(rocelink.Count(1)), rocelink.CodeUnsupported},
		{"CMAC", "GTReset", new(rocelink.Count(1)), rocelink.CodeUnsupported},
		{"CMAC", "Tick", new(rocelink.Count(1)), rocelink.CodeUnsupported},
		{"CMAC", "StatRx", new(rocelink.Count(1)), rocelink.CodeUnsupported},
		{"Core", "Ident", new(rocelink.Count(1)), rocelink.CodeUnsupported},
		{"Core", "Command", new(rocelink.Count(1)), rocelink.CodeUnsupported},
		{"Core", "Nothing", new(rocelink.Count(1)), rocelink.CodeBadRequest},
	} {
		x.f.Writes()
		var r rocelink.RegisterReply
		err := x.ask(rocelink.EndpointWriteRegister, rocelink.RegisterRequest{Version: 1, Block: c.block, Register: c.reg, Value: c.value}, &r)
		if rocelink.CodeOf(err) != c.code || err == nil && r.Value != *c.value {
			t.Errorf("%s.%s: %+v, %v", c.block, c.reg, r, err)
		}
		events := x.events()
		if w := x.f.Writes(); (len(w) == 0) != (err != nil) || has(events, "register-written: CMAC.UserReg0 was 0x0, 0xcafe was written, it reads 0xcafe") != (err == nil) {
			t.Errorf("%s.%s: wrote %v, events %q", c.block, c.reg, w, events)
		}
	}
}

// The bitstream comes before anything else, and what it must be decides.
func TestBitstream(t *testing.T) {
	loads, opensAtLoad := 0, -1
	var x *bench
	fail := fmt.Errorf("no file")
	d := *description(t)
	d.Bitstream = &boards.Bitstream{File: "/boot/x.bit", Build: 0x20240101}
	x = newBenchOf(t, func(c *Config) {
		c.Description = &d
		c.Load = func(b boards.Bitstream) error {
			loads++
			opensAtLoad = x.opens
			if b.File != "/boot/x.bit" {
				t.Errorf("%+v", b)
			}
			return fail
		}
	})
	x.run(time.Second)
	if s := x.b.Status(); x.opens != 0 || s.Link.Cause != rocelink.CauseFabricMissing || !strings.Contains(s.Fabric.Problem, "no file") {
		t.Fatalf("%d opens, %+v", x.opens, s.Link)
	}
	fail = nil
	x.run(12 * time.Second)
	x.up()
	if opensAtLoad != 0 || loads > 4 {
		t.Errorf("loaded %d times, the last after %d opens", loads, opensAtLoad)
	}
	// Another build is not ours: nothing is written, and it is loaded again.
	d.Bitstream = &boards.Bitstream{File: "/boot/x.bit", Build: 7}
	x.f.Restart(9)
	x.f.Writes()
	loads = 0
	x.run(60 * time.Second)
	if s := x.b.Status(); s.Fabric.Present || !strings.Contains(s.Fabric.Problem, "build 0x20240101") || loads == 0 || loads > 3 {
		t.Errorf("%+v, loaded %d times", s.Fabric, loads)
	}
	for _, w := range x.f.Writes() {
		if w.Offset != uint32(regs.CoreScratch) { // the probe's
			t.Errorf("wrote %v", w)
		}
	}
}

// A cage that carries no lane of the port is watched, and the link does not wait
// for its module nor blame it.
func TestCageOfNoLane(t *testing.T) {
	x := newCagedOf(t, func(d *boards.Board) {
		d.Cages[0].Lanes = []int{1, 2, 3, 4}
		d.Cages = append(d.Cages, boards.Cage{Name: "qsfp1", Form: "qsfp28", I2C: "i2c0", Route: []boards.Hop{{Switch: 0x74, Channel: 3}}})
	})
	other := &opticstest.Socket{}
	x.bus.Switches[0].Channels[3] = []*opticstest.Socket{other}
	x.f.SetRx(0xC0)
	x.run(2 * time.Second)
	if s := x.b.Status().Link; s.State != string(link.Module) || s.Cage != "qsfp0" {
		t.Errorf("without modules: %+v", s)
	}
	x.f.SetRx(fabrictest.GoodRx)
	x.ready()
	s := x.b.Status()
	if !slices.Equal(s.Link.Cages, []string{"qsfp0"}) || s.Link.Cause != "" || len(s.Modules) != 2 || s.Modules[1].Phase == "ready" {
		t.Errorf("%+v, %+v", s.Link, s.Modules)
	}
	other.Module, other.ReadyAt = opticstest.SR4().Module(), x.now
	x.run(4 * time.Second)
	if s := x.b.Status(); s.Modules[1].Phase != "ready" || !s.Link.Up || s.Link.Losses != 0 {
		t.Errorf("%+v, %+v", s.Link, s.Modules)
	}
}

// clockBus is a bus with a Si570 that does not answer until it is there.
type clockBus struct {
	*opticstest.Bus
	there  bool
	regs   [256]byte
	tries  int
	writes int
}

func (c *clockBus) Tx(_ uint16, w, r []byte) error {
	if c.tries++; !c.there {
		return opticstest.ErrNACK
	}
	copy(c.regs[w[0]:], w[1:])
	if len(w) > 1 {
		c.writes++
		c.regs[135] = 0 // what it is asked for is done at once
	}
	copy(r, c.regs[w[0]:])
	return nil
}

// The transceivers are not reset before the clock runs; without it the cause says
// so, and the link comes up when the clock does.
func TestClockComesFirst(t *testing.T) {
	bus := &clockBus{}
	// HS_DIV 4, N1 8, RFREQ 43.75 of a crystal of 114.285 MHz: 156.25 MHz
	// (Si570 data sheet, registers 7 to 12).
	copy(bus.regs[7:], []byte{0x01, 0xC2, 0xBC, 0x01, 0x1E, 0xB8})
	d := *description(t)
	d.I2C = []boards.I2C{{Name: "i2c0"}}
	d.Clocks = []boards.Clock{{Name: "ref", Driver: "si570", I2C: "i2c0", Address: 0x5D, Hz: 156.25e6, Factory: 156.25e6}}
	x := newBenchOf(t, func(c *Config) {
		c.Description = &d
		c.Wiring = wiring.Config{I2C: func(boards.I2C) (i2c.Bus, error) { return bus, nil }}
	})
	x.f.SetRx(0xC0)
	x.run(3 * time.Second)
	s := x.b.Status()
	if s.Link.Cause != rocelink.CauseNoClock || s.Link.State != string(link.Clock) || len(s.Clocks) != 1 || s.Clocks[0].Problem == "" || bus.tries == 0 {
		t.Fatalf("%+v %+v", s.Link, s.Clocks)
	}
	for _, w := range x.f.Writes() {
		if w.Offset == fabrictest.CMACBase+uint32(regs.CMACGTReset) {
			t.Error("the transceivers were reset without a clock")
		}
	}
	if e := x.events(); !has(e, "clock-failed", "ref") {
		t.Errorf("events %q", e)
	}
	bus.there = true
	x.f.SetRx(fabrictest.GoodRx)
	x.run(6 * time.Second)
	s = x.up().b.Status()
	if c := s.Clocks[0]; c.Hz != 156.25e6 || c.Problem != "" || s.Link.Cause != "" {
		t.Errorf("%+v %+v", c, s.Link)
	}
	if e := x.events(); !has(e, "clock-ready", "ref") {
		t.Errorf("events %q", e)
	}
}

// hanging is a bus whose transfers do not end until it is let go.
type hanging struct {
	*opticstest.Bus
	let     chan struct{}
	waiting sync.Once
	hangs   chan struct{}
}

func (h *hanging) Tx(addr uint16, w, r []byte) error {
	h.waiting.Do(func() { close(h.hangs) })
	<-h.let
	return opticstest.ErrNACK
}

// A bus that hangs delays neither the link nor requests nor the end, and the cage
// says so.
func TestBusThatHangs(t *testing.T) {
	h := &hanging{Bus: &opticstest.Bus{}, let: make(chan struct{}), hangs: make(chan struct{})}
	defer close(h.let)
	good := &opticstest.Bus{Trunk: []*opticstest.Socket{{Module: opticstest.SR4().Module()}}}
	d := *description(t)
	d.I2C = []boards.I2C{{Name: "bad"}, {Name: "good"}}
	d.Cages = []boards.Cage{{Name: "q0", I2C: "bad"}, {Name: "q1", I2C: "good"}}
	f := fabrictest.New()
	b, err := New(Config{
		Name: "b", Description: &d, MAC: boards.NameMAC("b"), Address: netip.MustParseAddr("10.0.0.1"),
		Open: func(boards.Aperture) (Registers, error) { return registers{f}, nil },
		Wiring: wiring.Config{I2C: func(i boards.I2C) (i2c.Bus, error) {
			if i.Name == "bad" {
				return h, nil
			}
			return good, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-h.hangs
	wait(t, "the other cage", func() bool { s := b.Status(); return len(s.Modules) == 2 && s.Modules[1].Phase == "ready" })
	wait(t, "the hang seen", func() bool {
		s := b.Status().Modules[0]
		return s.Phase == "failed" && strings.Contains(s.Problem, "bus bad has not answered")
	})
	// What waits for the module goes on after a bound, and the link is good.
	wait(t, "the link", func() bool { return b.Status().Link.Up })
	start := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("ended after %v", took)
	}
}

// Speed: one complete sample is the state of the MAC, its counters and one
// module's values. A register takes well under a microsecond.
func TestCompleteSampleTakesLessThan5ms(t *testing.T) {
	x := newCaged(t).ready()
	reads := func() (n int) {
		for o := uint32(0); o < fabrictest.Size; o += 4 {
			n += x.f.Reads(0, regs.Reg(o))
		}
		return n
	}
	x.bus.Log()
	x.b.cages[0].soon()
	before := reads()
	x.b.tick()
	x.b.Status()
	accesses := reads() - before
	log := x.bus.Log()
	d := opticstest.Duration(log, 400e3)
	t.Logf("%d I2C transfers take %v at 400 kHz, %d register reads", len(log), d, accesses)
	if total := d + time.Duration(accesses)*time.Microsecond; total > 5*time.Millisecond || len(log) == 0 || accesses == 0 {
		t.Errorf("a complete sample takes %v", total)
	}
}

// BenchmarkSecond is what a second of a board with a module and a link that is up
// costs: 20 ticks, 4 samples of streams, one sample of everything, one status.
func BenchmarkSecond(b *testing.B) {
	t := &testing.T{}
	x := newCaged(t)
	x.plug(opticstest.SR4().Module())
	x.run(10 * time.Second)
	if !x.b.Status().Link.Up {
		b.Fatal("not up")
	}
	b.ReportAllocs()
	for b.Loop() {
		x.run(time.Second)
		x.bus.Log()
	}
}
