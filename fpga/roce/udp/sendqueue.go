package udp

import "net/netip"

// SendQueue holds packets until Send has handed them to the kernel, in order.
// It keeps the slices, not copies: their bytes must stay as they are until the
// packet has left the queue.
type SendQueue struct {
	packets []queued
	head    int
	dsts    []destination
	sys     sendSys
}

type queued struct {
	data []byte
	dst  int // index into dsts
}

type destination struct {
	addr  netip.AddrPort
	name  sockaddr
	local bool // on this machine
}

// firstDestinations is how many destinations a queue has room for before it
// looks for those that no packet in it names.
const firstDestinations = 64

// Add appends a packet to be sent. It returns false if the queue is full.
func (q *SendQueue) Add(dst netip.AddrPort, packet []byte) bool {
	if len(q.packets) == cap(q.packets) {
		if q.head == 0 {
			return false
		}
		n := copy(q.packets, q.packets[q.head:])
		clear(q.packets[n:])
		q.packets, q.head = q.packets[:n], 0
	}
	q.packets = append(q.packets, queued{packet, q.destination(dst)})
	return true
}

// Len returns how many packets wait in the queue.
func (q *SendQueue) Len() int { return len(q.packets) - q.head }

// Cap returns how many packets the queue can hold.
func (q *SendQueue) Cap() int { return cap(q.packets) }

// Reset empties the queue; what was in it is not sent.
func (q *SendQueue) Reset() {
	clear(q.packets)
	q.packets, q.head = q.packets[:0], 0
}

// drop takes n packets off the head.
func (q *SendQueue) drop(n int) {
	q.head += n
	if q.head == len(q.packets) {
		q.Reset()
	}
}

// destination returns the index of a destination, looking first at the one used
// last.
func (q *SendQueue) destination(addr netip.AddrPort) int {
	if n := len(q.packets); n > 0 {
		if last := q.packets[n-1].dst; q.dsts[last].addr == addr {
			return last
		}
	}
	for i := range q.dsts {
		if q.dsts[i].addr == addr {
			return i
		}
	}
	if len(q.dsts) == cap(q.dsts) {
		q.forget()
	}
	q.dsts = append(q.dsts, q.sys.resolve(addr))
	return len(q.dsts) - 1
}

// forget drops the destinations that no waiting packet names. If more than half
// remain, the append that follows makes room for twice as many.
func (q *SendQueue) forget() {
	index := make([]int, len(q.dsts)) // new index + 1
	n := 0
	waiting := q.packets[q.head:]
	for i := range waiting {
		old := waiting[i].dst
		if index[old] == 0 {
			n++
			index[old] = n
		}
		waiting[i].dst = index[old] - 1
	}
	kept := make([]destination, n, max(cap(q.dsts), 2*n))
	for old, i := range index {
		if i > 0 {
			kept[i-1] = q.dsts[old]
		}
	}
	q.dsts = kept
}

// run returns how many of the packets from at on can leave as one buffer: the
// same destination and size, the last one perhaps shorter, within the kernel's
// limits.
func (q *SendQueue) run(at int) int {
	first := &q.packets[at]
	size := len(first.data)
	if size == 0 || !q.sys.gso(&q.dsts[first.dst]) {
		return 1
	}
	total, n := size, 1
	for at+n < len(q.packets) && n < maxSegments {
		p := &q.packets[at+n]
		if p.dst != first.dst || len(p.data) > size || len(p.data) == 0 || total+len(p.data) > maxGSOBytes {
			break
		}
		total += len(p.data)
		n++
		if len(p.data) < size {
			break
		}
	}
	return n
}
