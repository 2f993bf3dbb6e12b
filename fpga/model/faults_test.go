package model

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"testing"
	"time"
)

// pass sends n numbered datagrams, 10 µs apart, and returns what arrives.
func pass(x *Faults, n int) (numbers []uint32, flips int) {
	now := time.Duration(0)
	take := func(out []Datagram) {
		for _, d := range out {
			v, check := binary.LittleEndian.Uint32(d.Payload), binary.LittleEndian.Uint32(d.Payload[4:])
			flips += bits.OnesCount32(v ^ check)
			numbers = append(numbers, v)
		}
	}
	for i := range n {
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], uint32(i))
		binary.LittleEndian.PutUint32(b[4:], uint32(i))
		take(x.Pass(now, Datagram{Payload: b[:]}, nil))
		clear(b[:]) // the network keeps copies
		now += 10 * time.Microsecond
		take(x.Release(now, nil))
	}
	for x.Next() != Never {
		take(x.Release(x.Next(), nil))
	}
	return numbers, flips
}

func TestFaultKinds(t *testing.T) {
	const n = 20_000
	near := func(name string, got uint64) {
		t.Helper()
		if got < n/10-n/100 || got > n/10+n/100 {
			t.Errorf("%s: %d of %d, want about a tenth", name, got, n)
		}
	}
	sorted := func(a []uint32) bool { return slices.IsSorted(a) }

	x := NewFaults(FaultConfig{Drop: 10, Seed: 1}, 1)
	got, _ := pass(x, n)
	if near("drop", x.Count.Dropped); len(got) != n-int(x.Count.Dropped) || !sorted(got) {
		t.Errorf("drop: %d arrive, in order %v", len(got), sorted(got))
	}
	x = NewFaults(FaultConfig{Duplicate: 10, Seed: 1}, 1)
	got, _ = pass(x, n)
	if near("duplicate", x.Count.Duplicated); len(got) != n+int(x.Count.Duplicated) || !sorted(got) {
		t.Errorf("duplicate: %d arrive, in order %v", len(got), sorted(got))
	}
	x = NewFaults(FaultConfig{Corrupt: 10, Seed: 1}, 1)
	got, flips := pass(x, n)
	if near("corrupt", x.Count.Corrupted); len(got) != n || flips != int(x.Count.Corrupted) {
		t.Errorf("corrupt: %d arrive with %d bits wrong", len(got), flips)
	}
	x = NewFaults(FaultConfig{Reorder: 10, Seed: 1}, 1)
	got, _ = pass(x, n)
	near("reorder", x.Count.Reordered)
	if len(got) != n || sorted(got) {
		t.Errorf("reorder: %d arrive, in order %v", len(got), sorted(got))
	}
	for i, v := range got {
		if d := i - int(v); d > 2*maxOvertaken || d < -maxOvertaken {
			t.Errorf("reorder: datagram %d arrives in place %d", v, i)
		}
	}
	x = NewFaults(FaultConfig{Delay: 10, DelayBy: 100 * time.Microsecond, Seed: 1}, 1)
	got, _ = pass(x, n)
	if near("delay", x.Count.Delayed); len(got) != n || sorted(got) {
		t.Errorf("delay: %d arrive, in order %v", len(got), sorted(got))
	}
	x = NewFaults(FaultConfig{Delay: 100, DelayBy: 70 * time.Microsecond}, 1)
	if got, _ = pass(x, n); len(got) != n || !sorted(got) {
		t.Errorf("all delayed: %d arrive, in order %v", len(got), sorted(got))
	}
}

// A seed chooses the faults, each direction has its own.
func TestFaultSeeds(t *testing.T) {
	run := func(seed, n uint64) []uint32 {
		got, _ := pass(NewFaults(FaultConfig{Drop: 5, Duplicate: 5, Reorder: 5, Seed: seed}, n), 1000)
		return got
	}
	if !slices.Equal(run(1, 1), run(1, 1)) {
		t.Error("the same seed, other faults")
	}
	if slices.Equal(run(1, 1), run(2, 1)) || slices.Equal(run(1, 1), run(1, 2)) {
		t.Error("another seed or direction, the same faults")
	}
}
