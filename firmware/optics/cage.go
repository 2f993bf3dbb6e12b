package optics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"rocelink/firmware/optics/sff"
	"rocelink/firmware/poll"
)

// Errors of a Cage.
var (
	// ErrEmpty: no module is ready in the cage.
	ErrEmpty = errors.New("no module ready")
	// ErrUnsupported: the module cannot do what was asked for.
	ErrUnsupported = errors.New("the module does not support it")
	// ErrNotHeld: the module does not hold what is written to it.
	ErrNotHeld = errors.New("the module does not hold what was written")
)

// Config describes a cage. The zero value is a cage without lines on a bus
// without switches.
type Config struct {
	Name  string
	Route []Hop // from the bus to the cage

	// Lines. Present: a module is plugged; without it the module is probed.
	Present Line
	ModSel  Line // the module listens on I2C
	Reset   Line // the module is held in reset
	LPMode  Line // the module is held in low power
	// Interrupt: the module's IntL. With it a module that started early is not
	// waited for.
	Interrupt Line
	TxDisable Line // of an SFP

	// LowPower keeps modules in low power.
	LowPower bool
	// MaxClass is the power class the cage can supply and cool; 0 is 4, what
	// every QSFP cage does. A module above it stays in low power.
	MaxClass int

	Debounce   time.Duration // presence must hold this long; 0 is 20 ms
	ResetPulse time.Duration // 0 is 1 ms; the module wants 10 µs
	// Start is how long a module needs after plugging or reset until it answers;
	// 0 is 2 s (SFF-8679, timing of reset and power-on).
	Start time.Duration
	// Patience is how much longer it may take; 0 is 3 s.
	Patience time.Duration
	// Retry is how long after a failure a module is tried again; 0 is 5 s.
	Retry time.Duration

	Sleep func(time.Duration) // nil is time.Sleep
}

func (c *Config) defaults() {
	for _, d := range []struct {
		v    *time.Duration
		zero time.Duration
	}{
		{&c.Debounce, 20 * time.Millisecond}, {&c.ResetPulse, time.Millisecond}, {&c.Start, 2 * time.Second},
		{&c.Patience, 3 * time.Second}, {&c.Retry, 5 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.zero
		}
	}
	if c.MaxClass == 0 {
		c.MaxClass = 4
	}
	if c.Sleep == nil {
		c.Sleep = time.Sleep
	}
}

// Phase is where a cage is.
type Phase string

// The phases.
const (
	Empty    Phase = "empty"
	Plugged  Phase = "plugged"  // seen, not yet believed
	Reset    Phase = "reset"    // held in reset
	Starting Phase = "starting" // not yet answering
	Ready    Phase = "ready"
	Failed   Phase = "failed" // plugged, but does not answer
)

// State is what is known of a cage.
type State struct {
	Cage  string    `json:"cage"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"`
	// Insertions counts modules that became ready: a new one means a new link.
	Insertions uint64 `json:"insertions"`
	// LowPower: the module is held in low power, by its line or its register.
	LowPower bool `json:"low_power"`
	// TxOff: the line of an SFP switches its transmitter off.
	TxOff bool `json:"tx_off"`
	// Module is not present unless the phase is Ready.
	Module  sff.Module `json:"module"`
	Problem string     `json:"problem,omitempty"`
}

// Cage is one cage. It is safe for concurrent use.
type Cage struct {
	bus *Bus
	cfg Config

	mu      sync.Mutex
	state   State
	stepped bool
	due     time.Time // when the phase may end
	limit   time.Time // when it must
	mem     memory
}

// noModule is what an empty cage shows.
func noModule() sff.Module {
	m, _ := sff.Decode(sff.Memory{})
	return m
}

// New sets the lines of a cage: not selected, not in reset, transmitting, in low power unless
// a module is plugged, which may carry a link already.
func New(bus *Bus, cfg Config) (*Cage, error) {
	cfg.defaults()
	c := &Cage{bus: bus, cfg: cfg, state: State{Cage: cfg.Name, Phase: Empty, Module: noModule()}}
	fail := func(err error) (*Cage, error) { return nil, fmt.Errorf("cage %s: %w", cfg.Name, err) }
	if err := bus.check(cfg.Route); err != nil {
		return fail(err)
	}
	if err := errors.Join(cfg.Present.input(), cfg.Interrupt.input()); err != nil {
		return fail(err)
	}
	low := cfg.LowPower || cfg.Present.wired() && !cfg.Present.active()
	if err := errors.Join(cfg.ModSel.set(false), cfg.Reset.set(false), cfg.LPMode.set(low), cfg.TxDisable.set(false)); err != nil {
		return fail(err)
	}
	return c, nil
}

// State is the state after the last step.
func (c *Cage) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Memory is a copy of what was read of the module last; empty unless the phase
// is Ready.
func (c *Cage) Memory() sff.Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := sff.Memory{Lower: slices.Clone(c.mem.low), Diagnostics: slices.Clone(c.mem.diag)}
	for n, p := range c.mem.upper {
		if m.Upper == nil {
			m.Upper = map[uint8][]byte{}
		}
		m.Upper[n] = slices.Clone(p)
	}
	return m
}

// enter begins a phase. Only Ready keeps the module's values.
func (c *Cage) enter(p Phase, now time.Time, problem string) {
	if p != c.state.Phase {
		c.state.Since = now
	}
	c.state.Phase, c.state.Problem = p, problem
	if p != Ready {
		c.state.LowPower, c.state.TxOff = false, false
		c.state.Module = noModule()
		c.mem = memory{}
	}
}

// Step looks at the cage and does what is due. In the phases Ready and, without
// a line that tells presence, Empty it costs I2C transfers; it never waits for a
// module.
func (c *Cage) Step(now time.Time) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.stepped
	c.stepped = true
	if c.state.Since.IsZero() {
		c.state.Since = now
	}
	if c.state.Phase != Empty && c.gone() {
		c.remove(now)
		return c.state
	}
	switch c.state.Phase {
	case Empty:
		c.stepEmpty(now, first)
	case Plugged:
		if !now.Before(c.due) {
			c.reset(now)
		}
	case Reset:
		if !now.Before(c.due) {
			c.release(now)
		}
	case Starting:
		c.stepStarting(now)
	case Ready:
		c.stepReady(now)
	case Failed:
		if !now.Before(c.due) {
			c.reset(now)
		}
	}
	return c.state
}

// gone reports whether the line says that no module is plugged.
func (c *Cage) gone() bool { return c.cfg.Present.wired() && !c.cfg.Present.active() }

// remove is what follows a module that was pulled: the next one starts in low
// power and out of reset.
func (c *Cage) remove(now time.Time) {
	c.enter(Empty, now, "")
	if err := errors.Join(c.cfg.Reset.set(false), c.cfg.LPMode.set(true)); err != nil {
		c.state.Problem = err.Error()
	}
}

func (c *Cage) stepEmpty(now time.Time, first bool) {
	if c.cfg.Present.wired() {
		switch {
		case c.gone():
		case first:
			// It may have been here for days: no reset, no wait.
			c.start(now, now)
		default:
			c.enter(Plugged, now, "")
			c.due = now.Add(c.cfg.Debounce)
		}
		return
	}
	err := c.bus.do(c, func() error {
		var id [1]byte
		return c.read(address, span{regID, 1}, id[:])
	})
	if err == nil {
		c.start(now, now) // it answers already
	}
}

// reset pulses the reset line, if there is one.
func (c *Cage) reset(now time.Time) {
	if !c.cfg.Reset.wired() {
		c.start(now, now.Add(c.cfg.Start))
		return
	}
	if err := c.cfg.Reset.set(true); err != nil {
		c.fail(now, err)
		return
	}
	c.enter(Reset, now, "")
	c.due = now.Add(c.cfg.ResetPulse)
}

func (c *Cage) release(now time.Time) {
	if err := c.cfg.Reset.set(false); err != nil {
		c.fail(now, err)
		return
	}
	c.start(now, now.Add(c.cfg.Start))
}

// start waits for a module that answers at due.
func (c *Cage) start(now, due time.Time) {
	c.enter(Starting, now, "")
	c.due, c.limit = due, due.Add(c.cfg.Patience)
}

func (c *Cage) fail(now time.Time, err error) {
	c.enter(Failed, now, err.Error())
	c.due = now.Add(c.cfg.Retry)
}

func (c *Cage) stepStarting(now time.Time) {
	// A module asserts IntL when it is up (SFF-8679, IntL after reset), so that the
	// longest start need not be waited for.
	early := c.cfg.Interrupt.wired() && c.cfg.Interrupt.active()
	if now.Before(c.due) && !early {
		return
	}
	var mem memory
	var mod sff.Module
	err := c.bus.do(c, func() (err error) {
		if mem, err = c.load(); err != nil {
			return err
		}
		if err = c.sample(&mem); err != nil {
			return err
		}
		if mod, err = mem.decode(); err != nil {
			return err
		}
		return c.power(&mem, mod)
	})
	if c.gone() {
		c.remove(now)
		return
	}
	late := !now.Before(c.limit)
	switch {
	case err != nil && late:
		c.fail(now, fmt.Errorf("the module does not answer %v after its start: %w", c.cfg.Start+c.cfg.Patience, err))
	case err != nil:
		c.state.Problem = err.Error()
	case mod.NotReady && !late:
		c.state.Problem = "the module says that it is not ready"
	default:
		c.mem = mem
		c.enter(Ready, now, c.powerProblem(mod))
		c.show(mod)
		c.state.Insertions++
	}
}

func (c *Cage) stepReady(now time.Time) {
	var mod sff.Module
	// What is shown stays as it is until the whole sample is there.
	err := c.bus.do(c, func() error { return c.sample(&c.mem) })
	if err == nil {
		mod, err = c.mem.decode()
	}
	switch {
	case c.gone():
		c.remove(now)
	case errors.Is(err, errExchanged):
		c.start(now, now)
		c.state.Problem = err.Error()
	case err != nil && !c.cfg.Present.wired():
		c.enter(Empty, now, err.Error())
	case err != nil:
		c.start(now, now)
		c.state.Problem = err.Error()
	default:
		c.show(mod)
	}
}

// show takes the values of a sample, and what lines and registers hold the
// module in.
func (c *Cage) show(mod sff.Module) {
	c.state.Module = mod
	low := c.cfg.LPMode.wired() && c.cfg.LPMode.active()
	if p := mod.PowerControl; mod.Management == sff.SFF8636 && p != nil && p.Override {
		low = p.LowPower // software decides, not the pin
	}
	if mod.Copper && !mod.Active {
		low = false // a cable has no power to save
	}
	c.state.LowPower = low
	c.state.TxOff = mod.Management == sff.SFF8472 && c.cfg.TxDisable.wired() && c.cfg.TxDisable.active()
}

// powerProblem says why a module is held in low power.
func (c *Cage) powerProblem(mod sff.Module) string {
	if mod.Management == sff.SFF8636 && mod.PowerClass > c.cfg.MaxClass {
		return fmt.Sprintf("the module is of power class %d, the cage supplies class %d: it stays in low power", mod.PowerClass, c.cfg.MaxClass)
	}
	return ""
}

// The power control bits of SFF-8636 byte 93.
const (
	powerOverride = 1 << 0
	powerLow      = 1 << 1
	powerHigh     = 1 << 2 // classes 5 to 7
	powerClass8   = 1 << 3
)

// power takes a QSFP out of low power, or keeps it there, by line if there is
// one and by its control register else.
func (c *Cage) power(mem *memory, mod sff.Module) error {
	if mod.Management != sff.SFF8636 {
		return c.cfg.LPMode.set(c.cfg.LowPower)
	}
	low := c.cfg.LowPower || mod.PowerClass > c.cfg.MaxClass
	before := mem.low[regPower]
	want := before &^ (powerOverride | powerLow | powerHigh | powerClass8)
	switch {
	case low && !c.cfg.LPMode.wired():
		want |= powerOverride | powerLow
	case !c.cfg.LPMode.wired():
		want |= powerOverride
	}
	if !low && mod.PowerClass >= 5 {
		want |= powerHigh
	}
	if !low && mod.PowerClass == 8 {
		want |= powerClass8
	}
	// A cable has no power to control, and some have no register to write.
	if want != before && (!mod.Copper || mod.Active) {
		if err := c.control(address, regPower, want, 0x0F); err != nil {
			return err
		}
		mem.low[regPower] = want
	}
	return c.cfg.LPMode.set(low)
}

// control writes a control register and waits, with a bound, until it holds the
// bits of mask: a module may be busy for a while after a write.
func (c *Cage) control(at uint16, reg, value, mask byte) error {
	if err := c.write(at, reg, value); err != nil {
		return err
	}
	var got [1]byte
	var last error
	p := poll.Poll{Timeout: 100 * time.Millisecond, Sleep: c.cfg.Sleep}
	if _, err := p.Until(func() (bool, error) {
		last = c.read(at, span{int(reg), 1}, got[:])
		return last == nil && got[0]&mask == value&mask, nil
	}); err != nil {
		if last != nil {
			return last
		}
		return fmt.Errorf("byte %d is 0x%02X after 0x%02X was written: %w", reg, got[0], value, ErrNotHeld)
	}
	return nil
}

// change runs fn for the module that is ready.
func (c *Cage) change(what string, fn func(m sff.Module) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := ErrEmpty
	if c.state.Phase == Ready && !c.gone() {
		err = c.bus.do(c, func() error { return fn(c.state.Module) })
	}
	if err != nil {
		return fmt.Errorf("cage %s: %s: %w", c.cfg.Name, what, err)
	}
	return nil
}

// SetTxDisable turns transmitters off: bit 0 is lane 1. An SFP has one, by line
// or by register.
func (c *Cage) SetTxDisable(lanes uint8) error {
	return c.change("disable transmitters", func(m sff.Module) error {
		if m.Management == sff.SFF8472 && c.cfg.TxDisable.wired() {
			return c.cfg.TxDisable.set(lanes&1 != 0)
		}
		if m.Capabilities == nil || !m.Capabilities.TxDisable {
			return ErrUnsupported
		}
		switch m.Management {
		case sff.SFF8636:
			return c.control(address, regTxDisable, lanes&0xF, 0xF)
		case sff.SFF8472:
			if c.mem.diag == nil {
				return ErrUnsupported
			}
			v := c.mem.diag[regSFPStatus] &^ sfpSoftTxOff
			if lanes&1 != 0 {
				v |= sfpSoftTxOff
			}
			return c.control(addressDiag, regSFPStatus, v, sfpSoftTxOff)
		}
		return ErrUnsupported
	})
}

// SetCDR turns the clock recovery of a QSFP's lanes on: bit 0 is lane 1. A
// direction without CDR must be 0xF, which is what it amounts to.
func (c *Cage) SetCDR(rx, tx uint8) error {
	return c.change("set CDR", func(m sff.Module) error {
		if m.Management != sff.SFF8636 || !m.Capabilities.RxCDR && rx&0xF != 0xF || !m.Capabilities.TxCDR && tx&0xF != 0xF {
			return ErrUnsupported
		}
		var mask byte
		if m.Capabilities.RxCDR {
			mask |= 0x0F
		}
		if m.Capabilities.TxCDR {
			mask |= 0xF0
		}
		if mask == 0 {
			return nil
		}
		return c.control(address, regCDR, tx<<4|rx&0xF, mask)
	})
}

// SetLowPower takes the module into low power or out of it, and so for every
// module after it. A module above the cage's power class stays in low power.
func (c *Cage) SetLowPower(low bool) error {
	return c.change("set power mode", func(m sff.Module) error {
		c.cfg.LowPower = low
		return c.power(&c.mem, m)
	})
}

// transition is how often a cage is looked at while a module comes up.
const transition = 20 * time.Millisecond

// Run steps the cage until the context ends: every so often while nothing
// changes, faster while a module comes up. report gets each state.
func (c *Cage) Run(ctx context.Context, every time.Duration, report func(State)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			s := c.Step(now)
			report(s)
			wait := every
			switch s.Phase {
			case Plugged, Reset, Starting:
				wait = min(wait, transition)
			}
			timer.Reset(wait)
		}
	}
}
