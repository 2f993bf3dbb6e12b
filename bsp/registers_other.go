//go:build !linux

package bsp

import "fmt"

// Registers is a mapped range of registers.
type Registers struct{ size uint64 }

// Map returns ErrUnsupported.
func Map(file string, base, size uint64) (*Registers, error) {
	if err := checkRange(file, base, size); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("map %s: %w", file, ErrUnsupported)
}

// Size is the length of the range in bytes.
func (r *Registers) Size() uint64 { return r.size }

// Read32 returns ErrUnsupported.
func (r *Registers) Read32(uint32) (uint32, error) { return 0, ErrUnsupported }

// Write32 returns ErrUnsupported.
func (r *Registers) Write32(uint32, uint32) error { return ErrUnsupported }

// Close does nothing.
func (r *Registers) Close() error { return nil }
