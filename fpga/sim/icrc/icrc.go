//go:build verilator

// Package icrc runs the ICRC inserter alone: frames in, frames out, with pauses
// anywhere.
package icrc

/*
#cgo pkg-config: verilator
#cgo CXXFLAGS: -std=c++17 -O1 -fno-exceptions -Wno-attributes
#include <stdint.h>
#include <stdlib.h>

void *icrc_new(void);
void  icrc_free(void *b);
int   icrc_run(void *b, const uint8_t *in, const uint32_t *lens, int frames, uint32_t seed, int pause,
               uint8_t *out, uint32_t *outlens, int room);
void  icrc_reset(void *b, const uint8_t *in, uint32_t len, int cut, int *after);
*/
import "C"

import "unsafe"

// Bench is one inserter.
type Bench struct{ model unsafe.Pointer }

// New returns an inserter after reset. Close frees it.
func New() *Bench { return &Bench{C.icrc_new()} }

// Close frees the model.
func (b *Bench) Close() { C.icrc_free(b.model) }

// Run sends frames through, whose ICRC is zero, and returns what comes out.
// Before each beat it pauses with a probability of pause in 256.
func (b *Bench) Run(frames [][]byte, seed uint32, pause int) (out [][]byte) {
	var in []byte
	lens := make([]C.uint32_t, len(frames))
	for i, f := range frames {
		in = append(in, f...)
		lens[i] = C.uint32_t(len(f))
	}
	room := len(in) + 64
	outBytes := make([]byte, room)
	outLens := make([]C.uint32_t, len(frames)+1)
	n := C.icrc_run(b.model, (*C.uint8_t)(unsafe.Pointer(&in[0])), &lens[0], C.int(len(frames)), C.uint32_t(seed), C.int(pause),
		(*C.uint8_t)(unsafe.Pointer(&outBytes[0])), &outLens[0], C.int(room))
	for _, l := range outLens[:n] {
		out = append(out, outBytes[:l:l])
		outBytes = outBytes[l:]
	}
	return out
}

// Reset sends the first beats of a frame, resets for a cycle and counts the
// beats that leave after that.
func (b *Bench) Reset(frame []byte, beats int) (after int) {
	var n C.int
	C.icrc_reset(b.model, (*C.uint8_t)(unsafe.Pointer(&frame[0])), C.uint32_t(len(frame)), C.int(beats), &n)
	return int(n)
}
