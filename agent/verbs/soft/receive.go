package soft

import (
	"sync/atomic"

	"rocelink/agent/verbs"
)

// receive is a posted receive. It has no pointer, so that the garbage collector
// need not look at the rings.
type receive struct {
	id      uint64
	address uint64
	length  uint32
	lkey    uint32
}

const cacheLine = 64

// receiveRing is a receive queue: the poster puts, the responder takes.
type receiveRing struct {
	ring  []receive // power of two
	depth uint64

	_    [cacheLine]byte
	put  uint64 // the poster's copy of tail
	tail atomic.Uint64

	_        [cacheLine]byte
	taken    uint64 // the responder's copy of head
	seenTail uint64
	head     atomic.Uint64
	_        [cacheLine]byte
}

func (q *receiveRing) init(depth int) {
	q.depth = uint64(depth)
	q.ring = make([]receive, ceilPow2(depth))
}

// receiveQueue is a ring and what its poster needs to check a receive.
type receiveQueue struct {
	receiveRing
	pd   *domain
	last *region // the region of the last receive
}

func newReceiveQueue(pd *domain, depth int) *receiveQueue {
	q := &receiveQueue{pd: pd}
	q.init(depth)
	return q
}

// post takes receives in order, says how many, and why not the next one.
func (q *receiveQueue) post(rs []verbs.ReceiveRequest) (n int, err error) {
	room := q.room()
	for ; n < len(rs); n++ {
		r := &rs[n]
		if n == room {
			err = verbs.ErrFull
			break
		}
		if r.Length > 0 && !q.mayReceive(r) {
			err = verbs.ErrAccess
			break
		}
		q.stage(r)
	}
	if n > 0 {
		q.publish()
	}
	return n, err
}

// mayReceive reports whether a region of the domain covers the receive.
func (q *receiveQueue) mayReceive(r *verbs.ReceiveRequest) bool {
	mr := q.last
	if mr == nil || mr.lkey != r.LKey {
		mr = q.pd.device.lkeys.Load().get(r.LKey)
		if mr == nil || mr.pd != q.pd || mr.access&verbs.LocalWrite == 0 {
			return false
		}
		q.last = mr
	}
	_, ok := mr.slice(r.Address, r.Length)
	return ok
}

func ceilPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// room returns how many receives fit. Poster only.
func (q *receiveRing) room() int {
	return int(q.depth - (q.put - q.head.Load()))
}

// stage writes a receive that publish makes visible. Poster only; there must be
// room.
func (q *receiveRing) stage(r *verbs.ReceiveRequest) {
	q.ring[q.put&uint64(len(q.ring)-1)] = receive{r.ID, r.Address, r.Length, r.LKey}
	q.put++
}

func (q *receiveRing) publish() { q.tail.Store(q.put) }

// take removes the oldest receive. Responder only.
func (q *receiveRing) take() (receive, bool) {
	if q.taken == q.seenTail {
		if q.seenTail = q.tail.Load(); q.taken == q.seenTail {
			return receive{}, false
		}
	}
	r := q.ring[q.taken&uint64(len(q.ring)-1)]
	q.taken++
	q.head.Store(q.taken)
	return r, true
}
