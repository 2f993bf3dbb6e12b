package roce

import "encoding/binary"

// RETHLen is the length of the RDMA extended transport header.
const RETHLen = 16

// RETH is the RDMA extended transport header: where a WRITE goes or a READ
// comes from (IBTA, "RDMA Extended Transport Header"). Length is that of the whole message.
type RETH struct {
	Address uint64
	RKey    uint32
	Length  uint32
}

// decode reads the header; b has at least RETHLen bytes.
func (h *RETH) decode(b []byte) {
	_ = b[RETHLen-1]
	h.Address = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.Length = binary.BigEndian.Uint32(b[12:])
}

// put writes the header; b has at least RETHLen bytes.
func (h *RETH) put(b []byte) {
	_ = b[RETHLen-1]
	binary.BigEndian.PutUint64(b, h.Address)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint32(b[12:], h.Length)
}
