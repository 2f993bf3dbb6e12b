package fabricio

import (
	"fmt"
	"sync"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/physic"

	"rocelink/fpga/regs"
)

// lines names the bits of Modules.In; those below outputs can be driven.
var lines = [...]string{"ResetL", "LPMode", "ModSelL", "ModPrsL", "IntL"}

const outputs = 3

// Chip is the lines. It is safe for concurrent use; nobody else may drive them.
type Chip struct {
	name string
	bus  regs.Bus
	mu   sync.Mutex
}

// NewChip is the lines of the block that begins at 0 of the registers.
func NewChip(name string, bus regs.Bus) *Chip { return &Chip{name: name, bus: bus} }

func (c *Chip) String() string { return c.name }

// Pin is a line by its number: ResetL, LPMode, ModSelL, ModPrsL, IntL.
func (c *Chip) Pin(n int) (gpio.PinIO, error) {
	if n < 0 || n >= len(lines) {
		return nil, fmt.Errorf("%s: line %d, want 0 to %d: %w", c.name, n, len(lines)-1, ErrLine)
	}
	return &pin{c, n}, nil
}

// pin is a line.
type pin struct {
	chip   *Chip
	number int
}

var _ gpio.PinIO = (*pin)(nil)

func (p *pin) String() string {
	return fmt.Sprintf("%s line %d (%s)", p.chip.name, p.number, lines[p.number])
}
func (p *pin) Name() string     { return p.String() }
func (p *pin) Number() int      { return p.number }
func (p *pin) Function() string { return "GPIO" }
func (p *pin) Halt() error      { return nil }

// In refuses a line that the fabric drives.
func (p *pin) In(pull gpio.Pull, edge gpio.Edge) error {
	if pull != gpio.PullNoChange && pull != gpio.Float || edge != gpio.NoEdge || p.number < outputs {
		return fmt.Errorf("%s: input with pull %v, edge %v: %w", p, pull, edge, ErrUnsupported)
	}
	return nil
}

// Read is the level that the line has, whoever drives it. Without a fabric it is
// High, as a line that nothing drives but its pull-up.
func (p *pin) Read() gpio.Level {
	p.chip.mu.Lock()
	defer p.chip.mu.Unlock()
	if identify(p.chip.bus) != nil {
		return gpio.High
	}
	v, err := regs.ModulesIn.Read(p.chip.bus)
	return err != nil || v>>p.number&1 != 0
}

// Out drives the line.
func (p *pin) Out(l gpio.Level) error {
	if p.number >= outputs {
		return fmt.Errorf("%s: is an input: %w", p, ErrUnsupported)
	}
	p.chip.mu.Lock()
	defer p.chip.mu.Unlock()
	if err := identify(p.chip.bus); err != nil {
		return fmt.Errorf("%s: drive %v: %w", p, l, err)
	}
	// Read each time: a fabric that began anew has its own levels.
	v, err := regs.ModulesOut.Read(p.chip.bus)
	if err != nil {
		return fmt.Errorf("%s: read the levels: %w", p, err)
	}
	v &^= 1 << p.number
	if l {
		v |= 1 << p.number
	}
	if err := regs.ModulesOut.Write(p.chip.bus, v); err != nil {
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
