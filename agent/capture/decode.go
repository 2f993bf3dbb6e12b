package capture

import (
	"bufio"
	"fmt"
	"io"

	"rocelink/fpga/roce"
)

// Options says how [Decode] writes. The zero value is text.
type Options struct {
	// JSON writes an object a line for each packet and nothing else, for
	// scripts.
	JSON bool
	// Summary ends JSON output with one more object, {"summary": ...}. Text
	// always ends with a summary.
	Summary bool
	// MaxFlows bounds how many flows are told apart; 0 is DefaultMaxFlows.
	// Packets of further flows are printed and counted together.
	MaxFlows int
}

type printer interface{ print(p *Packet) error }

// Decode reads a capture from in to its end and writes its RoCE v2 packets to
// out. It returns what it counted, with an error too: then everything before
// the damage has been written. Errors about the file wrap [ErrFormat],
// [ErrTruncated] or [ErrCorrupt] and name the byte; errors of in and out are
// wrapped as they are.
//
// Wrong packets are no error: the file was read, and it says what was wrong.
//
// Output is flushed before Decode waits for input, so that a capture can be
// watched as it is made.
func Decode(out io.Writer, in io.Reader, o Options) (Summary, error) {
	w := bufio.NewWriterSize(out, 64<<10)
	d := decoder{flows: newFlows(o.MaxFlows), scratch: make([]byte, 1<<16)}
	if o.JSON {
		d.printer = newJSONPrinter(w)
	} else {
		d.printer = &textPrinter{w: w}
	}
	err := d.run(flushing{in, w})
	s := &d.summary
	s.Beyond = d.flows.beyond
	for _, f := range d.flows.all {
		s.Flows = append(s.Flows, f.Flow)
	}
	// A file that is no capture at all has no summary.
	if d.opened {
		var bad error
		switch {
		case !o.JSON:
			bad = s.Text(w)
		case o.Summary:
			bad = s.JSON(w)
		}
		if err == nil {
			err = writing(bad)
		}
	}
	if bad := w.Flush(); err == nil {
		err = writing(bad)
	}
	return *s, err
}

func writing(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write what was decoded: %w", err)
}

// flushing empties a writer before it reads.
type flushing struct {
	r io.Reader
	w *bufio.Writer
}

func (f flushing) Read(p []byte) (int, error) {
	if err := f.w.Flush(); err != nil {
		return 0, writing(err)
	}
	return f.r.Read(p)
}

// decoder decodes frame after frame.
type decoder struct {
	printer   printer
	flows     *flows
	fragments fragments
	summary   Summary
	opened    bool
	scratch   []byte // one UDP payload
	vlans     [maxTags]uint16
	d         datagram
	p         Packet
}

func (d *decoder) run(in io.Reader) error {
	s, err := newSource(in)
	if err != nil {
		return err
	}
	d.opened = true
	var f frame
	for {
		if err := s.read(&f); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		d.summary.Frames++
		if err := d.frame(&f); err != nil {
			return writing(err)
		}
	}
}

// frame decodes a frame and prints what is in it.
func (d *decoder) frame(f *frame) error {
	s := &d.summary
	at, vlans, ok, known := network(f, d.vlans[:0])
	if !known {
		if s.UnknownLink == 0 {
			s.UnknownLinkType = uint16(f.link)
		}
		s.UnknownLink++
		return nil
	}
	if !ok {
		s.Other++
		return nil
	}
	p := &d.p
	*p = Packet{Frame: f.number, Time: f.time, VLANs: vlans}
	switch d.fragments.locate(&d.d, p, f.data[at:], f.length-at) {
	case isOther:
		s.Other++
		return nil
	case isCutShort:
		s.CutShort++
		return nil
	case isUnreadable:
		s.Unreadable++
		return nil
	}
	payload, n := d.d.payload()
	if len(f.data) < f.length && len(d.d.ip) < d.d.end {
		p.blame(faultCut, fmt.Sprintf("capture cut at %d of %d bytes", len(f.data), f.length))
	}
	if len(payload) == n && n >= roce.MinPacket && !d.d.partial {
		p.ICRC = ICRCBad
		if d.d.icrcOK(payload) {
			p.ICRC = ICRCOK
		} else if d.d.usual && n >= 2*roce.MinPacket {
			if size, step := segmentSize(d.d.flow, payload); size != 0 {
				return d.segments(payload, size, step)
			}
		}
	}
	p.transport(payload, n, d.scratch, !d.d.partial)
	if n > roce.MaxPacket && p.ICRC == ICRCBad {
		p.blame(faultMalformed, "longer than one packet can be, and no run of packets either (UDP GSO)")
	}
	return d.emit(p)
}

// segments prints the packets of a datagram that was captured before it was
// segmented. All of them are known to have a right ICRC.
func (d *decoder) segments(payload []byte, size, step int) error {
	whole := d.p
	n := (len(payload) + size - 1) / size
	for i := range n {
		p := &d.p
		*p = whole
		p.Segment, p.Segments, p.ICRC = i+1, n, ICRCOK
		segment := payload[i*size : min((i+1)*size, len(payload))]
		p.transport(segment, len(segment), d.scratch, true)
		if step != 0 {
			p.note = "identification grows by segment"
		}
		if err := d.emit(p); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) emit(p *Packet) error {
	d.flows.observe(p)
	d.summary.count(p)
	return d.printer.print(p)
}
