package receive

import "sync/atomic"

// lending keeps track of frames that are with the sink. The loop lends and
// takes back; any goroutine releases.
//
// A slot's word is its generation and whether it is lent. Releasing swaps "lent
// in generation g" for "back from g", which works once, and then puts the slot
// into a queue of many producers and one consumer. A slot is in that queue at
// most once, so a queue as long as there are slots is never full.
type lending struct {
	words      []atomic.Uint32 // generation<<1 | lent
	generation []uint32        // the loop's own copy
	cells      []atomic.Uint32 // slot + 1, 0 empty
	mask       uint32
	head       uint32 // the loop's
	_          [64]byte
	tail       atomic.Uint32 // the releasers'
	_          [60]byte
}

func (b *lending) init(slots int) {
	size := 1
	for size < slots {
		size *= 2
	}
	b.words = make([]atomic.Uint32, slots)
	b.generation = make([]uint32, slots)
	b.cells = make([]atomic.Uint32, size)
	b.mask = uint32(size - 1)
}

const maxGeneration = 1<<31 - 1

// lend marks the slot as lent and returns the generation that gives it back.
func (b *lending) lend(slot int) uint32 {
	g := (b.generation[slot] + 1) & maxGeneration
	b.generation[slot] = g
	b.words[slot].Store(g<<1 | 1)
	return g
}

// giveBack ends the loan once; it may be called from any goroutine.
func (b *lending) giveBack(slot int, g uint32) bool {
	return b.words[slot].CompareAndSwap(g<<1|1, g<<1)
}

// lent reports whether the slot is lent in that generation.
func (b *lending) lent(slot int, g uint32) bool { return b.words[slot].Load() == g<<1|1 }

// queue passes a slot that was given back to the loop.
func (b *lending) queue(slot int) {
	b.cells[(b.tail.Add(1)-1)&b.mask].Store(uint32(slot) + 1)
}

// pending reports whether take would find a slot.
func (b *lending) pending() bool { return b.cells[b.head&b.mask].Load() != 0 }

// take returns a slot that was given back. A producer that has claimed its cell
// and not filled it yet holds up those behind it until it has.
func (b *lending) take() (slot int, ok bool) {
	cell := &b.cells[b.head&b.mask]
	v := cell.Load()
	if v == 0 {
		return 0, false
	}
	cell.Store(0)
	b.head++
	return int(v - 1), true
}
