package roce

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// MaxVLANs is how many 802.1Q tags a frame may have.
const MaxVLANs = 2

// VLAN is an 802.1Q or 802.1ad tag.
type VLAN struct {
	TPID uint16 // 0x8100 or 0x88a8
	TCI  uint16 // priority, drop eligible, identifier
}

// Frame is a whole Ethernet frame with a RoCE v2 packet, without FCS.
type Frame struct {
	Dst, Src     MAC
	Tags         int            // how many of VLANs there are
	VLANs        [MaxVLANs]VLAN // outermost first
	Flow         Flow
	TrafficClass uint8  // DSCP and ECN
	FlowLabel    uint32 // IPv6 only, 20 bits
	TTL          uint8  // or hop limit; Put sends 0 as 64
	Packet       Packet

	// Where Decode found things: the IP packet and the UDP payload.
	ip, udp, end int
}

const (
	etherHeaderLen = 14
	vlanLen        = 4
	etherTypeIPv4  = 0x0800
	etherTypeIPv6  = 0x86dd
	etherTypeVLAN  = 0x8100
	etherTypeSVLAN = 0x88a8
	ipv6Fragment   = 44
	defaultTTL     = 64

	// MinFrame is the length to which Ethernet pads a frame, without FCS.
	MinFrame = 60
	// MaxFrame is the longest frame that Put makes.
	MaxFrame = etherHeaderLen + MaxVLANs*vlanLen + ipv6HeaderLen + udpHeaderLen + MaxPacket
)

// Decode reads an Ethernet frame: at most two VLAN tags, IPv4 with or without
// options or plain IPv6, UDP to [Port]. Anything else is [ErrNotRoCE]. The IP
// header says where the packet ends, whatever Ethernet padded it to.
//
// The IPv4 header checksum is checked, the UDP checksum is not: a RoCE v2
// receiver ignores it because the ICRC covers more (IBTA annex A17). See
// [Frame.ICRCOK] for the ICRC. On an error f holds what could be read, and the
// bounds are those of an empty packet unless the error came from the transport
// headers.
func (f *Frame) Decode(b []byte) error {
	*f = Frame{}
	if len(b) < etherHeaderLen {
		return ErrNotRoCE
	}
	copy(f.Dst[:], b)
	copy(f.Src[:], b[6:])
	etherType := binary.BigEndian.Uint16(b[12:])
	at := etherHeaderLen
	for etherType == etherTypeVLAN || etherType == etherTypeSVLAN {
		if f.Tags == MaxVLANs || len(b) < at+vlanLen {
			return ErrNotRoCE
		}
		f.VLANs[f.Tags] = VLAN{TPID: etherType, TCI: binary.BigEndian.Uint16(b[at:])}
		f.Tags++
		etherType = binary.BigEndian.Uint16(b[at+2:])
		at += vlanLen
	}
	var udp, end int
	var err error
	switch etherType {
	case etherTypeIPv4:
		udp, end, err = f.decodeIPv4(b, at)
	case etherTypeIPv6:
		udp, end, err = f.decodeIPv6(b, at)
	default:
		return ErrNotRoCE
	}
	if err != nil {
		return err
	}
	if end-udp < udpHeaderLen {
		return ErrUDPLength
	}
	h := b[udp : udp+udpHeaderLen]
	if binary.BigEndian.Uint16(h[2:]) != Port {
		return ErrNotRoCE
	}
	f.Flow.SrcPort = binary.BigEndian.Uint16(h)
	if int(binary.BigEndian.Uint16(h[4:])) != end-udp {
		return ErrUDPLength
	}
	f.ip, f.udp, f.end = at, udp+udpHeaderLen, end
	return f.Packet.Decode(b[f.udp:f.end:f.end])
}

// decodeIPv4 reads the header at b[at:] and returns where UDP begins and ends.
func (f *Frame) decodeIPv4(b []byte, at int) (udp, end int, err error) {
	h := b[at:]
	if len(h) < ipv4HeaderLen {
		return 0, 0, ErrShort
	}
	ihl := int(h[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(h[2:]))
	if h[0]>>4 != 4 || ihl < ipv4HeaderLen || total < ihl {
		return 0, 0, ErrIPHeader
	}
	if len(h) < total {
		return 0, 0, ErrShort
	}
	if ipSum(h[:ihl]) != 0 {
		return 0, 0, ErrIPChecksum
	}
	if h[9] != protoUDP {
		return 0, 0, ErrNotRoCE
	}
	frag := binary.BigEndian.Uint16(h[6:])
	if frag&(ipv4MF|ipv4Offset) != 0 {
		return 0, 0, ErrFragment
	}
	if frag&ipv4Reserved != 0 {
		return 0, 0, ErrIPHeader
	}
	f.TrafficClass = h[1]
	f.TTL = h[8]
	f.Flow.ID = binary.BigEndian.Uint16(h[4:])
	f.Flow.MayFragment = frag&ipv4DF == 0
	f.Flow.Src = netip.AddrFrom4([4]byte(h[12:16]))
	f.Flow.Dst = netip.AddrFrom4([4]byte(h[16:20]))
	return at + ihl, at + total, nil
}

// decodeIPv6 reads the header at b[at:] and returns where UDP begins and ends.
// RoCE v2 has no extension headers (IBTA annex A17).
func (f *Frame) decodeIPv6(b []byte, at int) (udp, end int, err error) {
	h := b[at:]
	if len(h) < ipv6HeaderLen {
		return 0, 0, ErrShort
	}
	if h[0]>>4 != 6 {
		return 0, 0, ErrIPHeader
	}
	n := int(binary.BigEndian.Uint16(h[4:]))
	if len(h)-ipv6HeaderLen < n {
		return 0, 0, ErrShort
	}
	switch h[6] {
	case protoUDP:
	case ipv6Fragment:
		return 0, 0, ErrFragment
	default:
		return 0, 0, ErrNotRoCE
	}
	v := binary.BigEndian.Uint32(h)
	f.TrafficClass = uint8(v >> 20)
	f.FlowLabel = v & flowLabelMask
	f.TTL = h[7]
	f.Flow.Src = netip.AddrFrom16([16]byte(h[8:24]))
	f.Flow.Dst = netip.AddrFrom16([16]byte(h[24:40]))
	// Mapped addresses stand for IPv4 in a Flow and have no business on the
	// wire.
	if is4(f.Flow.Src) || is4(f.Flow.Dst) {
		return 0, 0, ErrIPHeader
	}
	udp = at + ipv6HeaderLen
	return udp, udp + n, nil
}

const flowLabelMask = 1<<20 - 1

// Bounds returns where in the frame last decoded the IP packet begins and ends:
// what follows is Ethernet padding. Both are 0 if there was none.
func (f *Frame) Bounds() (start, end int) { return f.ip, f.end }

// Transport returns the transport packet, BTH to ICRC, of the frame that was
// decoded from b, nil if there was none.
func (f *Frame) Transport(b []byte) []byte {
	if f.end == 0 || f.end > len(b) {
		return nil
	}
	return b[f.udp:f.end:f.end]
}

// ICRCOK reports whether the ICRC of the frame last decoded from b is right.
func (f *Frame) ICRCOK(b []byte) bool {
	udp := f.Transport(b)
	if len(udp) < MinPacket {
		return false
	}
	if f.ip+ipv4HeaderLen+udpHeaderLen < f.udp && b[f.ip]>>4 == 4 {
		return binary.LittleEndian.Uint32(udp[len(udp)-ICRCLen:]) == f.icrcOptions(b)
	}
	return f.Flow.Check(udp)
}

// icrcOptions returns the ICRC of an IPv4 frame with options. RoCE v2 senders
// have none; they are covered as they stand.
func (f *Frame) icrcOptions(b []byte) uint32 {
	crc := uint32(icrcStart)
	for i, c := range b[f.ip : f.end-ICRCLen] {
		switch at := f.ip + i; {
		case i == 1 || i == 8 || i == 10 || i == 11,
			at == f.udp-1 || at == f.udp-2,
			at == f.udp+4:
			c = 0xff
		}
		crc = crc32.IEEETable[byte(crc)^c] ^ crc>>8
	}
	return ^crc
}

// ipLen returns the length of the IP header.
func (f *Frame) ipLen() int {
	if f.Flow.Is4() {
		return ipv4HeaderLen
	}
	return ipv6HeaderLen
}

// Len returns the bytes that Put needs.
func (f *Frame) Len() int {
	return etherHeaderLen + f.Tags*vlanLen + f.ipLen() + udpHeaderLen + f.Packet.Len()
}

// Put writes the whole frame with IPv4 checksum and ICRC and returns its
// length. It does not pad to [MinFrame]: MACs do, and [Pad] does.
//
// The UDP checksum is 0 for IPv6 too. RFC 6935 and 6936 allow that where the
// protocol has an integrity check of its own that covers the addresses, as the
// ICRC does; NICs and the Linux software device send 0 (a checksum over the
// payload would have to be known before its first byte leaves). A Linux socket
// takes such datagrams only with UDP_NO_CHECK6_RX.
func (f *Frame) Put(b []byte) (int, error) {
	v4 := f.Flow.Is4()
	if !v4 && (!is6(f.Flow.Src) || !is6(f.Flow.Dst)) {
		return 0, ErrAddress
	}
	if f.Tags < 0 || f.Tags > MaxVLANs {
		return 0, ErrTags
	}
	n := f.Packet.Len()
	total := f.Len()
	if len(b) < total {
		return 0, ErrRoom
	}
	ip := etherHeaderLen + f.Tags*vlanLen
	udp := ip + f.ipLen() + udpHeaderLen
	if _, err := f.Packet.Put(b[udp:total]); err != nil {
		return 0, err
	}
	copy(b, f.Dst[:])
	copy(b[6:], f.Src[:])
	at := 12
	for _, v := range f.VLANs[:f.Tags] {
		binary.BigEndian.PutUint16(b[at:], v.TPID)
		binary.BigEndian.PutUint16(b[at+2:], v.TCI)
		at += vlanLen
	}
	if v4 {
		binary.BigEndian.PutUint16(b[at:], etherTypeIPv4)
		f.putIPv4(b[ip:], udpHeaderLen+n)
	} else {
		binary.BigEndian.PutUint16(b[at:], etherTypeIPv6)
		f.putIPv6(b[ip:], udpHeaderLen+n)
	}
	h := b[udp-udpHeaderLen : udp]
	binary.BigEndian.PutUint16(h, f.Flow.SrcPort)
	binary.BigEndian.PutUint16(h[2:], Port)
	binary.BigEndian.PutUint16(h[4:], uint16(udpHeaderLen+n))
	binary.BigEndian.PutUint16(h[6:], 0)
	f.Flow.Seal(b[udp:total])
	return total, nil
}

func (f *Frame) ttl() byte {
	if f.TTL == 0 {
		return defaultTTL
	}
	return f.TTL
}

func (f *Frame) putIPv4(h []byte, payload int) {
	_ = h[ipv4HeaderLen-1]
	h[0] = 0x45
	h[1] = f.TrafficClass
	binary.BigEndian.PutUint16(h[2:], uint16(ipv4HeaderLen+payload))
	binary.BigEndian.PutUint16(h[4:], f.Flow.ID)
	frag := uint16(ipv4DF)
	if f.Flow.MayFragment {
		frag = 0
	}
	binary.BigEndian.PutUint16(h[6:], frag)
	h[8] = f.ttl()
	h[9] = protoUDP
	h[10], h[11] = 0, 0
	src, dst := f.Flow.Src.As4(), f.Flow.Dst.As4()
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	binary.BigEndian.PutUint16(h[10:], ipSum(h[:ipv4HeaderLen]))
}

func (f *Frame) putIPv6(h []byte, payload int) {
	_ = h[ipv6HeaderLen-1]
	binary.BigEndian.PutUint32(h, 6<<28|uint32(f.TrafficClass)<<20|f.FlowLabel&flowLabelMask)
	binary.BigEndian.PutUint16(h[4:], uint16(payload))
	h[6] = protoUDP
	h[7] = f.ttl()
	src, dst := f.Flow.Src.As16(), f.Flow.Dst.As16()
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
}

// ipSum returns the internet checksum of a header: 0 if the checksum in it is
// right.
func ipSum(h []byte) uint16 {
	var s uint32
	for ; len(h) >= 2; h = h[2:] {
		s += uint32(h[0])<<8 | uint32(h[1])
	}
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return ^uint16(s)
}

// Pad extends the first n bytes of b, a frame, with zeros to [MinFrame] as
// Ethernet asks and returns the new length. b must have that room.
func Pad(b []byte, n int) int {
	if n >= MinFrame || len(b) < MinFrame {
		return n
	}
	clear(b[n:MinFrame])
	return MinFrame
}
