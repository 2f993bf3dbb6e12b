// Package i2cdev is an I2C bus of the kernel (/dev/i2c-N) as periph's i2c.Bus:
// one Tx is one combined transfer with a repeated start in between, and takes no
// longer than the bus's bounds.
//
// The kernel's driver sets the bus clock; the device tree says which.
package i2cdev

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a bus.
var (
	// ErrNoAnswer: nothing acknowledged at the address.
	ErrNoAnswer = errors.New("no acknowledge")
	// ErrUnsupported: this system has no such buses, or the adapter cannot do
	// combined transfers.
	ErrUnsupported = errors.New("I2C transfers are not supported")
	// ErrTransfer: a transfer is longer than the kernel takes.
	ErrTransfer = errors.New("transfer too long")
)

// Timeout bounds one transfer: a module may hold the clock for 500 µs, and 128
// bytes take 3 ms.
const Timeout = 100 * time.Millisecond

// maxTransfer is the longest message (linux/i2c-dev.c).
const maxTransfer = 8192

// check refuses what cannot be a transfer.
func check(name string, addr uint16, w, r []byte) error {
	switch {
	case addr > 0x7F:
		return fmt.Errorf("%s: address 0x%X: want one of 7 bits", name, addr)
	case len(w) > maxTransfer || len(r) > maxTransfer:
		return fmt.Errorf("%s: %d and %d bytes: %w", name, len(w), len(r), ErrTransfer)
	}
	return nil
}
