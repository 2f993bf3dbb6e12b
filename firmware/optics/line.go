package optics

import (
	"fmt"

	"periph.io/x/conn/v3/gpio"
)

// Line is a GPIO line of a cage. Whether its active level is low depends on the
// board and not on the name of the module's pin: there may be an inverter or a
// transistor between them. The zero value is a line that is not wired.
type Line struct {
	Pin       gpio.PinIO
	ActiveLow bool
}

func (l Line) wired() bool { return l.Pin != nil }

func (l Line) set(active bool) error {
	if !l.wired() {
		return nil
	}
	level := gpio.Level(active != l.ActiveLow)
	if err := l.Pin.Out(level); err != nil {
		return fmt.Errorf("drive line %s %v: %w", l.Pin.Name(), level, err)
	}
	return nil
}

func (l Line) input() error {
	if !l.wired() {
		return nil
	}
	if err := l.Pin.In(gpio.PullNoChange, gpio.NoEdge); err != nil {
		return fmt.Errorf("make line %s an input: %w", l.Pin.Name(), err)
	}
	return nil
}

func (l Line) active() bool { return bool(l.Pin.Read()) != l.ActiveLow }
