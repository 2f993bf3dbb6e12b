package clock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"

	"rocelink/boards"
)

// ErrLock: the part was set but does not lock.
var ErrLock = errors.New("clock does not lock")

// lockWait bounds the wait for a lock: a jitter cleaner with a narrow loop takes
// up to a second (Si5345 data sheet, lock time at 100 Hz bandwidth).
const lockWait = 2 * time.Second

// Config is what a clock needs besides its description. The zero value works.
type Config struct {
	// ReadFile reads the script; nil: os.ReadFile.
	ReadFile func(name string) ([]byte, error)
	// Lock is the description's lock line; nil: not wired.
	Lock gpio.PinIn
	// Record is a file that keeps what was set for as long as the system runs, so
	// that a part that runs as it should is left alone when the program starts
	// again. Empty: it is kept by the Clock only.
	Record string
	// Now and Sleep are the clock; nil is the real one.
	Now   func() time.Time
	Sleep func(time.Duration)
}

// State is what is known of a clock.
type State struct {
	Name    string
	Hz      float64 // set or described; 0: not known
	Locked  *bool   // nil: cannot be told
	Problem string
}

// Clock is one programmable clock. It is safe for concurrent use.
type Clock struct {
	desc boards.Clock
	bus  i2c.Bus
	cfg  Config

	mu    sync.Mutex // held during transfers
	last  sync.Mutex // guards state
	state State
	set   bool   // Configure has set the part
	held  string // what the part held then; empty: not known
}

// New makes a clock of its description. The bus is the one at the end of the
// description's route.
func New(desc boards.Clock, bus i2c.Bus, cfg Config) (*Clock, error) {
	if bus == nil {
		return nil, fmt.Errorf("clock %s: no bus", desc.Name)
	}
	switch {
	case desc.Driver == "si570":
	case desc.Driver == "script" && drivers[desc.Part] != nil:
	default:
		return nil, fmt.Errorf("clock %s: driver %q for part %q is not known", desc.Name, desc.Driver, desc.Part)
	}
	if cfg.ReadFile == nil {
		cfg.ReadFile = os.ReadFile
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Clock{desc: desc, bus: bus, cfg: cfg, state: State{Name: desc.Name, Problem: "not set yet"}}, nil
}

// State is what the last Configure or Check found.
func (c *Clock) State() State {
	c.last.Lock()
	defer c.last.Unlock()
	s := c.state
	if s.Locked != nil {
		locked := *s.Locked
		s.Locked = &locked
	}
	return s
}

// Configure sets the clock and waits for its lock. It may be called again. A Si570
// that was set and still holds what it was set to is not touched.
func (c *Clock) Configure(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = false
	err := c.configure(ctx)
	c.set = err == nil
	var locked *bool
	if err == nil {
		locked, err = c.awaitLock(ctx)
	}
	return c.note(locked, err)
}

// Check looks whether a clock that was set is still locked.
func (c *Clock) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.set {
		return nil
	}
	locked, err := c.locked()
	if err == nil && locked != nil && !*locked {
		err = ErrLock
	}
	return c.note(locked, err)
}

// note keeps what was found.
func (c *Clock) note(locked *bool, err error) error {
	s := State{Name: c.desc.Name, Locked: locked}
	if c.set {
		s.Hz = c.desc.Hz
	}
	if err != nil {
		err = fmt.Errorf("clock %s: %w", c.desc.Name, err)
		s.Problem = err.Error()
	}
	c.last.Lock()
	defer c.last.Unlock()
	c.state = s
	return err
}

func (c *Clock) configure(ctx context.Context) error {
	if c.desc.Driver == "si570" {
		return c.configureSi570(ctx)
	}
	text, err := c.cfg.ReadFile(c.desc.Script)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	steps, err := parse(c.desc.Part, text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.desc.Script, err)
	}
	return drivers[c.desc.Part].load(ctx, c, steps)
}

func (c *Clock) awaitLock(ctx context.Context) (*bool, error) {
	for end := c.cfg.Now().Add(lockWait); ; {
		locked, err := c.locked()
		switch {
		case err != nil || locked == nil || *locked:
			return locked, err
		case ctx.Err() != nil:
			return locked, ctx.Err()
		case !c.cfg.Now().Before(end):
			return locked, fmt.Errorf("%w within %v: is its input there?", ErrLock, lockWait)
		}
		if err := c.sleep(ctx, 10*time.Millisecond); err != nil {
			return locked, err
		}
	}
}

// sleep waits, or ends with ctx.
func (c *Clock) sleep(ctx context.Context, d time.Duration) error {
	if c.cfg.Sleep != nil {
		c.cfg.Sleep(d)
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// locked asks the line, or else the part; nil where neither can tell.
func (c *Clock) locked() (*bool, error) {
	if c.cfg.Lock != nil {
		active := c.cfg.Lock.Read() == gpio.High
		if c.desc.Lock != nil && c.desc.Lock.ActiveLow {
			active = !active
		}
		return &active, nil
	}
	d := drivers[c.desc.Part]
	if d == nil || c.desc.Driver != "script" || d.locked == nil {
		return nil, nil
	}
	locked, err := d.locked(c)
	if err != nil {
		return nil, fmt.Errorf("read lock: %w", err)
	}
	return &locked, nil
}

// driver is how a part is loaded and asked.
type driver struct {
	load   func(context.Context, *Clock, []step) error
	locked func(*Clock) (bool, error) // nil: it has no register for it
}

var drivers = map[string]*driver{
	"si5341": {loadSilabs, lockedSi5341}, "si5345": {loadSilabs, lockedSi5345}, "si5395": {loadSilabs, lockedSi5345},
	"8a34001":  {loadRenesas, nil},
	"lmk04828": {loadSPI, nil}, "lmk04208": {loadSPI, nil}, "lmx2594": {loadSPI, nil},
}

// pageRegister selects the page of a Si534x (data sheet, register 0x0001).
const pageRegister = 0x01

// run writes steps, stopping at the first that fails.
func (c *Clock) run(ctx context.Context, steps []step, write func(step) error) error {
	for n, s := range steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("after %d of %d writes: %w", n, len(steps), err)
		}
		if s.wait > 0 {
			if err := c.sleep(ctx, s.wait); err != nil {
				return fmt.Errorf("after %d of %d writes: %w", n, len(steps), err)
			}
			continue
		}
		if err := write(s); err != nil {
			return fmt.Errorf("write %d of %d, register 0x%04X: %w", n+1, len(steps), s.register, err)
		}
	}
	return nil
}

func (c *Clock) tx(w ...byte) error { return c.bus.Tx(c.desc.Address, w, nil) }

func loadSilabs(ctx context.Context, c *Clock, steps []step) error {
	page := -1
	return c.run(ctx, steps, func(s step) error {
		if p := int(s.register >> 8); p != page {
			page = -1
			if err := c.tx(pageRegister, byte(p)); err != nil {
				return fmt.Errorf("page: %w", err)
			}
			page = p
		}
		return c.tx(byte(s.register), s.data[0])
	})
}

// status reads a register of page 0.
func (c *Clock) status(register byte) (byte, error) {
	if err := c.tx(pageRegister, 0); err != nil {
		return 0, err
	}
	var v [1]byte
	err := c.bus.Tx(c.desc.Address, []byte{register}, v[:])
	return v[0], err
}

// lockedSi5341: register 0x000C: bit 0 SYSINCAL, bit 3 LOL (Si5341 reference
// manual, status registers).
func lockedSi5341(c *Clock) (bool, error) {
	v, err := c.status(0x0C)
	return v&(1<<0|1<<3) == 0, err
}

// lockedSi5345: besides SYSINCAL in 0x000C, LOL is bit 1 of 0x000E (Si5345 and
// Si5395 reference manuals).
func lockedSi5345(c *Clock) (bool, error) {
	v, err := c.status(0x0C)
	if err != nil || v&1 != 0 {
		return false, err
	}
	v, err = c.status(0x0E)
	return v&(1<<1) == 0, err
}

// loadRenesas writes pages of an 8A34001 in its one-byte address mode: the page
// is the four bytes at 0xFC of every page, 0x2010 in the upper half (8A3xxxx
// Family Programming Guide, serial port).
func loadRenesas(ctx context.Context, c *Clock, steps []step) error {
	page := -1
	return c.run(ctx, steps, func(s step) error {
		if p := int(s.register >> 8); p != page {
			page = -1
			if err := c.tx(0xFC, 0x00, byte(p), 0x10, 0x20); err != nil {
				return fmt.Errorf("page: %w", err)
			}
			page = p
		}
		return c.tx(slices.Concat([]byte{byte(s.register)}, s.data)...)
	})
}

// SC18IS602 and SC18IS603 (NXP data sheet, 7.1).
const (
	bridgeConfigure = 0xF0
	bridgeMode      = 0x00 // MSB first, mode 0, the fastest clock
)

func loadSPI(ctx context.Context, c *Clock, steps []step) error {
	if err := c.bus.Tx(c.desc.Bridge, []byte{bridgeConfigure, bridgeMode}, nil); err != nil {
		return fmt.Errorf("SPI bridge 0x%02X: %w", c.desc.Bridge, err)
	}
	return c.run(ctx, steps, func(s step) error {
		return c.bus.Tx(c.desc.Bridge, slices.Concat([]byte{c.desc.Select}, s.data), nil)
	})
}
