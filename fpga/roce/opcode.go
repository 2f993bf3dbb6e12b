package roce

import "fmt"

// Opcode is the first byte of the base transport header: service in the upper
// three bits, operation in the lower five (IBTA, "Operation Code"). This package carries
// the reliable connected service, whose upper bits are 0.
type Opcode uint8

// The operations of the reliable connected service.
const (
	SendFirst          Opcode = 0x00
	SendMiddle         Opcode = 0x01
	SendLast           Opcode = 0x02
	SendLastImm        Opcode = 0x03
	SendOnly           Opcode = 0x04
	SendOnlyImm        Opcode = 0x05
	WriteFirst         Opcode = 0x06
	WriteMiddle        Opcode = 0x07
	WriteLast          Opcode = 0x08
	WriteLastImm       Opcode = 0x09
	WriteOnly          Opcode = 0x0a
	WriteOnlyImm       Opcode = 0x0b
	ReadRequest        Opcode = 0x0c
	ReadResponseFirst  Opcode = 0x0d
	ReadResponseMiddle Opcode = 0x0e
	ReadResponseLast   Opcode = 0x0f
	ReadResponseOnly   Opcode = 0x10
	Acknowledge        Opcode = 0x11

	// Named so that a decoder can say what it refuses; not carried.
	AtomicAcknowledge Opcode = 0x12
	CompareSwap       Opcode = 0x13
	FetchAdd          Opcode = 0x14
	SendLastInv       Opcode = 0x16
	SendOnlyInv       Opcode = 0x17
)

// What an opcode means.
const (
	opKnown uint16 = 1 << iota
	opRETH
	opAETH
	opImm
	opSend
	opWrite
	opReadResponse
	opRequest
	opFirst
	opMiddle
	opLast
	opOnly
	opNoPayload
)

var opFlags = [256]uint16{
	SendFirst:          opKnown | opSend | opRequest | opFirst,
	SendMiddle:         opKnown | opSend | opRequest | opMiddle,
	SendLast:           opKnown | opSend | opRequest | opLast,
	SendLastImm:        opKnown | opSend | opRequest | opLast | opImm,
	SendOnly:           opKnown | opSend | opRequest | opOnly,
	SendOnlyImm:        opKnown | opSend | opRequest | opOnly | opImm,
	WriteFirst:         opKnown | opWrite | opRequest | opFirst | opRETH,
	WriteMiddle:        opKnown | opWrite | opRequest | opMiddle,
	WriteLast:          opKnown | opWrite | opRequest | opLast,
	WriteLastImm:       opKnown | opWrite | opRequest | opLast | opImm,
	WriteOnly:          opKnown | opWrite | opRequest | opOnly | opRETH,
	WriteOnlyImm:       opKnown | opWrite | opRequest | opOnly | opRETH | opImm,
	ReadRequest:        opKnown | opRequest | opRETH | opNoPayload,
	ReadResponseFirst:  opKnown | opReadResponse | opFirst | opAETH,
	ReadResponseMiddle: opKnown | opReadResponse | opMiddle,
	ReadResponseLast:   opKnown | opReadResponse | opLast | opAETH,
	ReadResponseOnly:   opKnown | opReadResponse | opOnly | opAETH,
	Acknowledge:        opKnown | opAETH | opNoPayload,
}

var opNames = [...]string{
	SendFirst:          "SEND_FIRST",
	SendMiddle:         "SEND_MIDDLE",
	SendLast:           "SEND_LAST",
	SendLastImm:        "SEND_LAST_IMM",
	SendOnly:           "SEND_ONLY",
	SendOnlyImm:        "SEND_ONLY_IMM",
	WriteFirst:         "WRITE_FIRST",
	WriteMiddle:        "WRITE_MIDDLE",
	WriteLast:          "WRITE_LAST",
	WriteLastImm:       "WRITE_LAST_IMM",
	WriteOnly:          "WRITE_ONLY",
	WriteOnlyImm:       "WRITE_ONLY_IMM",
	ReadRequest:        "READ_REQUEST",
	ReadResponseFirst:  "READ_RESPONSE_FIRST",
	ReadResponseMiddle: "READ_RESPONSE_MIDDLE",
	ReadResponseLast:   "READ_RESPONSE_LAST",
	ReadResponseOnly:   "READ_RESPONSE_ONLY",
	Acknowledge:        "ACKNOWLEDGE",
	AtomicAcknowledge:  "ATOMIC_ACKNOWLEDGE",
	CompareSwap:        "COMPARE_SWAP",
	FetchAdd:           "FETCH_ADD",
	SendLastInv:        "SEND_LAST_INV",
	SendOnlyInv:        "SEND_ONLY_INV",
}

// String returns the operation's name, or OPCODE_0x.. for one without.
func (o Opcode) String() string {
	if int(o) < len(opNames) && opNames[o] != "" {
		return opNames[o]
	}
	return fmt.Sprintf("OPCODE_0x%02x", uint8(o))
}

func (o Opcode) has(f uint16) bool { return opFlags[o]&f != 0 }

// Known reports whether a [Packet] can carry o. Atomics and SEND with
// invalidate have names but are not known; every predicate below is false for
// them.
func (o Opcode) Known() bool { return o.has(opKnown) }

// HasRETH reports whether an RDMA extended transport header follows the BTH.
func (o Opcode) HasRETH() bool { return o.has(opRETH) }

// HasAETH reports whether an ACK extended transport header follows the BTH.
func (o Opcode) HasAETH() bool { return o.has(opAETH) }

// HasImm reports whether immediate data precedes the payload.
func (o Opcode) HasImm() bool { return o.has(opImm) }

// HasPayload reports whether o may carry a payload: all but READ_REQUEST and
// ACKNOWLEDGE.
func (o Opcode) HasPayload() bool { return opFlags[o]&(opKnown|opNoPayload) == opKnown }

// IsSend reports whether o is part of a SEND.
func (o Opcode) IsSend() bool { return o.has(opSend) }

// IsWrite reports whether o is part of an RDMA WRITE.
func (o Opcode) IsWrite() bool { return o.has(opWrite) }

// IsReadResponse reports whether o is part of the answer to a READ.
func (o Opcode) IsReadResponse() bool { return o.has(opReadResponse) }

// IsRequest reports whether o goes from requester to responder.
func (o Opcode) IsRequest() bool { return o.has(opRequest) }

// IsFirst reports whether o is the first of several packets of a message.
func (o Opcode) IsFirst() bool { return o.has(opFirst) }

// IsMiddle reports whether o is neither the first nor the last of several.
func (o Opcode) IsMiddle() bool { return o.has(opMiddle) }

// IsLast reports whether o is the last of several.
func (o Opcode) IsLast() bool { return o.has(opLast) }

// IsOnly reports whether o is a whole message of its own: a SEND, a WRITE or a
// READ response. READ_REQUEST and ACKNOWLEDGE have no position: all of these
// are false for them.
func (o Opcode) IsOnly() bool { return o.has(opOnly) }

// Starts reports whether o begins a message: first or only.
func (o Opcode) Starts() bool { return o.has(opFirst | opOnly) }

// Ends reports whether o completes a message: last or only.
func (o Opcode) Ends() bool { return o.has(opLast | opOnly) }

// HeaderLen returns the bytes of transport headers of o before the payload:
// BTH, RETH or AETH, immediate data.
func (o Opcode) HeaderLen() int { return int(opHeaderLen[o]) }

var opHeaderLen = func() (t [256]uint8) {
	for o := range t {
		op := Opcode(o)
		t[o] = BTHLen
		if op.HasRETH() {
			t[o] += RETHLen
		}
		if op.HasAETH() {
			t[o] += AETHLen
		}
		if op.HasImm() {
			t[o] += ImmLen
		}
	}
	return t
}()

// InMessage returns the opcode of one packet of a message whose opcode as a
// single packet is o: SendOnly, SendOnlyImm, WriteOnly, WriteOnlyImm or
// ReadResponseOnly. Any other opcode is returned as it is.
func (o Opcode) InMessage(first, last bool) Opcode {
	if first && last {
		return o
	}
	var f, m, l Opcode
	switch o {
	case SendOnly:
		f, m, l = SendFirst, SendMiddle, SendLast
	case SendOnlyImm:
		f, m, l = SendFirst, SendMiddle, SendLastImm
	case WriteOnly:
		f, m, l = WriteFirst, WriteMiddle, WriteLast
	case WriteOnlyImm:
		f, m, l = WriteFirst, WriteMiddle, WriteLastImm
	case ReadResponseOnly:
		f, m, l = ReadResponseFirst, ReadResponseMiddle, ReadResponseLast
	default:
		return o
	}
	switch {
	case first:
		return f
	case last:
		return l
	}
	return m
}
