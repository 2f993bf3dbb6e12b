package rocelink

import (
	"errors"
	"fmt"
	"strings"
)

// Endpoints of a board's micro service.
const (
	EndpointOpen         = "open"          // OpenRequest → OpenReply
	EndpointStart        = "start"         // SessionRequest → StreamStatus
	EndpointStop         = "stop"          // SessionRequest → StreamStatus
	EndpointRenew        = "renew"         // SessionRequest → StreamStatus
	EndpointClose        = "close"         // SessionRequest → StreamStatus; idempotent
	EndpointStatus       = "status"        // empty → BoardStatus, sampled now
	EndpointReset        = "reset"         // ResetRequest → BoardStatus: closes all streams, resets fabric and link
	EndpointReadRegister = "read-register" // RegisterRequest → RegisterReply
	EndpointModule       = "module"        // ModuleRequest → ModuleReply

	// For operators only.
	EndpointWriteRegister = "write-register" // RegisterRequest → RegisterReply, the value read back
	EndpointPower         = "power"          // PowerRequest → PowerReply: reboot or power off
	EndpointUpdateBegin   = "update-begin"   // UpdateRequest → UpdateReply: a new image, see there
	EndpointUpdateWrite   = "update-write"   // bytes → UpdateReply
	EndpointUpdateFinish  = "update-finish"  // UpdateStep → UpdateReply
	EndpointUpdateAbort   = "update-abort"   // UpdateStep → UpdateReply
)

// Endpoints by who may call them: an agent those it runs streams with, an
// operator all of them.
var (
	AgentEndpoints    = []string{EndpointOpen, EndpointStart, EndpointStop, EndpointRenew, EndpointClose, EndpointStatus}
	OperatorEndpoints = []string{
		EndpointReset, EndpointReadRegister, EndpointModule, EndpointWriteRegister, EndpointPower,
		EndpointUpdateBegin, EndpointUpdateWrite, EndpointUpdateFinish, EndpointUpdateAbort,
	}
)

// Verb is how frames travel.
type Verb string

// The verbs. The board is always the requester.
const (
	VerbSend     Verb = "send"
	VerbSendImm  Verb = "send-imm"
	VerbWrite    Verb = "write"
	VerbWriteImm Verb = "write-imm"
	VerbRead     Verb = "read"
)

// Verbs lists every verb.
var Verbs = []Verb{VerbSend, VerbSendImm, VerbWrite, VerbWriteImm, VerbRead}

// Valid reports whether v is one of Verbs.
func (v Verb) Valid() bool {
	for _, k := range Verbs {
		if v == k {
			return true
		}
	}
	return false
}

// Ring reports whether the verb works on a ring of slots at fixed addresses.
func (v Verb) Ring() bool { return v == VerbWrite || v == VerbWriteImm || v == VerbRead }

// TrailerBytes is the length of the trailer that follows a frame of VerbWrite
// in the last bytes of its slot: frame length (32 bits), 0 (32 bits), frame
// sequence + 1 (64 bits), little-endian (fpga/regs, stream engine).
const TrailerBytes = 16

// Region is the host memory of a stream.
type Region struct {
	Address    Count  `json:"address"`     // of slot 0
	RKey       uint32 `json:"rkey"`        // remote key of the region
	Slots      uint32 `json:"slots"`       // receives for SEND, ring slots otherwise
	Stride     uint32 `json:"stride"`      // bytes from slot to slot
	FrameBytes uint32 `json:"frame_bytes"` // largest frame
	// Credit is the address of a 64-bit little-endian word in the region where
	// the host keeps the number of frames it released (VerbWrite); 0: none,
	// slots are overwritten.
	Credit Count `json:"credit,omitempty"`
}

// MaxRegion is the first region size in bytes that is refused (fabric
// addresses within a region are 32-bit).
const MaxRegion = 4 << 30

// Source is where a stream's frames come from.
type Source struct {
	// Kind is "counter" or "prbs31" (the fabric's traffic generator) or
	// "external" (what is connected to the fabric).
	Kind string `json:"kind"`
	// CRC: the last 4 bytes of each frame are the CRC-32 of those before.
	CRC bool `json:"crc,omitempty"`
	// RateKbps is the payload rate; 0 is as fast as the path takes.
	RateKbps uint32 `json:"rate_kbps,omitempty"`
	// Burst is how many frames go back to back before the rate is applied.
	Burst uint32 `json:"burst,omitempty"`
	// Count ends the generator after so many frames; 0 never.
	Count Count `json:"count,omitempty"`
}

// Sources of frames.
const (
	SourceCounter  = "counter"
	SourcePRBS31   = "prbs31"
	SourceExternal = "external"
)

// OpenRequest asks a board to set up a stream. The host's queue pair exists
// and its receives are posted.
type OpenRequest struct {
	Version int    `json:"version"` // of the contract
	Host    string `json:"host"`    // name of the agent
	Stream  string `json:"stream"`  // name the agent gave the stream
	Verb    Verb   `json:"verb"`    // send, send-imm, write, write-imm or read
	QPN     uint32 `json:"qpn"`     // queue pair number, 24 bits
	PSN     uint32 `json:"psn"`     // first PSN the host would send
	Address string `json:"address"` // IP address of the port
	MAC     string `json:"mac"`     // MAC of the port
	MTU     int    `json:"mtu"`     // path MTU the port carries, bytes
	Region  Region `json:"region"`  // where frames go
	Source  Source `json:"source"`  // where frames come from
	// LeaseMillis is how long the board keeps the stream without a renewal;
	// 0 is DefaultLeaseMillis.
	LeaseMillis int `json:"lease_ms,omitempty"`
	// Timeout, RetryCount and RNRRetry are the IBTA codes of the requester;
	// absent means the defaults below.
	Timeout    *int `json:"timeout,omitempty"`
	RetryCount *int `json:"retry_count,omitempty"`
	RNRRetry   *int `json:"rnr_retry,omitempty"`
	// Window is the most unacknowledged packets; 0 lets the board choose.
	Window int `json:"window,omitempty"`
}

// Defaults and bounds of an OpenRequest.
const (
	DefaultLeaseMillis = 5000
	MinLeaseMillis     = 500
	MaxLeaseMillis     = 600_000
	DefaultTimeout     = 14 // 67.1 ms
	DefaultRetryCount  = 7
	DefaultRNRRetry    = 7 // for ever
	MaxFrameBytes      = 1 << 30
	MaxNameBytes       = 64
)

// OpenReply is the board's half of the set-up.
type OpenReply struct {
	Version int    `json:"version"` // of the contract
	Session Count  `json:"session"` // number the board gave at open
	Epoch   Count  `json:"epoch"`   // changes when the board restarts
	QPN     uint32 `json:"qpn"`     // queue pair number, 24 bits
	PSN     uint32 `json:"psn"`     // first PSN the board will send
	MTU     int    `json:"mtu"`     // the smaller of both sides
	Address string `json:"address"` // IP address of the port
	MAC     string `json:"mac"`     // MAC of the port
	// LeaseMillis is the lease the board grants; it also bounds the time from
	// this reply to the start request.
	LeaseMillis int `json:"lease_ms"`
}

// SessionRequest names an open stream.
type SessionRequest struct {
	Version int   `json:"version"` // of the contract
	Session Count `json:"session"` // number the board gave at open
	Epoch   Count `json:"epoch"`   // random number of this start of the program
	// Ready is set by start: the host's queue pair is ready to receive.
	Ready bool `json:"ready,omitempty"`
}

// ResetRequest asks the board to close every stream and set fabric and link up
// again.
type ResetRequest struct {
	Version int    `json:"version"`          // of the contract
	Reason  string `json:"reason,omitempty"` // for the log
}

// RegisterRequest reads or writes one register by the block and name of the
// register table ("Core", "Version"). Only registers without read side effects
// can be read, only plain read-write registers written.
type RegisterRequest struct {
	Version  int    `json:"version"`         // of the contract
	Block    string `json:"block"`           // of the register table
	Register string `json:"register"`        // its name
	Value    *Count `json:"value,omitempty"` // to write; absent when reading
}

// RegisterReply is the value of a register.
type RegisterReply struct {
	Version int    `json:"version"`  // of the contract
	Block   string `json:"block"`    // of the register table
	Name    string `json:"register"` // its name
	Offset  uint32 `json:"offset"`   // in its block
	Value   Count  `json:"value"`    // 32 or 64 bits
}

// ModuleRequest asks for the memory of the module in a cage.
type ModuleRequest struct {
	Version int    `json:"version"` // of the contract
	Cage    string `json:"cage"`    // name in the board description
}

// ModuleReply is a module's memory as it was read last; a decoder on the other
// side tells what it means.
type ModuleReply struct {
	Version     int             `json:"version"`               // of the contract
	State       Module          `json:"state"`                 // of the cage
	Lower       []byte          `json:"lower,omitempty"`       // lower memory; of an SFP bytes 0-127 at A0h
	Upper       map[byte][]byte `json:"upper,omitempty"`       // upper pages by number
	Diagnostics []byte          `json:"diagnostics,omitempty"` // of an SFP, A2h
}

// PowerRequest restarts the board or switches it off. Streams are closed first.
type PowerRequest struct {
	Version int    `json:"version"` // of the contract
	Action  string `json:"action"`  // reboot or power-off
	Reason  string `json:"reason,omitempty"`
}

// Actions of a PowerRequest.
const (
	PowerReboot = "reboot"
	PowerOff    = "power-off"
)

// PowerReply says that the board will do it.
type PowerReply struct {
	Version int    `json:"version"` // of the contract
	Action  string `json:"action"`  // reboot or power-off
}

// UpdateRequest begins the transfer of a boot image into the slot that does not
// run. update-write takes its bytes in order, raw, at most UpdateReply.Piece at
// a time, with the headers UpdateHeader and OffsetHeader; update-finish checks
// length, hash and signature and only then makes the board try the image at its
// next start.
type UpdateRequest struct {
	Version   int    `json:"version"`   // of the contract
	Size      Count  `json:"size"`      // of the image, bytes
	SHA256    []byte `json:"sha256"`    // of the image
	Signature []byte `json:"signature"` // ed25519 over the image (images/fit)
	Build     string `json:"build"`     // identifier, for people
}

// UpdateStep names a transfer that has begun.
type UpdateStep struct {
	Version int   `json:"version"` // of the contract
	Update  Count `json:"update"`  // number the board gave it
}

// UpdateReply is where a transfer stands.
type UpdateReply struct {
	Version int    `json:"version"`         // of the contract
	Update  Count  `json:"update"`          // number of the transfer
	Slot    string `json:"slot"`            // it goes to: a or b
	Offset  Count  `json:"offset"`          // bytes taken so far
	Piece   int    `json:"piece"`           // most bytes of one update-write
	Ready   bool   `json:"ready,omitempty"` // verified; the next start tries it
}

// Headers of update-write.
const (
	UpdateHeader = "Rocelink-Update" // number of the transfer
	OffsetHeader = "Rocelink-Offset" // of the first byte
)

// Code is why a board refused a request; it travels as the error code of the
// micro service.
type Code string

// The codes.
const (
	CodeBadRequest  Code = "bad-request"    // a setting is out of range; the text names it
	CodeUnknown     Code = "unknown-stream" // no such session here
	CodeOldEpoch    Code = "old-epoch"      // the board restarted since: open again
	CodeNotReady    Code = "not-ready"      // start before the host is ready, or too long after open
	CodeState       Code = "wrong-state"    // the stream's state does not allow it
	CodeBusy        Code = "busy"           // no free queue pair, or the external source is taken
	CodeNoFabric    Code = "no-fabric"      // fabric missing or incompatible
	CodeLinkDown    Code = "link-down"      // the MAC is not up
	CodeUnsupported Code = "unsupported"    // this board or fabric cannot do that
	CodeFailed      Code = "failed"         // the fabric refused or did not answer
)

// Error is a refusal as it crosses the wire.
type Error struct {
	Code Code
	Text string
}

// Error returns the text and the code.
func (e *Error) Error() string { return e.Text + " (" + string(e.Code) + ")" }

// Refuse makes an Error.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of an error that is or wraps an *Error, else "".
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// CheckName checks a board, host or stream name: 1 to MaxNameBytes bytes of
// printable text.
func CheckName(what, name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return Refuse(CodeBadRequest, "%s name %.80q has %d bytes: give 1 to %d", what, name, len(name), MaxNameBytes)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7F || r == '�' }); i >= 0 {
		return Refuse(CodeBadRequest, "%s name %q: byte %d is not printable text", what, name, i)
	}
	return nil
}
