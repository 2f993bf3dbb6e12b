// Package axigpio is the lines of an AXI GPIO core (AMD PG144) as periph's
// gpio.PinIO: lines 0 to 31 are those of channel 1, 32 to 63 those of channel 2.
//
// Lines are not touched before they are used. The level of an output is the one
// last driven here.
package axigpio

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/physic"

	"rocelink/fpga/regs"
)

// Errors of a chip and its lines.
var (
	// ErrLine: the core has no such line.
	ErrLine = errors.New("no such line")
	// ErrUnsupported: the core cannot do it.
	ErrUnsupported = errors.New("not supported by AXI GPIO")
)

const (
	perChannel = 32
	channels   = 2
)

// Chip is a core. It is safe for concurrent use; nobody else may write it.
type Chip struct {
	name string
	bus  regs.Bus

	mu     sync.Mutex
	output [channels]uint32 // as last written
	tri    [channels]uint32 // 1: input
	known  [channels]bool   // both were read
}

// New is the core whose registers begin at 0 of the bus. It touches nothing.
func New(name string, bus regs.Bus) *Chip { return &Chip{name: name, bus: bus} }

func (c *Chip) String() string { return c.name }

// Pin is a line by its number.
func (c *Chip) Pin(n int) (gpio.PinIO, error) {
	if n < 0 || n >= channels*perChannel {
		return nil, fmt.Errorf("%s: line %d, want 0 to %d: %w", c.name, n, channels*perChannel-1, ErrLine)
	}
	return &pin{chip: c, number: n, channel: n / perChannel, mask: 1 << (n % perChannel)}, nil
}

func registers(channel int) (data, tri regs.Reg) {
	if channel == 0 {
		return regs.GPIOData, regs.GPIOTri
	}
	return regs.GPIOData2, regs.GPIOTri2
}

// learn reads what a channel drives already, from before this program: the pins
// of its outputs, where the core shows them. The caller holds the lock.
func (c *Chip) learn(p *pin) error {
	if c.known[p.channel] {
		return nil
	}
	data, tri := registers(p.channel)
	t, err := tri.Read(c.bus)
	if err != nil {
		return fmt.Errorf("%s: read the directions: %w", p, err)
	}
	v, err := data.Read(c.bus)
	if err != nil {
		return fmt.Errorf("%s: read the levels: %w", p, err)
	}
	c.tri[p.channel], c.output[p.channel], c.known[p.channel] = t, v&^t, true
	return nil
}

// direct makes a line an input or an output. The caller holds the lock.
func (c *Chip) direct(p *pin, input bool) error {
	_, r := registers(p.channel)
	if err := c.learn(p); err != nil {
		return err
	}
	v := c.tri[p.channel] &^ p.mask
	if input {
		v |= p.mask
	}
	if v == c.tri[p.channel] {
		return nil
	}
	if err := r.Write(c.bus, v); err != nil {
		return fmt.Errorf("%s: write the directions: %w", p, err)
	}
	// A line that is fixed when the core is built does not take it.
	got, err := r.Read(c.bus)
	if err != nil {
		return fmt.Errorf("%s: read the directions: %w", p, err)
	}
	c.tri[p.channel] = got
	if got&p.mask != v&p.mask {
		return fmt.Errorf("%s: the direction does not change, the core is built without it: %w", p, ErrUnsupported)
	}
	return nil
}

// pin is a line.
type pin struct {
	chip    *Chip
	number  int
	channel int
	mask    uint32
}

var _ gpio.PinIO = (*pin)(nil)

func (p *pin) String() string   { return fmt.Sprintf("%s line %d", p.chip.name, p.number) }
func (p *pin) Name() string     { return p.String() }
func (p *pin) Number() int      { return p.number }
func (p *pin) Function() string { return "GPIO" }
func (p *pin) Halt() error      { return nil }

// In makes the line an input. The core has no pulls and tells no edges apart.
func (p *pin) In(pull gpio.Pull, edge gpio.Edge) error {
	if pull != gpio.PullNoChange && pull != gpio.Float || edge != gpio.NoEdge {
		return fmt.Errorf("%s: pull %v, edge %v: %w", p, pull, edge, ErrUnsupported)
	}
	p.chip.mu.Lock()
	defer p.chip.mu.Unlock()
	return p.chip.direct(p, true)
}

// Read is the level of the line. A core that does not answer reads as Low.
func (p *pin) Read() gpio.Level {
	c := p.chip
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[p.channel] && c.tri[p.channel]&p.mask == 0 {
		return c.output[p.channel]&p.mask != 0
	}
	data, _ := registers(p.channel)
	v, err := data.Read(c.bus)
	return err == nil && v&p.mask != 0
}

// Out drives the line. The level is there before the line is driven.
func (p *pin) Out(l gpio.Level) error {
	c := p.chip
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.learn(p); err != nil {
		return err
	}
	v := c.output[p.channel] &^ p.mask
	if l {
		v |= p.mask
	}
	data, _ := registers(p.channel)
	if err := data.Write(c.bus, v); err != nil {
		return fmt.Errorf("%s: drive %v: %w", p, l, err)
	}
	c.output[p.channel] = v
	if err := c.direct(p, false); err != nil {
		return err
	}
	// Where the core takes the level only of lines that are outputs already.
	if err := data.Write(c.bus, v); err != nil {
		return fmt.Errorf("%s: drive %v: %w", p, l, err)
	}
	return nil
}

func (p *pin) WaitForEdge(time.Duration) bool { return false }
func (p *pin) Pull() gpio.Pull                { return gpio.PullNoChange }
func (p *pin) DefaultPull() gpio.Pull         { return gpio.PullNoChange }

func (p *pin) PWM(gpio.Duty, physic.Frequency) error {
	return fmt.Errorf("%s: PWM: %w", p, ErrUnsupported)
}
