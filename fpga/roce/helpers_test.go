package roce

import (
	"math/rand/v2"
	"net/netip"
)

// knownOpcodes are the opcodes that a packet can carry.
func knownOpcodes() []Opcode {
	var ops []Opcode
	for o := range 256 {
		if Opcode(o).Known() {
			ops = append(ops, Opcode(o))
		}
	}
	return ops
}

var flows = map[string]Flow{
	"v4": {
		Src: netip.MustParseAddr("192.0.2.10"), Dst: netip.MustParseAddr("198.51.100.20"),
		SrcPort: 0xc123,
	},
	"v4 with identification, may fragment": {
		Src: netip.MustParseAddr("192.0.2.11"), Dst: netip.MustParseAddr("198.51.100.21"),
		SrcPort: 0xffff, ID: 0xbeef, MayFragment: true,
	},
	"v6": {
		Src: netip.MustParseAddr("2001:db8::a"), Dst: netip.MustParseAddr("2001:db8:1:2:3:4:5:6"),
		SrcPort: 0xc001,
	},
}

// sizes returns payload lengths that op allows, those around the edges.
func sizes(op Opcode) []int {
	switch {
	case !op.HasPayload():
		return []int{0}
	case op.IsFirst() || op.IsMiddle():
		return []int{256, 512, 1024, 2048, 4096}
	}
	s := []int{1, 2, 3, 4, 5, 63, 64, 255, 256, 257, 1023, 4093, 4094, 4095, 4096}
	if op.IsOnly() {
		s = append(s, 0)
	}
	return s
}

// makePacket returns a packet of op in which every field that op has is set.
func makePacket(rng *rand.Rand, op Opcode, size int) Packet {
	p := Packet{BTH: BTH{
		Opcode: op, SolicitedEvent: rng.IntN(2) == 0, MigReq: rng.IntN(2) == 0,
		PadCount: uint8(-size & 3), PKey: uint16(rng.Uint32()),
		FECN: rng.IntN(2) == 0, BECN: rng.IntN(2) == 0,
		DestQP: QPN(rng.Uint32() & QPNMask), AckReq: rng.IntN(2) == 0,
		PSN: PSN(rng.Uint32() & PSNMask),
	}}
	if op.HasRETH() {
		p.RETH = RETH{Address: rng.Uint64(), RKey: rng.Uint32(), Length: rng.Uint32()}
	}
	if op.HasAETH() {
		p.AETH = AETH{Syndrome: Syndrome(rng.Uint32()), MSN: rng.Uint32() & MSNMask}
	}
	if op.HasImm() {
		p.Imm = rng.Uint32()
	}
	p.Payload = make([]byte, size)
	for i := range p.Payload {
		p.Payload[i] = byte(rng.Uint32())
	}
	return p
}

// naiveICRC computes the ICRC of the IP packet ip (header to ICRC, no options)
// the slow way: it copies the packet behind eight bytes of ones, overwrites
// what changes in flight, and divides bit by bit.
func naiveICRC(ip []byte) uint32 {
	m := make([]byte, 8, 8+len(ip))
	for i := range m {
		m[i] = 0xff
	}
	m = append(m, ip[:len(ip)-4]...)
	h := m[8:]
	udp := 40
	if h[0]>>4 == 4 {
		udp = 20
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		h[0], h[1], h[2], h[3], h[7] = 0x6f, 0xff, 0xff, 0xff, 0xff
	}
	h[udp+6], h[udp+7] = 0xff, 0xff
	h[udp+8+4] = 0xff
	crc := ^uint32(0)
	for _, b := range m {
		for bit := range 8 {
			in := uint32(b>>bit) & 1
			out := crc & 1
			crc >>= 1
			if in != out {
				crc ^= 0xedb88320
			}
		}
	}
	return ^crc
}

// equalPackets compares all but the identity of the payload.
func equalPackets(a, b *Packet) bool {
	return a.BTH == b.BTH && a.RETH == b.RETH && a.AETH == b.AETH && a.Imm == b.Imm &&
		string(a.Payload) == string(b.Payload)
}
