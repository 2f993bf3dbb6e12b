//go:build !linux

package gpiochip

import "periph.io/x/conn/v3/gpio"

// Chip is an open GPIO chip.
type Chip struct{}

// Line is one line.
type Line struct{ gpio.PinIO }

// Open returns ErrUnsupported.
func Open(string) (*Chip, error) { return nil, ErrUnsupported }

// Close does nothing.
func (c *Chip) Close() error { return nil }

// Line returns ErrUnsupported.
func (c *Chip) Line(int) (*Line, error) { return nil, ErrUnsupported }
