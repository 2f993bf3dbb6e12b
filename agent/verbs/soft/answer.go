package soft

import (
	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// readShare is how many bytes of READ responses a queue pair sends in a round
// before others have their turn.
const readShare = 256 << 10

// owe puts a queue pair on the list of those that get an answer at the end of
// the round.
func (r *responder) owe(qp *queuePair) {
	if !qp.inbound.listed {
		qp.inbound.listed = true
		r.owing = append(r.owing, qp)
	}
}

// nak owes a negative acknowledge for the expected PSN and sends it at once if
// no READ is ahead of it. It acknowledges everything before that PSN.
func (r *responder) nak(qp *queuePair, s roce.Syndrome) {
	in := &qp.inbound
	in.nakOwed, in.nak, in.nakPSN = true, s, in.expected
	in.ackOwed = false
	if len(in.reads) > 0 {
		r.owe(qp)
		return
	}
	r.acknowledge(qp)
}

// answers sends what is owed and reports whether READ responses are left.
func (r *responder) answers() bool {
	left := r.owing[:0]
	for _, qp := range r.owing {
		in := &qp.inbound
		if qp.live() {
			r.respond(qp)
			if len(in.reads) > 0 {
				left = append(left, qp)
				continue
			}
			r.acknowledge(qp)
		}
		in.listed = false
	}
	clear(r.owing[len(left):])
	r.owing = left
	return len(left) > 0
}

// acknowledge sends the acknowledges owed, a negative one first, and carries
// out a sentence.
func (r *responder) acknowledge(qp *queuePair) {
	in := &qp.inbound
	if in.nakOwed {
		in.nakOwed = false
		r.put(qp, &roce.Packet{
			BTH:  roce.BTH{Opcode: roce.Acknowledge, PSN: in.nakPSN},
			AETH: roce.AETH{Syndrome: in.nak, MSN: in.msn},
		})
	}
	if in.condemned != "" {
		r.fail(qp, in.condemned)
		return
	}
	if in.ackOwed {
		in.ackOwed = false
		r.count.add(acksSent, 1)
		r.put(qp, &roce.Packet{
			BTH:  roce.BTH{Opcode: roce.Acknowledge, PSN: in.expected.Add(-1)},
			AETH: roce.AETH{Syndrome: roce.ACK(roce.CreditsInvalid), MSN: in.msn},
		})
	}
}

// respond sends READ responses, as many as the queue pair's share of a round.
func (r *responder) respond(qp *queuePair) {
	in := &qp.inbound
	mtu := int(qp.peer.MTU)
	for budget := readShare; len(in.reads) > 0 && budget > 0; budget -= mtu {
		q := &in.reads[0]
		n := min(mtu, len(q.left))
		last := n == len(q.left)
		op := roce.ReadResponseMiddle
		switch {
		case !q.begun && last:
			op = roce.ReadResponseOnly
		case !q.begun:
			op = roce.ReadResponseFirst
		case last:
			op = roce.ReadResponseLast
		}
		r.put(qp, &roce.Packet{
			BTH:     roce.BTH{Opcode: op, PSN: q.psn},
			AETH:    roce.AETH{Syndrome: roce.ACK(roce.CreditsInvalid), MSN: q.msn},
			Payload: q.left[:n],
		})
		r.count.add(readBytes, n)
		q.begun, q.left, q.psn = true, q.left[n:], q.psn.Next()
		if last {
			in.reads = in.reads[:copy(in.reads, in.reads[1:])]
		}
	}
}

// fail puts a queue pair into error and flushes its receives.
func (r *responder) fail(qp *queuePair, cause string) {
	for {
		s := qp.state.Load()
		if s != uint32(verbs.ReadyToReceive) && s != uint32(verbs.ReadyToSend) {
			return // somebody else was first
		}
		if qp.state.CompareAndSwap(s, uint32(verbs.Error)) {
			break
		}
	}
	r.device.emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: qp.qpn, Cause: cause})
	r.flush(qp)
	if qp.shared != nil {
		qp.lastTaken()
	}
}

// flush completes every receive of a queue pair in error; of a shared queue
// only the one that a message has taken.
func (r *responder) flush(qp *queuePair) {
	in := &qp.inbound
	in.reads = in.reads[:0]
	in.into = nil
	wc := verbs.WorkCompletion{Status: verbs.WorkRequestFlushed}
	if in.operation == sending {
		wc.ID = in.receive.id
		r.complete(qp, &wc)
		r.count.add(receivesFlushed, 1)
	}
	in.operation = idle
	if qp.shared != nil {
		return // what is posted is for the others
	}
	for {
		rcv, ok := qp.receives.take()
		if !ok {
			return
		}
		wc.ID = rcv.id
		r.complete(qp, &wc)
		r.count.add(receivesFlushed, 1)
	}
}

// overrun puts every queue pair that completes on a lost queue into error, once.
func (r *responder) overrun(cq *completionQueue) {
	r.count.add(cqOverrun, 1)
	if cq.lost {
		return
	}
	cq.lost = true
	r.device.emit(verbs.Event{Kind: verbs.EventCQError,
		Cause: "a completion found the queue full: poll more often or make it deeper"})
	for _, s := range r.device.qps.Load().slots {
		// The one being executed is refused by its request.
		if qp := s.value; qp != nil && qp.recvCQ == cq && qp != r.current {
			r.fail(qp, "the completion queue overran")
		}
	}
}
