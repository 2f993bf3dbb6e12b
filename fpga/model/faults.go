package model

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"
)

// maxOvertaken is by how many others a datagram is overtaken at most when it is
// reordered, and overtakenTime for how long it is held back when no others
// follow.
const (
	maxOvertaken  = 4
	overtakenTime = time.Millisecond
)

// FaultConfig says what a bad network does to datagrams, in per cent of them.
type FaultConfig struct {
	Drop      float64
	Duplicate float64
	Reorder   float64 // overtaken by the next one to four
	Corrupt   float64 // one bit, after the ICRC was made
	Delay     float64
	// DelayBy is how long a delayed datagram takes; 0 is 1 ms. Delaying 100
	// per cent keeps the order.
	DelayBy time.Duration
	// Seed chooses which: the same seed and datagrams, the same faults.
	Seed uint64
}

// Active reports whether anything is to happen at all.
func (c FaultConfig) Active() bool {
	return c.Drop > 0 || c.Duplicate > 0 || c.Reorder > 0 || c.Corrupt > 0 || c.Delay > 0
}

// Check refuses what is no percentage.
func (c FaultConfig) Check() error {
	for _, p := range []struct {
		name    string
		percent float64
	}{{"drop", c.Drop}, {"duplicate", c.Duplicate}, {"reorder", c.Reorder}, {"corrupt", c.Corrupt}, {"delay", c.Delay}} {
		if !(p.percent >= 0 && p.percent <= 100) {
			return fmt.Errorf("%s %v: give per cent, 0 to 100", p.name, p.percent)
		}
	}
	if c.DelayBy < 0 {
		return fmt.Errorf("delay by %v: give a time that is not negative", c.DelayBy)
	}
	return nil
}

// FaultCounters say what was done.
type FaultCounters struct {
	Passed, Dropped, Duplicated, Reordered, Corrupted, Delayed uint64
}

// Faults is one direction of a bad network.
type Faults struct {
	cfg   FaultConfig
	rand  *rand.Rand
	held  []held // in the order in which they came
	Count FaultCounters
}

// held is a datagram on its way.
type held struct {
	datagram  Datagram
	due       time.Duration
	overtaken int // goes after so many others; 0: at its time only
}

// NewFaults returns a network of which direction number n has faults of its
// own.
func NewFaults(cfg FaultConfig, n uint64) *Faults {
	if cfg.DelayBy == 0 {
		cfg.DelayBy = time.Millisecond
	}
	return &Faults{cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, n))}
}

func (x *Faults) happens(percent float64) bool {
	return percent > 0 && x.rand.Float64()*100 < percent
}

// Pass lets a datagram into the network and appends to out what leaves it in
// its turn. What is appended may be the memory of d.
func (x *Faults) Pass(now time.Duration, d Datagram, out []Datagram) []Datagram {
	if x.happens(x.cfg.Drop) {
		x.Count.Dropped++
		return out
	}
	if x.happens(x.cfg.Corrupt) && len(d.Payload) > 0 {
		x.Count.Corrupted++
		d.Payload = bytes.Clone(d.Payload)
		d.Payload[x.victim(len(d.Payload))] ^= 1 << x.rand.IntN(8)
	}
	copies := 1
	if x.happens(x.cfg.Duplicate) {
		x.Count.Duplicated++
		copies = 2
	}
	for range copies {
		switch {
		case x.happens(x.cfg.Delay):
			x.Count.Delayed++
			x.hold(held{datagram: d, due: now + x.cfg.DelayBy})
		case x.happens(x.cfg.Reorder):
			x.Count.Reordered++
			x.hold(held{datagram: d, due: now + overtakenTime, overtaken: 1 + x.rand.IntN(maxOvertaken)})
		default:
			x.Count.Passed++
			out = x.overtake(append(out, d))
		}
	}
	return out
}

// victim chooses a byte to corrupt: not the one that routers may change, which
// the ICRC leaves out.
func (x *Faults) victim(n int) int {
	const congestion = 4 // BTH: FECN, BECN and reserved bits
	i := x.rand.IntN(n)
	if i == congestion && n > 1 {
		return i - 1
	}
	return i
}

func (x *Faults) hold(h held) {
	h.datagram.Payload = bytes.Clone(h.datagram.Payload)
	x.held = append(x.held, h)
}

// overtake counts one that overtook those held back and lets those go that it
// was the last for.
func (x *Faults) overtake(out []Datagram) []Datagram {
	kept := x.held[:0]
	for _, h := range x.held {
		if h.overtaken > 0 {
			h.overtaken--
			if h.overtaken == 0 {
				out = append(out, h.datagram)
				continue
			}
		}
		kept = append(kept, h)
	}
	x.held = kept
	return out
}

// Release appends what leaves the network by time now.
func (x *Faults) Release(now time.Duration, out []Datagram) []Datagram {
	kept := x.held[:0]
	for _, h := range x.held {
		if h.due <= now {
			out = append(out, h.datagram)
			continue
		}
		kept = append(kept, h)
	}
	x.held = kept
	return out
}

// Next returns when Release has something to do, or [Never].
func (x *Faults) Next() time.Duration {
	next := Never
	for _, h := range x.held {
		next = min(next, h.due)
	}
	return next
}
