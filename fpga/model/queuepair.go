package model

import (
	"net/netip"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

type qpState uint8

const (
	qpReset qpState = regs.CoreStatStateStateReset
	qpReady qpState = regs.CoreStatStateStateReady
	qpError qpState = regs.CoreStatStateStateError
)

// rnrForEver is the RNR retry count that never ends (IBTA vol. 1, 9.7.5.2.8).
const rnrForEver = 7

// qpCounters are the counters of one queue pair, as the registers name them.
type qpCounters struct {
	messagesPosted, messagesAcked            uint64
	bytesPosted, bytesAcked                  uint64
	packetsSent, packetsResent, packetsAcked uint64
	timeouts, sequenceNAKs, rnrNAKs          uint64
	rnrMessages, fatalNAKs                   uint64
	acksReceived, staleAcks                  uint64
	readResponses, readGaps, windowStalls    uint64
}

// queuePair is a requester: it sends out of a ring and goes back by moving a
// pointer. Packets have an ever growing number of which the PSN is the lower
// part, slots of the ring likewise an ever growing position; a packet of a READ
// request takes as many numbers as it has responses, but one slot.
//
//	una ≤ cursor ≤ end    una: oldest unacknowledged
//	una ≤ high ≤ end      cursor: next to send; high: never sent so far
type queuePair struct {
	fabric *Fabric
	stream *stream
	ring   ring

	state qpState
	cause uint8

	mtu        uint32
	timeout    time.Duration
	retryCount int
	rnrRetry   int
	window     uint64
	localQPN   roce.QPN
	startPSN   roce.PSN
	local      netip.Addr
	remote     netip.Addr
	frame      roce.Frame // what all packets have in common

	una, cursor, high, end uint64
	nextNumber             uint64 // packet number of the next new packet
	sinceAckReq            int
	stalled                bool
	spent                  int // of the present turn, when a full batch cut it short

	reads              [16]read // outstanding, at position modulo MaxReads
	readHead, readTail uint64
	rereadAt           uint64 // 1 + packet number from which a READ was repeated

	timer      time.Duration // when the oldest packet is overdue
	hold       time.Duration // nothing is sent before, after RNR NAK
	retries    int
	rnrRetries int
	msn        uint32

	count qpCounters
}

// read is an outstanding READ request.
type read struct {
	message         // what is read; offset is how far the responses came
	position uint64 // of its slot
	first    uint64 // its first packet number
	span     uint64 // how many it has
	expected uint64 // packet number of the next response
	asked    uint64 // packet number with which it was last requested
	good     bool   // all data so far was as expected
	data     [8]byte
}

func (q *queuePair) init(f *Fabric, s *stream, memory []byte) {
	q.fabric, q.stream = f, s
	q.ring = newRing(memory)
	q.timer = Never
}

// reset drops everything and returns to state Reset.
func (q *queuePair) reset() {
	f, s, r := q.fabric, q.stream, q.ring
	*q = queuePair{fabric: f, stream: s, ring: r, timer: Never}
	s.lost()
}

// fail stops the queue pair.
func (q *queuePair) fail(cause uint8) {
	q.state, q.cause = qpError, cause
	q.timer, q.hold = Never, 0
	q.stream.lost()
}

func (q *queuePair) psn(number uint64) roce.PSN { return q.startPSN.Add(int(number & roce.PSNMask)) }

// unacked is the number of the oldest unacknowledged packet.
func (q *queuePair) unacked() uint64 {
	switch {
	case q.una == q.end:
		return q.nextNumber
	case q.readHead != q.readTail && q.oldestRead().position == q.una:
		return q.oldestRead().expected
	}
	return q.ring.at(q.una).number
}

// unsent is the number of the first packet that was never sent.
func (q *queuePair) unsent() uint64 {
	if q.high == q.end {
		return q.nextNumber
	}
	return q.ring.at(q.high).number
}

// idle reports that everything handed over is acknowledged.
func (q *queuePair) idle() bool { return q.una == q.end }

func (q *queuePair) oldestRead() *read {
	return &q.reads[q.readHead%uint64(q.fabric.cfg.MaxReads)]
}

func (q *queuePair) readsFull() bool {
	return q.readTail-q.readHead >= uint64(q.fabric.cfg.MaxReads)
}

// serve lets the queue pair have its turn: timers, then packets into the batch.
// It returns when it wants the next.
func (q *queuePair) serve() time.Duration {
	f := q.fabric
	if q.state != qpReady {
		return Never
	}
	if f.now >= q.timer {
		q.overdue()
		if q.state != qpReady {
			return Never
		}
	}
	if q.hold > f.now {
		return q.hold
	}
	q.hold = 0
	for ; ; q.spent++ {
		if q.cursor == q.end {
			wait := q.build()
			if q.cursor == q.end {
				q.spent = 0
				return min(q.timer, wait)
			}
		}
		if q.spent >= quantum {
			q.spent = 0
			return f.now
		}
		if len(f.batch) == batchFrames {
			return f.now
		}
		f.origin = append(f.origin, origin{q, q.cursor})
		f.batch = append(f.batch, q.next())
	}
}

// next returns the frame at the cursor and moves on.
func (q *queuePair) next() []byte {
	s := q.ring.at(q.cursor)
	if s.kind.isRead() && q.cursor < q.high {
		q.repeat(q.cursor)
	}
	b := q.ring.bytes(q.cursor)[:s.length]
	q.cursor++
	return b
}

// sent does the book-keeping of the packet at a position, which has left.
func (q *queuePair) sent(position uint64) {
	if q.timer == Never && q.timeout > 0 {
		q.timer = q.fabric.now + q.timeout
	}
	if position < q.high {
		q.count.packetsResent++
		return
	}
	q.high = position + 1
	q.count.packetsSent++
}

// goBack sends again from the oldest unacknowledged packet on. The timer runs
// from when that has left.
func (q *queuePair) goBack() {
	q.cursor = q.una
	q.timer = Never
}

// retry goes back unless that was done too often without progress.
func (q *queuePair) retry() {
	q.retries++
	if q.retries > q.retryCount {
		q.fail(regs.CoreStatStateCauseRetryExceeded)
		return
	}
	q.goBack()
}

// overdue acts on the local ACK timeout.
func (q *queuePair) overdue() {
	q.timer = Never
	if q.una == q.high {
		return
	}
	q.count.timeouts++
	q.rereadAt = 0
	q.retry()
}

// build makes the next packet, if there is work and room, and returns when to
// try again if not.
func (q *queuePair) build() time.Duration {
	m := &q.stream.msg
	if !m.active {
		if wait, ok := q.stream.nextMessage(); !ok {
			return wait
		}
		q.count.messagesPosted++
		q.count.bytesPosted += uint64(m.length)
	}
	if q.end-q.una >= q.window {
		if !q.stalled {
			q.stalled = true
			q.count.windowStalls++
		}
		return Never
	}
	q.put(m)
	return q.fabric.now
}

// put makes the next packet of a message in the ring.
func (q *queuePair) put(m *message) {
	s := q.ring.at(q.end)
	*s = slot{number: q.nextNumber, span: 1, kind: m.kind, last: true}
	p := &q.frame.Packet
	p.Opcode = m.op
	var n uint32
	if m.kind.isRead() {
		s.span = uint64(q.packets(m.length))
		r := &q.reads[q.readTail%uint64(q.fabric.cfg.MaxReads)]
		*r = read{message: *m, position: q.end, first: s.number, span: s.span, expected: s.number, asked: s.number, good: true}
		q.readTail++
	} else {
		n = min(q.mtu, m.length-m.offset)
		s.last = m.offset+n == m.length
		p.Opcode = m.op.InMessage(m.offset == 0, s.last)
	}
	q.sinceAckReq++
	p.AckReq = s.last || q.sinceAckReq >= q.fabric.cfg.AckEvery || q.end+1-q.una >= q.window
	if p.AckReq {
		q.sinceAckReq = 0
	}
	p.SolicitedEvent = s.last && m.solicited
	p.PSN = q.psn(s.number)
	p.RETH = roce.RETH{Address: m.address, RKey: m.rkey, Length: m.length}
	p.Imm = m.imm
	b := q.ring.bytes(q.end)
	at := headerBytes(q.frame.Flow.Is4()) + p.Opcode.HeaderLen()
	p.Payload = b[at : at+int(n)]
	q.stream.fill(p.Payload, m)
	s.length = q.seal(b)
	if s.last {
		s.messageBytes, s.frameBytes = m.length, m.frameBytes
		m.active = false
	}
	m.offset += n
	q.end++
	q.nextNumber += s.span
}

// seal writes the frame that q.frame describes.
func (q *queuePair) seal(b []byte) int {
	n, err := q.frame.Put(b)
	if err != nil {
		// Commit and put leave nothing that Put could refuse.
		panic("model: " + err.Error())
	}
	return n
}

// repeat makes the READ request at a position ask for what has not come yet.
func (q *queuePair) repeat(position uint64) {
	r := q.oldestRead()
	if r.position != position || r.expected == r.asked {
		return
	}
	r.asked = r.expected
	done := uint32(r.expected-r.first) * q.mtu
	p := &q.frame.Packet
	p.Opcode = roce.ReadRequest
	p.AckReq, p.SolicitedEvent = true, false
	p.PSN = q.psn(r.expected)
	p.RETH = roce.RETH{Address: r.address + uint64(done), RKey: r.rkey, Length: r.length - done}
	p.Payload = nil
	q.ring.at(position).length = q.seal(q.ring.bytes(position))
}

// packets is how many packets n bytes take: at least one.
func (q *queuePair) packets(n uint32) int { return roce.MTU(q.mtu).Packets(int(n)) }
