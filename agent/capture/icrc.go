package capture

import (
	"encoding/binary"
	"hash/crc32"

	"rocelink/fpga/roce"
)

// icrcOK checks the ICRC of a datagram that is there from end to end.
func (d *datagram) icrcOK(payload []byte) bool {
	if d.usual {
		return d.flow.Check(payload)
	}
	return binary.LittleEndian.Uint32(payload[len(payload)-roce.ICRCLen:]) == d.rawICRC()
}

// rawICRC computes the ICRC from the headers as they stand: with IPv4 options,
// IPv6 extension headers or lengths that contradict each other, which a
// [roce.Flow] cannot express. The payload has roce.MinPacket bytes at least.
func (d *datagram) rawICRC() uint32 {
	// IP header, options, UDP and BTH, with ones in front for the local route
	// header of InfiniBand.
	head := d.ip[:d.udp+udpHeaderLen+roce.BTHLen]
	masked := make([]byte, 8, 8+len(head))
	for i := range masked {
		masked[i] = 0xff
	}
	masked = append(masked, head...)
	h := masked[8:]
	if h[0]>>4 == 4 {
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff // TOS, TTL, checksum
	} else {
		// Traffic class, flow label, hop limit.
		h[0], h[1], h[2], h[3], h[7] = 0x6f, 0xff, 0xff, 0xff, 0xff
	}
	h[d.udp+6], h[d.udp+7] = 0xff, 0xff // UDP checksum
	h[d.udp+udpHeaderLen+4] = 0xff      // FECN, BECN, reserved
	crc := crc32.ChecksumIEEE(masked)
	return crc32.Update(crc, crc32.IEEETable, d.ip[len(head):d.end-roce.ICRCLen])
}
