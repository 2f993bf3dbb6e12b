package soft

import (
	"fmt"
	"net/netip"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// inbound is the responder's side of a queue pair's transport state. All but
// the first value of expected belongs to the responder.
type inbound struct {
	expected roce.PSN // PSN of the next new request packet
	msn      uint32   // messages completed
	nakSent  bool     // for expected: what follows is dropped in silence

	// The message under way.
	operation operation
	receive   receive // the one a SEND consumed
	into      []byte  // the SEND's buffer, or what a WRITE may touch
	placed    int     // how much of it is filled

	reads []read         // accepted and not answered to the end, oldest first
	flow  roce.Flow      // of the answers
	to    netip.AddrPort // where they go

	// Answers owed. They wait for the reads, because responses go out in the
	// order of their PSNs (IBTA 9.7.5.1).
	ackOwed   bool
	nakOwed   bool
	nak       roce.Syndrome
	nakPSN    roce.PSN
	condemned string // why the queue pair goes to ERR once the NAK is out
	listed    bool   // in responder.owing
}

type operation uint8

const (
	idle operation = iota
	sending
	writing
)

// read is an RDMA READ that is being answered.
type read struct {
	psn   roce.PSN // of the next response packet
	last  roce.PSN // of the last one
	left  []byte
	msn   uint32
	begun bool
}

// refusal is why a request packet was not executed.
type refusal struct {
	nak    roce.Syndrome
	status verbs.Status // of the receive that the message consumed
	cause  string       // why the queue pair goes to error; "" if it does not
	count  counter
}

func invalid(format string, args ...any) *refusal {
	return &refusal{nak: roce.Nak(roce.InvalidRequest), status: verbs.RemoteInvalidRequest,
		count: invalidRequest, cause: "invalid request: " + fmt.Sprintf(format, args...)}
}

// request handles a request packet for a live queue pair. fault is what the
// codec found wrong with its structure.
func (r *responder) request(qp *queuePair, p *roce.Packet, fault error) {
	in := &qp.inbound
	if in.condemned != "" {
		r.count.add(droppedAfterNak, 1)
		return
	}
	switch d := p.PSN.Sub(in.expected); {
	case d > 0:
		r.count.add(outOfSequence, 1)
		if in.nakSent {
			r.count.add(droppedAfterNak, 1)
			return
		}
		in.nakSent = true
		r.count.add(sequenceNakSent, 1)
		r.nak(qp, roce.Nak(roce.PSNSequenceError))
		return
	case d < 0:
		r.duplicate(qp, p, fault)
		return
	}
	in.nakSent = false
	no := r.execute(qp, p, fault)
	if no == nil {
		in.expected = in.expected.Next()
		// The response to a READ is an acknowledge too.
		in.ackOwed = p.Opcode != roce.ReadRequest
		r.owe(qp)
		return
	}
	r.count.add(no.count, 1)
	if no.cause == "" { // receiver not ready: the requester comes again
		in.nakSent = true
		r.nak(qp, no.nak)
		return
	}
	if in.operation == sending {
		in.operation = idle
		r.complete(qp, &verbs.WorkCompletion{ID: in.receive.id, Status: no.status})
	}
	in.condemned = no.cause
	r.nak(qp, no.nak)
}

// duplicate answers a request that was executed before: a READ is executed
// again, everything else is acknowledged again (IBTA 9.7.5.1.2, 9.7.1).
func (r *responder) duplicate(qp *queuePair, p *roce.Packet, fault error) {
	in := &qp.inbound
	r.count.add(duplicateRequest, 1)
	if fault != nil {
		r.count.add(rxMalformed, 1)
		return
	}
	if p.Opcode != roce.ReadRequest {
		in.ackOwed = true
		r.owe(qp)
		return
	}
	last := p.PSN.Add(qp.peer.MTU.Packets(int(p.RETH.Length)) - 1)
	if p.RETH.Length > maxMessage || last.Sub(in.expected) >= 0 {
		return // never asked for like this
	}
	data, no := r.remote(qp, p, verbs.RemoteRead)
	if no != nil {
		return // IBTA 9.7.5.1.4: an invalid duplicate is dropped
	}
	// The requester went back to this PSN and sends all that followed again:
	// responses still to be sent from here on would only be in the way.
	for n := len(in.reads); n > 0 && p.PSN.Sub(in.reads[n-1].psn) <= 0; n-- {
		in.reads = in.reads[:n-1]
	}
	if n := len(in.reads); n > 0 && p.PSN.Sub(in.reads[n-1].last) <= 0 {
		return // its response is still to be sent
	}
	if len(in.reads) == cap(in.reads) {
		return
	}
	r.count.add(readRequests, 1)
	in.reads = append(in.reads, read{psn: p.PSN, last: last, left: data, msn: in.msn})
	r.owe(qp)
}

// execute does what a packet in sequence asks for.
func (r *responder) execute(qp *queuePair, p *roce.Packet, fault error) *refusal {
	in := &qp.inbound
	op := p.Opcode
	if fault != nil {
		return invalid("%v with %v payload bytes: %v", op, len(p.Payload), fault)
	}
	switch in.operation {
	case sending:
		if !op.IsSend() || op.Starts() {
			return invalid("%v within a SEND", op)
		}
	case writing:
		if !op.IsWrite() || op.Starts() {
			return invalid("%v within an RDMA WRITE", op)
		}
	default:
		if !op.Starts() && op != roce.ReadRequest {
			return invalid("%v without a first packet", op)
		}
	}
	n := len(p.Payload)
	if mtu := int(qp.peer.MTU); n > mtu || n < mtu && !op.Ends() && op != roce.ReadRequest {
		return invalid("%v with %d payload bytes at path MTU %d", op, n, mtu)
	}
	switch {
	case op.IsSend():
		return r.send(qp, p)
	case op.IsWrite():
		return r.write(qp, p)
	}
	return r.read(qp, p)
}

// take removes the oldest receive of the queue pair's queue. Responder only.
func (qp *queuePair) take() (receive, bool) {
	rcv, ok := qp.receives.take()
	if ok && qp.shared != nil {
		qp.shared.took()
	}
	return rcv, ok
}

// send executes a packet of a SEND.
func (r *responder) send(qp *queuePair, p *roce.Packet) *refusal {
	in := &qp.inbound
	if p.Opcode.Starts() {
		var ok bool
		if in.receive, ok = qp.take(); !ok {
			return r.notReady(qp)
		}
		in.operation, in.placed, in.into = sending, 0, nil
		if in.receive.length > 0 {
			mr := r.region(in.receive.lkey)
			if mr == nil {
				return &refusal{nak: roce.Nak(roce.RemoteOperational), status: verbs.LocalProtectionError, count: remoteOperationalError,
					cause: fmt.Sprintf("%v: the region of receive %d is gone", verbs.LocalProtectionError, in.receive.id)}
			}
			in.into, _ = mr.slice(in.receive.address, in.receive.length)
		}
	}
	if n := in.placed + len(p.Payload); n > len(in.into) {
		r.count.add(localLengthError, 1)
		no := invalid("SEND of %d bytes or more into a receive of %d", n, len(in.into))
		no.status = verbs.LocalLengthError
		return no
	}
	if !p.Opcode.Ends() {
		in.placed += copy(in.into[in.placed:], p.Payload)
		return nil
	}
	verbs.Place(in.into[in.placed:], p.Payload)
	in.operation = idle
	length := in.placed + len(p.Payload)
	r.count.add(sendMessages, 1)
	r.count.add(sendBytes, length)
	in.msn++
	wc := verbs.WorkCompletion{ID: in.receive.id, Opcode: verbs.OpRecv, ByteLen: uint32(length)}
	if p.Opcode.HasImm() {
		wc.Flags, wc.Imm = verbs.WithImm, verbs.ImmediateOf(p.Imm)
	}
	return r.complete(qp, &wc)
}

// write executes a packet of an RDMA WRITE.
func (r *responder) write(qp *queuePair, p *roce.Packet) *refusal {
	in := &qp.inbound
	op := p.Opcode
	into, placed := in.into, in.placed
	if op.Starts() {
		data, no := r.remote(qp, p, verbs.RemoteWrite)
		if no != nil {
			return no
		}
		into, placed = data, 0
	}
	n := len(p.Payload)
	switch left := len(into) - placed; {
	case op.Ends() && n != left:
		return invalid("%v with %d payload bytes where %d are left of the message", op, n, left)
	case !op.Ends() && n >= left:
		return invalid("%v where %d bytes are left of the message", op, left)
	}
	if !op.Ends() {
		copy(into[placed:], p.Payload)
		in.operation, in.into, in.placed = writing, into, placed+n
		return nil
	}
	var rcv receive
	if op.HasImm() {
		// Before a byte of this packet is placed: the requester sends it again.
		var ok bool
		if rcv, ok = qp.take(); !ok {
			return r.notReady(qp)
		}
	}
	verbs.Place(into[placed:], p.Payload)
	in.operation = idle
	r.count.add(writeRequests, 1)
	r.count.add(writeBytes, len(into))
	in.msn++
	if !op.HasImm() {
		return nil
	}
	return r.complete(qp, &verbs.WorkCompletion{ID: rcv.id, Opcode: verbs.OpRecvRDMAWithImm,
		ByteLen: uint32(len(into)), Flags: verbs.WithImm, Imm: verbs.ImmediateOf(p.Imm)})
}

// read accepts an RDMA READ; respond answers it.
func (r *responder) read(qp *queuePair, p *roce.Packet) *refusal {
	in := &qp.inbound
	if len(in.reads) >= qp.peer.MaxReads {
		return invalid("a READ beyond the %d that may be outstanding", qp.peer.MaxReads)
	}
	data, no := r.remote(qp, p, verbs.RemoteRead)
	if no != nil {
		return no
	}
	packets := qp.peer.MTU.Packets(len(data))
	in.msn++ // IBTA C9-148: before the first response
	r.count.add(readRequests, 1)
	in.reads = append(in.reads, read{psn: p.PSN, last: p.PSN.Add(packets - 1), left: data, msn: in.msn})
	// A response acknowledges the request; request() adds the last one.
	in.expected = in.expected.Add(packets - 1)
	return nil
}

// remote returns the memory that the RETH of a packet names, or why not. Not a
// byte of it has been touched. What the queue pair does not permit is an invalid
// request, what the region does not is an access error (IBTA table 58).
func (r *responder) remote(qp *queuePair, p *roce.Packet, need verbs.Access) ([]byte, *refusal) {
	h := &p.RETH
	if qp.access&need == 0 {
		return nil, invalid("%v, which the queue pair does not permit", p.Opcode)
	}
	if h.Length > maxMessage {
		return nil, invalid("%v of %d bytes, the longest is %d", p.Opcode, h.Length, maxMessage)
	}
	if h.Length == 0 { // IBTA 9.7.4.1.5: then address and key are not looked at
		return nil, nil
	}
	why := "no region has this rkey"
	if mr := r.device.rkeys.Load().get(h.RKey); mr != nil {
		switch {
		case mr.pd != qp.pd:
			why = "the region is of another protection domain"
		case mr.access&need == 0:
			why = "the region does not permit it"
		default:
			b, ok := mr.slice(h.Address, h.Length)
			if ok {
				return b, nil
			}
			why = fmt.Sprintf("the region is %d bytes at %#x", len(mr.bytes), mr.base)
		}
	}
	return nil, &refusal{
		nak: roce.Nak(roce.RemoteAccess), status: verbs.LocalAccessError, count: remoteAccessError,
		cause: fmt.Sprintf("%v: %v of %d bytes at %#x with rkey %#x: %s", verbs.LocalAccessError, p.Opcode, h.Length, h.Address, h.RKey, why),
	}
}

// region returns the region of a posted receive. Closing a region clears the
// memory of the last one, see control.
func (r *responder) region(lkey uint32) *region {
	if r.lastLKey == nil || r.lastLKey.lkey != lkey {
		r.lastLKey = r.device.lkeys.Load().get(lkey)
	}
	return r.lastLKey
}

// notReady asks the requester to wait for a receive.
func (r *responder) notReady(qp *queuePair) *refusal {
	r.rnr = refusal{nak: roce.RNRNak(qp.peer.MinRNRTimer), count: rnrNakSent}
	return &r.rnr
}

// complete adds a completion for a queue pair's receive queue. If the queue
// overruns, all queue pairs that complete there go to error.
func (r *responder) complete(qp *queuePair, wc *verbs.WorkCompletion) *refusal {
	wc.QPN = uint32(qp.qpn)
	if qp.recvCQ.push(wc) {
		return nil
	}
	r.overrun(qp.recvCQ)
	return &refusal{nak: roce.Nak(roce.RemoteOperational), status: verbs.FatalError,
		count: remoteOperationalError, cause: "the completion queue overran"}
}
