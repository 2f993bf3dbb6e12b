//go:build verilator && realtime

// Package fabric is a fabric whose core is the RTL, verilated: the registers that
// software maps on one side, frames on the other, MAC and module of
// [rocelink/fpga/model] around it. It needs the build tags verilator and realtime.
package fabric

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/core"
)

const (
	// turn is how many cycles one Step runs at most: a millisecond.
	turn = 250
	// maxLate is how far behind real time the clock may be and still catch up.
	// What is beyond is lost: the core's time is slower then.
	maxLate = 20 * time.Millisecond
	// linger is for how many cycles the clock goes on after a command or a
	// frame while no stream is started: all that they lead to has ended then.
	linger = 1000
	// commandTurn is how many cycles one Step gives a command at most, a few
	// times what one takes.
	commandTurn = 4096
	// resetCycles is longer than the core's own reset and clearing of its
	// tables.
	resetCycles = 1000
	// maxQueued is how many frames wait to be received: what four READs of 4 MiB
	// bring at path MTU 1024. What comes faster for longer than that is lost.
	maxQueued = 1 << 14
	// batchFrames is how many frames the port is given at once.
	batchFrames = 64
)

// Config shapes a Fabric.
type Config struct {
	// Port takes frames, during Step; nil is a wire without an end.
	Port model.Port
	// Registers is the memory that software maps; nil allocates it.
	Registers []uint32
	Link      model.Link // the Ethernet link at start
	// SourcePort, if not 0, replaces QpSourcePort, see [model.Config].
	SourcePort uint16
}

// Fabric is the machine. The core's clock runs with the time of Step while a
// stream is started and stands still otherwise. Its methods may be called by
// several goroutines; a call takes as long as a few milliseconds.
type Fabric struct {
	shell *model.Shell
	cfg   Config

	mu     sync.Mutex
	core   *core.Core // nil: closed, after so many cycles
	cycles uint64
	kHz    uint32
	cycle  time.Duration // how long one lasts
	mirror mirror

	now     time.Duration
	owed    time.Duration // time that the clock has yet to run
	active  bool          // the clock ran since the last Step
	linger  int           // cycles that it runs on
	started [16]bool      // streams

	batch   core.Batch
	frames  [][]byte // that the port has not taken, of batch
	receive []byte
}

// New returns a fabric after reset, its registers filled in.
func New(cfg Config) (*Fabric, error) {
	shell, err := model.NewShell(cfg.Registers, cfg.Link)
	if err != nil {
		return nil, err
	}
	var boot [4]byte
	rand.Read(boot[:])
	c := core.New(binary.LittleEndian.Uint32(boot[:]) | 1)
	c.Run(resetCycles)
	f := &Fabric{shell: shell, cfg: cfg, core: c, receive: make([]byte, 0, roce.MaxFrame)}
	f.mirror = newMirror(c, shell, cfg.SourcePort)
	if err := f.mirror.fill(); err != nil {
		c.Close()
		return nil, fmt.Errorf("fabric: %w", err)
	}
	f.kHz = shell.Load(uint32(regs.CoreClockKHz))
	if f.kHz == 0 {
		c.Close()
		return nil, errors.New("fabric: the core says that its clock has 0 kHz: build it anew with fpga/sim/verilate")
	}
	f.cycle = time.Millisecond / time.Duration(f.kHz)
	shell.Present()
	return f, nil
}

// Close takes the fabric away from its registers and frees the core. No other
// call may follow.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shell.Close()
	f.cycles = f.core.Cycle()
	f.core.Close()
	f.core = nil
	return nil
}

// Shell is what surrounds the core.
func (f *Fabric) Shell() *model.Shell { return f.shell }

// Local returns the fabric's own address and whether the core is enabled, from
// the registers as they are.
func (f *Fabric) Local() (addr netip.Addr, enabled bool) { return f.shell.Local() }

// LastCommand is when a command came last.
func (f *Fabric) LastCommand() time.Duration { return f.shell.LastCommand() }

// Clock returns how many cycles have passed since the start, and how many kHz
// the clock has.
func (f *Fabric) Clock() (cycles uint64, kHz uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.core == nil {
		return f.cycles, f.kHz
	}
	return f.core.Cycle(), f.kHz
}

// QueuePairs is how many the core has.
func (f *Fabric) QueuePairs() int {
	return int(regs.CoreCapsQueuePairs.Get(f.shell.Load(uint32(regs.CoreCaps))))
}

// Step takes over what software wrote and lets the core's clock run until now,
// a millisecond at most. It returns when it must be called next: now means at
// once.
func (f *Fabric) Step(now time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	elapsed := max(0, now-f.now)
	f.now = max(f.now, now)
	next := f.shell.Poll(f.now)
	f.core.SetLink(f.shell.TxUp())
	before := f.core.Cycle()
	again := f.command()
	spent := time.Duration(f.core.Cycle()-before) * f.cycle
	f.send()
	if again {
		return f.now
	}
	if !f.runs() {
		f.active, f.owed = false, 0
		return next
	}
	if f.active {
		f.owed += elapsed
	}
	f.active = true
	f.owed = min(f.owed-spent, maxLate)
	if len(f.frames) > 0 {
		return f.now // the clock waits for the port
	}
	if n := min(turn, int(f.owed/f.cycle)); n > 0 {
		f.core.Run(n)
		f.owed -= time.Duration(n) * f.cycle
		f.linger = max(0, f.linger-n)
		f.send()
	}
	return max(f.now, min(next, f.now+turn*f.cycle-f.owed))
}

// runs reports whether anything can happen in the core.
func (f *Fabric) runs() bool {
	if f.linger > 0 || f.core.Queued() > 0 || len(f.frames) > 0 {
		return true
	}
	for _, s := range f.started {
		if s {
			return true
		}
	}
	return false
}

// command has the core do what software asks for, and reports whether it needs
// more time.
func (f *Fabric) command() (again bool) {
	f.mirror.write()
	for _, b := range []uint32{model.CoreBase, model.StreamBase} {
		word, code, ended := f.mirror.command(b, commandTurn)
		if word == 0 {
			continue
		}
		f.shell.Commanded()
		f.linger = linger
		if !ended {
			return true
		}
		if code == regs.CoreCommandStatusCodeOK {
			f.follow(b, word)
		}
	}
	return false
}

// follow notes which streams are started.
func (f *Fabric) follow(block, word uint32) {
	op, index := regs.CoreCommandOp.Get(word), regs.CoreCommandIndex.Get(word)
	switch {
	case block == model.CoreBase && op == regs.CoreCommandOpResetAll:
		clear(f.started[:])
	case block == model.CoreBase && op == regs.CoreCommandOpReset,
		block == model.StreamBase && op == regs.StreamCommandOpReset:
		f.started[index] = false
	case block == model.StreamBase && op == regs.StreamCommandOpStart:
		f.started[index] = true
	}
}

// send gives the port what left the core.
func (f *Fabric) send() {
	if len(f.frames) == 0 {
		for _, x := range f.core.TakeInto(&f.batch) {
			if !x.Error {
				f.frames = append(f.frames, unpadded(x.Data))
			}
		}
	}
	at := 0
	for at < len(f.frames) {
		b := f.frames[at:min(at+batchFrames, len(f.frames))]
		taken, dropped := len(b), 0
		if f.cfg.Port != nil {
			taken, dropped = f.cfg.Port.Transmit(b)
		}
		// Which ones were dropped makes no difference to the counters.
		for _, x := range b[:taken-dropped] {
			f.shell.Sent(len(x))
		}
		at += taken
		if taken < len(b) {
			break
		}
	}
	f.frames = append(f.frames[:0], f.frames[at:]...)
}

// Receive takes an Ethernet frame, from the destination MAC to the ICRC or the
// Ethernet pad, that arrived at time now.
func (f *Fabric) Receive(now time.Duration, frame []byte) {
	if _, enabled := f.shell.Local(); !f.shell.Received(len(frame)) || !enabled {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.core.Queued() >= maxQueued {
		return
	}
	f.core.Receive(frame, 0)
	f.linger = linger
}

// ReceiveDatagrams takes what a UDP socket received at time now, as Receive. MAC
// addresses are made up to be right.
func (f *Fabric) ReceiveDatagrams(now time.Duration, batch []model.Datagram) {
	for i := range batch {
		d := &batch[i]
		src, dst := d.Src.Addr().Unmap(), d.Dst.Addr().Unmap()
		if d.Dst.Port() != roce.Port || !src.Is4() || !dst.Is4() {
			continue // the core has no IPv6
		}
		f.receive = appendFrame(f.receive[:0], f.localMAC(), netip.AddrPortFrom(src, d.Src.Port()), dst, d.Payload)
		f.Receive(now, f.receive)
	}
}

// localMAC is the fabric's own MAC address, from the registers as they are.
func (f *Fabric) localMAC() (m roce.MAC) {
	binary.BigEndian.PutUint16(m[:], uint16(f.shell.Load(uint32(regs.CoreLocalMACHigh))))
	binary.BigEndian.PutUint32(m[2:], f.shell.Load(uint32(regs.CoreLocalMACLow)))
	return m
}
