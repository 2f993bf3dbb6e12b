// Package roce is the wire format of RoCE v2, reliable connected service: it
// turns packets and whole Ethernet frames into bytes and back, and does nothing
// else. No I/O, no state between calls, no allocation.
//
// One header lives in one file, with decoding and encoding side by side. A
// [Packet] is what a UDP datagram to port 4791 carries, from the base transport
// header to the invariant CRC; a [Frame] adds Ethernet, IP and UDP; a [Flow] is
// that part of the IP and UDP headers which the invariant CRC covers.
//
// # Who agrees on the IPv4 identification
//
// The invariant CRC covers the IPv4 identification and flags, which a UDP
// socket neither sets nor sees. Linux sends identification 0 with "don't
// fragment" from a socket that is not connected and has IP_MTU_DISCOVER set to
// IP_PMTUDISC_DO, so the zero values of Flow.ID and Flow.MayFragment are right
// for software at both ends. Package udp has the test that looks at the wire.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, chapter
// 9 (transport), and its annex A17 (RoCE v2). "IBTA" in the comments is that
// document.
package roce

import "time"

// Port is the UDP destination port of RoCE v2 (IANA "roce", IBTA annex A17).
const Port = 4791

// PKeyDefault is the default partition key with full membership (IBTA, "Partitioning").
const PKeyDefault = 0xFFFF

// ICRCLen is the length of the invariant CRC that ends every packet.
const ICRCLen = 4

// AckTimeout returns the local ACK timeout of an exponent: 4.096 µs·2^exp. Zero
// means none: the requester waits for ever (IBTA, "Requester Side Transport Timer"). Only five bits of
// exp count.
func AckTimeout(exp uint8) time.Duration {
	exp &= 0x1f
	if exp == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << exp
}
