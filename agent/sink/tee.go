package sink

import (
	"fmt"
	"sync/atomic"

	"rocelink/agent/receive"
)

// Tee shows each frame to several sinks in turn and gives the slot back when
// the last of those that keep it has released it. Make one with NewTee.
type Tee struct {
	sinks []receive.Sink
	slots []teeSlot
	owner atomic.Pointer[receive.Owner] // of all frames: a sink belongs to one loop
}

type teeSlot struct {
	keepers atomic.Int32
	frame   receive.Frame // as the loop lent it
}

// NewTee makes a Tee for a loop of so many slots.
func NewTee(slots int, sinks ...receive.Sink) *Tee {
	return &Tee{sinks: sinks, slots: make([]teeSlot, max(slots, 0))}
}

// Take implements receive.Sink. The verdict is Refused if one sink refused,
// Corrupt if one found the frame corrupt, Verified if one verified it.
func (t *Tee) Take(f *receive.Frame) receive.Verdict {
	if uint(f.Slot) >= uint(len(t.slots)) {
		f.Owner.Fail(fmt.Errorf("tee of %d slots: a frame is in slot %d: make the tee as large as the loop", len(t.slots), f.Slot))
		return receive.Refused
	}
	if t.owner.Load() == nil {
		owner := f.Owner
		t.owner.Store(&owner)
	}
	s := &t.slots[f.Slot]
	s.frame = *f
	s.keepers.Store(1) // Take itself: no release counts before all have seen it
	var v receive.Verdict
	for _, sink := range t.sinks {
		s.keepers.Add(1)
		*f = s.frame
		f.Owner = t
		one := sink.Take(f)
		if one&receive.Kept == 0 {
			s.keepers.Add(-1)
		}
		v |= one
	}
	*f = s.frame
	if s.keepers.Add(-1) == 0 {
		return v &^ receive.Kept
	}
	return v | receive.Kept
}

// Release implements receive.Owner; each sink that kept the frame calls it
// once.
func (t *Tee) Release(f receive.Frame) {
	s := &t.slots[f.Slot]
	if s.keepers.Add(-1) == 0 {
		s.frame.Release()
	}
}

// Intact implements receive.Owner.
func (t *Tee) Intact(f receive.Frame) bool { return t.slots[f.Slot].frame.Intact() }

// Fail implements receive.Owner.
func (t *Tee) Fail(err error) {
	if owner := t.owner.Load(); owner != nil {
		(*owner).Fail(err)
	}
}
