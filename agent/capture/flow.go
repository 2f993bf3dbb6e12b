package capture

import (
	"net/netip"

	"rocelink/fpga/roce"
)

// DefaultMaxFlows is how many flows are told apart unless asked otherwise.
const DefaultMaxFlows = 16384

// Flow is what went from one host to a queue pair of another: its requests,
// and its answers to requests of the other.
type Flow struct {
	Src, Dst netip.Addr
	DestQP   roce.QPN

	Packets         uint64
	PayloadBytes    uint64 // retransmissions included, malformed packets not
	Gaps            uint64 // how often PSNs were missing
	Missing         uint64 // how many
	Recovered       uint64 // how many of them came later
	Retransmissions uint64
	OutOfOrder      uint64 // PSNs behind that had been missing
	Duplicates      uint64 // other PSNs behind, unreliable connected service only
	Restarts        uint64
	ACKs            uint64 // acknowledges, READ responses not counted
	RNRs            uint64
	NAKs            uint64
	BadICRC         uint64
	Malformed       uint64
}

// flow is a Flow with what it takes to follow it.
type flow struct {
	Flow
	requests, responses sequence
	mtu                 roce.MTU // from FIRST and MIDDLE requests
	trusted             bool     // had a packet whose ICRC was not wrong
	doubtful            bool     // had only others so far, which set the sequences
	asking, answering   *between
}

type flowKey struct {
	src, dst netip.Addr
	qpn      roce.QPN
}

type hostPair struct{ requester, responder netip.Addr }

// flows is a bounded table.
type flows struct {
	max    int
	all    []*flow
	index  map[flowKey]*flow
	pairs  map[hostPair]*between
	beyond uint64 // packets of flows that had no room
}

func newFlows(limit int) *flows {
	if limit <= 0 {
		limit = DefaultMaxFlows
	}
	return &flows{max: limit, index: map[flowKey]*flow{}, pairs: map[hostPair]*between{}}
}

// get returns the flow of a packet, nil if there is no room.
func (t *flows) get(p *Packet) *flow {
	k := flowKey{p.Src, p.Dst, p.Transport.DestQP}
	if f := t.index[k]; f != nil {
		return f
	}
	if len(t.all) == t.max {
		return nil
	}
	f := &flow{
		Flow:      Flow{Src: k.src, Dst: k.dst, DestQP: k.qpn},
		asking:    t.pair(hostPair{k.src, k.dst}),
		answering: t.pair(hostPair{k.dst, k.src}),
	}
	t.index[k] = f
	t.all = append(t.all, f)
	return f
}

func (t *flows) pair(k hostPair) *between {
	b := t.pairs[k]
	if b == nil {
		b = new(between)
		t.pairs[k] = b
	}
	return b
}

// observe counts a packet in its flow and finds out about its PSN.
func (t *flows) observe(p *Packet) {
	if !p.HasBTH {
		return
	}
	f := t.get(p)
	if f == nil {
		t.beyond++
		return
	}
	f.Packets++
	if p.ICRC == ICRCBad {
		f.BadICRC++
	}
	if p.faults&faultMalformed != 0 {
		f.Malformed++
	} else {
		f.PayloadBytes += uint64(p.PayloadLen)
	}
	op := p.operation
	if !op.Known() || p.Transport.Version != 0 {
		return
	}
	doubt := p.ICRC == ICRCBad
	if !doubt && !f.trusted {
		f.trusted = true
		if f.doubtful {
			f.requests, f.responses = sequence{}, sequence{}
		}
	}
	doubt = doubt && f.trusted
	f.doubtful = f.doubtful || p.ICRC == ICRCBad
	if !doubt && p.faults&^faultCut == 0 {
		f.learn(p)
	}
	var st step
	if op.IsRequest() {
		st = f.request(p, doubt)
	} else {
		st = f.response(p, doubt)
	}
	if p.unreliable() && st.repeated {
		st.repeated, st.duplicate = false, !st.outOfOrder
	}
	p.Gap, p.Retransmission, p.OutOfOrder, p.Duplicate, p.Restart = st.gap, st.repeated, st.outOfOrder, st.duplicate, st.restart
	f.count(st)
}

func (f *flow) count(st step) {
	if st.gap > 0 {
		f.Gaps++
		f.Missing += uint64(st.gap)
	}
	f.Recovered += uint64(st.recovered)
	if st.repeated {
		f.Retransmissions++
	}
	if st.outOfOrder {
		f.OutOfOrder++
	}
	if st.duplicate {
		f.Duplicates++
	}
	if st.restart {
		f.Restarts++
	}
}

// learn collects what packets say about path MTU and use.
func (f *flow) learn(p *Packet) {
	op := p.operation
	switch {
	case op.IsReadResponse():
		f.answering.learn(op, p.PayloadLen)
	case op.IsSend() || op.IsWrite():
		f.asking.learn(op, p.PayloadLen)
		// A queue pair of the unreliable service has no READs beside it.
		f.asking.writes = f.asking.writes || !p.unreliable()
		if op.IsFirst() || op.IsMiddle() {
			f.mtu = roce.MTU(p.PayloadLen)
		}
	}
}

func (f *flow) request(p *Packet, doubt bool) step {
	s, psn := &f.requests, p.Transport.PSN
	if s.openRead != 0 {
		if n, ok := f.asking.span(f.mtu, s.openRead); ok {
			s.advance(s.next.Add(n - 1))
			s.openRead = 0
		}
	}
	if doubt {
		if s.known && psn == s.next && p.operation != roce.ReadRequest {
			s.see(psn, 1)
		}
		return step{}
	}
	if s.openRead != 0 && psn.Sub(s.next) > 0 {
		// Nobody knows how far the READ before it reaches.
		s.advance(psn)
	}
	if p.operation != roce.ReadRequest || !p.HasExtended {
		return s.see(psn, 1)
	}
	length := p.Transport.RETH.Length
	n, ok := f.asking.span(f.mtu, length)
	st := s.see(psn, n)
	if !ok && s.next == psn.Next() {
		s.openRead = length
	}
	return st
}

func (f *flow) response(p *Packet, doubt bool) step {
	s, t := &f.responses, &p.Transport
	op, psn := p.operation, t.PSN
	if doubt {
		if s.known && psn == s.next && op.IsReadResponse() {
			s.see(psn, 1)
			s.inMessage = op.IsFirst() || op.IsMiddle()
		}
		return step{}
	}
	if op == roce.Acknowledge {
		if p.HasExtended {
			f.acknowledge(t)
		}
		return step{}
	}
	var st step
	switch d := psn.Sub(s.next); {
	case !s.known, d <= 0, !op.Starts(), !s.acked && !f.answering.writes:
		st = s.see(psn, 1)
	case s.inMessage:
		// The message broke off, so one PSN is missing for certain; the
		// others may belong to requests other than READs.
		s.advance(psn.Add(-1))
		st = s.see(psn, 1)
	default:
		s.advance(psn)
		st = s.see(psn, 1)
	}
	s.inMessage = op.IsFirst() || op.IsMiddle()
	return st
}

func (f *flow) acknowledge(t *roce.Packet) {
	switch y := t.AETH.Syndrome; {
	case y.IsRNR():
		f.RNRs++
	case y.IsNAK():
		f.NAKs++
	case y.IsACK():
		f.ACKs++
		s := &f.responses
		if !s.known || t.PSN.Sub(s.next) < -RestartDistance {
			s.start(t.PSN.Next())
		}
		s.advance(t.PSN.Next())
		s.acked = true
	}
}
