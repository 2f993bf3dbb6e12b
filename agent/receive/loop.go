package receive

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
)

// Loop serves one queue pair. Everything that belongs to the queue pair is in
// turn; Run only adds the thread and the waiting. With Config.Pool it has
// neither: the pool's thread hands it the completions of its queue pair.
type Loop struct {
	cfg  Config
	kind kind
	base uint64 // address of slot 0
	data []byte

	order atomic.Int32 // how far New, Prepare, Run went

	// The rest down to the atomics is the loop thread's alone.

	// Arrays of their own, free of pointers, so that a provider may pass them
	// to C.
	found    []verbs.WorkCompletion
	requests []verbs.ReceiveRequest
	both     verbs.PostPoller // nil: CQ is none
	frame    Frame
	begin    time.Time // of the loop's clock

	retry      bool
	wantOpcode verbs.Opcode
	wantFlags  verbs.CompletionFlags
	credits    uint64 // WRITE with immediate: receives ever posted
	seq        sequence
	ring       ring
	stock      // its own; of no use in a pool
	account    account
	pool       *Pool         // nil: the loop has its own thread
	share      sharing       // with a pool
	checkAt    time.Duration // when to look at the queue pair's state next
	active     time.Duration // when the last message was seen
	armed      bool
	backoff    time.Duration // WRITE: next sleep
	emptyLooks uint32

	leaving  bool
	blind    bool // the completion queue cannot be polled any more
	deadline time.Duration
	lastLap  int // WRITE: frames still to be taken while leaving
	cause    error
	weak     bool // the cause may be the consequence of another

	// Shared with other goroutines.

	totals    snapshot
	heldNow   atomic.Int64
	attention atomic.Bool // stop or failure is set
	stop      atomic.Bool
	failure   atomic.Pointer[error]
	sleeping  atomic.Bool
	windows   chan *rocelink.Window
	dropped   atomic.Uint64
}

// New checks the configuration and makes a loop. It touches neither the queue
// pair nor the memory.
func New(cfg Config) (*Loop, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("receive loop: %w", err)
	}
	l := &Loop{
		cfg: cfg, base: cfg.Memory.Address(), data: cfg.Memory.Bytes(),
		windows: make(chan *rocelink.Window, windowsKept), lastLap: int(cfg.Slots),
		wantOpcode: noOpcode, pool: cfg.Pool,
	}
	l.both, _ = cfg.CQ.(verbs.PostPoller)
	if l.pool != nil {
		l.share.init()
	} else {
		l.found = make([]verbs.WorkCompletion, cfg.Batch)
		l.requests = make([]verbs.ReceiveRequest, cfg.Batch)
		l.lending.init(int(cfg.Slots))
	}
	l.frame.Owner = l
	switch cfg.Verb {
	case rocelink.VerbSend:
		l.kind, l.wantOpcode = kindSend, verbs.OpRecv
	case rocelink.VerbSendImm:
		l.kind, l.wantOpcode, l.wantFlags = kindSend, verbs.OpRecv, verbs.WithImm
	case rocelink.VerbWriteImm:
		l.kind, l.wantOpcode, l.wantFlags = kindWriteImm, verbs.OpRecvRDMAWithImm, verbs.WithImm
	case rocelink.VerbWrite:
		l.kind = kindWrite
	case rocelink.VerbRead:
		l.kind = kindRead
	}
	switch {
	case l.pool != nil:
	case l.kind == kindSend:
		l.free.init(int(cfg.Slots))
		l.posted = make([]bool, cfg.Slots)
	default:
		l.ring.init(&l.cfg)
	}
	return l, nil
}

// stock is the slots, and where each of them is.
type stock struct {
	outstanding int    // receives posted and not completed
	held        int    // slots that are with the sink
	free        fifo   // SEND: slots to be posted
	posted      []bool // SEND: by slot
	lending     lending
}

// kind is how the loop learns of a message and where it lies.
type kind uint8

const (
	kindSend     kind = iota // completion; in the slot of the receive
	kindWriteImm             // completion; in the slot of the sequence
	kindWrite                // sequence word; in the slot of the sequence
	kindRead                 // never
)

// noOpcode is the opcode of no completion.
const noOpcode verbs.Opcode = 0xFF

// Windows delivers the windows. The loop never waits for a reader: when nobody
// takes them the oldest are dropped. The last window is always among those
// that are left, and the channel is closed after it.
func (l *Loop) Windows() <-chan *rocelink.Window { return l.windows }

// Dropped is how many windows nobody took in time.
func (l *Loop) Dropped() uint64 { return l.dropped.Load() }

// Totals are the sums since the session began. They are exact whenever the loop
// has nothing to do, and lag by less than a millisecond while it has. Any
// goroutine may call it at any time.
func (l *Loop) Totals() rocelink.Totals { return l.totals.load() }

// Held is how many slots are with the sink. The memory must not be freed before
// Run has returned and Held is 0.
func (l *Loop) Held() int { return int(max(l.heldNow.Load(), 0)) }

// Stop makes Run hand on what is there, wait for the posted receives to be
// flushed and return nil, within DrainTime. It does not wait for that. The
// caller sets the queue pair to error next: that is what flushes them. Any
// goroutine may call it, more than once.
func (l *Loop) Stop() {
	l.stop.Store(true)
	l.callAttention()
}

// Fail ends the loop as Stop does, sets the queue pair to error, and makes Run
// return err. Any goroutine may call it; the first call counts.
func (l *Loop) Fail(err error) {
	if err == nil {
		return
	}
	l.failure.CompareAndSwap(nil, &err)
	l.callAttention()
}

// callAttention has the loop look at what was asked of it.
func (l *Loop) callAttention() {
	l.attention.Store(true)
	if l.pool != nil {
		l.pool.attention.Store(true)
	}
	l.wake()
}

// loans is where the loans of the slots are kept.
func (l *Loop) loans() *lending {
	if l.pool != nil {
		return &l.pool.stock.lending
	}
	return &l.lending
}

// Release implements Owner. A frame that is not lent is ignored.
func (l *Loop) Release(f Frame) {
	b := l.loans()
	if uint(f.Slot) >= uint(len(b.words)) || !b.giveBack(f.Slot, f.generation) {
		return
	}
	l.heldNow.Add(-1)
	b.queue(f.Slot)
	l.wake()
}

// Intact implements Owner.
func (l *Loop) Intact(f Frame) bool {
	b := l.loans()
	if uint(f.Slot) >= uint(len(b.words)) || !b.lent(f.Slot, f.generation) {
		return false
	}
	return l.kind != kindWrite || l.ring.untouched(f.Slot, f.Sequence)
}

// wake ends the loop's sleep if it sleeps.
func (l *Loop) wake() {
	if l.pool != nil {
		l.pool.wake()
		return
	}
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		l.cfg.CQ.Wake()
	}
}

// Run serves the queue pair until Stop or Fail is called or something fails. It
// returns nil after Stop. When it returns, the last window is published, the
// channel of windows closed, and no receive is posted any more unless the error
// says so (ErrNotDrained).
func (l *Loop) Run() error {
	if !l.order.CompareAndSwap(ordPrepared, ordRun) {
		return fmt.Errorf("receive loop: run: %w", ErrOrder)
	}
	if l.pool != nil {
		<-l.share.done
		return l.share.err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.begin = time.Now()
	l.checkAt = l.cfg.Window
	l.account.begin(l)
	if l.cfg.CPU != nil {
		undo, err := pin(*l.cfg.CPU)
		if err != nil {
			l.leave(err, false)
		} else {
			defer undo()
		}
	}
	for {
		now, n := l.turn()
		if l.leaving && l.drained(now, n) {
			break
		}
		if n == 0 {
			l.rest(now)
		}
	}
	return l.end()
}

// The steps of Loop.order.
const (
	ordNew = iota
	ordPreparing
	ordPrepared
	ordRun
)

// now is the loop's clock: monotonic, from the start of Run.
func (l *Loop) now() time.Duration { return time.Since(l.begin) }

// turn looks once for messages, handles what there is and says how many there
// were and when it looked.
func (l *Loop) turn() (now time.Duration, n int) {
	n, err := l.look()
	now = l.now()
	if n > 0 {
		l.active = now
		l.backoff = 0
		l.account.arrived(l, now)
		if l.kind == kindWrite {
			l.takeRing(n)
		} else {
			l.takeCompletions(&l.stock, l.found[:n])
		}
	} else {
		l.account.empty()
	}
	if err != nil {
		l.blind = true
		l.leave(fmt.Errorf("poll: %w", err), false)
	}
	l.collect()
	if l.attention.Load() {
		l.attend() // before posting: what is posted after SetError some devices never flush
	}
	l.replenish(n)
	if now >= l.checkAt {
		l.checkAt = now + l.cfg.Window
		l.checkState()
	}
	l.account.tick(l, now, n)
	return now, n
}

// look finds out how many messages there are.
func (l *Loop) look() (int, error) {
	if l.kind != kindWrite {
		if l.blind {
			return 0, nil
		}
		if l.both != nil && l.owed() > 0 {
			if l.attention.Load() {
				l.attend() // before posting, as in turn
			}
			if !l.leaving {
				return l.postAndPoll()
			}
		}
		return l.cfg.CQ.Poll(l.found)
	}
	most := l.cfg.Batch
	if l.leaving {
		// A peer that still sends must not keep the loop alive.
		most = min(most, l.lastLap)
	}
	n := l.ring.ready(most)
	if n > 0 {
		return n, nil
	}
	if l.ring.lost(&l.account.total) {
		l.account.dirty = true
	}
	// Completions of WRITE are errors or somebody else's; a look at the queue
	// costs more than one at the ring, so it is rare.
	if l.emptyLooks++; l.emptyLooks%64 != 0 && !l.armed || l.blind {
		return 0, nil
	}
	c, err := l.cfg.CQ.Poll(l.found)
	if c > 0 {
		l.account.dirty = true
		l.takeCompletions(&l.stock, l.found[:c])
	}
	return 0, err
}

// attend reacts to Stop and Fail.
func (l *Loop) attend() {
	if p := l.failure.Load(); p != nil {
		l.leave(*p, false)
	}
	if l.stop.Load() {
		l.leave(nil, false)
	}
}

// checkState finds a queue pair that went to error without a completion, as it
// does when no receive is posted.
func (l *Loop) checkState() {
	if !l.leaving && l.cfg.QP.State() == verbs.Error {
		l.leave(ErrQueuePair, true)
	}
}

// leave starts the end of the loop: nothing is posted from here on. The first
// cause stays, unless it is weak: a flush or the state ERR only says that there
// is another one. nil is the owner's wish. If the loop leaves on its own it
// sets the queue pair to error, so that what is posted gets flushed.
func (l *Loop) leave(cause error, weak bool) {
	if l.leaving {
		if l.weak && !weak {
			l.cause, l.weak = cause, false
		}
		return
	}
	l.leaving, l.cause, l.weak = true, cause, weak
	l.deadline = l.now() + DrainTime
	// Also when the device went to error by itself: a receive that was posted
	// at the same moment is flushed by it, which not every device does else.
	if cause != nil {
		if err := l.cfg.QP.SetError(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			l.cause = errors.Join(cause, err)
		}
	}
}

// drained reports whether there is nothing left to wait for.
func (l *Loop) drained(now time.Duration, n int) bool {
	switch {
	case l.blind || now >= l.deadline:
		return true
	case l.kind == kindWrite:
		return n == 0 || l.lastLap <= 0
	}
	return l.outstanding == 0
}

// end publishes the last window and makes Run's error.
func (l *Loop) end() error {
	if l.pool == nil {
		l.collect()
	}
	err := l.cause
	if l.weak && l.stop.Load() {
		err = nil // the owner set the error state before the loop saw Stop
	}
	if l.outstanding > 0 { // in a pool there are none of its own
		left := fmt.Errorf("%d %w after %v: set the queue pair to error after Stop", l.outstanding, ErrNotDrained, DrainTime)
		if l.blind {
			left = fmt.Errorf("%d %w: their completions are lost", l.outstanding, ErrNotDrained)
		}
		err = errors.Join(err, left)
	}
	reason := "stopped"
	if err != nil {
		reason = err.Error()
		err = fmt.Errorf("receive loop: %w", err)
	}
	l.account.last(l, reason)
	close(l.windows)
	return err
}

// Sleeps of a loop that watches memory, for which no event exists: they double
// from the first to the longest.
const (
	firstNap   = 50 * time.Microsecond
	longestNap = time.Millisecond
)

// rest decides what to do after a turn that found nothing: turn again at once,
// arm the completion queue, or, when armed and polled once more, sleep.
func (l *Loop) rest(now time.Duration) {
	if l.kind != kindRead {
		if l.cfg.Mode == Busy || now-l.active < l.cfg.Spin {
			return
		}
	}
	if l.blind {
		return
	}
	if !l.armed {
		if err := l.cfg.CQ.Arm(); err != nil {
			l.leave(fmt.Errorf("arm: %w", err), false)
			return
		}
		l.armed = true
		return
	}
	l.armed = false
	wait := l.checkAt - now
	if end, open := l.account.closes(); open {
		wait = min(wait, end-now)
	}
	if l.leaving {
		wait = min(wait, l.deadline-now)
	}
	if l.retry {
		wait = min(wait, longestNap)
	}
	if l.kind == kindWrite {
		l.backoff = min(max(2*l.backoff, firstNap), longestNap)
		wait = min(wait, l.backoff)
	}
	if wait <= 0 {
		return
	}
	l.sleeping.Store(true)
	if l.lending.pending() || l.attention.Load() && !l.leaving {
		l.sleeping.Store(false)
		return
	}
	l.account.sleep()
	_, err := l.cfg.CQ.Wait(wait)
	l.sleeping.Store(false)
	if err != nil {
		l.leave(fmt.Errorf("wait: %w", err), false)
	}
}
