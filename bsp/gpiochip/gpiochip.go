// Package gpiochip is lines of the kernel's GPIO chips (/dev/gpiochipN, character
// device version 2) as periph's gpio.PinIO. A line is taken when its direction
// is set first, an output with its level at once so that it does not glitch, and
// given back by Close.
package gpiochip

import "errors"

// Errors of a chip.
var (
	// ErrUnsupported: this system has no GPIO character devices, or the line cannot
	// do what was asked for.
	ErrUnsupported = errors.New("not supported for GPIO lines")
	// ErrMissing: there is no chip of that name, or no such line on it.
	ErrMissing = errors.New("no such GPIO chip or line")
)

// consumer is what the kernel shows as the user of the lines.
const consumer = "rocelink"
