// Package soft is a verbs provider without RDMA hardware: a device is a local
// IP address, and one goroutine answers what arrives on its UDP port 4791 as a
// reliable connected responder of the InfiniBand Architecture does.
//
// It only responds: SEND, RDMA WRITE (both with and without immediate) and RDMA
// READ of a peer. It posts no requests of its own, does no atomics, and
// PeerAttributes.MAC is not used because the kernel finds the way.
//
// # Threads
//
// The responder is one goroutine a device, locked to its thread. It alone
// touches the transport state of the queue pairs, takes receives from their
// rings and puts completions into the completion queues; both are rings with
// one producer and one consumer, so a message costs no lock. Everything else
// (creating, changing state, closing) runs in the caller under the device's
// mutex, publishes by an atomic store, and where it takes something away waits
// until the responder has begun another round (device.sync).
//
// # Acknowledges
//
// A round handles one batch of datagrams and acknowledges each queue pair once
// at its end, whether or not AckReq was set: an ACK covers everything before
// it, and a round is shorter than a requester's timeout by four orders of
// magnitude. The credit count is "invalid" (31): receives are posted by another
// thread without a message going out, so a true count would be stale at once,
// and a requester that honoured it would need unsolicited ACKs to go on. Flow
// control is "receiver not ready" alone, as with other software devices.
//
// # Invariant CRC
//
// A socket does not show the IPv4 identification, which the CRC covers. The
// peer must send identification 0 with "don't fragment", see package roce.
//
// "IBTA" in the comments is the InfiniBand Architecture Specification volume 1
// release 1.4.
package soft
