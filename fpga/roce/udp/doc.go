// Package udp moves RoCE v2 packets over UDP sockets in batches. It adds
// nothing to a packet and takes nothing away: what goes in and comes out is
// what package roce encodes and decodes, BTH to ICRC.
//
// One system call receives or sends many datagrams (recvmmsg, sendmmsg), and
// where the kernel can, one datagram-sized buffer holds many packets (UDP_GRO,
// UDP_SEGMENT). Nothing allocates once a [Batch] and a [SendQueue] exist.
//
// # Goroutines
//
// A Conn has no lock on the data path. One goroutine at a time may call
// Receive, Wait and what belongs to the Batch; one at a time may call Send,
// WaitSend and what belongs to the SendQueue. They may be two or the same.
// Wake, Close, Counters and the rest may be called from anywhere at any time.
//
// # What the wire shows
//
// The sockets are not connected and never fragment (IP_PMTUDISC_DO), so IPv4
// packets leave with identification 0 and "don't fragment", which is what the
// zero values in a roce.Flow say. A test captures that. Segmentation offload is
// the exception: where the kernel or a NIC cuts a buffer into frames it numbers
// them 0, 1, 2 and so on, and the ICRC of all but the first is then wrong to a
// receiver that sees the IP header, as NICs and the kernel's software device
// do. So by default it is used only towards addresses of this machine, where
// nothing is cut, and [GSOAlways] is for software at both ends.
//
// UDP checksums are left to the kernel. A received IPv6 datagram may have none,
// because RoCE v2 hosts send none.
//
// The package works on Linux only; elsewhere Listen returns [ErrNotSupported].
package udp
