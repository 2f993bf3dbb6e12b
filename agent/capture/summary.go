package capture

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"rocelink/fpga/roce"
)

// Summary is what a whole capture held.
type Summary struct {
	Frames          uint64 // all of them
	Packets         uint64 // RoCE v2
	Other           uint64 // frames of other protocols and ports
	CutShort        uint64 // frames cut by the capture before the UDP port
	Unreadable      uint64 // frames whose IP header leads nowhere
	UnknownLink     uint64 // frames of a link type that is not read
	UnknownLinkType uint16 // the first such
	BadICRC         uint64
	Unchecked       uint64 // packets whose ICRC could not be checked
	Malformed       uint64
	Cut             uint64 // packets cut by the capture
	Fragments       uint64 // IP fragments of RoCE v2 packets
	Segmented       uint64 // datagrams that held several packets (UDP GSO)
	First, Last     time.Time
	Opcodes         [256]uint64 // packets by opcode
	Flows           []Flow      // in order of appearance
	// Beyond counts packets of flows that the table had no room for.
	Beyond uint64
}

// count takes a packet in.
func (s *Summary) count(p *Packet) {
	s.Packets++
	if p.HasBTH {
		s.Opcodes[p.Transport.Opcode]++
	}
	switch p.ICRC {
	case ICRCBad:
		s.BadICRC++
	case ICRCUnchecked:
		s.Unchecked++
	}
	if p.faults&faultMalformed != 0 {
		s.Malformed++
	}
	if p.faults&faultCut != 0 {
		s.Cut++
	}
	if p.faults&faultFragment != 0 {
		s.Fragments++
	}
	if p.Segment == 1 {
		s.Segmented++
	}
	if !p.Time.IsZero() {
		if s.First.IsZero() {
			s.First = p.Time
		}
		s.Last = p.Time
	}
}

// Text writes the summary for people.
func (s *Summary) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	span := s.Last.Sub(s.First)
	fmt.Fprintf(t, "\n%d frames, %d RoCE v2 packets in %v: %d with bad ICRC, %d unchecked, %d malformed, %d cut, %d IP fragments\n",
		s.Frames, s.Packets, span, s.BadICRC, s.Unchecked, s.Malformed, s.Cut, s.Fragments)
	if n := s.Other + s.CutShort + s.Unreadable + s.UnknownLink; n > 0 {
		fmt.Fprintf(t, "%d frames left out: %d of other protocols or ports, %d cut before the UDP port, %d with an unreadable IP header, %d of an unknown link type",
			n, s.Other, s.CutShort, s.Unreadable, s.UnknownLink)
		if s.UnknownLink > 0 {
			fmt.Fprintf(t, " (%d)", s.UnknownLinkType)
		}
		fmt.Fprintln(t)
	}
	if s.Segmented > 0 {
		fmt.Fprintf(t, "%d UDP datagrams held several packets (UDP GSO)\n", s.Segmented)
	}
	if s.Packets > 0 {
		fmt.Fprint(t, "\nPACKETS\t OPCODE\n")
		for op, n := range s.Opcodes {
			if n > 0 {
				name := operationOf(roce.Opcode(op)).String()
				if op&serviceMask == unreliableConnected {
					name += " UC"
				}
				fmt.Fprintf(t, "%d\t %s\n", n, name)
			}
		}
	}
	if len(s.Flows) > 0 {
		fmt.Fprint(t, "\nFLOW\tQPN\tPACKETS\tBYTES\tMISSING\tGAPS\tRECOVERED\tRETX\tOOO\tDUP\tRESTARTS\tACK\tRNR\tNAK\tBAD-ICRC\tMALFORMED\t\n")
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		fmt.Fprintf(t, "%v > %v\t0x%06x\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n",
			f.Src, f.Dst, uint32(f.DestQP), f.Packets, f.PayloadBytes, f.Missing, f.Gaps, f.Recovered,
			f.Retransmissions, f.OutOfOrder, f.Duplicates, f.Restarts, f.ACKs, f.RNRs, f.NAKs, f.BadICRC, f.Malformed)
	}
	if s.Beyond > 0 {
		fmt.Fprintf(t, "%d packets of further flows, not told apart: the table holds %d\n", s.Beyond, len(s.Flows))
	}
	return t.Flush()
}

type jsonFlow struct {
	Src             string `json:"src"`
	Dst             string `json:"dst"`
	DestQPN         uint32 `json:"dest_qpn"`
	Packets         uint64 `json:"packets"`
	PayloadBytes    uint64 `json:"payload_bytes"`
	Gaps            uint64 `json:"gaps"`
	Missing         uint64 `json:"missing"`
	Recovered       uint64 `json:"recovered"`
	Retransmissions uint64 `json:"retransmissions"`
	OutOfOrder      uint64 `json:"out_of_order"`
	Duplicates      uint64 `json:"duplicates"`
	Restarts        uint64 `json:"restarts"`
	ACKs            uint64 `json:"acks"`
	RNRs            uint64 `json:"rnrs"`
	NAKs            uint64 `json:"naks"`
	BadICRC         uint64 `json:"bad_icrc"`
	Malformed       uint64 `json:"malformed"`
}

type jsonSummary struct {
	Frames      uint64            `json:"frames"`
	Packets     uint64            `json:"packets"`
	Other       uint64            `json:"other"`
	CutShort    uint64            `json:"cut_short"`
	Unreadable  uint64            `json:"unreadable"`
	UnknownLink uint64            `json:"unknown_link"`
	BadICRC     uint64            `json:"bad_icrc"`
	Unchecked   uint64            `json:"unchecked"`
	Malformed   uint64            `json:"malformed"`
	Cut         uint64            `json:"cut"`
	Fragments   uint64            `json:"fragments"`
	Segmented   uint64            `json:"segmented"`
	Seconds     float64           `json:"seconds"`
	Opcodes     map[string]uint64 `json:"opcodes"`
	Flows       []jsonFlow        `json:"flows"`
	Beyond      uint64            `json:"beyond"`
}

// JSON writes the summary as one object with the single member "summary".
func (s *Summary) JSON(w io.Writer) error {
	j := jsonSummary{
		Frames: s.Frames, Packets: s.Packets, Other: s.Other, CutShort: s.CutShort,
		Unreadable: s.Unreadable, UnknownLink: s.UnknownLink, BadICRC: s.BadICRC,
		Unchecked: s.Unchecked, Malformed: s.Malformed, Cut: s.Cut, Fragments: s.Fragments,
		Segmented: s.Segmented, Seconds: s.Last.Sub(s.First).Seconds(),
		Opcodes: map[string]uint64{}, Flows: []jsonFlow{}, Beyond: s.Beyond,
	}
	for op, n := range s.Opcodes {
		if n > 0 {
			j.Opcodes[operationOf(roce.Opcode(op)).String()] += n // of both services
		}
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		j.Flows = append(j.Flows, jsonFlow{
			f.Src.String(), f.Dst.String(), uint32(f.DestQP), f.Packets, f.PayloadBytes,
			f.Gaps, f.Missing, f.Recovered, f.Retransmissions, f.OutOfOrder, f.Duplicates, f.Restarts,
			f.ACKs, f.RNRs, f.NAKs, f.BadICRC, f.Malformed,
		})
	}
	return json.NewEncoder(w).Encode(struct {
		Summary jsonSummary `json:"summary"`
	}{j})
}
