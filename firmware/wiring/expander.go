package wiring

import (
	"fmt"
	"sync"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"
)

// The registers of a TCA6416 (TI SCPS194, register map): one for each of the two
// ports of eight lines.
const (
	expInput   = 0x00
	expOutput  = 0x02
	expConfig  = 0x06 // 1: input
	expLines   = 16
	expPorts   = 2
	expPerPort = 8
)

// expander is a TCA6416. What it drives is read from it once, so that lines that
// others set are left as they are.
type expander struct {
	name    string
	bus     i2c.Bus
	address uint16

	mu     sync.Mutex
	output [expPorts]byte
	config [expPorts]byte
	input  [expPorts]byte // as last read
}

func newExpander(name string, bus i2c.Bus, address uint16) (*expander, error) {
	e := &expander{name: name, bus: bus, address: address}
	for port := range expPorts {
		for _, r := range []struct {
			reg byte
			to  *byte
		}{{expOutput, &e.output[port]}, {expConfig, &e.config[port]}} {
			v, err := e.read(r.reg + byte(port))
			if err != nil {
				return nil, err
			}
			*r.to = v
		}
	}
	return e, nil
}

func (e *expander) read(reg byte) (byte, error) {
	var v [1]byte
	if err := e.bus.Tx(e.address, []byte{reg}, v[:]); err != nil {
		return 0, fmt.Errorf("expander %s: read register %d: %w", e.name, reg, err)
	}
	return v[0], nil
}

func (e *expander) write(reg, v byte) error {
	if err := e.bus.Tx(e.address, []byte{reg, v}, nil); err != nil {
		return fmt.Errorf("expander %s: write 0x%02X to register %d: %w", e.name, v, reg, err)
	}
	return nil
}

// Pin is a line: 0 to 7 of port 0, then those of port 1.
func (e *expander) Pin(n int) (gpio.PinIO, error) {
	if n < 0 || n >= expLines {
		return nil, fmt.Errorf("line %d: want 0 to %d: %w", n, expLines-1, ErrUnknown)
	}
	return &expanderPin{e, n}, nil
}

// set changes a bit of a register and of its copy, which is what it was if that
// fails.
func (e *expander) set(reg byte, copies *[expPorts]byte, n int, on bool) error {
	port, bit := n/expPerPort, byte(1)<<(n%expPerPort)
	v := copies[port] &^ bit
	if on {
		v |= bit
	}
	if v == copies[port] {
		return nil
	}
	if err := e.write(reg+byte(port), v); err != nil {
		return err
	}
	copies[port] = v
	return nil
}

// expanderPin is a line of an expander: a gpio.PinIO.
type expanderPin struct {
	e *expander
	n int
}

func (p *expanderPin) String() string   { return p.Name() }
func (p *expanderPin) Name() string     { return fmt.Sprintf("%s.%d", p.e.name, p.n) }
func (p *expanderPin) Number() int      { return p.n }
func (p *expanderPin) Function() string { return "GPIO" }
func (p *expanderPin) Halt() error      { return nil }

// In makes it an input.
func (p *expanderPin) In(pull gpio.Pull, edge gpio.Edge) error {
	if pull != gpio.PullNoChange && pull != gpio.Float || edge != gpio.NoEdge {
		return fmt.Errorf("line %s has neither pulls nor edges", p.Name())
	}
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.e.set(expConfig, &p.e.config, p.n, true)
}

// Out drives a level, which is set before the line becomes an output.
func (p *expanderPin) Out(level gpio.Level) error {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if err := p.e.set(expOutput, &p.e.output, p.n, bool(level)); err != nil {
		return err
	}
	return p.e.set(expConfig, &p.e.config, p.n, false)
}

// Read is the level: what is driven, or what is read, or the last one known if
// the expander does not answer.
func (p *expanderPin) Read() gpio.Level {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	port, bit := p.n/expPerPort, byte(1)<<(p.n%expPerPort)
	if p.e.config[port]&bit == 0 {
		return p.e.output[port]&bit != 0
	}
	if v, err := p.e.read(expInput + byte(port)); err == nil {
		p.e.input[port] = v
	}
	return p.e.input[port]&bit != 0
}

func (p *expanderPin) WaitForEdge(time.Duration) bool { return false }
func (p *expanderPin) Pull() gpio.Pull                { return gpio.PullNoChange }
func (p *expanderPin) DefaultPull() gpio.Pull         { return gpio.PullNoChange }

func (p *expanderPin) PWM(gpio.Duty, physic.Frequency) error {
	return fmt.Errorf("line %s has no PWM", p.Name())
}
