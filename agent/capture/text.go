package capture

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// textPrinter writes a line a packet.
type textPrinter struct {
	w     io.Writer
	first time.Time
	begun bool
	line  []byte
}

func (t *textPrinter) header() error {
	_, err := fmt.Fprintf(t.w, "%12s %6s %15s > %-15s %-20s %-8s %8s %3s %5s %-9s %s\n",
		"TIME", "FRAME", "SOURCE", "DESTINATION", "OPCODE", "QPN", "PSN", "PAD", "LEN", "ICRC", "DETAILS")
	return err
}

func (t *textPrinter) print(p *Packet) error {
	if !t.begun {
		t.begun = true
		if err := t.header(); err != nil {
			return err
		}
	}
	if t.first.IsZero() {
		t.first = p.Time
	}
	at := "-"
	if !p.Time.IsZero() {
		d := p.Time.Sub(t.first)
		sign := ""
		if d < 0 {
			d, sign = -d, "-"
		}
		at = fmt.Sprintf("%s%d.%09d", sign, d/time.Second, d%time.Second)
	}
	h, b := &p.Transport, t.line[:0]
	src, dst := "?", "?"
	if p.Src.IsValid() {
		src, dst = p.Src.String(), p.Dst.String()
	}
	b = fmt.Appendf(b, "%12s %6d %15s > %-15s ", at, p.Frame, src, dst)
	if p.HasBTH {
		b = fmt.Appendf(b, "%-20v 0x%06x %8d %3d %5d %-9v", p.operation, uint32(h.DestQP), uint32(h.PSN), h.PadCount, p.PayloadLen, p.ICRC)
	} else {
		b = fmt.Appendf(b, "%-20s %-8s %8s %3s %5d %-9v", "?", "?", "?", "?", p.PayloadLen, p.ICRC)
	}
	if p.Service() == "UC" {
		b = append(b, " UC"...)
	}
	if p.HasExtended {
		if p.operation.HasRETH() {
			b = fmt.Appendf(b, " va 0x%x rkey 0x%x dma %d", h.RETH.Address, h.RETH.RKey, h.RETH.Length)
		}
		if p.operation.HasAETH() {
			b = fmt.Appendf(b, " %v msn %d", h.AETH.Syndrome, h.AETH.MSN)
		}
		if p.operation.HasImm() {
			b = fmt.Appendf(b, " imm %d", h.Imm)
		}
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{{h.AckReq, "ackreq"}, {h.SolicitedEvent, "solicited"}, {h.FECN, "fecn"}, {h.BECN, "becn"}, {p.HasBTH && !h.MigReq, "migreq 0"}} {
		if flag.set {
			b = append(append(b, ' '), flag.name...)
		}
	}
	for _, v := range p.VLANs {
		b = fmt.Appendf(b, " vlan %d", v)
	}
	if p.Segment > 0 {
		b = fmt.Appendf(b, " gso %d/%d", p.Segment, p.Segments)
	}
	b = t.remarks(b, p)
	t.line = append(bytes.TrimRight(b, " "), '\n')
	_, err := t.w.Write(t.line)
	return err
}

// remarks appends what is unusual about a packet.
func (t *textPrinter) remarks(b []byte, p *Packet) []byte {
	if p.Gap > 0 {
		b = fmt.Appendf(b, " [%d PSNs missing]", p.Gap)
	}
	switch {
	case p.OutOfOrder && p.Retransmission:
		b = append(b, " [retransmission or out of order]"...)
	case p.OutOfOrder:
		b = append(b, " [out of order]"...)
	case p.Retransmission:
		b = append(b, " [retransmission]"...)
	case p.Duplicate:
		b = append(b, " [duplicate]"...)
	}
	if p.Restart {
		b = append(b, " [PSN starts again]"...)
	}
	if p.note != "" {
		b = fmt.Appendf(b, " [%s]", p.note)
	}
	if p.fault != "" {
		b = fmt.Appendf(b, " [error: %s]", p.fault)
	}
	return b
}
