package roce

// wireOverhead is what Ethernet adds to a frame on the wire: FCS 4, preamble
// and start delimiter 8, gap 12.
const wireOverhead = 4 + 8 + 12

// WireBytes returns the byte times that a packet with a payload takes on an
// Ethernet link, from its preamble to the end of the gap behind it.
func WireBytes(op Opcode, payload int, v6 bool) int {
	ip := ipv4HeaderLen
	if v6 {
		ip = ipv6HeaderLen
	}
	n := etherHeaderLen + ip + udpHeaderLen + op.HeaderLen() + (payload+3)&^3 + ICRCLen
	return max(n, MinFrame) + wireOverhead
}

// Ceiling returns which share of a link's rate can be payload if every packet
// is a full one with this opcode: times 100 it is Gb/s on a 100 Gb/s link. No
// true measurement exceeds it.
func Ceiling(op Opcode, mtu MTU, v6 bool) float64 {
	if !mtu.Valid() || !op.HasPayload() {
		return 0
	}
	return float64(mtu) / float64(WireBytes(op, int(mtu), v6))
}

// MessageCeiling returns which share of a link's rate can be payload if every
// message has size bytes. only is the opcode that such a message has when one
// packet holds it: SendOnly, SendOnlyImm, WriteOnly, WriteOnlyImm or
// ReadResponseOnly. For any other the share is 0.
func MessageCeiling(only Opcode, size int, mtu MTU, v6 bool) float64 {
	if !mtu.Valid() || !only.IsOnly() || size <= 0 {
		return 0
	}
	packets := mtu.Packets(size)
	if packets == 1 {
		return float64(size) / float64(WireBytes(only, size, v6))
	}
	full := int(mtu)
	wire := WireBytes(only.InMessage(true, false), full, v6) +
		(packets-2)*WireBytes(only.InMessage(false, false), full, v6) +
		WireBytes(only.InMessage(false, true), size-(packets-1)*full, v6)
	return float64(size) / float64(wire)
}
