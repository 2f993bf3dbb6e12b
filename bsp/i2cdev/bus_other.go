//go:build !linux

package i2cdev

import "periph.io/x/conn/v3/physic"

// Bus is an open bus.
type Bus struct{}

// Open returns ErrUnsupported.
func Open(string) (*Bus, error) { return nil, ErrUnsupported }

func (b *Bus) String() string { return "" }

// SetSpeed returns ErrUnsupported.
func (b *Bus) SetSpeed(physic.Frequency) error { return ErrUnsupported }

// Tx returns ErrUnsupported.
func (b *Bus) Tx(addr uint16, w, r []byte) error { return ErrUnsupported }

// Close does nothing.
func (b *Bus) Close() error { return nil }
