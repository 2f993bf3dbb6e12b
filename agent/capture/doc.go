// Package capture reads pcap and pcapng files and says about every RoCE v2
// packet in them what it is and whether it is right.
//
// [Decode] streams: memory does not grow with the file. Whatever bytes come,
// it neither panics nor runs on; a file that is damaged is decoded up to the
// damage, and the error names the byte.
//
// A packet is what goes to UDP port 4791, in Ethernet (with VLAN tags), Linux
// cooked, raw IP or BSD loopback frames. Its ICRC is found through the IP
// length, so neither Ethernet's padding nor a frame check sequence disturbs.
//
// # What the numbers mean
//
// PSNs are followed for every source, destination and destination QPN,
// requests apart from responses. A gap is the PSNs skipped before a packet. A
// retransmission is a PSN at or before one seen already; it is out of order
// too if that very PSN had been missing. A PSN more than [RestartDistance] off,
// ahead or behind, is a queue pair that started again.
//
// A READ request takes as many PSNs as its answer has packets, which depends
// on the path MTU. That is inferred from FIRST and MIDDLE packets between the
// two hosts, requests or answers; as long as it is not known, or differs
// between queue pairs, no gap is reported behind a READ request whose answer
// may be more than one packet.
//
// Acknowledges coalesce and repeat: they have no gaps. In READ responses a gap
// is certain inside a message. Between messages it is reported while the
// requester is not seen to send anything but READs and no acknowledge is seen,
// since other requests take PSNs too.
//
// SEND and WRITE of the unreliable connected service (UC) are packets like those
// of the reliable one (RC), but nobody answers them and none is sent twice: a
// PSN behind is out of order if it had been missing, and a duplicate otherwise.
// Other services are named by their opcode's number and not followed.
//
// A packet with a wrong ICRC is counted, but its PSN is believed only where it
// is the one expected, or while the flow has had no right packet at all.
package capture
