package opticstest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/physic"
)

// ErrNACK is what a bus says when nobody answers.
var ErrNACK = errors.New("no acknowledge")

// Pin is a GPIO line that keeps the level it was driven to.
type Pin struct {
	gpio.PinIO // what is not needed
	name       string
	level      atomic.Bool
	driven     atomic.Bool
}

// NewPin is a line at a level, not driven by the cage's driver.
func NewPin(name string, level gpio.Level) *Pin {
	p := &Pin{PinIO: gpio.INVALID, name: name}
	p.level.Store(bool(level))
	return p
}

func (p *Pin) Name() string                  { return p.name }
func (p *Pin) In(gpio.Pull, gpio.Edge) error { return nil }
func (p *Pin) Read() gpio.Level              { return gpio.Level(p.level.Load()) }

// Set is the level somebody else drives.
func (p *Pin) Set(level gpio.Level) { p.level.Store(bool(level)) }

// Out drives the line.
func (p *Pin) Out(level gpio.Level) error {
	p.level.Store(bool(level))
	p.driven.Store(true)
	return nil
}

// Module is a module that answers on I2C.
type Module struct {
	SFP bool
	// A0 is 256 bytes, A2 an SFP's diagnostics.
	A0, A2 []byte
	// Upper are the pages above 00h; without any the memory is flat and writing
	// the page register is a violation.
	Upper map[uint8][]byte
	// NoWrite are registers that do not take what is written.
	NoWrite []byte

	page uint8
}

// Module makes the QSFP answer.
func (q QSFP) Module() *Module {
	p := q.Pages()
	m := &Module{A0: slices.Concat(p[0], p[1])}
	if !q.Flat {
		m.Upper = map[uint8][]byte{1: p[2], 2: p[3], 3: p[4]}
	}
	return m
}

// Module makes the SFP answer.
func (s SFP) Module() *Module {
	d := s.Dump()
	m := &Module{SFP: true, A0: d[:256]}
	if len(d) > 256 {
		m.A2 = d[256:]
	}
	return m
}

// Socket is a place for a module.
type Socket struct {
	Module *Module
	// ModSel tells whether the module listens; nil: always. Held tells whether it
	// is in reset; nil: never.
	ModSel, Held func() bool
	// ReadyAt is when the module answers, by the bus's clock.
	ReadyAt time.Time
	// OnTransfer runs before each transfer to the module, for modules pulled in
	// the middle of something.
	OnTransfer func()
}

// Switch is an I2C switch with a bit a channel.
type Switch struct {
	Address  uint16
	Channels [8][]*Socket
	control  byte
}

// IO is one transfer.
type IO struct {
	Address uint16
	Write   []byte
	Read    int
}

// Bus is an I2C bus. What no driver should do is in Violations: reading across
// byte 127, two channels open at once, two modules that answer together, a page
// written to a flat memory, a module addressed in reset.
type Bus struct {
	Now      func() time.Time // nil: modules are always ready
	Trunk    []*Socket
	Switches []*Switch

	mu         sync.Mutex
	log        []IO
	violations []string
	flagReads  int
}

func (b *Bus) String() string                  { return "fake" }
func (b *Bus) SetSpeed(physic.Frequency) error { return nil }

// Log returns the transfers since it was last asked, and forgets them.
func (b *Bus) Log() []IO {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.log
	b.log = nil
	return l
}

// Violations are what the driver did wrong so far.
func (b *Bus) Violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.violations)
}

// FlagReads counts the reads that cleared the latched flags of a QSFP.
func (b *Bus) FlagReads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flagReads
}

// Open are the switches with an open channel.
func (b *Bus) Open() (addresses []uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.Switches {
		if s.control != 0 {
			addresses = append(addresses, s.Address)
		}
	}
	return addresses
}

func (b *Bus) violation(format string, args ...any) {
	b.violations = append(b.violations, fmt.Sprintf(format, args...))
}

// Duration is how long transfers take at a clock: a start, nine bits a byte, a
// stop, and a repeated start with the address again before what is read.
func Duration(log []IO, hertz float64) time.Duration {
	bits := 0
	for _, t := range log {
		bits += 2 + 9*(1+len(t.Write))
		if t.Read > 0 {
			bits += 1 + 9*(1+t.Read)
		}
	}
	return time.Duration(float64(bits) / hertz * float64(time.Second))
}

// Tx is a transfer.
func (b *Bus) Tx(address uint16, w, r []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, IO{address, slices.Clone(w), len(r)})
	for _, s := range b.Switches {
		if s.Address == address {
			b.toSwitch(s, w, r)
			return nil
		}
	}
	var answers []*Socket
	reach := slices.Clone(b.Trunk)
	for _, s := range b.Switches {
		for n, c := range s.Channels {
			if s.control&(1<<n) != 0 {
				reach = append(reach, c...)
			}
		}
	}
	for _, s := range reach {
		if s.OnTransfer != nil {
			s.OnTransfer()
		}
		if m := s.Module; m == nil || address != 0x50 && (address != 0x51 || m.A2 == nil) {
			continue
		}
		if s.ModSel != nil && !s.ModSel() {
			continue
		}
		if s.Held != nil && s.Held() {
			b.violation("module in reset addressed")
			continue
		}
		if b.Now != nil && b.Now().Before(s.ReadyAt) {
			continue
		}
		answers = append(answers, s)
	}
	switch len(answers) {
	case 0:
		return fmt.Errorf("I2C 0x%02X: %w", address, ErrNACK)
	case 1:
		b.toModule(answers[0].Module, address, w, r)
		return nil
	}
	b.violation("%d modules answer at 0x%02X", len(answers), address)
	return fmt.Errorf("I2C 0x%02X: several answer", address)
}

func (b *Bus) toSwitch(s *Switch, w, r []byte) {
	if len(w) > 0 {
		s.control = w[len(w)-1]
	}
	for i := range r {
		r[i] = s.control
	}
	open := 0
	for _, s := range b.Switches {
		for n := range s.Channels {
			open += int(s.control >> n & 1)
		}
	}
	if open > 1 {
		b.violation("%d channels open at once", open)
	}
}

// at is where a register of the module is, with the page that is selected.
func (m *Module) at(reg int) *byte {
	if reg < 128 || m.page == 0 || m.SFP {
		return &m.A0[reg]
	}
	if p := m.Upper[m.page]; p != nil {
		return &p[reg-128]
	}
	return &m.A0[reg] // a page that does not exist
}

func (b *Bus) toModule(m *Module, address uint16, w, r []byte) {
	if len(w) == 0 {
		b.violation("read without a register")
		return
	}
	reg := int(w[0])
	if reg < 128 && reg+max(len(r), len(w)-1) > 128 {
		b.violation("transfer at byte %d of %d bytes crosses byte 127", reg, max(len(r), len(w)-1))
	}
	for i, v := range w[1:] {
		b.toRegister(m, address, reg+i, v)
	}
	for i := range r {
		at := (reg + i) % 256
		if address == 0x51 {
			r[i] = m.A2[at]
			continue
		}
		r[i] = *m.at(at)
	}
	if qsfp := address == 0x50 && !m.SFP; qsfp && len(r) > 0 && reg <= 14 && reg+len(r) > 3 {
		b.flagReads++
		for at := max(reg, 3); at < min(reg+len(r), 15); at++ {
			m.A0[at] = 0
		}
	}
}

func (b *Bus) toRegister(m *Module, address uint16, reg int, v byte) {
	switch {
	case reg > 255:
	case address == 0x51:
		m.A2[reg] = v
	case reg == 127 && m.Upper == nil:
		b.violation("page 0x%02X written to a flat memory", v)
	case slices.Contains(m.NoWrite, byte(reg)):
	default:
		if reg == 127 {
			m.page = v
		}
		*m.at(reg) = v
	}
}
