package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"rocelink/fpga/roce"
)

const (
	ipv4HeaderLen = 20
	ipv6HeaderLen = 40
	udpHeaderLen  = 8
	udpPortsLen   = 4

	ipv4Reserved = 0x8000
	ipv4DF       = 0x4000
	ipv4MF       = 0x2000
	ipv4Offset   = 0x1fff

	protoUDP = 17

	// IPv6 extension headers (IANA "Internet Protocol Version 6 Parameters").
	extHopByHop    = 0
	extRouting     = 43
	extFragment    = 44
	extAuth        = 51
	extDestination = 60
	extMobility    = 135
	extHIP         = 139
	extShim6       = 140
	maxExtensions  = 16
)

// verdict is what a frame turned out to be.
type verdict uint8

const (
	isRoCE       verdict = iota
	isOther              // some other protocol or port
	isCutShort           // cut before the UDP port
	isUnreadable         // an IP header that cannot be followed to a UDP port
)

// datagram is where in a frame a UDP datagram to port 4791 is.
type datagram struct {
	ip      []byte // from the IP header on, as far as captured
	udp     int    // offset of the UDP header in ip
	end     int    // offset where the IP packet ends
	flow    roce.Flow
	usual   bool // the ICRC can be had from flow
	partial bool // a fragment, or shorter than its IP length: no ICRC
}

// payload returns what is captured of the UDP payload, and its true length.
func (d *datagram) payload() ([]byte, int) {
	at := d.udp + udpHeaderLen
	if d.end <= at {
		return nil, 0
	}
	n := d.end - at
	if len(d.ip) <= at {
		return nil, n
	}
	return d.ip[at:min(d.end, len(d.ip))], n
}

// fragmentKey names a datagram that was sent in fragments.
type fragmentKey struct {
	src, dst netip.Addr
	id       uint32
}

// fragmentMemory is how many fragmented RoCE v2 datagrams are remembered to
// recognise their later fragments, which carry no port.
const fragmentMemory = 64

// fragments is a ring of the last ones.
type fragments struct {
	keys [fragmentMemory]fragmentKey
	next int
}

func (r *fragments) add(k fragmentKey) {
	r.keys[r.next%fragmentMemory] = k
	r.next++
}

func (r *fragments) has(k fragmentKey) bool {
	for i := range min(r.next, fragmentMemory) {
		if r.keys[i] == k {
			return true
		}
	}
	return false
}

// locate finds the UDP datagram in the IP packet b, of which wire bytes were on
// the wire including what the link added behind it. Faults go to p.
func (r *fragments) locate(d *datagram, p *Packet, b []byte, wire int) verdict {
	*d = datagram{ip: b}
	if len(b) == 0 {
		return isCutShort
	}
	switch b[0] >> 4 {
	case 4:
		return r.locate4(d, p, wire)
	case 6:
		return r.locate6(d, p, wire)
	}
	return isOther
}

func (r *fragments) locate4(d *datagram, p *Packet, wire int) verdict {
	b := d.ip
	if len(b) < ipv4HeaderLen {
		return isCutShort
	}
	if b[9] != protoUDP {
		return isOther
	}
	d.udp = int(b[0]&0x0f) * 4
	if d.udp < ipv4HeaderLen {
		return isUnreadable
	}
	frag := binary.BigEndian.Uint16(b[6:])
	d.flow.Src, d.flow.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	d.flow.ID, d.flow.MayFragment = binary.BigEndian.Uint16(b[4:]), frag&ipv4DF == 0
	key := fragmentKey{d.flow.Src, d.flow.Dst, uint32(d.flow.ID)}
	if offset := int(frag&ipv4Offset) * 8; offset != 0 {
		return r.later(d, p, key, offset)
	}
	if v := d.port(p); v != isRoCE {
		return v
	}
	if sum := ipSum(b[:d.udp]); sum != 0 {
		p.blame(faultMalformed, fmt.Sprintf("wrong IPv4 header checksum 0x%04x", binary.BigEndian.Uint16(b[10:])))
	}
	if frag&ipv4Reserved != 0 {
		p.blame(faultMalformed, "reserved IPv4 flag set")
	}
	d.usual = d.udp == ipv4HeaderLen && frag&ipv4Reserved == 0
	d.end = int(binary.BigEndian.Uint16(b[2:]))
	d.bound(p, wire, frag&ipv4MF != 0)
	if frag&ipv4MF != 0 {
		r.first(d, p, key)
	}
	return isRoCE
}

func (r *fragments) locate6(d *datagram, p *Packet, wire int) verdict {
	b := d.ip
	if len(b) < ipv6HeaderLen {
		return isCutShort
	}
	d.flow.Src, d.flow.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	proto, at := b[6], ipv6HeaderLen
	var key fragmentKey
	var more, fragment bool
	for range maxExtensions {
		if proto == protoUDP {
			break
		}
		switch proto {
		case extHopByHop, extRouting, extFragment, extAuth, extDestination, extMobility, extHIP, extShim6:
		default:
			return isOther
		}
		if len(b) < at+8 {
			return isCutShort
		}
		length := (int(b[at+1]) + 1) * 8
		switch proto {
		case extAuth:
			length = (int(b[at+1]) + 2) * 4
		case extFragment:
			length = 8
			v := binary.BigEndian.Uint16(b[at+2:])
			key = fragmentKey{d.flow.Src, d.flow.Dst, binary.BigEndian.Uint32(b[at+4:])}
			if offset := int(v &^ 7); offset != 0 {
				return r.later(d, p, key, offset)
			}
			fragment, more = true, v&1 != 0
		}
		proto = b[at]
		at += length
	}
	if proto != protoUDP {
		return isUnreadable
	}
	d.udp = at
	if v := d.port(p); v != isRoCE {
		return v
	}
	// Flow takes mapped addresses for IPv4, which they are not on the wire.
	d.usual = at == ipv6HeaderLen && !d.flow.Src.Is4In6() && !d.flow.Dst.Is4In6()
	d.end = ipv6HeaderLen + int(binary.BigEndian.Uint16(b[4:]))
	d.bound(p, wire, more)
	switch {
	case more:
		r.first(d, p, key)
	case fragment:
		p.blame(faultFragment, "IPv6 fragment header around a whole datagram")
	}
	return isRoCE
}

// port looks at the UDP ports.
func (d *datagram) port(p *Packet) verdict {
	if len(d.ip) < d.udp+udpPortsLen {
		return isCutShort
	}
	h := d.ip[d.udp:]
	if binary.BigEndian.Uint16(h[2:]) != roce.Port {
		return isOther
	}
	d.flow.SrcPort = binary.BigEndian.Uint16(h)
	p.Src, p.Dst, p.SrcPort = d.flow.Src, d.flow.Dst, d.flow.SrcPort
	return isRoCE
}

// bound checks what IP and UDP say about the length, d.end being the IP
// packet's.
func (d *datagram) bound(p *Packet, wire int, fragment bool) {
	udpLen, known := 0, len(d.ip) >= d.udp+udpHeaderLen
	if known {
		udpLen = int(binary.BigEndian.Uint16(d.ip[d.udp+4:]))
	}
	carried := d.end - d.udp
	switch {
	case carried < udpHeaderLen:
		p.blame(faultMalformed, fmt.Sprintf("IP length %d leaves no room for UDP", d.end))
		d.usual = false
		// UDP's own length is all there is to go by.
		d.end = d.udp
		if end := d.udp + udpLen; udpLen >= udpHeaderLen && end <= wire {
			d.end = end
		}
	case d.end > wire:
		p.blame(faultMalformed, fmt.Sprintf("IP length %d, but the frame ends after %d", d.end, wire))
		d.end, d.partial = max(wire, d.udp), true
	case known && !fragment && udpLen != carried:
		p.blame(faultMalformed, fmt.Sprintf("UDP length %d, but IP carries %d", udpLen, carried))
		d.usual = false
	}
}

func (r *fragments) first(d *datagram, p *Packet, key fragmentKey) {
	p.blame(faultFragment, "first IP fragment of a datagram, RoCE v2 is never fragmented")
	d.partial = true
	r.add(key)
}

// later deals with a fragment that has no ports: only a first fragment seen
// before tells that it is RoCE v2.
func (r *fragments) later(d *datagram, p *Packet, key fragmentKey, offset int) verdict {
	if !r.has(key) {
		return isOther
	}
	p.Src, p.Dst = d.flow.Src, d.flow.Dst
	p.blame(faultFragment, fmt.Sprintf("IP fragment at byte %d of a datagram, RoCE v2 is never fragmented", offset))
	d.udp, d.end, d.partial = 0, 0, true
	return isRoCE
}

// ipSum returns the internet checksum of a header: 0 if the one in it is right.
func ipSum(h []byte) uint16 {
	var s uint32
	for ; len(h) >= 2; h = h[2:] {
		s += uint32(binary.BigEndian.Uint16(h))
	}
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return ^uint16(s)
}
