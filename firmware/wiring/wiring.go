// Package wiring opens what a board's description wires: I2C buses with their
// switches, GPIO lines, and the cages on them. What is not used is not opened,
// and what several use is opened once.
//
// Opening and using may wait for a bus; nothing here waits without a bound.
package wiring

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"

	"rocelink/boards"
	"rocelink/bsp/gpiochip"
	"rocelink/bsp/i2cdev"
	"rocelink/firmware/optics"
	"rocelink/fpga/regs"
)

// ErrUnknown: the description names a bus, a line or a driver that there is not.
var ErrUnknown = errors.New("not in the description")

// Drivers of I2C buses and GPIO lines.
const (
	Linux   = "linux"
	AXI     = "axi"
	Fabric  = "fabric"
	Tca6416 = "tca6416"
)

// Config is how buses and lines are opened. The zero value opens those of this
// system.
type Config struct {
	// I2C and GPIO open what another driver would; nil, or a nil result, leaves it
	// to the driver.
	I2C  func(boards.I2C) (i2c.Bus, error)
	GPIO func(boards.GPIO) (Lines, error)
	// Registers are those of a core in the fabric; nil: there are none.
	Registers func(aperture string, offset uint32) (regs.Bus, error)
}

// Lines are those of a chip, by number.
type Lines interface {
	Pin(n int) (gpio.PinIO, error)
}

// Wiring is what was opened. It is safe for concurrent use.
type Wiring struct {
	d   *boards.Board
	cfg Config

	mu     sync.Mutex
	raw    map[string]i2c.Bus
	buses  map[string]*optics.Bus
	chips  map[string]Lines
	close  []io.Closer
	closed bool
}

// New opens nothing yet.
func New(d *boards.Board, cfg Config) *Wiring {
	return &Wiring{d: d, cfg: cfg, raw: map[string]i2c.Bus{}, buses: map[string]*optics.Bus{}, chips: map[string]Lines{}}
}

// Close closes what was opened. What is in use fails from then on.
func (w *Wiring) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	var errs []error
	for _, c := range w.close {
		errs = append(errs, c.Close())
	}
	w.close = nil
	return errors.Join(errs...)
}

// Bus is an I2C bus with its switches.
func (w *Wiring) Bus(name string) (*optics.Bus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bus(name)
}

func (w *Wiring) bus(name string) (*optics.Bus, error) {
	if b := w.buses[name]; b != nil {
		return b, nil
	}
	raw, err := w.trunk(name)
	if err != nil {
		return nil, err
	}
	var muxes []optics.Mux
	for _, s := range w.i2c(name).Switches {
		muxes = append(muxes, optics.Mux{Part: s.Part, Address: s.Address, Nested: s.Nested})
	}
	b, err := optics.NewBus(raw, muxes...)
	if err != nil {
		return nil, fmt.Errorf("I2C bus %s: %w", name, err)
	}
	w.buses[name] = b
	return b, nil
}

func (w *Wiring) i2c(name string) *boards.I2C {
	for i := range w.d.I2C {
		if w.d.I2C[i].Name == name {
			return &w.d.I2C[i]
		}
	}
	return nil
}

func (w *Wiring) gpio(name string) *boards.GPIO {
	for i := range w.d.GPIO {
		if w.d.GPIO[i].Name == name {
			return &w.d.GPIO[i]
		}
	}
	return nil
}

// trunk is a bus itself, one transfer at a time.
func (w *Wiring) trunk(name string) (i2c.Bus, error) {
	if b := w.raw[name]; b != nil {
		return b, nil
	}
	d := w.i2c(name)
	if d == nil {
		return nil, fmt.Errorf("I2C bus %q: %w", name, ErrUnknown)
	}
	b, err := w.openI2C(*d)
	if err != nil {
		return nil, fmt.Errorf("I2C bus %s: %w", name, err)
	}
	if c, ok := b.(io.Closer); ok {
		w.close = append(w.close, c)
	}
	one := &single{bus: b}
	w.raw[name] = one
	return one, nil
}

func (w *Wiring) openI2C(d boards.I2C) (i2c.Bus, error) {
	if w.closed {
		return nil, errors.New("closed")
	}
	if w.cfg.I2C != nil {
		if b, err := w.cfg.I2C(d); b != nil || err != nil {
			return b, err
		}
	}
	switch d.Driver {
	case Linux:
		return i2cdev.Open(d.Device)
	case AXI:
		r, err := w.registers(d.Aperture, d.Offset)
		if err != nil {
			return nil, err
		}
		return openAXIIIC(r, d)
	case Fabric:
		r, err := w.registers(d.Aperture, d.Offset)
		if err != nil {
			return nil, err
		}
		return openFabricBus(r, d)
	}
	return nil, fmt.Errorf("driver %q: %w", d.Driver, ErrUnknown)
}

func (w *Wiring) registers(aperture string, offset uint32) (regs.Bus, error) {
	if w.cfg.Registers == nil {
		return nil, fmt.Errorf("aperture %q: no registers here: %w", aperture, ErrUnknown)
	}
	return w.cfg.Registers(aperture, offset)
}

// Through is what is at the end of a route of a bus.
func (w *Wiring) Through(bus string, route []boards.Hop) (i2c.Bus, error) {
	b, err := w.Bus(bus)
	if err != nil {
		return nil, err
	}
	t, err := b.Through(hops(route))
	if err != nil {
		return nil, fmt.Errorf("I2C bus %s: %w", bus, err)
	}
	return t, nil
}

func hops(route []boards.Hop) (h []optics.Hop) {
	for _, r := range route {
		h = append(h, optics.Hop{Mux: r.Switch, Channel: r.Channel})
	}
	return h
}

// Line is a GPIO line, or one that is not wired for nil.
func (w *Wiring) Line(l *boards.Line) (optics.Line, error) {
	if l == nil {
		return optics.Line{}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c, err := w.chip(l.GPIO)
	if err != nil {
		return optics.Line{}, err
	}
	p, err := c.Pin(l.Number)
	if err != nil {
		return optics.Line{}, fmt.Errorf("GPIO %s: %w", l.GPIO, err)
	}
	return optics.Line{Pin: p, ActiveLow: l.ActiveLow}, nil
}

func (w *Wiring) chip(name string) (Lines, error) {
	if c := w.chips[name]; c != nil {
		return c, nil
	}
	d := w.gpio(name)
	if d == nil {
		return nil, fmt.Errorf("GPIO %q: %w", name, ErrUnknown)
	}
	c, err := w.openGPIO(*d)
	if err != nil {
		return nil, fmt.Errorf("GPIO %s: %w", name, err)
	}
	if x, ok := c.(io.Closer); ok {
		w.close = append(w.close, x)
	}
	w.chips[name] = c
	return c, nil
}

func (w *Wiring) openGPIO(d boards.GPIO) (Lines, error) {
	if w.closed {
		return nil, errors.New("closed")
	}
	if w.cfg.GPIO != nil {
		if c, err := w.cfg.GPIO(d); c != nil || err != nil {
			return c, err
		}
	}
	switch d.Driver {
	case Linux:
		c, err := gpiochip.Open(d.Device)
		if err != nil {
			return nil, err
		}
		return kernelLines{c}, nil
	case AXI:
		r, err := w.registers(d.Aperture, d.Offset)
		if err != nil {
			return nil, err
		}
		return openAXIGPIO(r, d)
	case Fabric:
		r, err := w.registers(d.Aperture, d.Offset)
		if err != nil {
			return nil, err
		}
		return openFabricLines(r, d)
	case Tca6416:
		// On the bus itself: a cage behind a switch may be selected through it
		// while the way to the cage is open.
		b, err := w.trunk(d.I2C)
		if err != nil {
			return nil, err
		}
		return newExpander(d.Name, b, d.Address)
	}
	return nil, fmt.Errorf("driver %q: %w", d.Driver, ErrUnknown)
}

type kernelLines struct{ *gpiochip.Chip }

func (k kernelLines) Pin(n int) (gpio.PinIO, error) {
	l, err := k.Chip.Line(n)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Cage opens a cage with its lines.
func (w *Wiring) Cage(d boards.Cage) (*optics.Cage, error) {
	fail := func(err error) (*optics.Cage, error) { return nil, fmt.Errorf("cage %s: %w", d.Name, err) }
	bus, err := w.Bus(d.I2C)
	if err != nil {
		return fail(err)
	}
	c := optics.Config{Name: d.Name, Route: hops(d.Route), MaxClass: d.MaxClass}
	for _, l := range []struct {
		to   *optics.Line
		from *boards.Line
	}{
		{&c.Present, d.Present}, {&c.ModSel, d.ModSel}, {&c.Reset, d.Reset}, {&c.LPMode, d.LPMode},
		{&c.Interrupt, d.Interrupt}, {&c.TxDisable, d.TxDisable},
	} {
		if *l.to, err = w.Line(l.from); err != nil {
			return fail(err)
		}
	}
	return optics.New(bus, c)
}

// lines of a cage.
func lines(c boards.Cage) []*boards.Line {
	return []*boards.Line{c.Present, c.ModSel, c.Reset, c.LPMode, c.Interrupt, c.TxDisable}
}

// CageInFabric reports whether a cage hangs on cores in the fabric, so that it is
// there only while the fabric is.
func CageInFabric(d *boards.Board, c boards.Cage) bool {
	return inFabric(d, c.I2C, lines(c)...)
}

// ClockInFabric reports the same of a clock.
func ClockInFabric(d *boards.Board, c boards.Clock) bool { return inFabric(d, c.I2C, c.Lock) }

func inFabric(d *boards.Board, bus string, lines ...*boards.Line) bool {
	w := Wiring{d: d}
	inside := func(driver string) bool { return driver == AXI || driver == Fabric }
	axi := func(name string) bool { b := w.i2c(name); return b != nil && inside(b.Driver) }
	if axi(bus) {
		return true
	}
	for _, l := range lines {
		if l == nil {
			continue
		}
		if g := w.gpio(l.GPIO); g != nil && (inside(g.Driver) || g.Driver == Tca6416 && axi(g.I2C)) {
			return true
		}
	}
	return false
}

// single is a bus that takes one transfer at a time.
type single struct {
	mu  sync.Mutex
	bus i2c.Bus
}

func (s *single) String() string { return s.bus.String() }

func (s *single) Tx(addr uint16, w, r []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bus.Tx(addr, w, r)
}

func (s *single) SetSpeed(f physic.Frequency) error { return s.bus.SetSpeed(f) }
