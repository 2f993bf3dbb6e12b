//go:build verilator && realtime

package fabric

import (
	"encoding/binary"
	"net/netip"

	"rocelink/fpga/roce"
)

const (
	etherBytes = 14
	ipBytes    = 20
	udpBytes   = 8
)

// unpadded cuts the Ethernet pad off a frame of the core, which is IPv4.
func unpadded(frame []byte) []byte {
	n := etherBytes + int(binary.BigEndian.Uint16(frame[etherBytes+2:]))
	return frame[:min(n, len(frame))]
}

// appendFrame makes the frame that a datagram came in, as far as a socket lets
// one know: identification and traffic class are 0, nothing may fragment.
func appendFrame(b []byte, mac roce.MAC, src netip.AddrPort, dst netip.Addr, payload []byte) []byte {
	begin := len(b)
	b = append(b, mac[:]...)
	b = append(b, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00) // a local address; IPv4
	n := uint16(udpBytes + len(payload))
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, ipBytes+n)
	b = append(b, 0, 0, 0x40, 0, 64, 17, 0, 0)
	from, to := src.Addr().As4(), dst.As4()
	b = append(append(b, from[:]...), to[:]...)
	ip := b[begin+etherBytes:]
	sum := uint32(0)
	for i := 0; i < ipBytes; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	sum = sum>>16 + sum&0xFFFF
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, roce.Port)
	b = binary.BigEndian.AppendUint16(b, n)
	b = append(b, 0, 0)
	b = append(b, payload...)
	for len(b)-begin < roce.MinFrame {
		b = append(b, 0)
	}
	return b
}
