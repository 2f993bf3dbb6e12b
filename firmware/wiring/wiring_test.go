package wiring

import (
	"errors"
	"testing"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/i2c/i2ctest"
	"periph.io/x/conn/v3/physic"

	"rocelink/boards"
	"rocelink/firmware/optics"
	"rocelink/firmware/optics/opticstest"
)

// chip plays a TCA6416: registers behind a pointer.
type chip struct {
	regs   [8]byte
	writes int
	fail   error
}

func (c *chip) String() string                  { return "chip" }
func (c *chip) SetSpeed(physic.Frequency) error { return nil }

func (c *chip) Tx(addr uint16, w, r []byte) error {
	if c.fail != nil {
		return c.fail
	}
	if addr != 0x20 {
		return errors.New("no acknowledge")
	}
	if len(w) == 2 {
		c.regs[w[0]] = w[1]
		c.writes++
	}
	for i := range r {
		r[i] = c.regs[int(w[0])+i]
	}
	return nil
}

func TestExpander(t *testing.T) {
	// Outputs 0 high as somebody left them, line 15 already an output.
	c := &chip{regs: [8]byte{2: 0xA5, 3: 0x80, 6: 0xFF, 7: 0x7F}}
	w := New(&boards.Board{
		I2C:  []boards.I2C{{Name: "i2c0"}},
		GPIO: []boards.GPIO{{Name: "exp", Driver: Tca6416, I2C: "i2c0", Address: 0x20}},
	}, Config{I2C: func(boards.I2C) (i2c.Bus, error) { return c, nil }})
	line := func(n int) gpio.PinIO {
		l, err := w.Line(&boards.Line{GPIO: "exp", Number: n})
		if err != nil {
			t.Fatal(err)
		}
		return l.Pin
	}
	p := line(9)
	if c.writes != 0 {
		t.Error("written before it is used")
	}
	// The level comes before the direction, and the other lines stay.
	if err := p.Out(gpio.High); err != nil || c.regs[3] != 0x82 || c.regs[7] != 0x7D || c.regs[2] != 0xA5 || c.writes != 2 {
		t.Errorf("%v, %x", err, c.regs)
	}
	if err := p.Out(gpio.High); err != nil || c.writes != 2 || !p.Read() {
		t.Errorf("%v, %d writes: nothing changed", err, c.writes)
	}
	in := line(0)
	if err := in.In(gpio.PullNoChange, gpio.NoEdge); err != nil {
		t.Error(err)
	}
	c.regs[0] = 1
	if !in.Read() {
		t.Error("reads low")
	}
	// What cannot be read is as it was; what cannot be written is not believed.
	c.regs[0], c.fail = 0, errors.New("bus error")
	if !in.Read() || p.Out(gpio.Low) == nil || !p.Read() {
		t.Error("an error changed a level")
	}
	c.fail = nil
	if err := p.Out(gpio.Low); err != nil || p.Read() || c.regs[3] != 0x80 {
		t.Errorf("%v, %x", err, c.regs)
	}
	if _, err := w.Line(&boards.Line{GPIO: "exp", Number: 16}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// Buses and chips are opened once, and only if they are used.
func TestOpenedOnce(t *testing.T) {
	opened := map[string]int{}
	d := &boards.Board{
		I2C: []boards.I2C{{Name: "a", Switches: []boards.Switch{{Part: "tca9548", Address: 0x74}}}, {Name: "unused"}},
	}
	w := New(d, Config{I2C: func(i boards.I2C) (i2c.Bus, error) {
		opened[i.Name]++
		return &opticstest.Bus{Switches: []*opticstest.Switch{{Address: 0x74}}}, nil
	}})
	for n := range 3 {
		if _, err := w.Cage(boards.Cage{Name: "q", I2C: "a", Route: []boards.Hop{{Switch: 0x74, Channel: n}}}); err != nil {
			t.Fatal(err)
		}
	}
	if opened["a"] != 1 || opened["unused"] != 0 {
		t.Errorf("%v", opened)
	}
	for name, c := range map[string]boards.Cage{
		"bus": {I2C: "b"}, "line": {I2C: "a", Present: &boards.Line{GPIO: "g"}}, "unopened driver": {I2C: "a", Reset: &boards.Line{GPIO: "a"}},
	} {
		if _, err := w.Cage(c); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Through("a", []boards.Hop{{Switch: 0x75}}); err == nil {
		t.Error("a switch that is not there")
	}
}

// What is at the end of a route is reached with the way open, which is closed
// again.
func TestThrough(t *testing.T) {
	bus := &i2ctest.Playback{DontPanic: true, Ops: []i2ctest.IO{
		{Addr: 0x74, W: []byte{0}}, {Addr: 0x74, W: []byte{1 << 3}}, {Addr: 0x5D, W: []byte{7}, R: []byte{9}}, {Addr: 0x74, W: []byte{0}},
	}}
	w := New(&boards.Board{I2C: []boards.I2C{{Name: "a", Switches: []boards.Switch{{Part: "pca9548", Address: 0x74}}}}},
		Config{I2C: func(boards.I2C) (i2c.Bus, error) { return bus, nil }})
	b, err := w.Through("a", []boards.Hop{{Switch: 0x74, Channel: 3}})
	if err != nil {
		t.Fatal(err)
	}
	var r [1]byte
	if err := b.Tx(0x5D, []byte{7}, r[:]); err != nil || r[0] != 9 {
		t.Errorf("%v, %v", r, err)
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
}

func TestInFabric(t *testing.T) {
	d := &boards.Board{
		I2C: []boards.I2C{{Name: "ps", Driver: Linux}, {Name: "pl", Driver: AXI}, {Name: "soft", Driver: Fabric}},
		GPIO: []boards.GPIO{
			{Name: "lines", Driver: Linux}, {Name: "core", Driver: AXI}, {Name: "played", Driver: Fabric}, {Name: "exp", Driver: Tca6416, I2C: "ps"}, {Name: "expPL", Driver: Tca6416, I2C: "pl"},
		},
	}
	for _, c := range []struct {
		bus, line string
		want      bool
	}{
		{"ps", "", false}, {"pl", "", true}, {"ps", "lines", false}, {"ps", "core", true}, {"ps", "exp", false}, {"ps", "expPL", true}, {"none", "none", false}, {"soft", "", true}, {"ps", "played", true},
	} {
		var l *boards.Line
		if c.line != "" {
			l = &boards.Line{GPIO: c.line}
		}
		if got := CageInFabric(d, boards.Cage{I2C: c.bus, LPMode: l}); got != c.want {
			t.Errorf("cage on %s, %s: %v", c.bus, c.line, got)
		}
		if got := ClockInFabric(d, boards.Clock{I2C: c.bus, Lock: l}); got != c.want {
			t.Errorf("clock on %s, %s: %v", c.bus, c.line, got)
		}
	}
}

// A cage that is selected through an expander on its own bus does not wait for
// itself.
func TestSelectedThroughItsOwnBus(t *testing.T) {
	c := &chip{regs: [8]byte{6: 0xFF, 7: 0xFF}}
	w := New(&boards.Board{
		I2C:  []boards.I2C{{Name: "i2c0"}},
		GPIO: []boards.GPIO{{Name: "exp", Driver: Tca6416, I2C: "i2c0", Address: 0x20}},
	}, Config{I2C: func(boards.I2C) (i2c.Bus, error) { return c, nil }})
	cage, err := w.Cage(boards.Cage{Name: "q", I2C: "i2c0", ModSel: &boards.Line{GPIO: "exp", Number: 2, ActiveLow: true}})
	if err != nil {
		t.Fatal(err)
	}
	if s := cage.State(); s.Phase != optics.Empty {
		t.Errorf("%+v", s)
	}
	done := make(chan struct{})
	go func() { defer close(done); cage.Step(cage.State().Since) }()
	<-done // a deadlock ends the test by its own bound
	if c.regs[6]&(1<<2) != 0 || c.regs[2]&(1<<2) != 0 {
		t.Errorf("not selected: %x", c.regs)
	}
}
