package main

import (
	"fmt"
	"math/bits"
)

// subset is a set of powers below 128.
type subset [2]uint64

func (s subset) xor(o subset) subset { return subset{s[0] ^ o[0], s[1] ^ o[1]} }

func (s subset) len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// each calls f with the members.
func (s subset) each(f func(power int)) {
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

// reduce writes the powers x^m to x^(n-1), modulo the CRC's polynomial, as sums of few of the powers
// below x^m: element i-m is for x^i. The polynomial has sparse multiples, and of all sets of m
// powers most targets have one of few members: six where m is 128, eight where m is 64, instead of the
// sixteen that the remainder itself has. Where there are several, the one that fills the
// LUTs best is taken.
//
// Sums of up to half powers are looked up in pairs; where that finds none, one more power is tried.
func reduce(n, m, half int) []subset {
	value := make([]uint32, n)
	for i := range value {
		value[i] = power(i)
	}
	type sum struct {
		value uint32
		of    subset
	}
	var sums []sum
	var grow func(from, left int, s sum)
	grow = func(from, left int, s sum) {
		sums = append(sums, s)
		for p := from; left > 0 && p < m; p++ {
			next := sum{s.value ^ value[p], s.of}
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
	all := make([]subset, 0, n-m)
	for i := m; i < n; i++ {
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
		look(value[i], subset{})
		for n := 0; found == 0 && n < m; n++ {
			p := (37*i + n) % m // another one each time, for the load's sake
			var one subset
			one[p/64] = 1 << (p % 64)
			look(value[i]^value[p], one)
		}
		if found == 0 {
			panic(fmt.Sprintf("rtl/gen: x^%d is no sum of so few powers below x^%d", i, m))
		}
		best.each(func(p int) { load[p]++ })
		all = append(all, best)
	}
	return all
}
