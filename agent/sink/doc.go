// Package sink holds what can stand at the end of a receive loop: Discard,
// Verify, File, Func, and Tee to combine them. A sink belongs to one loop.
package sink

import "rocelink/agent/receive"

// Discard takes every frame and does nothing with it.
type Discard struct{}

// Take implements receive.Sink.
func (Discard) Take(*receive.Frame) receive.Verdict { return 0 }

// Func is a function as a sink.
type Func func(*receive.Frame) receive.Verdict

// Take calls f.
func (f Func) Take(frame *receive.Frame) receive.Verdict { return f(frame) }
