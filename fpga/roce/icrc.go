package roce

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
)

// Flow is what the invariant CRC covers of the IP and UDP headers. Addresses
// that are IPv4 mapped into IPv6 count as IPv4. It may be used by several
// goroutines at a time as long as none changes it.
type Flow struct {
	Src, Dst netip.Addr
	SrcPort  uint16
	ID       uint16 // IPv4 identification
	// MayFragment clears "don't fragment". RoCE v2 is never fragmented and
	// hosts set the flag, so the zero value sets it.
	MayFragment bool
}

// IPv4 flags and fragment offset.
const (
	ipv4Reserved = 0x8000
	ipv4DF       = 0x4000
	ipv4MF       = 0x2000
	ipv4Offset   = 0x1fff
)

// Is4 reports whether the flow is IPv4.
func (f *Flow) Is4() bool { return is4(f.Src) && is4(f.Dst) }

func is4(a netip.Addr) bool { return a.Is4() || a.Is4In6() }

func is6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// icrcStart is the CRC register after the eight bytes of ones that stand for
// the local route header of InfiniBand (IBTA annex A17).
const icrcStart = 0xdebb20e3

const (
	ipv4HeaderLen = 20
	ipv6HeaderLen = 40
	udpHeaderLen  = 8
	protoUDP      = 17
)

// ICRC returns the invariant CRC of a transport packet: over the IP and UDP
// headers, with the fields that change in flight replaced by ones, and all of
// udp but its last four bytes. udp begins with the BTH and has room for the
// ICRC at its end. Of less than [MinPacket] bytes the ICRC is 0.
func (f *Flow) ICRC(udp []byte) uint32 {
	if len(udp) < MinPacket {
		return 0
	}
	_ = udp[BTHLen-1]
	bth0 := binary.LittleEndian.Uint32(udp)
	// Byte 4 of the BTH is FECN, BECN and a reserved field.
	bth4 := binary.LittleEndian.Uint64(udp[4:]) | 0xff
	udpLen := uint16(len(udp) + udpHeaderLen)
	var crc uint32
	if f.Is4() {
		frag := uint16(ipv4DF)
		if f.MayFragment {
			frag = 0
		}
		crc = f.head4(udpLen, frag, bth0)
		crc = step8(crc, bth4)
	} else {
		crc = f.head6(udpLen, bth0, uint32(bth4))
		crc = step4(crc, uint32(bth4>>32))
	}
	return crc32.Update(^crc, crc32.IEEETable, udp[BTHLen:len(udp)-ICRCLen])
}

// head4 runs the CRC over IPv4 and UDP header and the first four bytes of the
// BTH. The words are put together in registers: a header built in memory
// would be read back before its bytes have left the store buffer.
func (f *Flow) head4(udpLen, frag uint16, bth0 uint32) uint32 {
	src, dst := f.Src.As4(), f.Dst.As4()
	crc := step8(icrcStart, 0x45|0xff<<8| // version and length, type of service
		be16(udpLen+ipv4HeaderLen)<<16|be16(f.ID)<<32|be16(frag)<<48)
	crc = step8(crc, 0xff|protoUDP<<8|0xffff<<16| // TTL, protocol, checksum
		uint64(binary.LittleEndian.Uint32(src[:]))<<32)
	crc = step8(crc, uint64(binary.LittleEndian.Uint32(dst[:]))|
		be16(f.SrcPort)<<32|be16(Port)<<48)
	return step8(crc, be16(udpLen)|0xffff<<16|uint64(bth0)<<32)
}

// head6 runs the CRC over IPv6 and UDP header and the first eight bytes of the
// BTH.
func (f *Flow) head6(udpLen uint16, bth0, bth4 uint32) uint32 {
	src, dst := f.Src.As16(), f.Dst.As16()
	crc := step8(icrcStart, 0xffffff6f| // version, traffic class, flow label
		be16(udpLen)<<32|protoUDP<<48|0xff<<56) // next header, hop limit
	crc = step8(crc, binary.LittleEndian.Uint64(src[:8]))
	crc = step8(crc, binary.LittleEndian.Uint64(src[8:]))
	crc = step8(crc, binary.LittleEndian.Uint64(dst[:8]))
	crc = step8(crc, binary.LittleEndian.Uint64(dst[8:]))
	crc = step8(crc, be16(f.SrcPort)|be16(Port)<<16|be16(udpLen)<<32|0xffff<<48)
	return step8(crc, uint64(bth0)|uint64(bth4)<<32)
}

// be16 returns a big-endian 16-bit field as part of a little-endian word.
func be16(v uint16) uint64 { return uint64(bits.ReverseBytes16(v)) }

// Seal writes the ICRC of a packet to its last four bytes, least significant
// byte first. It does nothing to less than [MinPacket] bytes.
func (f *Flow) Seal(udp []byte) {
	if len(udp) < MinPacket {
		return
	}
	binary.LittleEndian.PutUint32(udp[len(udp)-ICRCLen:], f.ICRC(udp))
}

// Check reports whether the last four bytes of a packet are its ICRC.
func (f *Flow) Check(udp []byte) bool {
	return len(udp) >= MinPacket &&
		binary.LittleEndian.Uint32(udp[len(udp)-ICRCLen:]) == f.ICRC(udp)
}

// hash/crc32 is made for long runs, needs its input in memory and lets it
// escape. The 40 or 60 bytes of headers go through tables of our own, eight
// bytes a step.
var crcTables = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for i := range 256 {
		crc := t[0][i]
		for j := 1; j < 8; j++ {
			crc = t[0][byte(crc)] ^ crc>>8
			t[j][i] = crc
		}
	}
	return t
}()

// step8 advances the CRC register by eight bytes, first byte lowest.
func step8(crc uint32, w uint64) uint32 {
	t := &crcTables
	w ^= uint64(crc)
	return t[7][byte(w)] ^ t[6][byte(w>>8)] ^ t[5][byte(w>>16)] ^ t[4][byte(w>>24)] ^
		t[3][byte(w>>32)] ^ t[2][byte(w>>40)] ^ t[1][byte(w>>48)] ^ t[0][byte(w>>56)]
}

// step4 advances the CRC register by four bytes, first byte lowest.
func step4(crc, w uint32) uint32 {
	t := &crcTables
	w ^= crc
	return t[3][byte(w)] ^ t[2][byte(w>>8)] ^ t[1][byte(w>>16)] ^ t[0][byte(w>>24)]
}
