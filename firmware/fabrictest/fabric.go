// Package fabrictest is a register bus for tests of the firmware: it plays the
// states that the register table promises, records every write, and fails in
// the ways a test asks for. It moves no packets; fpga/model does.
package fabrictest

import (
	"fmt"
	"sync"

	"rocelink/fpga/regs"
)

// Where the blocks are.
const (
	Size       = 0x20000
	CoreBase   = 0x00000
	StreamBase = 0x01000
	CMACBase   = 0x10000
)

// QueuePairs is how many the fabric has.
const QueuePairs = 4

// Write is a recorded write.
type Write struct{ Offset, Value uint32 }

// Fabric is the bus. Its exported fields may be set between accesses, or under
// Lock.
type Fabric struct {
	sync.Mutex

	// Hang, when it reports true, makes the command never end.
	Hang func(block string, op, index uint32) bool
	// Refuse, when it returns a code, makes the command end with it.
	Refuse func(block string, op, index uint32) (code, detail uint32)
	// Stuck registers ignore writes, by offset in the aperture.
	Stuck map[uint32]bool
	// Dead makes every read give this value, if it is not nil.
	Dead *uint32
	// Fault makes every access fail with this error.
	Fault error
	// RxStatus is what CMAC.StatRx shows at present; what was shown before is
	// latched until it is read.
	RxStatus uint32
	// Sync errors of the lanes at present.
	SyncErr uint32
	// HasFEC tells that the CMAC has RS-FEC registers; without them an access
	// is a bus error.
	HasFEC bool
	// TickHangs makes the tick never end.
	TickHangs bool
	// BlockLock and LaneSync are those of the lanes at present.
	BlockLock, LaneSync uint32
	// NoClock keeps the transceivers in reset.
	NoClock bool
	// ShowsReset: the transmitter shows a local fault while it is in reset.
	ShowsReset bool

	mem    map[uint32]uint32
	rx     uint32 // latched
	writes []Write
	reads  map[uint32]int
	qp     [QueuePairs]uint32 // states
	cause  [QueuePairs]uint32
	stream [QueuePairs]uint32
	ended  [QueuePairs]bool
	frames [QueuePairs]uint64
}

// GoodRx is the receive status of a link that is up.
const GoodRx = 0x3

// New returns a fabric after reset whose link is good.
func New() *Fabric {
	f := &Fabric{RxStatus: GoodRx, rx: GoodRx, HasFEC: true}
	f.Restart(1)
	return f
}

// Restart brings every register to its reset value, with another boot
// identifier.
func (f *Fabric) Restart(boot uint32) {
	f.Lock()
	defer f.Unlock()
	f.mem = map[uint32]uint32{}
	f.reads = map[uint32]int{}
	for _, b := range regs.Blocks() {
		for _, r := range b.Regs {
			f.mem[base(b.Name)+r.Offset] = r.Reset
		}
	}
	f.set(CoreBase, regs.CoreNext, StreamBase)
	f.set(CoreBase, regs.CoreBoot, boot)
	f.set(CoreBase, regs.CoreBuild, 0x20240101)
	f.set(CoreBase, regs.CoreClockKHz, 250000)
	caps := regs.CoreCapsQueuePairs.Of(QueuePairs)
	caps = regs.CoreCapsMaxMTU.Put(caps, 5)
	caps = regs.CoreCapsIPv6.Put(caps, 1)
	caps = regs.CoreCapsRead.Put(caps, 1)
	caps = regs.CoreCapsExternal.Put(caps, 1)
	f.set(CoreBase, regs.CoreCaps, caps)
	f.set(CoreBase, regs.CoreMaxWindow, 256)
	f.set(StreamBase, regs.StreamStreams, QueuePairs)
	f.set(StreamBase, regs.StreamMaxFrameBytes, 16<<20)
	f.qp, f.cause, f.stream = [QueuePairs]uint32{}, [QueuePairs]uint32{}, [QueuePairs]uint32{}
	f.ended, f.frames = [QueuePairs]bool{}, [QueuePairs]uint64{}
}

func base(block string) uint32 {
	switch block {
	case "Core":
		return CoreBase
	case "Stream":
		return StreamBase
	}
	return CMACBase
}

func (f *Fabric) set(base uint32, r regs.Reg, v uint32) { f.mem[base+uint32(r)] = v }

// Set sets a register without recording it.
func (f *Fabric) Set(base uint32, r regs.Reg, v uint32) {
	f.Lock()
	defer f.Unlock()
	f.set(base, r, v)
}

// Get returns what a register holds, without a side effect.
func (f *Fabric) Get(base uint32, r regs.Reg) uint32 {
	f.Lock()
	defer f.Unlock()
	return f.mem[base+uint32(r)]
}

// Writes returns the writes since the last call.
func (f *Fabric) Writes() []Write {
	f.Lock()
	defer f.Unlock()
	w := f.writes
	f.writes = nil
	return w
}

// Reads is how often a register was read.
func (f *Fabric) Reads(base uint32, r regs.Reg) int {
	f.Lock()
	defer f.Unlock()
	return f.reads[base+uint32(r)]
}

// FailQP brings a queue pair to state Error.
func (f *Fabric) FailQP(i int, cause uint32) {
	f.Lock()
	defer f.Unlock()
	f.qp[i], f.cause[i] = regs.CoreStatStateStateError, cause
	if f.stream[i] != regs.StreamStatStateStateIdle {
		f.stream[i] = regs.StreamStatStateStateError
	}
}

// EndSource ends the source of a stream.
func (f *Fabric) EndSource(i int) {
	f.Lock()
	defer f.Unlock()
	f.ended[i], f.stream[i] = true, regs.StreamStatStateStateStopped
}

// Frames sets the count of frames a stream has done.
func (f *Fabric) Frames(i int, n uint64) {
	f.Lock()
	defer f.Unlock()
	f.frames[i] = n
}

// States returns the states of queue pair and stream i.
func (f *Fabric) States(i int) (qp, stream uint32) {
	f.Lock()
	defer f.Unlock()
	return f.qp[i], f.stream[i]
}

// SetRx changes the present receive status.
func (f *Fabric) SetRx(v uint32) {
	f.Lock()
	defer f.Unlock()
	f.RxStatus = v
	f.latch()
}

// latch keeps what PG203 latches: bits 0 and 1 low, the others high.
func (f *Fabric) latch() {
	f.rx = f.rx&f.RxStatus&3 | (f.rx|f.RxStatus)&^3
}

func (f *Fabric) check(o uint32) error {
	switch {
	case f.Fault != nil:
		return f.Fault
	case o%4 != 0 || o >= Size:
		return fmt.Errorf("offset %#x: no register", o)
	case o >= CMACBase:
		if _, ok := f.mem[o]; !ok {
			if _, high := f.mem[o-4]; !high {
				return fmt.Errorf("offset %#x: bus error", o)
			}
		}
		if o >= CMACBase+uint32(regs.CMACRSFECConfig) && !f.HasFEC {
			return fmt.Errorf("offset %#x: bus error: no RS-FEC", o)
		}
	}
	return nil
}

// Read32 implements regs.Bus.
func (f *Fabric) Read32(o uint32) (uint32, error) {
	f.Lock()
	defer f.Unlock()
	if err := f.check(o); err != nil {
		return 0, err
	}
	f.reads[o]++
	if f.Dead != nil {
		return *f.Dead, nil
	}
	switch o {
	case CMACBase + uint32(regs.CMACStatRx):
		f.latch()
		v := f.rx
		f.rx = f.RxStatus
		return v, nil
	case CMACBase + uint32(regs.CMACStatSyncErr):
		return f.SyncErr, nil
	case CMACBase + uint32(regs.CMACStatBlockLock):
		return f.BlockLock, nil
	case CMACBase + uint32(regs.CMACStatLaneSync):
		return f.LaneSync, nil
	case CMACBase + uint32(regs.CMACGTReset):
		if !f.NoClock {
			f.mem[o] = 0
		}
	case CMACBase + uint32(regs.CMACStatTx):
		if f.ShowsReset && regs.CMACResetTx.Get(f.mem[CMACBase+uint32(regs.CMACReset)]) == 1 {
			return regs.CMACStatTxLocalFault.Mask(), nil
		}
		return 0, nil
	}
	return f.mem[o], nil
}

// Write32 implements regs.Bus.
func (f *Fabric) Write32(o uint32, v uint32) error {
	f.Lock()
	defer f.Unlock()
	if err := f.check(o); err != nil {
		return err
	}
	f.writes = append(f.writes, Write{o, v})
	if f.Stuck[o] || f.Dead != nil {
		return nil
	}
	switch o {
	case CoreBase + uint32(regs.CoreCommand):
		f.mem[o] = v
		f.core(v)
	case StreamBase + uint32(regs.StreamCommand):
		f.mem[o] = v
		f.streamCommand(v)
	case CMACBase + uint32(regs.CMACTick):
		if f.TickHangs {
			f.mem[o] = v
		}
	default:
		f.mem[o] = v
	}
	return nil
}

// begin returns false when the command hangs or is refused.
func (f *Fabric) begin(block string, op, index uint32) bool {
	if f.Hang != nil && f.Hang(block, op, index) {
		return false
	}
	b := base(block)
	f.set(b, regs.CoreCommand, 0)
	code, detail := uint32(0), uint32(0)
	if f.Refuse != nil {
		code, detail = f.Refuse(block, op, index)
	}
	if code == 0 && index >= QueuePairs {
		code = regs.CoreCommandStatusCodeBadIndex
	}
	f.end(b, code, detail)
	return code == 0
}

func (f *Fabric) end(b, code, detail uint32) {
	f.set(b, regs.CoreCommandStatus, code)
	f.set(b, regs.CoreCommandDetail, detail)
}

func (f *Fabric) core(word uint32) {
	op, i := regs.CoreCommandOp.Get(word), regs.CoreCommandIndex.Get(word)
	if !f.begin("Core", op, i) {
		return
	}
	switch op {
	case regs.CoreCommandOpCommit:
		if f.qp[i] != regs.CoreStatStateStateReset {
			f.end(CoreBase, regs.CoreCommandStatusCodeBadState, f.qp[i])
			return
		}
		f.qp[i] = regs.CoreStatStateStateReady
	case regs.CoreCommandOpReset:
		f.qp[i], f.cause[i] = regs.CoreStatStateStateReset, 0
	case regs.CoreCommandOpResetAll:
		f.qp, f.cause = [QueuePairs]uint32{}, [QueuePairs]uint32{}
	case regs.CoreCommandOpLatch:
		f.set(CoreBase, regs.CoreStatIndex, i)
		f.set(CoreBase, regs.CoreStatState, regs.CoreStatStateCause.Put(f.qp[i], f.cause[i]))
	default:
		f.end(CoreBase, regs.CoreCommandStatusCodeBadOp, 0)
	}
}

func (f *Fabric) streamCommand(word uint32) {
	op, i := regs.StreamCommandOp.Get(word), regs.StreamCommandIndex.Get(word)
	if !f.begin("Stream", op, i) {
		return
	}
	state := &f.stream[i]
	need := func(want uint32) bool {
		if *state != want {
			f.end(StreamBase, regs.StreamCommandStatusCodeBadState, *state)
			return false
		}
		return true
	}
	switch op {
	case regs.StreamCommandOpCommit:
		if need(regs.StreamStatStateStateIdle) {
			*state = regs.StreamStatStateStateConfigured
		}
	case regs.StreamCommandOpStart:
		if need(regs.StreamStatStateStateConfigured) {
			*state = regs.StreamStatStateStateRunning
		}
	case regs.StreamCommandOpStop:
		if *state == regs.StreamStatStateStateRunning {
			*state = regs.StreamStatStateStateStopped
		}
	case regs.StreamCommandOpReset:
		*state, f.ended[i], f.frames[i] = regs.StreamStatStateStateIdle, false, 0
	case regs.StreamCommandOpLatch:
		f.set(StreamBase, regs.StreamStatIndex, i)
		word := *state
		if f.ended[i] {
			word = regs.StreamStatStateEnded.Put(word, 1)
		}
		f.set(StreamBase, regs.StreamStatState, word)
		for _, r := range []regs.Reg64{regs.StreamStatSourceFrames, regs.StreamStatFramesPosted, regs.StreamStatFramesDone} {
			f.set(StreamBase, regs.Reg(r), uint32(f.frames[i]))
			f.set(StreamBase, regs.Reg(r)+4, uint32(f.frames[i]>>32))
		}
	default:
		f.end(StreamBase, regs.StreamCommandStatusCodeBadOp, 0)
	}
}

// Mem sets a word while a hook of the fabric runs, which holds the lock.
func (f *Fabric) Mem(offset, v uint32) uint32 {
	old := f.mem[offset]
	f.mem[offset] = v
	return old
}
