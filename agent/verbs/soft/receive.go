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
