package receive

// seenSpan is over how many sequences behind the newest a frame that was seen
// is told from one that was not.
const seenSpan = 1024

// sequence follows the frame sequence. Immediates carry it modulo 2^32.
type sequence struct {
	next uint64 // lowest sequence above all seen
	seen [seenSpan / 64]uint64
}

// order is where a frame stands in the stream.
type order uint8

const (
	inOrder   order = iota // the next one, or one further on
	late                   // lower than expected, not seen before
	duplicate              // lower than expected, seen before
)

// extend returns the sequence closest to the next one whose lower half is imm.
// One that would lie before 0 is taken to lie ahead: there is nothing before 0.
func (s *sequence) extend(imm uint32) uint64 {
	d := int64(int32(imm - uint32(s.next)))
	if d < 0 && uint64(-d) > s.next {
		d += 1 << 32
	}
	return s.next + uint64(d)
}

// see takes note of a frame and returns how many were skipped before it.
func (s *sequence) see(q uint64) (order, uint64) {
	if q == s.next {
		s.set(q)
		s.next++
		return inOrder, 0
	}
	if q > s.next {
		skipped := q - s.next
		if skipped >= seenSpan {
			s.seen = [seenSpan / 64]uint64{}
		} else {
			for m := s.next; m != q; m++ {
				s.seen[m/64%uint64(len(s.seen))] &^= 1 << (m % 64)
			}
		}
		s.set(q)
		s.next = q + 1
		return inOrder, skipped
	}
	if s.next-q > seenSpan {
		return late, 0
	}
	if s.seen[q/64%uint64(len(s.seen))]>>(q%64)&1 != 0 {
		return duplicate, 0
	}
	s.set(q)
	return late, 0
}

func (s *sequence) set(q uint64) { s.seen[q/64%uint64(len(s.seen))] |= 1 << (q % 64) }
