package main

import (
	"fmt"
	"math/bits"
)

// subset is a set of numbers below 128.
type subset [2]uint64

func (s subset) xor(o subset) subset { return subset{s[0] ^ o[0], s[1] ^ o[1]} }

func (s subset) len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// each calls f with the members.
func (s subset) each(f func(number int)) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			f(64*w + bits.TrailingZeros64(word))
		}
	}
}

// lutInputs are a LUT's, and lutGain is how many inputs fewer there are behind it.
const (
	lutInputs = 6
	lutGain   = lutInputs - 1
)

// reduce writes each of the other elements of the CRC's field as a sum of few of those that are kept,
// whose numbers it returns. Among all sums of the kept ones most elements are one of few members: six where
// 128 are kept, eight where 64 are, instead of the sixteen of a remainder. Where there
// are several, the one that fills the LUTs best is taken.
//
// Sums of up to half elements are looked up in pairs; where that finds none, one more element is tried.
func reduce(kept, others []uint32, half int) []subset {
	m := len(kept)
	type sum struct {
		value uint32
		of    subset
	}
	var sums []sum
	var grow func(from, left int, s sum)
	grow = func(from, left int, s sum) {
		sums = append(sums, s)
		for p := from; left > 0 && p < m; p++ {
			next := sum{s.value ^ kept[p], s.of}
			next.of[p/64] |= 1 << (p % 64)
			grow(p+1, left-1, next)
		}
	}
	grow(0, half, sum{})
	known := make(map[uint32][]subset, len(sums))
	filter := make([]uint64, 1<<26/64) // by the upper bits of a value: most look-ups end here
	for _, s := range sums {
		known[s.value] = append(known[s.value], s.of)
		filter[s.value>>12] |= 1 << (s.value >> 6 & 63)
	}

	load := make([]int, m)
	for p := range load {
		load[p] = 1
	}
	cost := func(s subset) (luts int) {
		s.each(func(p int) {
			if (load[p]-1)%lutGain == 0 {
				luts++
			}
		})
		return 100*luts + s.len()
	}
	all := make([]subset, 0, len(others))
	for i, other := range others {
		var best subset
		found := 0
		look := func(target uint32, with subset) {
			for _, s := range sums {
				want := s.value ^ target
				if filter[want>>12]>>(want>>6&63)&1 == 0 {
					continue
				}
				for _, o := range known[want] {
					set := s.of.xor(o).xor(with)
					if c := cost(set); found == 0 || c < found {
						best, found = set, c
					}
				}
			}
		}
		look(other, subset{})
		for n := 0; found == 0 && n < m; n++ {
			p := (37*i + n) % m // another one each time, for the load's sake
			var one subset
			one[p/64] = 1 << (p % 64)
			look(other^kept[p], one)
		}
		if found == 0 {
			panic(fmt.Sprintf("rtl/gen: %#x is no sum of so few of %d elements", other, m))
		}
		best.each(func(p int) { load[p]++ })
		all = append(all, best)
	}
	return all
}
