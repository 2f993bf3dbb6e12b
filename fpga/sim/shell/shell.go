//go:build verilator

// Package shell is the whole of the fabric's logic in simulation, core, AXI4-Lite
// slave and slow path, as the MAC and the processor see it.
package shell

/*
#cgo pkg-config: verilator
#cgo CXXFLAGS: -std=c++17 -O1 -fno-exceptions -Wno-attributes
#include "bench.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrRefused is what an access matches that ends with SLVERR.
var ErrRefused = errors.New("SLVERR")

// limit is how many cycles an access may take.
const limit = 1000

// Frame is a frame that the MAC took.
type Frame struct {
	Data        []byte
	First, Last uint64 // cycles of its beats
	Error       bool   // marked as bad
}

// Counters are those of the slow path.
type Counters struct{ ARP, Echo, Unanswered, Overrun uint64 }

// Shell is one shell between a MAC and a processor. It is not for several
// goroutines. Cycles pass in Run, Reset and by register accesses.
type Shell struct {
	// Takes says whether the MAC takes a beat in a cycle, nil that it always
	// does; Pauses whether none arrives from it, nil that there is no pause.
	Takes, Pauses func() bool
	// Frames are what left, oldest first; whoever looks at them removes them.
	Frames []Frame
	// Idle counts cycles in which the MAC would have taken a beat of a new
	// frame, Gaps those of a frame that had begun, Changed beats that changed
	// before they were taken, Holes byte enables that are not a run.
	Idle, Gaps, Changed, Holes int

	bench unsafe.Pointer
	pins  *C.shell_pins
	cycle uint64
	in    [][]byte
	at    int
	frame Frame
	open  bool
	held  *C.shell_beat
}

// New returns a shell in reset, which ends by itself. Close frees it.
func New(seed uint32) *Shell {
	s := &Shell{bench: C.shell_new(C.uint32_t(seed)), pins: &C.shell_pins{link_up: 1, boot: C.uint32_t(seed)}}
	s.Reset()
	return s
}

// Close frees the model.
func (s *Shell) Close() { C.shell_free(s.bench) }

// Cycle is how many have passed.
func (s *Shell) Cycle() uint64 { return s.cycle }

// Counters returns those of the slow path.
func (s *Shell) Counters() Counters {
	return Counters{uint64(s.pins.answered_arp), uint64(s.pins.answered_echo), uint64(s.pins.unanswered), uint64(s.pins.overrun)}
}

// Receive queues a frame that arrives from the MAC.
func (s *Shell) Receive(frame []byte) { s.in = append(s.in, frame) }

// Queued is how many frames have not wholly arrived.
func (s *Shell) Queued() int { return len(s.in) }

// Run lets cycles pass.
func (s *Shell) Run(cycles int) {
	for range cycles {
		s.step()
	}
}

// Reset holds the reset for a cycle. The frame that was leaving is cut off, one
// that arrives goes on.
func (s *Shell) Reset() {
	s.open, s.held = false, nil
	s.pins.rst = 1
	s.step()
	s.pins.rst = 0
}

func (s *Shell) step() {
	p := s.pins
	p.out.ready = 0
	if s.Takes == nil || s.Takes() {
		p.out.ready = 1
	}
	p.in.valid = 0
	if len(s.in) > 0 && (s.Pauses == nil || !s.Pauses()) {
		f := s.in[0]
		n := min(64, len(f)-s.at)
		for i := range p.in.data {
			if i < n {
				p.in.data[i] = C.uint8_t(f[s.at+i])
			} else {
				p.in.data[i] = C.uint8_t(s.cycle) // a MAC drives what it likes there
			}
		}
		p.in.valid, p.in.last, p.in.keep = 1, 0, ^C.uint64_t(0)>>(64-n)
		if s.at += n; s.at == len(f) {
			p.in.last = 1
			s.in, s.at = s.in[1:], 0
		}
	}
	C.shell_cycle(s.bench, p)
	s.look()
	s.cycle++
}

// look is at what the MAC sees in a cycle.
func (s *Shell) look() {
	b := &s.pins.out
	seen := *b
	seen.ready = 0
	if s.held != nil && seen != *s.held {
		s.Changed++
	}
	s.held = nil
	switch {
	case b.valid == 0 && b.ready != 0 && s.open:
		s.Gaps++
	case b.valid == 0 && b.ready != 0:
		s.Idle++
	case b.valid != 0 && b.ready == 0:
		s.held = &seen
	}
	if b.valid == 0 || b.ready == 0 {
		return
	}
	n := 0
	for n < 64 && b.keep>>n&1 != 0 {
		n++
	}
	if n < 64 && (b.keep>>n != 0 || b.last == 0) {
		s.Holes++
	}
	if !s.open {
		s.frame = Frame{First: s.cycle}
	}
	for _, v := range b.data[:n] {
		s.frame.Data = append(s.frame.Data, byte(v))
	}
	s.frame.Last = s.cycle
	s.frame.Error = s.frame.Error || b.user != 0
	if s.open = b.last == 0; !s.open {
		s.Frames = append(s.Frames, s.frame)
	}
}

// Read32 reads a register through AXI4-Lite.
func (s *Shell) Read32(offset uint32) (uint32, error) {
	p := s.pins
	p.arvalid, p.araddr, p.rready = 1, C.uint32_t(offset), 1
	defer func() { p.arvalid, p.rready = 0, 0 }()
	for range limit {
		s.step()
		if p.arready != 0 {
			p.arvalid = 0
		}
		if p.rvalid != 0 {
			if p.rresp != 0 {
				return uint32(p.rdata), fmt.Errorf("read register %#x: %w", offset, ErrRefused)
			}
			return uint32(p.rdata), nil
		}
	}
	return 0, fmt.Errorf("read register %#x: no answer in %d cycles", offset, limit)
}

// Write32 writes a register through AXI4-Lite.
func (s *Shell) Write32(offset uint32, value uint32) error {
	p := s.pins
	p.awvalid, p.awaddr, p.wvalid, p.wdata, p.wstrb, p.bready = 1, C.uint32_t(offset), 1, C.uint32_t(value), 15, 1
	defer func() { p.awvalid, p.wvalid, p.bready = 0, 0, 0 }()
	for range limit {
		s.step()
		if p.awready != 0 {
			p.awvalid, p.wvalid = 0, 0
		}
		if p.bvalid != 0 {
			if p.bresp != 0 {
				return fmt.Errorf("write register %#x: %w", offset, ErrRefused)
			}
			return nil
		}
	}
	return fmt.Errorf("write register %#x: no answer in %d cycles", offset, limit)
}
