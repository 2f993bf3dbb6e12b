package roce

import "encoding/binary"

// AETHLen is the length of the ACK extended transport header.
const AETHLen = 4

// AETH is the ACK extended transport header (IBTA, "ACK Extended Transport Header").
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // message sequence number, 24 bits
}

// MSNMask selects the 24 bits of a message sequence number.
const MSNMask = 1<<24 - 1

// decode reads the header; b has at least AETHLen bytes.
func (h *AETH) decode(b []byte) {
	v := binary.BigEndian.Uint32(b)
	h.Syndrome = Syndrome(v >> 24)
	h.MSN = v & MSNMask
}

// put writes the header; b has at least AETHLen bytes.
func (h *AETH) put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(h.Syndrome)<<24|h.MSN&MSNMask)
}
