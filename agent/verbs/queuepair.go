package verbs

import (
	"net/netip"

	"rocelink/fpga/roce"
)

// State is the state of a queue pair (enum ibv_qp_state).
type State uint8

// States of a queue pair.
const (
	Reset State = iota
	Init
	ReadyToReceive
	ReadyToSend
	SendQueueDrained
	SendQueueError
	Error
)

// String returns the field's abbreviation.
func (s State) String() string {
	return [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "?"}[min(s, 7)]
}

// QPConfig shapes a reliable connected queue pair.
type QPConfig struct {
	// SendCQ and RecvCQ take the completions; they may be the same.
	SendCQ, RecvCQ CompletionQueue
	// MaxReceives is the depth of the receive queue. The receive completion
	// queue must have room for the receives of all its queue pairs, or
	// CreateQP fails.
	MaxReceives int
	// SRQ, if not nil, is where the queue pair takes its receives from; it is
	// of the same protection domain. MaxReceives is not used then, and the
	// receive completion queue needs room for the shared queue's, once.
	SRQ SharedReceiveQueue
	// MaxSends is the depth of the send queue; 0 for a queue pair that only
	// responds.
	MaxSends int
}

// PeerAttributes bring a queue pair from INIT to RTR.
type PeerAttributes struct {
	QPN     roce.QPN
	PSN     roce.PSN // first PSN the peer sends
	Address netip.Addr
	MAC     [6]byte
	MTU     roce.MTU
	// MinRNRTimer is the IBTA code (0..31) of the delay asked of a peer that
	// finds no receive. 0 is the longest, 655.36 ms.
	MinRNRTimer uint8
	// MaxReads is how many READ requests of the peer may be outstanding.
	MaxReads int
}

// ReceiveRequest is one receive. Length 0 is a receive without buffer, as
// RDMA WRITE with immediate consumes.
type ReceiveRequest struct {
	ID      uint64
	Address uint64
	Length  uint32
	LKey    uint32
}

// QueuePair is a reliable connected queue pair. PostReceive is called by one
// thread at a time, which may be another than the one that polls.
type QueuePair interface {
	QPN() roce.QPN
	State() State
	// Init goes from RESET to INIT; access is what the peer may do.
	Init(access Access) error
	// ReadyToReceive goes from INIT to RTR. Receives may be posted before.
	ReadyToReceive(PeerAttributes) error
	// ReadyToSend goes from RTR to RTS; psn is the first PSN sent.
	ReadyToSend(psn roce.PSN) error
	// SetError goes to ERR from any state; receives that are posted complete
	// with WorkRequestFlushed. Those of a shared queue stay there, but for one
	// that a message has taken; then comes EventLastWQE.
	SetError() error
	// PostReceive posts receives in order and says how many were taken. It
	// copies the requests. ErrFull: the queue took no more. ErrShared: the
	// queue pair has no queue of its own.
	PostReceive(rs []ReceiveRequest) (posted int, err error)
	Close() error
}
