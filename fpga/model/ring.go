package model

import "rocelink/fpga/roce"

// slotBytes holds the longest frame, in whole cache lines.
const slotBytes = (roce.MaxFrame + 63) &^ 63

// ring is the retransmit ring: complete frames, sealed once, by position.
type ring struct {
	memory []byte
	slots  []slot
}

// slot describes the packet at one position of the ring.
type slot struct {
	number uint64 // packet number; the PSN is its lower part
	span   uint64 // packet numbers it takes, more than 1 only for READ
	length int    // of the frame
	kind   kind
	last   bool // last packet of its message
	rnr    bool // waited for a receiver
	// Of the message, in its last packet; frame is that of the stream, which
	// a trailer stands for.
	messageBytes, frameBytes uint32
}

func newRing(memory []byte) ring {
	return ring{memory: memory, slots: make([]slot, len(memory)/slotBytes)}
}

func (r *ring) at(position uint64) *slot { return &r.slots[position%uint64(len(r.slots))] }

func (r *ring) bytes(position uint64) []byte {
	at := int(position%uint64(len(r.slots))) * slotBytes
	return r.memory[at : at+slotBytes : at+slotBytes]
}
