package receive

import (
	"errors"
	"fmt"

	"rocelink/agent/verbs"
	"rocelink/fpga/pattern"
)

// Prepare readies the memory and posts the receives. It is called once, with
// the queue pair in INIT, before it goes to RTR: a peer that is quicker then
// finds them. If it fails, some receives may be posted; closing the queue pair
// takes them back. With a pool the receives are posted already, and from here on
// the pool's thread serves the loop; Run must be called, after Stop if the
// connection fails.
func (l *Loop) Prepare() error {
	if !l.order.CompareAndSwap(ordNew, ordPreparing) {
		return fmt.Errorf("receive loop: prepare: %w", ErrOrder)
	}
	prepare := l.prepare
	if l.pool != nil {
		prepare = func() error { return l.pool.join(l) }
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("receive loop: prepare: %w", err)
	}
	l.order.Store(ordPrepared)
	return nil
}

func (l *Loop) prepare() error {
	switch l.kind {
	case kindWrite:
		l.ring.clear()
		return nil
	case kindRead:
		for i := range int(l.cfg.Slots) {
			frame := l.slot(i, l.cfg.FrameBytes)
			pattern.Fill(frame, l.cfg.Pattern, uint64(i))
			if l.cfg.CRC {
				if err := pattern.SealCRC(frame); err != nil {
					return fmt.Errorf("fill slot %d: %w", i, err)
				}
			}
		}
		return nil
	case kindSend:
		for i := range int(l.cfg.Slots) {
			l.free.push(uint32(i))
		}
	}
	want := l.cfg.receives()
	if err := l.post(); err != nil {
		return fmt.Errorf("post receive %d of %d: %w", l.outstanding+1, want, err)
	}
	if l.outstanding != want {
		return fmt.Errorf("%d of %d receives posted: %w: create the queue pair with that many", l.outstanding, want, verbs.ErrFull)
	}
	return nil
}

// slot is the memory of a slot.
func (l *Loop) slot(i int, length uint32) []byte {
	at := i * int(l.cfg.Stride)
	return l.data[at : at+int(length) : at+int(length)]
}

// replenish posts what can be posted, unless the loop is leaving: a queue pair
// in error gets nothing. After a turn that found something the next look follows
// at once; if it can take the receives with it, they are left to it.
func (l *Loop) replenish(found int) {
	owed := l.owed()
	if l.leaving || owed == 0 || found > 0 && l.both != nil && owed <= l.cfg.Batch {
		return
	}
	before := l.outstanding
	l.reposted(before, l.post())
}

// reposted notes what was posted since there were so many.
func (l *Loop) reposted(before int, err error) {
	l.account.reposts += uint64(l.outstanding - before)
	if err != nil {
		err = fmt.Errorf("post receive: %w", err)
		l.leave(err, errors.Is(err, verbs.ErrState))
	}
}

// postAndPoll posts up to a batch of what is owed, and looks for completions.
func (l *Loop) postAndPoll() (int, error) {
	l.retry = false
	n, before := l.describe(), l.outstanding
	took, postErr, found, err := l.both.PostPoll(l.cfg.QP, l.requests[:n], l.found)
	_, postErr = l.taken(n, took, postErr)
	l.reposted(before, postErr)
	return found, err
}

// owed is how many receives could be posted.
func (l *Loop) owed() int {
	if l.kind == kindWriteImm {
		return max(l.ring.room(l.seq.next)-l.outstanding, 0)
	}
	return l.free.n // none unless it is SEND
}

// post posts all that is owed, a batch a call. What the queue does not take
// stays owed and is tried again at the next turn: a credit is never lost.
func (l *Loop) post() error {
	l.retry = false
	for {
		n := l.describe()
		if n == 0 {
			return nil
		}
		took, err := l.cfg.QP.PostReceive(l.requests[:n])
		if more, err := l.taken(n, took, err); !more {
			return err
		}
	}
}

// describe fills in the next batch of requests and says how many there are.
func (l *Loop) describe() int {
	n := min(l.owed(), l.cfg.Batch)
	for i := range n {
		r := &l.requests[i]
		if l.kind == kindWriteImm {
			*r = verbs.ReceiveRequest{ID: l.credits + uint64(i)}
			continue
		}
		slot := l.free.peek(i)
		r.ID, r.Address = uint64(slot), l.base+uint64(slot)*uint64(l.cfg.Stride)
		r.Length, r.LKey = l.cfg.FrameBytes, l.cfg.LKey
	}
	return n
}

// taken notes that the queue took so many of n receives, and reports whether it
// may take more.
func (l *Loop) taken(n, took int, err error) (more bool, _ error) {
	took = min(max(took, 0), n)
	l.outstanding += took
	if l.kind == kindWriteImm {
		l.credits += uint64(took)
	} else {
		for range took {
			l.posted[l.free.pop()] = true
		}
	}
	if err != nil && !errors.Is(err, verbs.ErrFull) {
		return false, err
	}
	l.retry = took < n
	return !l.retry, nil
}

// fifo is a queue of slots, as long as there are slots.
type fifo struct {
	slots   []uint32
	head, n int
}

func (q *fifo) init(size int) { q.slots = make([]uint32, size) }

// peek returns the i-th in the queue.
func (q *fifo) peek(i int) uint32 {
	if i += q.head; i >= len(q.slots) {
		i -= len(q.slots)
	}
	return q.slots[i]
}

func (q *fifo) push(slot uint32) {
	i := q.head + q.n
	if i >= len(q.slots) {
		i -= len(q.slots)
	}
	q.slots[i] = slot
	q.n++
}

func (q *fifo) pop() uint32 {
	slot := q.slots[q.head]
	if q.head++; q.head == len(q.slots) {
		q.head = 0
	}
	q.n--
	return slot
}
