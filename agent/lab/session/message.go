package session

import (
	"net/netip"

	"rocelink"
	"rocelink/fpga/pattern"
	"rocelink/fpga/roce"
)

// Request is one line to a program of the guest. One field is set.
type Request struct {
	Open  *Open `json:",omitempty"`
	Peer  *Peer `json:",omitempty"`
	Look  bool  `json:",omitempty"`
	Close bool  `json:",omitempty"`
	Work  *Work `json:",omitempty"`
}

// Reply is one line from a program of the guest, one for each request. One
// field is set.
type Reply struct {
	Error  string  `json:",omitempty"`
	Opened *Opened `json:",omitempty"`
	Ready  bool    `json:",omitempty"`
	Looked *Looked `json:",omitempty"`
	Done   *Done   `json:",omitempty"`
}

// Open sets a queue pair up, as far as that goes without the peer.
type Open struct {
	Verb                      rocelink.Verb
	Slots, Stride, FrameBytes uint32
	Pattern                   pattern.Kind
	CRC                       bool
	// Unchecked leaves the content alone: for measuring.
	Unchecked bool `json:",omitempty"`
	// Busy polls without end, where otherwise the loop sleeps after a while.
	Busy bool `json:",omitempty"`
	// CQDepth is how many completions the queue holds; 0: enough.
	CQDepth int `json:",omitempty"`
	// MinRNRTimer is the code of the delay asked of a sender that is too
	// quick.
	MinRNRTimer uint8
}

// Opened is what the peer must know.
type Opened struct {
	QPN      roce.QPN
	PSN      roce.PSN
	RKey     uint32
	Address  uint64 // of slot 0
	Credit   uint64 // of the credit word, 0: none
	IP       netip.Addr
	MAC      roce.MAC
	MTU      roce.MTU // that the port can carry
	GIDIndex int
}

// Peer takes the queue pair to RTR and RTS.
type Peer struct {
	QPN roce.QPN
	PSN roce.PSN
	IP  netip.Addr
	MAC roce.MAC
	MTU roce.MTU
}

// Looked is what the receive loop and the device have counted. After Close it
// is final.
type Looked struct {
	Totals rocelink.Totals
	// Verified and Corrupt are the verifier's, First its first finding.
	Verified, Corrupt uint64
	First             string `json:",omitempty"`
	// Ended says how the loop ended: "" as it was asked to.
	Ended string `json:",omitempty"`
	// Windows is how many were published.
	Windows  int
	Events   []string          `json:",omitempty"`
	Counters map[string]uint64 `json:",omitempty"`
}

// Work is a run of requests of one verb, one after the other.
type Work struct {
	Verb  rocelink.Verb
	Bytes uint32
	// Count requests are posted, the frames of sequence Sequence on. A WRITE
	// goes to Address, Address+Stride and so on, modulo Slots.
	Count, Sequence uint32
	Pattern         pattern.Kind
	Address         uint64
	RKey            uint32
	Stride, Slots   uint32
	// Trailer: each WRITE is followed by that of the slot's trailer.
	Trailer bool `json:",omitempty"`
	// Depth is how many messages are outstanding.
	Depth int
}

// Done is how a Work ended.
type Done struct {
	// Completed is how many requests completed without error.
	Completed uint32
	// Status is the first that was not 0 (enum ibv_wc_status), in words too.
	Status     int
	StatusText string `json:",omitempty"`
	// Bad is the first READ whose content was wrong, -1 if none.
	Bad int64
	// Nanoseconds is from the first post to the last completion.
	Nanoseconds int64
}
