package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// The datapath is 64 bytes wide and the ICRC is folded in groups of 32 bits.
const (
	beatBytes  = 64
	groupBits  = 32
	groups     = beatBytes * 8 / groupBits
	etherBytes = 14
)

// icrcStart is the CRC register after the eight bytes of ones that stand for
// the local route header (IBTA annex A17); residue is the register after the
// CRC itself has gone through.
const (
	icrcStart = 0xdebb20e3
	residue   = 0xdebb20e3
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

// matrix returns the rows of a linear map of n bits onto the CRC register: row
// i holds which input bits make bit i.
func matrix(n int, of func(bit int) uint32) []uint32 {
	rows := make([]uint32, 32)
	for bit := range n {
		column := of(bit)
		for i := range rows {
			rows[i] |= column >> i & 1 << bit
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

// icrcHeader holds the matrices of the ICRC in a 512-bit datapath.
func icrcHeader() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n", notice)
	fmt.Fprint(&b, "// CRC-32 in matrices: bit i of a result is the parity of the input under row i.\n")

	var fold []uint32
	for g := range groups {
		fold = append(fold, matrix(groupBits, func(bit int) uint32 {
			var beat [beatBytes]byte
			at := g*groupBits + bit
			beat[at/8] = 1 << (at % 8)
			crc := uint32(0)
			for _, c := range beat {
				crc = forward(crc, c)
			}
			return crc
		})...)
	}
	vector(&b, "RL_ICRC_FOLD", "What 32 bits of a beat add to the register after the beat: row 32·group + bit.", fold)
	vector(&b, "RL_ICRC_STEP", "The register after a beat of zeros.",
		matrix(32, func(bit int) uint32 { return zeros(1<<bit, beatBytes) }))
	for _, n := range []int{4, 6, 8, 16, 32} {
		vector(&b, fmt.Sprintf("RL_ICRC_BACK%d", n), fmt.Sprintf("The register before %d bytes of zeros.", n),
			matrix(32, func(bit int) uint32 { return back(1<<bit, n) }))
	}
	start := back(icrcStart, etherBytes)
	fmt.Fprintf(&b, "\n// The register before the frame, whose %d Ethernet bytes count as zeros, and a beat of zeros later.\n", etherBytes)
	fmt.Fprintf(&b, "localparam [31:0] RL_ICRC_START = 32'h%08x;\n", start)
	fmt.Fprintf(&b, "localparam [31:0] RL_ICRC_START_STEP = 32'h%08x;\n", zeros(start, beatBytes))
	var right []uint32
	for n := range beatBytes {
		right = append(right, zeros(residue, (beatBytes-n)%beatBytes))
	}
	vector(&b, "RL_ICRC_RIGHT", "The register after a frame with a right ICRC whose last beat has n bytes (0: all) and zeros behind: word n.", right)
	return b.Bytes()
}
