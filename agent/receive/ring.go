package receive

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"rocelink"
)

// ring is a ring of slots at fixed addresses: the frame of sequence q is in
// slot q mod slots. Slots are released in order: only what lies below floor is
// the peer's to write.
//
// With WRITE nothing tells of a frame but the sequence word at the end of its
// slot, which the peer writes after the frame. Messages of a reliable
// connection land in order: whoever sees the word of frame q sees the frame,
// and all frames before it have landed too.
type ring struct {
	data    []byte
	slots   uint64
	stride  int
	largest uint32
	credit  *uint64 // nil: none

	next     uint64 // WRITE: the frame looked for
	nextSlot int
	probe    int // slot to look at when the next frame is not there

	floor   uint64   // lowest sequence that is held, or the next one
	at      []uint64 // sequence of a held slot
	held    []bool
	holding int
	torn    []bool // counted as overrun already
	granted uint64 // last value of the credit word
}

func (r *ring) init(c *Config) {
	r.data, r.slots, r.stride, r.largest = c.Memory.Bytes(), uint64(c.Slots), int(c.Stride), c.FrameBytes
	r.at = make([]uint64, c.Slots)
	r.held = make([]bool, c.Slots)
	r.torn = make([]bool, c.Slots)
	if c.CreditOffset != 0 {
		r.credit = (*uint64)(unsafe.Pointer(&r.data[c.CreditOffset]))
	}
}

// word is the sequence word of a slot.
func (r *ring) word(slot int) *uint64 {
	return (*uint64)(unsafe.Pointer(&r.data[(slot+1)*r.stride-8]))
}

// load reads a sequence word: the sequence of the frame in the slot, plus 1.
func (r *ring) load(slot int) uint64 { return littleEndian(atomic.LoadUint64(r.word(slot))) }

// littleEndian converts between the host's order and little-endian.
func littleEndian(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}

// length reads the frame length in the trailer of a slot.
func (r *ring) length(slot int) uint32 {
	return binary.LittleEndian.Uint32(r.data[(slot+1)*r.stride-rocelink.TrailerBytes:])
}

// clear makes sure that no trailer of an earlier session is taken for a frame.
func (r *ring) clear() {
	for i := range int(r.slots) {
		clear(r.data[(i+1)*r.stride-rocelink.TrailerBytes : (i+1)*r.stride])
	}
	if r.credit != nil {
		atomic.StoreUint64(r.credit, 0)
	}
}

// maxSequence is far beyond what any stream reaches: a word above it is rubbish.
const maxSequence = 1 << 62

func (r *ring) slotOf(q uint64) int { return int(q % r.slots) }

// after is the slot after another.
func (r *ring) after(slot int) int {
	if slot++; slot == int(r.slots) {
		return 0
	}
	return slot
}

// ready says how many frames from the next one on have landed, up to most.
func (r *ring) ready(most int) int {
	n, slot := 0, r.nextSlot
	for n < most && r.load(slot) == r.next+uint64(n)+1 {
		n++
		slot = r.after(slot)
	}
	return n
}

// step goes on to the next frame.
func (r *ring) step() {
	r.next++
	r.nextSlot = r.after(r.nextSlot)
}

// untouched reports whether the peer cannot have begun to overwrite frame q: its
// own word stands, and the peer heeds the credit word, or else the frame before
// the one that comes into the slot next has not landed.
func (r *ring) untouched(slot int, q uint64) bool {
	if r.credit != nil {
		return r.load(slot) == q+1
	}
	before := slot - 1
	if before < 0 {
		before = int(r.slots) - 1
	}
	return r.load(before) < q+r.slots && r.load(slot) == q+1
}

// same reports whether the word of a held slot still is that of its frame.
func (r *ring) same(slot int) bool { return r.load(slot) == r.at[slot]+1 }

// ahead returns the sequence in a slot if it lies beyond the next one and
// belongs into that slot.
func (r *ring) ahead(slot int) (uint64, bool) {
	v := r.load(slot)
	if v <= r.next+1 || v > maxSequence || r.slotOf(v-1) != slot {
		return 0, false
	}
	return v - 1, true
}

// lost is called when the next frame is not there. It looks at that slot and
// one other: if a later frame has landed, the next one never will. Then it goes
// on to the first frame that can still be read and counts those in between:
// overwritten (overrun), or never written (missing).
func (r *ring) lost(t *rocelink.Totals) bool {
	r.probe = r.after(r.probe)
	_, here := r.ahead(r.nextSlot)
	_, there := r.ahead(r.probe)
	if !here && !there {
		return false
	}
	newest := r.next
	for slot := range int(r.slots) {
		if q, ok := r.ahead(slot); ok {
			newest = max(newest, q)
		}
	}
	first := r.next
	if oldest := newest + 1 - min(r.slots, newest+1); r.next < oldest {
		t.Overrun += rocelink.Count(oldest - r.next)
		r.next = oldest
	}
	for ; r.next < newest; r.next++ {
		v := r.load(r.slotOf(r.next))
		if v == r.next+1 {
			break
		}
		if v > r.next+1 {
			t.Overrun++
		} else {
			t.Missing++
		}
	}
	r.nextSlot = r.slotOf(r.next)
	r.advance(r.next)
	return r.next != first
}

// hold keeps the slot from being written again.
func (r *ring) hold(slot int, q uint64) {
	r.at[slot], r.held[slot], r.torn[slot] = q, true, false
	r.holding++
}

func (r *ring) drop(slot int) {
	if r.held[slot] {
		r.held[slot] = false
		r.holding--
	}
}

// advance moves the floor up to the lowest held sequence, or to next.
func (r *ring) advance(next uint64) {
	if r.holding == 0 {
		r.floor = next
		return
	}
	// What is held lies within one ring from the floor, except after a jump of
	// the peer's sequence.
	for range r.slots {
		if slot := r.slotOf(r.floor); r.floor >= next || r.held[slot] && r.at[slot] == r.floor {
			return
		}
		r.floor++
	}
	r.floor = next
	for slot, held := range r.held {
		if held {
			r.floor = min(r.floor, r.at[slot])
		}
	}
}

// room is how many receives may be posted when next comes next: with one for
// each, that frame and all but the last packet of the one after those may land,
// and none of it in a slot that is held.
func (r *ring) room(next uint64) int {
	span := next - r.floor
	if span >= r.slots-1 {
		return 0
	}
	return int(r.slots - 1 - span)
}

// grant publishes how many frames the peer may regard as released.
func (r *ring) grant() {
	if r.credit != nil && r.floor != r.granted {
		r.granted = r.floor
		atomic.StoreUint64(r.credit, littleEndian(r.floor))
	}
}

// takeRing hands on the next n frames, which have landed.
func (l *Loop) takeRing(n int) {
	t, r := &l.account.total, &l.ring
	for range n {
		q, slot := r.next, r.nextSlot
		length := r.length(slot)
		switch {
		case r.load(slot) != q+1:
			t.Overrun++
		case r.held[slot]:
			t.Overrun++ // the peer does not heed the credit word, or has none
		case length > r.largest:
			t.Messages++
			t.Corrupt++
		default:
			t.Messages++
			t.Bytes += rocelink.Count(length)
			r.hold(slot, q)
			v := l.show(&l.stock, q, slot, length, false)
			switch {
			case r.load(slot) != q+1, v&Corrupt != 0 && !r.untouched(slot, q):
				t.Overrun++
				r.torn[slot] = true
			default:
				l.judge(v)
			}
			if l.settle(&l.stock, slot, v) {
				r.drop(slot)
			}
		}
		r.step()
	}
	if l.leaving {
		l.lastLap -= n
	}
	r.advance(r.next)
	r.grant()
}
