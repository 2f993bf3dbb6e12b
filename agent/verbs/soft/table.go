package soft

import "math/bits"

// table finds an object by its number. It is never changed, only replaced, so
// that the responder reads it through an atomic pointer without a lock.
type table[V any] struct {
	slots []slot[V] // power of two, at most half full
	shift uint
	used  int
}

type slot[V any] struct {
	key   uint32
	value *V
}

// newTable returns a table with room for n objects.
func newTable[V any](n int) *table[V] {
	size := uint(bits.Len(uint(max(n, 1)*2 - 1)))
	return &table[V]{slots: make([]slot[V], 1<<size), shift: 32 - size}
}

// place returns where the search for a key begins: Knuth's multiplicative hash.
func (t *table[V]) place(key uint32) int { return int(key * 2654435769 >> t.shift) }

// get returns the object with a key, or nil.
func (t *table[V]) get(key uint32) *V {
	for i := t.place(key); ; i++ {
		s := &t.slots[i&(len(t.slots)-1)]
		if s.key == key || s.value == nil {
			return s.value
		}
	}
}

func (t *table[V]) put(key uint32, v *V) {
	i := t.place(key)
	for t.slots[i&(len(t.slots)-1)].value != nil {
		i++
	}
	t.slots[i&(len(t.slots)-1)] = slot[V]{key, v}
	t.used++
}

// with returns the table with an object more. The key must be free.
func (t *table[V]) with(key uint32, v *V) *table[V] {
	n := newTable[V](t.used + 1)
	for _, s := range t.slots {
		if s.value != nil {
			n.put(s.key, s.value)
		}
	}
	n.put(key, v)
	return n
}

// without returns the table without the object of a key.
func (t *table[V]) without(key uint32) *table[V] {
	n := newTable[V](t.used)
	for _, s := range t.slots {
		if s.value != nil && s.key != key {
			n.put(s.key, s.value)
		}
	}
	return n
}
