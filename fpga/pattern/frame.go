package pattern

import (
	"encoding/binary"
	"math/bits"
)

// Fill writes the frame with sequence number seq and the length of dst.
func Fill(dst []byte, k Kind, seq uint64) { FillAt(dst, k, seq, 0) }

// FillAt writes the part of a frame that begins offset bytes into it. A frame
// cut in pieces anywhere is byte for byte the frame that Fill makes. A negative
// offset counts as 0.
func FillAt(dst []byte, k Kind, seq uint64, offset int) {
	offset = max(offset, 0)
	switch k {
	case Counter:
		fillCounter(dst, seq, uint64(offset))
	case PRBS31:
		fillPRBS(dst, seq, uint64(offset))
	default:
		clear(dst)
	}
}

// Check returns the offset of the first byte of b that is not that of frame
// seq, -1 if there is none.
func Check(b []byte, k Kind, seq uint64) int { return CheckAt(b, k, seq, 0) }

// CheckAt checks the part of a frame that begins offset bytes into it and
// returns where in b the first wrong byte is, -1 if there is none.
func CheckAt(b []byte, k Kind, seq uint64, offset int) int {
	offset = max(offset, 0)
	switch k {
	case Counter:
		return checkCounter(b, seq, uint64(offset))
	case PRBS31:
		return checkPRBS(b, seq, uint64(offset))
	}
	if len(b) == 0 {
		return -1
	}
	return 0
}

// The words below go through encoding/binary, which is a single load or store
// where the processor allows it, whatever the alignment.

// putTail writes the first bytes of a word.
func putTail(dst []byte, w uint64) {
	for i := range dst {
		dst[i] = byte(w)
		w >>= 8
	}
}

// tailDiff returns the index of the first byte of b, fewer than eight, that
// differs from a word's, -1 if there is none.
func tailDiff(b []byte, w uint64) int {
	for i, c := range b {
		if c != byte(w) {
			return i
		}
		w >>= 8
	}
	return -1
}

// wordDiff returns the index of the first byte in which two different words
// differ.
func wordDiff(a, b uint64) int { return bits.TrailingZeros64(a^b) / 8 }

func counterWord(seq, i uint64) uint64 { return seq<<32 | i&0xffffffff }

func fillCounter(dst []byte, seq, offset uint64) {
	if skip := offset % 8; skip != 0 {
		n := min(int(8-skip), len(dst))
		putTail(dst[:n], counterWord(seq, offset/8)>>(8*skip))
		dst, offset = dst[n:], offset+uint64(n)
	}
	w := counterWord(seq, offset/8)
	for len(dst) >= 32 {
		binary.LittleEndian.PutUint64(dst, w)
		binary.LittleEndian.PutUint64(dst[8:], w+1)
		binary.LittleEndian.PutUint64(dst[16:], w+2)
		binary.LittleEndian.PutUint64(dst[24:], w+3)
		dst = dst[32:]
		w += 4
	}
	for len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, w)
		dst = dst[8:]
		w++
	}
	putTail(dst, w)
}

func checkCounter(b []byte, seq, offset uint64) int {
	at := 0
	if skip := offset % 8; skip != 0 {
		n := min(int(8-skip), len(b))
		if i := tailDiff(b[:n], counterWord(seq, offset/8)>>(8*skip)); i >= 0 {
			return i
		}
		at, offset = n, offset+uint64(n)
	}
	w := counterWord(seq, offset/8)
	for p := b[at:]; len(p) >= 32; p = p[32:] {
		// | and ^ bind alike in Go: the parentheses matter.
		d := (binary.LittleEndian.Uint64(p) ^ w) |
			(binary.LittleEndian.Uint64(p[8:]) ^ (w + 1)) |
			(binary.LittleEndian.Uint64(p[16:]) ^ (w + 2)) |
			(binary.LittleEndian.Uint64(p[24:]) ^ (w + 3))
		if d != 0 {
			break // the loop below finds the byte
		}
		at += 32
		w += 4
	}
	for ; len(b)-at >= 8; at += 8 {
		if g := binary.LittleEndian.Uint64(b[at:]); g != w {
			return at + wordDiff(g, w)
		}
		w++
	}
	if i := tailDiff(b[at:], w); i >= 0 {
		return at + i
	}
	return -1
}
