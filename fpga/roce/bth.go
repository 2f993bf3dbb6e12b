package roce

import "encoding/binary"

// BTHLen is the length of the base transport header.
const BTHLen = 12

// BTH is the base transport header that every packet begins with (IBTA, "Base Transport Header").
type BTH struct {
	Opcode         Opcode
	SolicitedEvent bool
	MigReq         bool   // migration state "migrated"; hosts send true
	PadCount       uint8  // bytes of pad after the payload, 0 to 3
	Version        uint8  // transport header version, 0
	PKey           uint16 // partition key, usually PKeyDefault
	FECN, BECN     bool   // congestion marks; not covered by the ICRC
	DestQP         QPN
	AckReq         bool
	PSN            PSN
}

// Byte 1 of the BTH.
const (
	bthSolicited = 0x80
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthVersion   = 0x0f
)

// decode reads the header; b has at least BTHLen bytes.
func (h *BTH) decode(b []byte) {
	_ = b[BTHLen-1]
	h.Opcode = Opcode(b[0])
	h.SolicitedEvent = b[1]&bthSolicited != 0
	h.MigReq = b[1]&bthMigReq != 0
	h.PadCount = b[1] >> bthPadShift & 3
	h.Version = b[1] & bthVersion
	h.PKey = binary.BigEndian.Uint16(b[2:])
	qp := binary.BigEndian.Uint32(b[4:])
	h.FECN = qp>>31 != 0
	h.BECN = qp>>30&1 != 0
	h.DestQP = QPN(qp & QPNMask)
	psn := binary.BigEndian.Uint32(b[8:])
	h.AckReq = psn>>31 != 0
	h.PSN = PSN(psn & PSNMask)
}

// put writes the header with the given pad count; b has at least BTHLen bytes.
func (h *BTH) put(b []byte, pad int) {
	_ = b[BTHLen-1]
	b[0] = byte(h.Opcode)
	f := byte(pad)<<bthPadShift | h.Version&bthVersion
	if h.SolicitedEvent {
		f |= bthSolicited
	}
	if h.MigReq {
		f |= bthMigReq
	}
	b[1] = f
	binary.BigEndian.PutUint16(b[2:], h.PKey)
	qp := uint32(h.DestQP) & QPNMask
	if h.FECN {
		qp |= 1 << 31
	}
	if h.BECN {
		qp |= 1 << 30
	}
	binary.BigEndian.PutUint32(b[4:], qp)
	psn := uint32(h.PSN) & PSNMask
	if h.AckReq {
		psn |= 1 << 31
	}
	binary.BigEndian.PutUint32(b[8:], psn)
}
