//go:build verilator

// Package core is the RTL core in simulation: registers, frames in, frames out,
// and time in cycles. Time passes in Run and, two cycles each, by register
// accesses. With the build tag realtime it is the core for a clock of 250 kHz, a
// thousandth of a board's, and without an external source.
package core

/*
#cgo pkg-config: verilator
#cgo CXXFLAGS: -std=c++17 -O2 -fno-exceptions -Wno-attributes
#cgo realtime CXXFLAGS: -DROCELINK_REALTIME
#include "bench.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// ErrBus is what a refused access matches.
var ErrBus = errors.New("bus error")

// Aperture is the size of the register space.
const Aperture = 0x10000

// Frame is a frame that the MAC took.
type Frame struct {
	Data        []byte
	First, Last uint64 // cycles of its beats
	Beats       int
	Error       bool // marked as bad
}

// Sink is how the MAC takes beats.
type Sink struct {
	kind  C.int
	pause C.int
	rate  C.int64_t
}

// Open takes a beat every cycle.
func Open() Sink { return Sink{} }

// Pausing takes none with a probability of n in 256.
func Pausing(n int) Sink { return Sink{kind: 1, pause: C.int(n)} }

// Wire takes bytes at the rate of a wire, in thousandths of a byte a cycle;
// preamble, FCS and gap take their time too.
func Wire(rate int64) Sink { return Sink{kind: 2, rate: C.int64_t(rate)} }

// Closed takes nothing.
func Closed() Sink { return Sink{kind: 3} }

// Core is one core. It is not for several goroutines.
type Core struct{ bench unsafe.Pointer }

// New returns a core in reset, which ends by itself. Close frees it.
func New(seed uint32) *Core { return &Core{C.bench_new(C.uint32_t(seed))} }

// Close frees the model.
func (c *Core) Close() { C.bench_free(c.bench) }

// Reset holds the reset for a cycle.
func (c *Core) Reset() { C.bench_reset(c.bench) }

// Run lets cycles pass.
func (c *Core) Run(cycles int) { C.bench_run(c.bench, C.int(cycles)) }

// Cycle is how many have passed.
func (c *Core) Cycle() uint64 { return uint64(C.bench_cycle(c.bench)) }

// SetSink says how the MAC takes beats from now on.
func (c *Core) SetSink(s Sink) {
	C.bench_set_sink(c.bench, C.bench_sink(s))
}

// SetLink says whether the MAC's link is up.
func (c *Core) SetLink(up bool) {
	n := C.int(0)
	if up {
		n = 1
	}
	C.bench_link(c.bench, n)
}

// Read32 reads a register.
func (c *Core) Read32(offset uint32) (uint32, error) {
	if offset%4 != 0 || offset >= Aperture {
		return 0, fmt.Errorf("read register %#x: %w", offset, ErrBus)
	}
	return uint32(C.bench_read(c.bench, C.uint32_t(offset))), nil
}

// Write32 writes a register.
func (c *Core) Write32(offset uint32, value uint32) error {
	if offset%4 != 0 || offset >= Aperture {
		return fmt.Errorf("write register %#x: %w", offset, ErrBus)
	}
	C.bench_write(c.bench, C.uint32_t(offset), C.uint32_t(value))
	return nil
}

// Receive queues a frame for the core's receiver, which pauses before each beat
// with a probability of pause in 256.
func (c *Core) Receive(frame []byte, pause int) {
	C.bench_receive(c.bench, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(frame))), C.int(len(frame)), C.int(pause))
}

// Offer queues a frame for the core's external source, which offers its beats
// with pauses, of a probability in 256, between them.
func (c *Core) Offer(frame []byte, pause int) {
	C.bench_source(c.bench, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(frame))), C.int(len(frame)), C.int(pause))
}

// SetLossy lets the external source drop frames instead of waiting.
func (c *Core) SetLossy() { C.bench_source_lossy(c.bench, 1) }

// Offered is how many frames of the external source are not wholly taken.
func (c *Core) Offered() int { return int(C.bench_source_queued(c.bench)) }

// Queued is how many frames wait to be received.
func (c *Core) Queued() int { return int(C.bench_queued(c.bench)) }

// Take returns the frames that left since the last call.
func (c *Core) Take() []Frame { return c.TakeInto(new(Batch)) }

// Batch is memory for frames.
type Batch struct {
	raw    []C.bench_frame
	bytes  []byte
	frames []Frame
}

// TakeInto is [Core.Take] whose frames are valid until the next use of the batch.
func (c *Core) TakeInto(b *Batch) []Frame {
	n := int(C.bench_frames(c.bench))
	if n == 0 {
		return nil
	}
	size := max(1, int(C.bench_bytes(c.bench)))
	b.raw, b.bytes = slices.Grow(b.raw[:0], n)[:n], slices.Grow(b.bytes[:0], size)[:size]
	C.bench_take(c.bench, &b.raw[0], (*C.uint8_t)(unsafe.Pointer(&b.bytes[0])))
	b.frames = b.frames[:0]
	at := uint32(0)
	for _, r := range b.raw {
		end := at + uint32(r.length)
		b.frames = append(b.frames, Frame{Data: b.bytes[at:end:end], First: uint64(r.first), Last: uint64(r.last), Beats: int(r.beats), Error: r.error != 0})
		at = end
	}
	return b.frames
}

// Faults counts what an AXI4-Stream source must never do: leave a gap inside a
// frame, change a beat that was not taken, and enable bytes with holes.
func (c *Core) Faults() (gaps, unstable, keep uint64) {
	f := C.bench_look(c.bench)
	return uint64(f.gaps), uint64(f.unstable), uint64(f.keep)
}
