package capture

import (
	"fmt"

	"rocelink/fpga/roce"
)

// Congestion notification packets are no reliable connected service but belong
// to RoCE v2: a BTH and 16 reserved bytes (IBTA annex A17, "Congestion
// Notification Packet").
const (
	opcodeCNP  roce.Opcode = 0x81
	cnpDataLen int         = 16
)

// maxMessage is the longest message (IBTA chapter 9, "Message Size").
const maxMessage = 1 << 31

// transport decodes b, what is captured of a transport packet of n bytes.
// scratch has room for n. whole says that the packet is not a fragment or the
// like, so that its structure can be judged.
func (p *Packet) transport(b []byte, n int, scratch []byte, whole bool) {
	t := &p.Transport
	if len(b) < roce.BTHLen {
		if n < roce.BTHLen && whole {
			p.blame(faultMalformed, fmt.Sprintf("%d bytes are too short for a BTH", n))
		}
		return
	}
	full := b
	if len(b) < n {
		// Decode judges lengths, so it gets all of them.
		full = scratch[:n]
		clear(full[copy(full, b):])
	}
	op := roce.Opcode(full[0])
	p.operation = operationOf(op)
	err := decode(t, full)
	t.Payload = nil
	p.HasBTH = true
	headers := headerLen(p.operation)
	p.HasExtended = p.operation.Known() && t.Version == 0 && n >= headers+roce.ICRCLen && len(b) >= headers
	if !p.HasExtended {
		t.RETH, t.AETH, t.Imm = roce.RETH{}, roce.AETH{}, 0
	}
	padded := n - headers - roce.ICRCLen
	p.PayloadLen = max(0, padded-int(t.PadCount))
	if !whole {
		return
	}
	switch {
	case err != nil:
		p.refuse(err, n, padded)
	case p.HasExtended:
		p.examine()
	}
}

// The service of an opcode is in its upper three bits (IBTA, "Operation Code").
const (
	serviceMask         = 0xe0
	unreliableConnected = 0x20
)

// operationOf returns the reliable connected opcode that does what op does. SEND
// and WRITE look the same in the unreliable connected service, which package
// roce does not carry because no responder here answers it. What is on the wire
// is right all the same: boards send that way to hosts whose NIC takes it.
func operationOf(op roce.Opcode) roce.Opcode {
	if base := op &^ serviceMask; op&serviceMask == unreliableConnected && (base.IsSend() || base.IsWrite()) {
		return base
	}
	return op
}

// decode decodes a packet of either connected service.
func decode(p *roce.Packet, b []byte) error {
	op := roce.Opcode(b[0])
	b[0] = byte(operationOf(op))
	err := p.Decode(b)
	b[0] = byte(op)
	p.Opcode = op
	return err
}

// headerLen returns the length of the headers before the payload, those of
// services that package roce does not carry included.
func headerLen(op roce.Opcode) int {
	switch op {
	case roce.AtomicAcknowledge:
		return roce.BTHLen + roce.AETHLen + 8
	case roce.CompareSwap, roce.FetchAdd:
		return roce.BTHLen + 28
	case roce.SendLastInv, roce.SendOnlyInv:
		return roce.BTHLen + 4
	}
	return op.HeaderLen()
}

// refuse puts an error of [roce.Packet.Decode] into words.
func (p *Packet) refuse(err error, n, padded int) {
	t := &p.Transport
	text := err.Error()
	switch err {
	case roce.ErrShort:
		text = fmt.Sprintf("%d bytes are too short for the headers of %v and an ICRC", n, p.operation)
	case roce.ErrVersion:
		text = fmt.Sprintf("transport header version %d, want 0", t.Version)
	case roce.ErrOpcode:
		if t.Opcode == opcodeCNP && n == roce.BTHLen+cnpDataLen+roce.ICRCLen {
			p.note = "congestion notification (CNP)"
			return
		}
		text = fmt.Sprintf("opcode 0x%02x (%s) not supported", uint8(t.Opcode), service(t.Opcode))
	case roce.ErrPad:
		text = fmt.Sprintf("pad count %d impossible in %v with %d bytes after the headers", t.PadCount, p.operation, padded)
	case roce.ErrLength:
		switch {
		case padded&3 != 0:
			text = fmt.Sprintf("payload and pad of %d bytes are no whole words", padded)
		case p.PayloadLen > int(roce.MaxMTU):
			text = fmt.Sprintf("payload of %d bytes is more than the largest path MTU", p.PayloadLen)
		default:
			text = fmt.Sprintf("payload of %d bytes not allowed in %v", p.PayloadLen, p.operation)
		}
	}
	p.blame(faultMalformed, text)
}

// service names the transport service of an opcode (IBTA, "Operation Code").
func service(op roce.Opcode) string {
	switch op >> 5 {
	case 0:
		return "reliable connected"
	case 1:
		return "unreliable connected"
	case 2:
		return "reliable datagram"
	case 3:
		return "unreliable datagram"
	case 5:
		return "extended reliable connected"
	}
	return "reserved"
}

// examine looks for contradictions in a packet that is well formed by itself.
func (p *Packet) examine() {
	t := &p.Transport
	op := p.operation
	if (op.IsFirst() || op.IsMiddle()) && !roce.MTU(p.PayloadLen).Valid() {
		p.blame(faultMalformed, fmt.Sprintf("payload of %d bytes in %v is no path MTU", p.PayloadLen, op))
	}
	if op.HasRETH() {
		length := uint64(t.RETH.Length)
		switch {
		case length > maxMessage:
			p.blame(faultMalformed, fmt.Sprintf("RETH length %d is more than a message can have", length))
		case op.IsOnly() && length != uint64(p.PayloadLen):
			p.blame(faultMalformed, fmt.Sprintf("RETH length %d, but the payload of %v is %d", length, op, p.PayloadLen))
		case op.IsFirst() && length <= uint64(p.PayloadLen):
			p.blame(faultMalformed, fmt.Sprintf("RETH length %d, but %v carries %d and more is to follow", length, op, p.PayloadLen))
		}
	}
	if s := t.AETH.Syndrome; op.HasAETH() && !s.IsACK() && !s.IsRNR() && !s.IsNAK() {
		p.blame(faultMalformed, fmt.Sprintf("reserved AETH syndrome 0x%02x", uint8(s)))
	}
}
