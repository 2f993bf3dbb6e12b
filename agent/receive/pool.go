package receive

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
)

// PoolConfig shapes a Pool. SRQ, CQ, Memory, Slots, Stride and FrameBytes are
// needed; the zero value of everything else is a good default.
type PoolConfig struct {
	// SRQ holds Slots receives and serves the queue pairs of the pool's loops
	// and no other. CQ takes their completions; it has room for Slots.
	SRQ verbs.SharedReceiveQueue
	CQ  verbs.CompletionQueue
	// Memory holds the slots from its beginning on; LKey is the key of its
	// region, which needs no remote access.
	Memory *verbs.Memory
	LKey   uint32

	Slots, Stride, FrameBytes uint32

	// As in Config, for the thread of all.
	Mode  Mode
	Batch int
	Spin  time.Duration
	CPU   *int
}

// Pool serves the queue pairs of several loops from one stock of slots, on one
// thread and one completion queue. A loop joins it by Config.Pool and Prepare,
// at any time, and leaves it when its Run returns.
//
// A loop that leaves takes nothing with it: its queue pair flushes none of the
// shared receives, and the slots its sink holds come back when they are
// released.
type Pool struct {
	cfg   PoolConfig
	base  uint64
	order atomic.Int32

	// The thread's alone.

	found    []verbs.WorkCompletion
	requests []verbs.ReceiveRequest
	stock    stock
	members  []*Loop
	byQPN    map[uint32]*Loop
	both     verbs.PostPoller // nil: CQ is none
	recent   [64]*Loop        // what byQPN said, by the lower bits of the QPN
	busy     []*Loop          // with completions in the batch in hand
	sweepAt  time.Duration    // when to look at every loop next
	leaving  bool             // one of them is
	begin    time.Time
	active   time.Duration
	armed    bool
	retry    bool
	blind    bool
	cause    error
	strays   uint64 // completions of queue pairs that are not the pool's

	// Shared with other goroutines.

	sleeping  atomic.Bool
	attention atomic.Bool // joins, or something of a loop, is set
	stop      atomic.Bool

	mu    sync.Mutex
	shut  error // why nobody may join any more
	qpns  map[uint32]bool
	joins []*Loop
}

// sharing is a loop's part of a pool.
type sharing struct {
	lastWQE atomic.Bool
	qpn     uint32
	arrived int // completions of the batch in hand
	left    int // completions that may still be its own; -1: not known
	done    chan struct{}
	ended   bool
	err     error // once done is closed
}

func (s *sharing) init() { s.left, s.done = -1, make(chan struct{}) }

// drained reports whether no completion of the queue pair can come any more.
func (s *sharing) drained() bool { return s.left == 0 }

// NewPool checks the configuration and makes a pool. It touches neither the
// queue nor the memory.
func NewPool(c PoolConfig) (*Pool, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("receive pool: %w", err)
	}
	p := &Pool{
		cfg: c, base: c.Memory.Address(), begin: time.Now(),
		found:    make([]verbs.WorkCompletion, c.Batch),
		requests: make([]verbs.ReceiveRequest, c.Batch),
		busy:     make([]*Loop, 0, c.Batch),
		byQPN:    map[uint32]*Loop{}, qpns: map[uint32]bool{},
	}
	p.both, _ = c.CQ.(verbs.PostPoller)
	p.stock.lending.init(int(c.Slots))
	p.stock.free.init(int(c.Slots))
	p.stock.posted = make([]bool, c.Slots)
	return p, nil
}

func (c *PoolConfig) check() error {
	if c.SRQ == nil || c.CQ == nil || c.Memory == nil {
		return errors.New("shared receive queue, completion queue and memory must all be given")
	}
	if c.Slots < 1 || c.Slots > math.MaxInt32 {
		return fmt.Errorf("%d slots: want 1 to %d", c.Slots, math.MaxInt32)
	}
	if c.FrameBytes > rocelink.MaxFrameBytes || c.Stride < c.FrameBytes {
		return fmt.Errorf("frames of %d bytes: want at most %d and the stride, which is %d", c.FrameBytes, rocelink.MaxFrameBytes, c.Stride)
	}
	if slots, size := uint64(c.Slots)*uint64(c.Stride), uint64(len(c.Memory.Bytes())); slots > size {
		return fmt.Errorf("%d slots of %d bytes: need %d bytes of memory, there are %d", c.Slots, c.Stride, slots, size)
	}
	if c.CQ.Depth() < int(c.Slots) {
		return fmt.Errorf("completion queue of depth %d: %d receives will be posted: make it at least as deep", c.CQ.Depth(), c.Slots)
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
	return nil
}

// Prepare posts a receive for each slot. It is called once, before any queue
// pair of the pool goes to RTR.
func (p *Pool) Prepare() error {
	if !p.order.CompareAndSwap(ordNew, ordPreparing) {
		return fmt.Errorf("receive pool: prepare: %w", ErrOrder)
	}
	for i := range p.cfg.Slots {
		p.stock.free.push(i)
	}
	if err := p.post(); err != nil {
		return fmt.Errorf("receive pool: post receive %d of %d: %w", p.stock.outstanding+1, p.cfg.Slots, err)
	}
	if p.stock.free.n > 0 {
		return fmt.Errorf("receive pool: %d of %d receives posted: %w: create the shared receive queue with that many", p.stock.outstanding, p.cfg.Slots, verbs.ErrFull)
	}
	p.order.Store(ordPrepared)
	return nil
}

// Stop lets no loop join any more; Run returns when the last one has left. Any
// goroutine may call it, more than once.
func (p *Pool) Stop() {
	p.close(ErrPool)
	p.stop.Store(true)
	p.attention.Store(true)
	p.wake()
}

func (p *Pool) close(why error) {
	p.mu.Lock()
	if p.shut == nil {
		p.shut = why
	}
	p.mu.Unlock()
}

// Credits says where the slots are: posted, held by sinks, free to be posted,
// and lost, which is posted as far as anybody knows, and completed by a device
// that did not say which it was. It may be called once Run has returned; what
// sinks released meanwhile is free. The memory must not be freed before held is
// 0.
func (p *Pool) Credits() (posted, held, free, lost int) {
	p.collect()
	s := &p.stock
	for _, is := range s.posted {
		if is {
			posted++
		}
	}
	lost = posted - s.outstanding
	return s.outstanding, s.held, s.free.n, lost
}

// LastWQE tells the loop that its queue pair, which is in error, takes no more
// receives from the shared queue (verbs.EventLastWQE). Without that word a loop of
// a pool waits for DrainTime before it leaves. Any goroutine may call it.
func (l *Loop) LastWQE() {
	l.share.lastWQE.Store(true)
	l.callAttention()
}

// join lets a loop in. The thread serves it from the next turn on.
func (p *Pool) join(l *Loop) error {
	qpn := uint32(l.cfg.QP.QPN())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut != nil {
		return p.shut
	}
	if p.qpns[qpn] {
		return fmt.Errorf("queue pair %#06x is in the pool already", qpn)
	}
	p.qpns[qpn] = true
	l.share.qpn, l.begin = qpn, p.begin
	p.joins = append(p.joins, l)
	p.attention.Store(true)
	p.wake()
	return nil
}
