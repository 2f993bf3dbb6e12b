package pattern

import "encoding/binary"

// The polynomial x^31 + x^28 + 1 (ITU-T O.150).
const (
	prbsLong  = 31
	prbsShort = 28
)

const prbsMask = 1<<prbsLong - 1

// SeedXOR is what Seed inverts of the sequence number: without it the first
// frames would begin with long runs of zeros.
const SeedXOR = 0x2b5cf0a3

// Seed returns the state of the generator before the first bit of frame seq: 31
// bits, of which bit 30 is the youngest. It is (seq ^ SeedXOR) mod 2^30 shifted
// up by one, and a one.
func Seed(seq uint64) uint32 { return uint32(seq^SeedXOR)&(1<<30-1)<<1 | 1 }

// Words of history that the recurrence on whole words looks back.
const history = prbsLong

// The state is kept as in Seed: bit j is s[n-31+j]. So the next 28 bits come at
// once, since none of them depends on another of them.
func next28(state uint32) uint32 {
	// Bit j of the result is s[n+j] = s[n-28+j] ^ s[n-31+j].
	return (state>>(prbsLong-prbsShort) ^ state) & (1<<prbsShort - 1)
}

// firstWords returns the first two words from a state.
func firstWords(state uint32) (w0, w1 uint64) {
	var b [5]uint64
	for i := range b {
		n := next28(state)
		b[i] = uint64(n)
		state = state>>prbsShort | n<<(prbsLong-prbsShort)&prbsMask
	}
	w0 = b[0] | b[1]<<28 | b[2]<<56
	w1 = b[2]>>8 | b[3]<<20 | b[4]<<48
	return w0, w1
}

// nextWord returns the word after w0 and w1 by the recurrence over 4·28 and
// 4·31 bits, all of which lie within two words.
func nextWord(w0, w1 uint64) uint64 {
	return (w0>>16 | w1<<48) ^ (w0>>4 | w1<<60)
}

// jump[i] advances a state by 2^i bytes: bit j of a state contributes
// jump[i][j]. Sizes of frames are ints, so 2^62 bytes are enough.
var jump = func() (m [63][prbsLong]uint32) {
	for j := range prbsLong {
		s := uint32(1) << j
		for range 8 {
			s = s>>1 | (s>>(prbsLong-prbsShort)^s)&1<<(prbsLong-1)
		}
		m[0][j] = s
	}
	for i := 1; i < len(m); i++ {
		for j := range prbsLong {
			m[i][j] = advance(&m[i-1], m[i-1][j])
		}
	}
	return m
}()

// advance multiplies a state by a matrix, without branches: the bits of a state
// are random.
func advance(m *[prbsLong]uint32, state uint32) (out uint32) {
	for j := range prbsLong {
		out ^= m[j] & -(state >> j & 1)
	}
	return out
}

// stateAt returns the state before byte offset of frame seq.
func stateAt(seq, offset uint64) uint32 {
	s := Seed(seq)
	for i := 0; offset != 0; i, offset = i+1, offset>>1 {
		if offset&1 != 0 {
			s = advance(&jump[i], s)
		}
	}
	return s
}

func fillPRBS(dst []byte, seq, offset uint64) {
	w0, w1 := firstWords(stateAt(seq, offset))
	at := 0
	for ; at < history*8 && len(dst)-at >= 8; at += 8 {
		binary.LittleEndian.PutUint64(dst[at:], w0)
		w0, w1 = w1, nextWord(w0, w1)
	}
	if len(dst)-at < 8 {
		putTail(dst[at:], w0)
		return
	}
	for ; len(dst)-at >= 16; at += 16 {
		// One slice for all that is read and written: one bounds check.
		p := dst[at-history*8 : at+16 : at+16]
		a := binary.LittleEndian.Uint64(p) ^ binary.LittleEndian.Uint64(p[24:])
		b := binary.LittleEndian.Uint64(p[8:]) ^ binary.LittleEndian.Uint64(p[32:])
		binary.LittleEndian.PutUint64(p[history*8:], a)
		binary.LittleEndian.PutUint64(p[history*8+8:], b)
	}
	for len(dst)-at > 0 {
		w := wordFrom(dst, at)
		if len(dst)-at < 8 {
			putTail(dst[at:], w)
			return
		}
		binary.LittleEndian.PutUint64(dst[at:], w)
		at += 8
	}
}

// wordFrom returns the word that follows b[:at] by the recurrence over 64·28
// and 64·31 bits.
func wordFrom(b []byte, at int) uint64 {
	return binary.LittleEndian.Uint64(b[at-prbsLong*8:]) ^ binary.LittleEndian.Uint64(b[at-prbsShort*8:])
}

// checkPRBS compares the first words with the generator and the others with
// what the words before them demand, which are right by then.
func checkPRBS(b []byte, seq, offset uint64) int {
	w0, w1 := firstWords(stateAt(seq, offset))
	at := 0
	for ; at < history*8 && len(b)-at >= 8; at += 8 {
		if g := binary.LittleEndian.Uint64(b[at:]); g != w0 {
			return at + wordDiff(g, w0)
		}
		w0, w1 = w1, nextWord(w0, w1)
	}
	if at == history*8 {
		for ; len(b)-at >= 16; at += 16 {
			p := b[at-history*8 : at+16 : at+16]
			x := binary.LittleEndian.Uint64(p) ^ binary.LittleEndian.Uint64(p[24:]) ^
				binary.LittleEndian.Uint64(p[history*8:])
			y := binary.LittleEndian.Uint64(p[8:]) ^ binary.LittleEndian.Uint64(p[32:]) ^
				binary.LittleEndian.Uint64(p[history*8+8:])
			if x|y != 0 {
				break // the loop below finds the byte
			}
		}
		for ; len(b)-at >= 8; at += 8 {
			w := wordFrom(b, at)
			if g := binary.LittleEndian.Uint64(b[at:]); g != w {
				return at + wordDiff(g, w)
			}
		}
		w0 = 0
		if len(b)-at > 0 {
			w0 = wordFrom(b, at)
		}
	}
	if i := tailDiff(b[at:], w0); i >= 0 {
		return at + i
	}
	return -1
}
