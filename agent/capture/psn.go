package capture

import "rocelink/fpga/roce"

// RestartDistance is how many PSNs a packet must be off, ahead or behind, to
// count as a queue pair that started again rather than as a gap or a
// retransmission. At the largest path MTU it is 4 GiB of unacknowledged data,
// more than any sender keeps.
const RestartDistance = 1 << 20

// hole is a run of PSNs that were skipped.
type hole struct {
	first roce.PSN
	n     int
}

// maxHoles is how many holes a direction remembers; older ones stay missing.
const maxHoles = 16

// sequence follows the PSNs of one direction of a flow.
type sequence struct {
	known bool
	next  roce.PSN // one after the furthest seen
	holes [maxHoles]hole
	used  int

	// A READ request at the end of what was seen whose span is not known yet:
	// next is one after its own PSN.
	openRead uint32 // its length, 0 if there is none
	// READ responses: a message has begun and not ended, and what made PSNs
	// between messages ambiguous.
	inMessage, acked bool
}

// step is what a packet did to a sequence.
type step struct {
	gap                                      int
	repeated, outOfOrder, duplicate, restart bool
	recovered                                int
}

// start begins a sequence at a PSN, forgetting what was.
func (s *sequence) start(next roce.PSN) {
	*s = sequence{known: true, next: next}
}

// see takes note of n PSNs from psn on.
func (s *sequence) see(psn roce.PSN, n int) step {
	if !s.known {
		s.start(psn.Add(n))
		return step{}
	}
	d := psn.Sub(s.next)
	switch {
	case d < -RestartDistance, d > RestartDistance:
		s.start(psn.Add(n))
		return step{restart: true}
	case d < 0:
		st := step{repeated: true, recovered: s.fill(psn, n)}
		st.outOfOrder = st.recovered > 0
		s.advance(psn.Add(n))
		return st
	case d > 0:
		s.dig(hole{s.next, d})
	}
	s.advance(psn.Add(n))
	return step{gap: d}
}

// advance moves next forward to p, never back.
func (s *sequence) advance(p roce.PSN) {
	if p.Sub(s.next) > 0 {
		s.next = p
		s.openRead = 0
	}
}

func (s *sequence) dig(h hole) {
	if s.used == maxHoles {
		s.used = copy(s.holes[:], s.holes[1:])
	}
	s.holes[s.used] = h
	s.used++
}

// fill removes n PSNs from psn on from the holes and returns how many were in
// them.
func (s *sequence) fill(psn roce.PSN, n int) int {
	recovered := 0
	for i := s.used - 1; i >= 0; i-- {
		h := s.holes[i]
		from := max(0, psn.Sub(h.first))
		to := min(h.n, psn.Sub(h.first)+n)
		if from >= to {
			continue
		}
		recovered += to - from
		copy(s.holes[i:], s.holes[i+1:s.used])
		s.used--
		if from > 0 {
			s.dig(hole{h.first, from})
		}
		if to < h.n {
			s.dig(hole{h.first.Add(to), h.n - to})
		}
	}
	return recovered
}

// between is what is known about two hosts, one the requester of the other.
type between struct {
	mtu       roce.MTU // from FIRST and MIDDLE packets
	differing bool     // more than one was seen
	least     int      // longest payload: the path MTU is no less
	writes    bool     // the requester sends other than READs
}

// learn takes the payload of a right packet into account.
func (b *between) learn(op roce.Opcode, payload int) {
	b.least = max(b.least, payload)
	if op.IsFirst() || op.IsMiddle() {
		m := roce.MTU(payload)
		b.differing = b.differing || b.mtu != 0 && b.mtu != m
		b.mtu = m
	}
}

// span returns how many PSNs the answer to a READ of length bytes takes. own
// is the path MTU of its queue pair, 0 if not known.
func (b *between) span(own roce.MTU, length uint32) (n int, ok bool) {
	switch {
	case own != 0:
		return own.Packets(int(length)), true
	case b.differing:
	case b.mtu != 0:
		return b.mtu.Packets(int(length)), true
	case b.least > int(roce.MaxMTU)/2:
		return roce.MaxMTU.Packets(int(length)), true
	case int(length) <= b.least:
		return 1, true
	}
	return 1, length <= 256 // the smallest path MTU
}
