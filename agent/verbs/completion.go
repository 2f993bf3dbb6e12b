package verbs

import (
	"encoding/binary"
	"fmt"
	"time"
)

// CompletionQueue holds work completions until they are polled. Poll, Arm and
// Wait are called by one thread at a time.
type CompletionQueue interface {
	// Poll moves up to len(wcs) completions into wcs and says how many. It
	// does not wait. ErrOverrun is final.
	Poll(wcs []WorkCompletion) (int, error)
	// Arm asks for one notification at the next completion. A completion that
	// came before Arm gives none: poll once more after it.
	Arm() error
	// Wait sleeps until a notification, Wake or the timeout. An interrupted
	// system call is not an error.
	Wait(timeout time.Duration) (notified bool, err error)
	// Wake ends a Wait; it may be called from any goroutine.
	Wake()
	Depth() int
	// Close fails with ErrBusy while a queue pair uses the queue.
	Close() error
}

// ReceiveQueue takes receives: a QueuePair or a SharedReceiveQueue.
type ReceiveQueue interface {
	PostReceive(rs []ReceiveRequest) (posted int, err error)
}

// PostPoller is a CompletionQueue that saves a call where each is dear.
type PostPoller interface {
	// PostPoll is PostReceive on a queue of the same device, and then, whether
	// that failed or not, Poll. The rules of both apply.
	PostPoll(to ReceiveQueue, rs []ReceiveRequest, wcs []WorkCompletion) (posted int, postErr error, found int, err error)
}

// WorkCompletion says how a work request ended. If Status is not Success only
// ID, Status, QPN and VendorError mean anything, and ID may be rubbish on some
// devices: check it before use.
//
// It is struct ibv_wc of libibverbs, member by member, so that a driver writes
// into the caller's array and nothing is copied.
type WorkCompletion struct {
	ID          uint64
	Status      Status
	Opcode      Opcode
	VendorError uint32
	ByteLen     uint32    // bytes received; some devices say 0 for RecvRDMAWithImm
	Imm         Immediate // valid with WithImm
	QPN         uint32
	_           uint32 // src_qp, of datagrams
	Flags       CompletionFlags
	_           [8]byte // P_Key index and addresses, of datagrams
}

// Immediate is the word that comes with a message, as it is in the packet.
type Immediate [4]byte

// ImmediateOf is the immediate of a number.
func ImmediateOf(v uint32) (i Immediate) {
	binary.BigEndian.PutUint32(i[:], v)
	return i
}

// Uint32 is the number.
func (i Immediate) Uint32() uint32 { return binary.BigEndian.Uint32(i[:]) }

// CompletionFlags tell which fields of a completion are valid.
type CompletionFlags uint32

// WithImm: Imm is valid.
const WithImm CompletionFlags = 1 << 1 // IBV_WC_WITH_IMM

// Opcode is the kind of work that completed (enum ibv_wc_opcode).
type Opcode uint32

// Opcodes of work completions.
const (
	OpSend            Opcode = 0
	OpRDMAWrite       Opcode = 1
	OpRDMARead        Opcode = 2
	OpRecv            Opcode = 1 << 7
	OpRecvRDMAWithImm Opcode = 1<<7 + 1
)

// String returns the name of the opcode.
func (o Opcode) String() string {
	switch o {
	case OpSend:
		return "SEND"
	case OpRDMAWrite:
		return "RDMA_WRITE"
	case OpRDMARead:
		return "RDMA_READ"
	case OpRecv:
		return "RECV"
	case OpRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return fmt.Sprintf("opcode %d", uint32(o))
}

// Status is how a work request ended (enum ibv_wc_status).
type Status uint32

// Statuses of work completions, in the order of enum ibv_wc_status.
const (
	Success Status = iota
	LocalLengthError
	LocalQPOperationError
	LocalEECOperationError
	LocalProtectionError
	WorkRequestFlushed
	MemoryWindowBindError
	BadResponse
	LocalAccessError
	RemoteInvalidRequest
	RemoteAccessError
	RemoteOperationError
	RetryExceeded
	RNRRetryExceeded
	LocalRDDViolation
	RemoteInvalidRDRequest
	RemoteAborted
	InvalidEECN
	InvalidEECState
	FatalError
	ResponseTimeout
	GeneralError
	TagMatchingError
	TagMatchingIncomplete

	// Statuses is how many there are: the length of an array indexed by Status.
	Statuses = iota
)

var statusNames = [Statuses]struct{ name, remedy string }{
	{"success", ""},
	{"local length error", "the message is longer than the receive buffer: make the slots as large as the largest frame"},
	{"local QP operation error", "the message is longer than the receive buffer (rdma_rxe says so by this status): make the slots as large as the largest frame; otherwise report this as a bug"},
	{"local EEC operation error", ""},
	{"local protection error", "a receive names memory outside its region or with the wrong lkey: report this as a bug"},
	{"flushed", "the queue pair went to error before this receive was used; look for the first error"},
	{"memory window bind error", ""},
	{"bad response", "the peer answered what was not asked: check that both sides were set up in the same session"},
	{"local access error", "a remote WRITE or READ named memory outside the region or not permitted: check address, rkey and length given to the board"},
	{"remote invalid request", "the peer does not support the request or the message is too long for it"},
	{"remote access error", "the peer refused address, rkey or permission: open the stream again"},
	{"remote operation error", "the peer could not complete the request: look at its log"},
	{"retry exceeded", "the peer does not answer: check link, addresses, and that its queue pair is ready"},
	{"RNR retry exceeded", "the peer has no receive posted: its consumer is too slow"},
	{"local RDD violation", ""},
	{"remote invalid RD request", ""},
	{"remote aborted", "the peer aborted the operation"},
	{"invalid EECN", ""},
	{"invalid EEC state", ""},
	{"fatal error", "the device failed: see the kernel log"},
	{"response timeout", "the peer does not answer"},
	{"general error", "see vendor error and the kernel log"},
	{"tag matching error", ""},
	{"tag matching incomplete", ""},
}

// String returns the name of the status.
func (s Status) String() string {
	if s < Statuses {
		return statusNames[s].name
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// Remedy says what to do about the status; "" when nothing general helps.
func (s Status) Remedy() string {
	if s < Statuses {
		return statusNames[s].remedy
	}
	return ""
}
