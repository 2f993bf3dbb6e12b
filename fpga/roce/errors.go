package roce

import "errors"

// What can be wrong with a packet or a frame. Decode and Put return these
// values themselves, never wrapped, because they run for every packet.
var (
	// ErrShort means the bytes end before the headers do.
	ErrShort = errors.New("roce: packet shorter than its headers")
	// ErrVersion means a transport header version other than 0.
	ErrVersion = errors.New("roce: transport header version is not 0")
	// ErrOpcode means an opcode that this package does not carry: another
	// service than reliable connected, an atomic, or a reserved value.
	ErrOpcode = errors.New("roce: opcode not supported")
	// ErrPad means a pad count that cannot be: in a FIRST or MIDDLE packet,
	// in a packet without payload, or longer than what is there.
	ErrPad = errors.New("roce: impossible pad count")
	// ErrLength means a payload whose length the opcode does not allow.
	ErrLength = errors.New("roce: payload length not allowed for the opcode")
	// ErrRoom means that the destination of an encode is too small.
	ErrRoom = errors.New("roce: destination too small for the packet")

	// ErrNotRoCE means that a frame is something else. It is no fault of its
	// sender.
	ErrNotRoCE = errors.New("roce: not a RoCE v2 frame")
	// ErrIPHeader means an IP header that contradicts itself.
	ErrIPHeader = errors.New("roce: malformed IP header")
	// ErrIPChecksum means a wrong IPv4 header checksum.
	ErrIPChecksum = errors.New("roce: wrong IPv4 header checksum")
	// ErrFragment means a fragment of a datagram; RoCE v2 is never fragmented.
	ErrFragment = errors.New("roce: IP fragment")
	// ErrUDPLength means that the UDP length differs from what IP carries.
	ErrUDPLength = errors.New("roce: UDP length differs from the IP length")
	// ErrAddress means that the addresses of a frame are missing or of two
	// families.
	ErrAddress = errors.New("roce: addresses missing or of different families")
	// ErrTags means a number of VLAN tags that a frame cannot have.
	ErrTags = errors.New("roce: number of VLAN tags out of range")
)
