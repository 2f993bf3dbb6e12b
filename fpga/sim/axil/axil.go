//go:build verilator

// Package axil is the AXI4-Lite slave in simulation, one cycle at a time.
package axil

/*
#cgo pkg-config: verilator
#cgo CXXFLAGS: -std=c++17 -O2 -fno-exceptions -Wno-attributes
#include "bench.h"
*/
import "C"

import "unsafe"

// Pins are what is driven in a cycle, and what was seen before its end.
type Pins = C.axil_pins

// Slave is one slave. It is not for several goroutines.
type Slave struct{ bench unsafe.Pointer }

// New returns a slave in an unknown state. Close frees it.
func New(seed uint32) *Slave { return &Slave{C.axil_new(C.uint32_t(seed))} }

// Close frees the model.
func (s *Slave) Close() { C.axil_free(s.bench) }

// Cycle drives the pins and lets one cycle pass.
func (s *Slave) Cycle(p *Pins) { C.axil_cycle(s.bench, p) }

type pin = C.uint32_t

func bit(v bool) pin {
	if v {
		return 1
	}
	return 0
}
