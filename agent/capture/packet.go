package capture

import (
	"net/netip"
	"time"

	"rocelink/fpga/roce"
)

// ICRC says what was found out about the invariant CRC of a packet.
type ICRC uint8

const (
	// ICRCUnchecked means that bytes are missing: the capture cut the frame,
	// it is a fragment, or there is no room for an ICRC.
	ICRCUnchecked ICRC = iota
	// ICRCOK means that it is right.
	ICRCOK
	// ICRCBad means that it is wrong.
	ICRCBad
)

// String returns "unchecked", "ok" or "bad".
func (c ICRC) String() string {
	switch c {
	case ICRCOK:
		return "ok"
	case ICRCBad:
		return "bad"
	}
	return "unchecked"
}

// What a fault is about.
type faultKind uint8

const (
	faultMalformed faultKind = 1 << iota
	faultCut
	faultFragment
)

// Packet is one RoCE v2 packet of a capture.
type Packet struct {
	Frame uint64 // number of the frame in the file, counted from 1
	// Segment counts from 1 the packets of one UDP datagram that a host was to
	// segment (UDP GSO) and captured whole; Segments is how many there are. Both
	// are 0 for an ordinary packet.
	Segment, Segments int
	Time              time.Time // zero where the capture has none
	Src, Dst          netip.Addr
	SrcPort           uint16
	VLANs             []uint16 // outermost first; valid until the next packet

	// Transport is what the transport headers say, its opcode as on the wire.
	// Everything in it is zero without HasBTH; RETH, AETH and Imm are without
	// HasExtended.
	Transport   roce.Packet
	HasBTH      bool
	HasExtended bool
	PayloadLen  int // without pad, by the IP length
	ICRC        ICRC

	// Gap is how many PSNs are missing before this packet.
	Gap int
	// Retransmission, OutOfOrder, Duplicate and Restart: see the package comment.
	Retransmission, OutOfOrder, Duplicate, Restart bool

	operation roce.Opcode
	faults    faultKind
	fault     string
	note      string
}

// Operation returns the opcode without its service: that of the reliable
// connected service for a SEND or WRITE of the unreliable connected one, and
// the opcode as it is for all others.
func (p *Packet) Operation() roce.Opcode { return p.operation }

// Service returns "RC" or "UC" for the reliable and the unreliable connected
// service, "" for another or without a BTH.
func (p *Packet) Service() string {
	if !p.HasBTH {
		return ""
	}
	switch p.Transport.Opcode & serviceMask {
	case 0:
		return "RC"
	case unreliableConnected:
		return "UC"
	}
	return ""
}

// unreliable reports whether the packet is one whose sender sends nothing twice.
func (p *Packet) unreliable() bool { return p.HasBTH && p.operation != p.Transport.Opcode }

// Fault says in words what is wrong with the packet, its ICRC apart, or "".
func (p *Packet) Fault() string { return p.fault }

func (p *Packet) blame(kind faultKind, text string) {
	p.faults |= kind
	if p.fault != "" {
		text = p.fault + "; " + text
	}
	p.fault = text
}
