package model

import (
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// respond acts on an acknowledgement or a READ response for this queue pair.
func (q *queuePair) respond(p *roce.Packet) {
	base := q.nextNumber
	if !q.idle() {
		base = q.ring.at(q.una).number
	}
	number := base + uint64(int64(p.PSN.Sub(q.psn(base))))
	// A number before base wraps around or is smaller; both are stale.
	if number < base || number >= q.unsent() {
		q.count.staleAcks++
		return
	}
	if p.Opcode.IsReadResponse() {
		q.readResponse(p, number)
		return
	}
	q.msn = p.AETH.MSN
	switch sy := p.AETH.Syndrome; {
	case sy.IsACK():
		if q.acknowledge(number + 1) {
			q.count.acksReceived++
		} else {
			q.count.staleAcks++
		}
	case sy.IsRNR():
		q.notReady(number, sy.RNRTimer())
	default:
		q.refused(number, sy.NakCode())
	}
}

// acknowledge takes all packets before number as received and reports whether
// that was news. It stops at a READ whose data has not come: that was lost, and
// the request is repeated.
func (q *queuePair) acknowledge(number uint64) (moved bool) {
	for q.una < q.high {
		s := q.ring.at(q.una)
		if s.number+s.span > number {
			break
		}
		if s.kind.isRead() {
			r := q.oldestRead()
			if r.expected < r.first+r.span {
				q.reread()
				break
			}
			q.readHead++
			q.stream.readDone(r)
		}
		q.una++
		q.count.packetsAcked++
		if s.last {
			q.count.messagesAcked++
			q.count.bytesAcked += uint64(s.messageBytes)
			q.stream.delivered(s)
		}
		moved = true
	}
	if moved {
		q.progress()
	}
	return moved
}

// progress starts all patience anew.
func (q *queuePair) progress() {
	q.retries, q.rnrRetries = 0, 0
	q.hold = 0
	q.stalled = false
	q.cursor = max(q.cursor, q.una)
	switch {
	case q.una == q.high:
		q.timer = Never
	case q.timeout > 0:
		q.timer = q.fabric.now + q.timeout
	}
}

// reread goes back to a READ whose responses have a gap, once for each gap:
// more responses of the same request are on their way and show the same.
func (q *queuePair) reread() {
	at := q.oldestRead().expected + 1
	if q.rereadAt == at {
		return
	}
	q.rereadAt = at
	q.goBack()
}

// notReady waits as the peer asks and goes back.
func (q *queuePair) notReady(number uint64, code uint8) {
	q.count.rnrNAKs++
	q.acknowledge(number)
	if q.hold > 0 && q.cursor == q.una {
		return // a copy of the one that we wait for
	}
	if s := q.ring.at(q.una); !s.rnr {
		s.rnr = true
		q.count.rnrMessages++
	}
	q.retries = 0 // the peer is there
	if q.rnrRetry != rnrForEver {
		q.rnrRetries++
		if q.rnrRetries > q.rnrRetry {
			q.fail(regs.CoreStatStateCauseRNRRetryExceeded)
			return
		}
	}
	q.goBack()
	q.hold = q.fabric.now + roce.RNRDelay(code)
}

// refused acts on a NAK.
func (q *queuePair) refused(number uint64, code roce.NakCode) {
	if code == roce.PSNSequenceError {
		q.count.sequenceNAKs++
	} else {
		q.count.fatalNAKs++
	}
	q.acknowledge(number)
	switch code {
	case roce.PSNSequenceError:
		// Unless we went back already and have not sent since.
		if q.cursor > q.una {
			q.retry()
		}
	case roce.InvalidRequest:
		q.fail(regs.CoreStatStateCauseRemoteInvalidRequest)
	case roce.RemoteAccess:
		q.fail(regs.CoreStatStateCauseRemoteAccess)
	default:
		q.fail(regs.CoreStatStateCauseRemoteOperational)
	}
}

// readResponse takes a response with a packet number that was sent. It
// acknowledges all requests before its own.
func (q *queuePair) readResponse(p *roce.Packet, number uint64) {
	r := q.reader(number)
	if r == nil || p.Opcode.HasAETH() && !p.AETH.Syndrome.IsACK() {
		q.fail(regs.CoreStatStateCauseBadResponse)
		return
	}
	q.acknowledge(r.first)
	oldest := q.oldestRead()
	switch {
	case number < oldest.expected:
		q.count.staleAcks++
		return
	case number > oldest.expected:
		q.count.readGaps++
		q.reread()
		return
	case !q.fits(p, r):
		q.fail(regs.CoreStatStateCauseBadResponse)
		return
	}
	if p.Opcode.HasAETH() {
		q.msn = p.AETH.MSN
	}
	q.count.readResponses++
	q.stream.readData(r, p.Payload)
	r.expected++
	if !q.acknowledge(r.expected) {
		q.progress()
	}
}

// reader returns the outstanding READ to which a packet number belongs, or nil.
func (q *queuePair) reader(number uint64) *read {
	for i := q.readHead; i < q.readTail; i++ {
		r := &q.reads[i%uint64(q.fabric.cfg.MaxReads)]
		if number-r.first < r.span {
			return r
		}
	}
	return nil
}

// fits checks opcode and length of the next response of a READ. A request that
// was repeated from the middle starts a new series of responses there, while
// the old series may still arrive.
func (q *queuePair) fits(p *roce.Packet, r *read) bool {
	n := uint32(len(p.Payload))
	if r.expected+1 < r.first+r.span {
		first := p.Opcode.IsFirst() && r.expected == r.asked
		middle := p.Opcode.IsMiddle() && r.expected != r.first
		return (first || middle) && n == q.mtu
	}
	only := p.Opcode.IsOnly() && r.expected == r.asked
	last := p.Opcode.IsLast() && r.expected != r.first
	return (only || last) && n == r.length-r.offset
}
