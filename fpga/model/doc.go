// Package model is the fabric in Go: what the FPGA does, behind the same
// registers, as a deterministic machine without goroutines and without a clock.
//
// A [Fabric] is given time and frames and gives frames back through a [Port].
// The same register writes and the same stimulus make the same packets and
// counters, which is what the RTL is compared with. Three things surround it:
//
//   - [Bus] is the register bus as the processor sees it, in process: it faults
//     where the real one would and reading has the real side effects.
//   - [Shared] puts the registers into a file that another process maps.
//   - [Driver] gives a Fabric real time and UDP sockets, with injected faults
//     and a capture file if asked; cmd/rocelink-fabric is that as a program.
package model
