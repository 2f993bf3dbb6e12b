package model

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// Never is the deadline of something that waits for no time.
const Never = time.Duration(math.MaxInt64)

// ClockKHz is the core clock that Uptime counts: 250 MHz.
const ClockKHz = 250_000

const (
	maxQueuePairs = 16
	// quantum is how many packets a queue pair sends in one turn: as many
	// full ones as fit into one send with UDP segmentation offload.
	quantum = 15
	// batchFrames is how many frames one Step hands to the port at most.
	batchFrames = 64
)

// Port takes the frames that the fabric sends. Transmit takes frames in order
// and returns how many it took, the others are offered again, and how many of
// those it took it had to drop. A frame goes from the Ethernet header to the
// ICRC, without pad and FCS, and is the fabric's memory: it must not be changed,
// nor kept after the return. Transmit must not call the Fabric.
type Port interface {
	Transmit(frames [][]byte) (taken, dropped int)
}

// Config shapes a Fabric. The zero value is a fabric of 16 queue pairs whose
// link comes up at once and whose frames go nowhere.
type Config struct {
	Port Port // where frames go; nil is a wire without an end

	QueuePairs    int      // 1..16; 0 is 16
	MaxMTU        roce.MTU // largest path MTU; 0 is 4096
	MaxWindow     int      // slots of the retransmit ring; 0 is 256
	MaxReads      int      // READs outstanding on one queue pair; 0 is 4
	MaxFrameBytes uint32   // largest frame of a stream; 0 is 16 MiB

	// AckEvery is after how many packets without one an acknowledgement is
	// asked for inside a message; 0 is 16.
	AckEvery int
	// CreditInterval is the time between two READs of the Credit word while
	// the stream can do nothing but wait for it; 0 is 20 µs.
	CreditInterval time.Duration
	// PaceSlack is how far a stream behind its rate may catch up. Logic is
	// never late and needs none; a driver that sleeps needs some
	// milliseconds to hold the rate.
	PaceSlack time.Duration
	// SourcePort, if not 0, replaces QpSourcePort. Behind a UDP socket the
	// port on the wire is the socket's, and the ICRC covers it.
	SourcePort uint16

	// Sources are the external sources by stream; nil entries and missing
	// ones mean that the stream has none.
	Sources []*Source

	Build uint32 // build identifier
	Boot  uint32 // boot identifier; 0 chooses a random one

	Link Link // the Ethernet link at start

	// Registers is the memory of the registers, ApertureBytes long, for
	// instance [Shared.Registers]; nil allocates it.
	Registers []uint32
}

func (c *Config) setDefaults() error {
	if c.QueuePairs == 0 {
		c.QueuePairs = maxQueuePairs
	}
	if c.MaxMTU == 0 {
		c.MaxMTU = roce.MaxMTU
	}
	if c.MaxWindow == 0 {
		c.MaxWindow = 256
	}
	if c.MaxReads == 0 {
		c.MaxReads = 4
	}
	if c.MaxFrameBytes == 0 {
		c.MaxFrameBytes = 16 << 20
	}
	if c.AckEvery == 0 {
		c.AckEvery = 16
	}
	if c.CreditInterval == 0 {
		c.CreditInterval = 20 * time.Microsecond
	}
	switch {
	case c.QueuePairs < 0 || c.QueuePairs > maxQueuePairs:
		return fmt.Errorf("%d queue pairs: choose 1 to %d", c.QueuePairs, maxQueuePairs)
	case !c.MaxMTU.Valid():
		return fmt.Errorf("largest MTU %d: choose 256, 512, 1024, 2048 or 4096", c.MaxMTU)
	case c.MaxWindow < 0 || c.MaxWindow > 1<<16:
		return fmt.Errorf("window of %d packets: choose 1 to %d", c.MaxWindow, 1<<16)
	case c.MaxReads < 0 || c.MaxReads > 16:
		return fmt.Errorf("%d outstanding reads: choose 1 to 16", c.MaxReads)
	case c.MaxFrameBytes > 256<<20:
		// All PSNs in flight must stay within half of the PSN space.
		return fmt.Errorf("frames of %d bytes: choose at most 256 MiB", c.MaxFrameBytes)
	case c.MaxFrameBytes/256*uint32(c.MaxReads) >= 1<<22:
		return fmt.Errorf("%d reads of %d bytes: too many packets in flight", c.MaxReads, c.MaxFrameBytes)
	case c.AckEvery < 0 || c.CreditInterval < 0 || c.PaceSlack < 0:
		return fmt.Errorf("AckEvery %d, CreditInterval %v, PaceSlack %v: not negative", c.AckEvery, c.CreditInterval, c.PaceSlack)
	case len(c.Sources) > c.QueuePairs:
		return fmt.Errorf("%d sources for %d streams", len(c.Sources), c.QueuePairs)
	}
	return nil
}

// portCounters are the counters of all queue pairs together.
type portCounters struct {
	txPackets, txBytes, txDropped                           uint64
	rxPackets, rxBytes, rxBadICRC, rxMalformed, rxUnknownQP uint64
	rxBadOpcode, rxWrongAddress                             uint64
}

// origin is where a frame came from.
type origin struct {
	qp       *queuePair
	position uint64
}

// Fabric is the machine. Its methods may be called by several goroutines; a
// call is short.
type Fabric struct {
	shell
	cfg Config

	memory  []byte // of the retransmit rings
	qps     []queuePair
	streams []stream
	count   portCounters
	enabled bool

	coreCommands, streamCommands uint32

	turn   int // the queue pair that is served first
	batch  [][]byte
	origin []origin // of each frame of batch

	frame roce.Frame // the frame being received
}

// New returns a fabric after reset, its registers filled in, at time 0.
func New(cfg Config) (*Fabric, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	if cfg.Boot == 0 {
		var b [4]byte
		rand.Read(b[:])
		cfg.Boot = binary.LittleEndian.Uint32(b[:]) | 1
	}
	memory, err := allocate(cfg.QueuePairs * cfg.MaxWindow * slotBytes)
	if err != nil {
		return nil, fmt.Errorf("fabric: retransmit rings: %w", err)
	}
	f := &Fabric{
		cfg:     cfg,
		memory:  memory,
		qps:     make([]queuePair, cfg.QueuePairs),
		streams: make([]stream, cfg.QueuePairs),
		batch:   make([][]byte, 0, batchFrames),
		origin:  make([]origin, 0, batchFrames),
	}
	if err := f.init(cfg.Registers, cfg.Link); err != nil {
		return nil, errors.Join(err, release(memory))
	}
	per := cfg.MaxWindow * slotBytes
	for i := range f.qps {
		f.qps[i].init(f, &f.streams[i], memory[i*per:(i+1)*per:(i+1)*per])
		f.streams[i].init(f, &f.qps[i], i)
	}
	f.resetRegisters()
	return f, nil
}

// Close takes the fabric away from its registers, so that a driver sees that it
// is gone, and frees its memory. No other call may follow.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone()
	f.enabled = false
	if f.memory == nil {
		return nil
	}
	err := release(f.memory)
	f.memory, f.qps, f.streams = nil, nil, nil
	if err != nil {
		return fmt.Errorf("fabric: free the retransmit rings: %w", err)
	}
	return nil
}

// Step does what is due at time now: commands, timers, sending at most 64
// frames. It returns when it must be called next if nothing arrives before:
// now or earlier means at once, [Never] that only a register or a frame can
// give it something to do. Time does not run backwards.
func (f *Fabric) Step(now time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = max(f.now, now)
	f.poll()
	next := f.deadline()
	if !f.enabled {
		return next
	}
	n := len(f.qps)
	for range n {
		q := &f.qps[f.turn]
		next = min(next, q.serve())
		full := len(f.batch) == batchFrames
		if full && q.spent > 0 {
			next = f.now
			break // it goes on with its turn
		}
		if f.turn++; f.turn == n {
			f.turn = 0
		}
		if full {
			next = f.now
			break
		}
	}
	f.flush()
	for i := range f.qps {
		next = min(next, f.qps[i].timer) // which runs from when something left
		f.streams[i].settle()
	}
	return max(next, f.now)
}

// flush hands the batch to the port and does the book-keeping of what left.
func (f *Fabric) flush() {
	if len(f.batch) == 0 {
		return
	}
	taken, dropped := len(f.batch), 0
	switch {
	case !f.mac.txUp():
		dropped = taken
	case f.cfg.Port != nil:
		taken, dropped = f.cfg.Port.Transmit(f.batch)
	}
	f.count.txDropped += uint64(dropped)
	for i, b := range f.batch[:taken] {
		o := f.origin[i]
		o.qp.sent(o.position)
		// Which ones were dropped makes no difference to the counters.
		if i < taken-dropped {
			f.count.txPackets++
			f.count.txBytes += uint64(len(b))
			f.mac.sent(len(b))
		}
	}
	for i := len(f.batch) - 1; i >= taken; i-- {
		f.origin[i].qp.cursor = f.origin[i].position
	}
	f.batch, f.origin = f.batch[:0], f.origin[:0]
}

// macAddress reads the two registers of a MAC address.
func (f *Fabric) macAddress(low, high regs.Reg) (m roce.MAC) {
	binary.BigEndian.PutUint16(m[0:], uint16(f.core.get(high)))
	binary.BigEndian.PutUint32(m[2:], f.core.get(low))
	return m
}

// cycles is the core clock at the present time.
func (f *Fabric) cycles() uint64 {
	return uint64(f.now) / (1_000_000 / ClockKHz)
}
