package capture

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"rocelink/fpga/roce"
)

// The JSON of a packet. Members that a script may rely on are always there;
// those that say something unusual, or that only some opcodes have, are left
// out otherwise. Numbers fit into a double; a virtual address would not and is
// text.
type jsonPacket struct {
	Frame          uint64    `json:"frame"`
	Time           string    `json:"time,omitempty"`
	Src            string    `json:"src"`
	Dst            string    `json:"dst"`
	SrcPort        uint16    `json:"src_port"`
	VLANs          []uint16  `json:"vlans,omitempty"`
	Segment        int       `json:"segment,omitempty"`
	Segments       int       `json:"segments,omitempty"`
	Opcode         string    `json:"opcode"`
	OpcodeValue    uint8     `json:"opcode_value"`
	Service        string    `json:"service,omitempty"` // RC or UC
	DestQPN        uint32    `json:"dest_qpn"`
	PSN            uint32    `json:"psn"`
	Pad            uint8     `json:"pad"`
	PayloadLen     int       `json:"payload_len"`
	AckReq         bool      `json:"ackreq"`
	Solicited      bool      `json:"solicited"`
	MigReq         bool      `json:"migreq"`
	PKey           uint16    `json:"pkey"`
	FECN           bool      `json:"fecn,omitempty"`
	BECN           bool      `json:"becn,omitempty"`
	Imm            *uint32   `json:"imm,omitempty"`
	RETH           *jsonRETH `json:"reth,omitempty"`
	AETH           *jsonAETH `json:"aeth,omitempty"`
	ICRC           string    `json:"icrc"`
	Gap            int       `json:"gap,omitempty"`
	Retransmission bool      `json:"retransmission,omitempty"`
	OutOfOrder     bool      `json:"out_of_order,omitempty"`
	Duplicate      bool      `json:"duplicate,omitempty"`
	Restart        bool      `json:"restart,omitempty"`
	Note           string    `json:"note,omitempty"`
	Error          string    `json:"error,omitempty"`
}

type jsonRETH struct {
	VA     string `json:"va"` // 0x and 16 hexadecimal digits
	RKey   uint32 `json:"rkey"`
	Length uint32 `json:"length"`
}

type jsonAETH struct {
	Syndrome uint8  `json:"syndrome"`
	Kind     string `json:"kind"` // ack, rnr, nak or reserved
	Text     string `json:"text"`
	MSN      uint32 `json:"msn"`
	Credits  *uint8 `json:"credits,omitempty"`  // ack with a credit count
	NakCode  *uint8 `json:"nak_code,omitempty"` // nak
	RNRTimer *uint8 `json:"rnr_timer,omitempty"`
}

// jsonPrinter writes an object a line.
type jsonPrinter struct {
	e    *json.Encoder
	line jsonPacket
	imm  uint32
	reth jsonRETH
	aeth jsonAETH
}

func newJSONPrinter(w io.Writer) *jsonPrinter {
	p := &jsonPrinter{e: json.NewEncoder(w)}
	p.e.SetEscapeHTML(false)
	return p
}

func (j *jsonPrinter) print(p *Packet) error {
	t := &p.Transport
	j.line = jsonPacket{
		Frame: p.Frame, SrcPort: p.SrcPort, VLANs: p.VLANs,
		Segment: p.Segment, Segments: p.Segments,
		Opcode: p.operation.String(), OpcodeValue: uint8(t.Opcode), Service: p.Service(), DestQPN: uint32(t.DestQP),
		PSN: uint32(t.PSN), Pad: t.PadCount, PayloadLen: p.PayloadLen,
		AckReq: t.AckReq, Solicited: t.SolicitedEvent, MigReq: t.MigReq, PKey: t.PKey,
		FECN: t.FECN, BECN: t.BECN, ICRC: p.ICRC.String(),
		Gap: p.Gap, Retransmission: p.Retransmission, OutOfOrder: p.OutOfOrder, Duplicate: p.Duplicate, Restart: p.Restart,
		Note: p.note, Error: p.fault,
	}
	l := &j.line
	if p.Src.IsValid() {
		l.Src, l.Dst = p.Src.String(), p.Dst.String()
	}
	if !p.HasBTH {
		l.Opcode = "" // 0 is an opcode
	}
	if !p.Time.IsZero() {
		l.Time = p.Time.Format(time.RFC3339Nano)
	}
	if p.HasExtended {
		if p.operation.HasImm() {
			j.imm = t.Imm
			l.Imm = &j.imm
		}
		if p.operation.HasRETH() {
			j.reth = jsonRETH{fmt.Sprintf("0x%016x", t.RETH.Address), t.RETH.RKey, t.RETH.Length}
			l.RETH = &j.reth
		}
		if p.operation.HasAETH() {
			j.aeth = describe(&t.AETH)
			l.AETH = &j.aeth
		}
	}
	return j.e.Encode(l)
}

func describe(h *roce.AETH) jsonAETH {
	s := h.Syndrome
	a := jsonAETH{Syndrome: uint8(s), Kind: "reserved", Text: s.String(), MSN: h.MSN}
	switch {
	case s.IsACK():
		a.Kind = "ack"
		if c := s.Credits(); c != roce.CreditsInvalid {
			a.Credits = &c
		}
	case s.IsRNR():
		c := s.RNRTimer()
		a.Kind, a.RNRTimer = "rnr", &c
	case s.IsNAK():
		c := uint8(s.NakCode())
		a.Kind, a.NakCode = "nak", &c
	}
	return a
}
