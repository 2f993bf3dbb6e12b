package optics

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"
)

// Mux is an I2C switch on a bus.
type Mux struct {
	Part    string // as "pca9548"
	Address uint16
	// Nested: it sits behind a channel of another one.
	Nested bool
}

// Hop is one channel on the way to a cage.
type Hop struct {
	Mux     uint16 // address
	Channel int
}

// chip is how a switch takes a channel: as a bit of its own, or as a number with
// an enable bit.
type chip struct {
	channels int
	enable   byte // 0: a bit a channel
}

// chips: control registers by the data sheets of NXP (PCA954x) and TI (TCA954x);
// Linux's i2c-mux-pca954x.c has the same table.
var chips = map[string]chip{
	"pca9540": {2, 0x04}, "pca9542": {2, 0x04}, "pca9544": {4, 0x04}, "pca9547": {8, 0x08},
	"pca9543": {2, 0}, "pca9545": {4, 0}, "pca9546": {4, 0}, "pca9548": {8, 0},
	"tca9543": {2, 0}, "tca9544": {4, 0x04}, "tca9545": {4, 0}, "tca9546": {4, 0}, "tca9548": {8, 0},
}

// control is the register's value for a channel.
func (c chip) control(channel int) byte {
	if c.enable != 0 {
		return c.enable | byte(channel)
	}
	return 1 << channel
}

// allClosed is the register's value for no channel.
const allClosed = 0

// mux is a switch and what its register holds.
type mux struct {
	Mux
	chip
	known bool // the register was written, and holds value
	value byte
}

// Bus is an I2C bus, the switches on it and who uses it: one cage at a time. It
// is safe for concurrent use.
type Bus struct {
	mu    sync.Mutex
	bus   i2c.Bus
	muxes []*mux
	// selected is the cage whose ModSel is active, by route: modules behind one
	// channel have the same address and only ModSel tells them apart.
	selected map[string]*Cage
}

// NewBus describes a bus. Switches that the kernel drives do not belong here:
// each of their channels is a bus of its own.
func NewBus(bus i2c.Bus, muxes ...Mux) (*Bus, error) {
	b := &Bus{bus: bus, selected: map[string]*Cage{}}
	for _, m := range muxes {
		c, ok := chips[strings.ToLower(m.Part)]
		if !ok {
			return nil, fmt.Errorf("I2C switch at 0x%02X: part %q is not known", m.Address, m.Part)
		}
		if b.mux(m.Address) != nil {
			return nil, fmt.Errorf("I2C switch at 0x%02X: described twice", m.Address)
		}
		b.muxes = append(b.muxes, &mux{Mux: m, chip: c})
	}
	return b, nil
}

func (b *Bus) mux(address uint16) *mux {
	for _, m := range b.muxes {
		if m.Address == address {
			return m
		}
	}
	return nil
}

// check refuses a route that the bus does not have.
func (b *Bus) check(route []Hop) error {
	for n, h := range route {
		m := b.mux(h.Mux)
		if m == nil {
			return fmt.Errorf("no I2C switch at 0x%02X is described", h.Mux)
		}
		if h.Channel < 0 || h.Channel >= m.channels {
			return fmt.Errorf("I2C switch %s at 0x%02X has no channel %d, but 0 to %d", m.Part, h.Mux, h.Channel, m.channels-1)
		}
		if m.Nested != (n > 0) {
			return fmt.Errorf("I2C switch at 0x%02X: is hop %d of the route, nested is %v", h.Mux, n+1, m.Nested)
		}
	}
	return nil
}

// set writes a switch's register. After an error nothing is known of it.
func (b *Bus) set(m *mux, value byte) error {
	m.known = false
	if err := b.bus.Tx(m.Address, []byte{value}, nil); err != nil {
		return fmt.Errorf("write 0x%02X to I2C switch 0x%02X: %w", value, m.Address, err)
	}
	m.known, m.value = true, value
	return nil
}

// do runs fn with the way to a cage open and the cage selected.
func (b *Bus) do(c *Cage, fn func() error) error {
	return b.open(c.cfg.Route, func() error {
		if err := b.choose(c); err != nil {
			return err
		}
		return fn()
	})
}

// open runs fn with a route open. Every other channel is closed before one is
// opened, and all are closed afterwards: other devices answer at the same
// addresses elsewhere, and a second master may use the bus in between.
func (b *Bus) open(route []Hop, fn func() error) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.muxes {
		if !m.Nested && (!m.known || m.value != allClosed) {
			if err := b.set(m, allClosed); err != nil {
				return err
			}
		}
	}
	for _, h := range route {
		m := b.mux(h.Mux)
		defer func() { err = errors.Join(err, b.set(m, allClosed)) }()
		if err := b.set(m, m.control(h.Channel)); err != nil {
			return err
		}
	}
	return fn()
}

// Through is what is at the end of a route as a bus of its own: each transfer
// opens the way and closes it.
func (b *Bus) Through(route []Hop) (i2c.Bus, error) {
	if err := b.check(route); err != nil {
		return nil, err
	}
	return through{b, route}, nil
}

type through struct {
	*Bus
	route []Hop
}

func (t through) String() string { return fmt.Sprintf("%v%v", t.bus, t.route) }

func (t through) Tx(address uint16, w, r []byte) error {
	return t.open(t.route, func() error { return t.bus.Tx(address, w, r) })
}

func (t through) SetSpeed(f physic.Frequency) error { return t.bus.SetSpeed(f) }

// modSelSetup is how long a module wants to be selected before it is addressed
// (SFF-8679, ModSelL setup time).
const modSelSetup = 2 * time.Millisecond

// choose selects a cage among those on its route. It stays selected until
// another one is wanted, so that a cage alone on its route waits but once.
func (b *Bus) choose(c *Cage) error {
	if !c.cfg.ModSel.wired() {
		return nil
	}
	key := fmt.Sprint(c.cfg.Route)
	if b.selected[key] == c {
		return nil
	}
	if before := b.selected[key]; before != nil {
		delete(b.selected, key)
		if err := before.cfg.ModSel.set(false); err != nil {
			return fmt.Errorf("cage %s: deselect: %w", before.cfg.Name, err)
		}
	}
	if err := c.cfg.ModSel.set(true); err != nil {
		return fmt.Errorf("select: %w", err)
	}
	c.cfg.Sleep(modSelSetup)
	b.selected[key] = c
	return nil
}
