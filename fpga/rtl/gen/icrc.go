package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/bits"
)

// The datapath is 64 bytes wide.
const (
	beatBytes  = 64
	etherBytes = 14
)

// A beat is a sum of 512 powers of x. It becomes a sum of 128 elements of the
// CRC's field, of 64, and of the 32 that are the register's bits: see reduce.
const (
	beatPowers   = beatBytes * 8
	fewElements  = 128
	lessElements = 64
)

// icrcStart is the CRC register after the eight bytes of ones that stand for
// the local route header (IBTA annex A17); residue is the register after the
// CRC itself has gone through.
const (
	icrcStart = 0xdebb20e3
	residue   = 0xdebb20e3
)

// The register is kept as its root of degree 2^foldRoot in the field of the CRC: where the register is
// multiplied by x^512, a beat, its root is multiplied by x^4, since (a·x^4)^128 = a^128·x^512. That is
// a shift with a few taps, and so are one to three times x^-128, sixteen bytes back. Words back
// are x^-32, and the root for these is backRoot's.
const (
	foldRoot = 7
	backRoot = 5
)

// forward advances the CRC register by a byte.
func forward(crc uint32, b byte) uint32 { return crc32.IEEETable[byte(crc)^b] ^ crc>>8 }

// zeros advances it by n bytes of zeros.
func zeros(crc uint32, n int) uint32 {
	for range n {
		crc = forward(crc, 0)
	}
	return crc
}

// back undoes n bytes of zeros.
func back(crc uint32, n int) uint32 {
	for range 8 * n {
		if crc>>31 != 0 {
			crc = (crc^crc32.IEEE)<<1 | 1
		} else {
			crc <<= 1
		}
	}
	return crc
}

// times multiplies two remainders, of which bit i is the coefficient of x^i.
func times(a, b uint32) uint32 {
	var product uint32
	for i := 31; i >= 0; i-- {
		carry := product >> 31
		product = product<<1 ^ carry*bits.Reverse32(crc32.IEEE)
		product ^= b >> i & 1 * a
	}
	return product
}

// power returns x^n, where n may be negative.
func power(n int) uint32 {
	const order = 1<<32 - 1 // of x: the polynomial is primitive
	product, square := uint32(1), uint32(2)
	for n = (n%order + order) % order; n > 0; n >>= 1 {
		if n&1 != 0 {
			product = times(product, square)
		}
		square = times(square, square)
	}
	return product
}

// raise returns a to the power of 2^n, and root what it was raised from.
func raise(a uint32, n int) uint32 {
	for range n {
		a = times(a, a)
	}
	return a
}

func root(a uint32, n int) uint32 { return raise(a, 32-n) }

// matrix returns the rows of a linear map of n bits, 64 at most, onto 32: row
// i holds which input bits make bit i.
func matrix(n int, of func(bit int) uint32) []uint64 {
	rows := make([]uint64, 32)
	for bit := range n {
		column := of(bit)
		for i := range rows {
			rows[i] |= uint64(column>>i&1) << bit
		}
	}
	return rows
}

// vector writes words as one constant, the first word in the lowest bits.
func vector(b *bytes.Buffer, name, doc string, words []uint32) {
	fmt.Fprintf(b, "\n// %s\nlocalparam [%d:0] %s = {", doc, 32*len(words)-1, name)
	for i := range words {
		if i%8 == 0 {
			fmt.Fprint(b, "\n   ")
		}
		fmt.Fprintf(b, " 32'h%08x", words[len(words)-1-i])
		if i < len(words)-1 {
			fmt.Fprint(b, ",")
		}
	}
	fmt.Fprint(b, "};\n")
}

// elements are what a beat is reduced to and then, from the 128th on, the other powers of
// x: first what the register's bits are, before the 32 zeros that a CRC appends,
// then x^0, x^1 and so on.
func elements() []uint32 {
	var all []uint32
	for bit := range 32 {
		all = append(all, times(raise(1<<bit, foldRoot), power(-32)))
	}
	for p := range beatPowers {
		all = append(all, power(p))
	}
	return all
}

// rows are the equations of a reduction of n elements to the first m, as masks in words: row p holds
// what adds up to element p. An element's bit is what at says, none if it is negative.
func rows(width, m int, parts []subset, at func(element int) int) []uint32 {
	words := make([]uint32, m*width/32)
	set := func(row, element int) {
		if at(element) >= 0 {
			bit := row*width + at(element)
			words[bit/32] |= 1 << (bit % 32)
		}
	}
	for p := range m {
		set(p, p)
	}
	for i, s := range parts {
		s.each(func(p int) { set(p, m+i) })
	}
	return words
}

// icrcHeader holds the matrices of the ICRC in a 512-bit datapath.
func icrcHeader() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n", notice)
	fmt.Fprint(&b, `// CRC-32 in matrices: bit i of a result is the parity of the input under row i.
// The beat and the ICRC have their highest power first, the register its lowest: it is kept
// as its root of degree 128, so that a beat is x^4.
`)

	all := elements()
	vector(&b, "RL_ICRC_FEW", "A beat as 128 elements, of which the first 32 are the register's bits: rows of 512 bits.",
		rows(beatPowers, fewElements, reduce(all[:fewElements], all[fewElements:], 3), func(e int) int {
			if e < 32 {
				return -1 // no power of a beat
			}
			return beatPowers - 1 - (e - 32)
		}))
	same := func(e int) int { return e }
	vector(&b, "RL_ICRC_LESS", "These as 64: rows of 128 bits.",
		rows(fewElements, lessElements, reduce(all[:lessElements], all[lessElements:fewElements], 4), same))
	var rest []subset
	for _, e := range all[32:lessElements] {
		rest = append(rest, subset{uint64(root(times(e, power(32)), foldRoot))})
	}
	vector(&b, "RL_ICRC_SUM", "These as what they add to the register: rows of 64 bits.", rows(lessElements, 32, rest, same))
	field := func(name, doc string, of func(a uint32) uint32) {
		var words []uint32
		for _, row := range matrix(32, func(bit int) uint32 { return of(1 << bit) }) {
			words = append(words, uint32(row))
		}
		vector(&b, name, doc, words)
	}
	field("RL_ICRC_STEP", "The register after a beat of zeros.",
		func(a uint32) uint32 { return times(a, root(power(beatPowers), foldRoot)) })
	for n := 1; n <= 3; n++ {
		field(fmt.Sprintf("RL_ICRC_BACK%d", n), fmt.Sprintf("Times x^-%d: the register before %d bytes of zeros, or before %d where it is the root of degree 32.", n, 16*n, 4*n),
			func(a uint32) uint32 { return times(a, power(-n)) })
	}
	field("RL_ICRC_TURN", "From the root of degree 128 to that of degree 32.",
		func(a uint32) uint32 { return raise(a, foldRoot-backRoot) })
	field("RL_ICRC_LEAVE", "The CRC 6 bytes of zeros before the root of degree 32, first bit lowest.",
		func(a uint32) uint32 { return back(bits.Reverse32(raise(a, backRoot)), 6) })
	start := back(icrcStart, etherBytes)
	kept := func(crc uint32) uint32 { return root(bits.Reverse32(crc), foldRoot) }
	fmt.Fprintf(&b, "\n// The register a beat of zeros after the start of a frame, whose %d Ethernet bytes count as zeros.\n", etherBytes)
	fmt.Fprintf(&b, "localparam [31:0] RL_ICRC_START_STEP = 32'h%08x;\n", kept(zeros(start, beatBytes)))
	var right []uint32
	for n := range beatBytes {
		right = append(right, kept(zeros(residue, (beatBytes-n)%beatBytes)))
	}
	vector(&b, "RL_ICRC_RIGHT", "The register after a frame with a right ICRC whose last beat has n bytes (0: all) and zeros behind: word n.", right)
	return b.Bytes()
}
