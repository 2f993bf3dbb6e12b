package capture

import (
	"encoding/binary"

	"rocelink/fpga/roce"
)

// A host that sends by UDP GSO hands several packets of one size, only the last
// of which may be shorter, to the kernel as one datagram. Captured before it is
// cut up, on loopback above all, it carries a packet's ICRC every so many
// bytes, each right for a datagram of that size.

// segmentSize returns the size into which the payload of a datagram falls apart
// so that every piece is a packet with a right ICRC, and by how much the IPv4
// identification grows from piece to piece: not at all if the sender counted
// on that, by one as the kernel does. 0 if there is none.
func segmentSize(flow roce.Flow, payload []byte) (size, step int) {
	var p roce.Packet
	op := operationOf(roce.Opcode(payload[0]))
	pkey := binary.BigEndian.Uint16(payload[2:])
	least := max(op.HeaderLen()+roce.ICRCLen, roce.MinPacket)
	for size := least; size <= min(roce.MaxPacket, len(payload)-roce.MinPacket); size += 4 {
		// Most sizes are ruled out by what would be the second header.
		second := payload[size:]
		if !operationOf(roce.Opcode(second[0])).Known() || second[1]&0x0f != 0 || binary.BigEndian.Uint16(second[2:]) != pkey {
			continue
		}
		if decode(&p, payload[:size]) != nil || !flow.Check(payload[:size]) {
			continue
		}
		for step := range 2 {
			if segmentsOK(flow, payload, size, step) {
				return size, step
			}
		}
	}
	return 0, 0
}

func segmentsOK(flow roce.Flow, payload []byte, size, step int) bool {
	for len(payload) > 0 {
		n := min(size, len(payload))
		if !flow.Check(payload[:n]) {
			return false
		}
		payload = payload[n:]
		flow.ID += uint16(step)
	}
	return true
}
