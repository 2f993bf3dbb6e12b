package receive

import (
	"errors"
	"fmt"
	"math"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/fpga/pattern"
)

// Mode is how the loop waits.
type Mode uint8

const (
	// Event spins for Config.Spin after the last message, then arms the
	// completion queue, polls once more and sleeps.
	Event Mode = iota
	// Busy never sleeps and takes a CPU for itself.
	Busy
)

// Bounds and defaults of a Config.
const (
	DefaultBatch  = 16
	MaxBatch      = 256
	DefaultWindow = time.Second
	MinWindow     = time.Millisecond
	DefaultSpin   = 50 * time.Microsecond
	// DrainTime is how long Run waits for posted receives to be flushed.
	DrainTime = 2 * time.Second
)

// Config shapes a Loop. QP, CQ, Memory, Verb, Slots, Stride and Sink are
// needed, with Pool only QP, Verb and Sink; the zero value of everything else is
// a good default.
type Config struct {
	QP verbs.QueuePair
	// Pool, if not nil, is whose slots QP takes its receives from, with SEND or
	// SEND with immediate. CQ, Memory, LKey, Slots, Stride, Mode, Batch, Spin and
	// CPU are the pool's then; FrameBytes is the pool's too unless it is less.
	Pool *Pool
	// CQ takes the receive completions of QP and of no other queue pair.
	CQ verbs.CompletionQueue
	// Memory holds the slots from its beginning on; LKey is the key of its
	// region.
	Memory *verbs.Memory
	LKey   uint32

	Verb rocelink.Verb
	// Slots, Stride and FrameBytes are those of rocelink.Region. WRITE and
	// WRITE with immediate need 2 slots, WRITE a stride with room for the
	// trailer.
	Slots, Stride, FrameBytes uint32
	// CreditOffset is where in Memory, behind the slots, the count of released
	// frames is kept for WRITE. 0: the peer runs free and overwrites.
	CreditOffset int
	// Pattern and CRC say what the peer finds in the ring with READ: in slot i
	// the frame of sequence i.
	Pattern pattern.Kind
	CRC     bool

	Sink Sink

	Mode  Mode
	Batch int           // most completions a poll; 0 is DefaultBatch
	Spin  time.Duration // 0 is DefaultSpin, negative none
	CPU   *int          // the loop's thread is pinned to it; nil: it is not pinned

	// Window is the length of a window; 0 is DefaultWindow.
	Window time.Duration
	// Host, Board, Stream and Session are copied into each window.
	Host, Board, Stream string
	Session             rocelink.Count
}

// check fills in defaults and refuses what cannot work.
func (c *Config) check() error {
	if c.Pool != nil {
		if err := c.join(); err != nil {
			return err
		}
	}
	if c.QP == nil || c.CQ == nil || c.Memory == nil || c.Sink == nil {
		return errors.New("queue pair, completion queue, memory and sink must all be given")
	}
	if !c.Verb.Valid() {
		return fmt.Errorf("verb %q: want one of %q", c.Verb, rocelink.Verbs)
	}
	least := uint32(1)
	if c.Verb == rocelink.VerbWrite || c.Verb == rocelink.VerbWriteImm {
		least = 2 // the one being written is never the one being looked at
	}
	if c.Slots < least || c.Slots > math.MaxInt32 {
		return fmt.Errorf("%d slots: %s needs %d to %d", c.Slots, c.Verb, least, math.MaxInt32)
	}
	if c.FrameBytes > rocelink.MaxFrameBytes {
		return fmt.Errorf("frames of %d bytes: at most %d", c.FrameBytes, rocelink.MaxFrameBytes)
	}
	need := uint64(c.FrameBytes)
	if c.Verb == rocelink.VerbWrite {
		need += rocelink.TrailerBytes
	}
	if uint64(c.Stride) < need {
		return fmt.Errorf("stride %d: %s of %d-byte frames needs %d", c.Stride, c.Verb, c.FrameBytes, need)
	}
	if c.Verb.Ring() && c.Stride%8 != 0 {
		return fmt.Errorf("stride %d: %s needs a multiple of 8", c.Stride, c.Verb)
	}
	size := uint64(len(c.Memory.Bytes()))
	slots := uint64(c.Slots) * uint64(c.Stride)
	if slots > size {
		return fmt.Errorf("%d slots of %d bytes: need %d bytes of memory, there are %d", c.Slots, c.Stride, slots, size)
	}
	if c.Verb == rocelink.VerbRead && !c.Pattern.Valid() {
		return fmt.Errorf("%v: choose a pattern the peer can check", c.Pattern)
	}
	if c.Verb == rocelink.VerbRead && c.CRC && c.FrameBytes < pattern.CRCLen {
		return fmt.Errorf("frames of %d bytes: a CRC alone needs %d", c.FrameBytes, pattern.CRCLen)
	}
	if at := c.CreditOffset; at != 0 {
		switch {
		case c.Verb != rocelink.VerbWrite:
			return fmt.Errorf("credit word at %d: only %s uses one", at, rocelink.VerbWrite)
		case at%8 != 0 || at < 0 || uint64(at) < slots || uint64(at)+8 > size:
			return fmt.Errorf("credit word at %d: want a multiple of 8 between the slots' end at %d and the memory's at %d", at, slots, size)
		}
	}
	if receives := c.receives(); c.CQ.Depth() < receives {
		return fmt.Errorf("completion queue of depth %d: %d receives will be posted: make it at least as deep", c.CQ.Depth(), receives)
	}
	if c.Mode > Busy {
		return fmt.Errorf("mode %d: want Event or Busy", c.Mode)
	}
	if c.Batch == 0 {
		c.Batch = DefaultBatch
	}
	if c.Batch < 1 || c.Batch > MaxBatch {
		return fmt.Errorf("batch of %d: want 1 to %d", c.Batch, MaxBatch)
	}
	if c.Spin == 0 {
		c.Spin = DefaultSpin
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Window < MinWindow {
		return fmt.Errorf("window of %v: want at least %v", c.Window, MinWindow)
	}
	return nil
}

// join takes over what is the pool's.
func (c *Config) join() error {
	p := &c.Pool.cfg
	if c.Verb != rocelink.VerbSend && c.Verb != rocelink.VerbSendImm {
		return fmt.Errorf("verb %q: a pool serves %s and %s", c.Verb, rocelink.VerbSend, rocelink.VerbSendImm)
	}
	if c.FrameBytes == 0 {
		c.FrameBytes = p.FrameBytes
	}
	if c.FrameBytes > p.FrameBytes {
		return fmt.Errorf("frames of %d bytes: the pool's slots take %d", c.FrameBytes, p.FrameBytes)
	}
	c.CQ, c.Memory, c.LKey, c.Slots, c.Stride = p.CQ, p.Memory, p.LKey, p.Slots, p.Stride
	c.Mode, c.Batch, c.Spin, c.CPU = p.Mode, p.Batch, p.Spin, p.CPU
	return nil
}

// receives is how many receives the verb keeps posted.
func (c *Config) receives() int {
	switch c.Verb {
	case rocelink.VerbSend, rocelink.VerbSendImm:
		return int(c.Slots)
	case rocelink.VerbWriteImm:
		// A WRITE of several packets lands before its immediate asks for a
		// receive: the frame after the last credit may already be on its way
		// into its slot, so that slot must be free as well.
		return int(c.Slots) - 1
	}
	return 0
}
