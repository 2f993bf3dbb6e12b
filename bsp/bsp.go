// Package bsp gives access to the registers of the programmable logic: every
// access is one aligned 32-bit load or store, and every mistake is an error,
// never a crash.
//
// Registers is made by Map from a device such as /dev/mem or from a file of
// shared memory; it satisfies the Bus interface of fpga/regs. It knows nothing
// of boards or blocks.
package bsp

import (
	"errors"
	"fmt"
)

// Errors of Map and of the accesses.
var (
	// ErrRange: an access or mapping lies outside what there is.
	ErrRange = errors.New("outside the register range")
	// ErrAlignment: an offset, base or size is not a multiple of four.
	ErrAlignment = errors.New("not aligned to 32 bits")
	// ErrPermission: the system does not let this process map the range.
	ErrPermission = errors.New("register access not permitted")
	// ErrShort: the file ends before the range does.
	ErrShort = errors.New("file shorter than the register range")
	// ErrMissing: there is no such file or device.
	ErrMissing = errors.New("no such register file or device")
	// ErrFault: the access raised a bus error: nothing decodes the address, or
	// the mapped file shrank.
	ErrFault = errors.New("bus error")
	// ErrClosed: the mapping was closed.
	ErrClosed = errors.New("register mapping closed")
	// ErrUnsupported: this system has no register access.
	ErrUnsupported = errors.New("register access is supported on Linux only")
)

// maxSize bounds a mapping: offsets have 32 bits.
const maxSize = 1 << 32

// checkRange refuses a range that cannot be mapped on any system.
func checkRange(file string, base, size uint64) error {
	switch {
	case base%4 != 0:
		return fmt.Errorf("map %s: base %#x: %w", file, base, ErrAlignment)
	case size%4 != 0:
		return fmt.Errorf("map %s: size %#x: %w", file, size, ErrAlignment)
	case size == 0 || size > maxSize:
		return fmt.Errorf("map %s: size %#x, want 4 to %#x: %w", file, size, uint64(maxSize), ErrRange)
	case base > base+size-1 || base+size > 1<<63-1:
		return fmt.Errorf("map %s: %#x bytes at %#x pass the end of the address space: %w", file, size, base, ErrRange)
	}
	return nil
}
