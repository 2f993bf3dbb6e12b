package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
)

// What can be wrong with a file. The errors of [Decode] wrap these.
var (
	// ErrFormat means that the file is neither pcap nor pcapng.
	ErrFormat = errors.New("not a pcap or pcapng capture")
	// ErrTruncated means that the file ends inside a record.
	ErrTruncated = errors.New("the file ends inside a record")
	// ErrCorrupt means a record that cannot be; what follows is not read.
	ErrCorrupt = errors.New("damaged record")
)

// frame is one captured frame. Its data is valid until the next is read.
type frame struct {
	number uint64    // counted from 1
	time   time.Time // zero if there is none
	link   linkType
	data   []byte
	length int // on the wire; more than len(data) if the capture cut it
}

const (
	// bufferSize is how much of a file is in memory, a pcapng block at least.
	bufferSize = 512 << 10

	// maxCaptured bounds the bytes of one frame in a pcap, as libpcap does
	// (MAXIMUM_SNAPLEN).
	maxCaptured = 256 << 10

	magicLen = 4
	// Magic numbers (draft-ietf-opsawg-pcap, section 4; RFC 1952, section 2.3.1).
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
	magicGzip  = 0x1f8b
)

// input is the file, with a count of what was taken from it.
type input struct {
	*bufio.Reader
	file  counter
	start int64 // offset of the record in work
}

// counter counts, and keeps the error that is not the end of the file: the
// library does not wrap all of them.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

func newInput(r io.Reader) *input {
	in := &input{file: counter{r: r}}
	in.Reader = bufio.NewReaderSize(&in.file, bufferSize)
	return in
}

// offset returns where in the file the next byte is.
func (in *input) offset() int64 { return in.file.n - int64(in.Buffered()) }

// source reads the frames of a capture, pcap or pcapng. What it holds in
// memory does not depend on the file.
type source struct {
	in   *input
	n    uint64         // frames so far
	pcap *pcapgo.Reader // nil for pcapng
	ng   *pcapgo.NgReader
	gate *gate // in front of ng
}

// newSource reads the header of a capture.
func newSource(r io.Reader) (*source, error) {
	s := &source{in: newInput(r)}
	if err := s.open(); err != nil {
		return nil, s.explain(err)
	}
	return s, nil
}

func (s *source) open() error {
	b, err := s.in.Peek(magicLen)
	if len(b) < magicLen {
		if err != io.EOF {
			return err
		}
		return fmt.Errorf("%w: it has %d bytes", ErrFormat, len(b))
	}
	le, be := binary.LittleEndian.Uint32(b), binary.BigEndian.Uint32(b)
	switch {
	case le == blockSection:
		s.gate = &gate{in: s.in, order: binary.LittleEndian}
		s.ng, err = pcapgo.NewNgReader(s.gate, pcapgo.NgReaderOptions{WantMixedLinkType: true})
		return err
	case le == magicMicro, le == magicNano, be == magicMicro, be == magicNano:
	case be>>16 == magicGzip:
		return fmt.Errorf("%w: it is compressed by gzip, decompress it first", ErrFormat)
	default:
		return fmt.Errorf("%w: it begins with % x", ErrFormat, b)
	}
	// A bufio.Reader is used as it is, so that offset is that of the library.
	s.pcap, err = pcapgo.NewReader(s.in.Reader)
	if err != nil {
		if !isEnd(err) {
			err = fmt.Errorf("%w: %w", ErrFormat, err)
		}
		return err
	}
	// The library believes in any length up to the one in the header.
	s.pcap.SetSnaplen(min(s.pcap.Snaplen(), maxCaptured))
	return nil
}

// read reads a frame. At the end of the file the error is io.EOF itself.
func (s *source) read(f *frame) error {
	var err error
	if s.pcap != nil {
		err = s.readRecord(f)
	} else {
		err = s.readBlock(f)
	}
	if err != nil {
		return s.explain(err)
	}
	s.n++
	f.number = s.n
	if s.gate != nil {
		f.number += s.gate.numbered
	}
	return nil
}

func (s *source) readRecord(f *frame) error {
	s.in.start = s.in.offset()
	data, info, err := s.pcap.ZeroCopyReadPacketData()
	f.set(data, info, linkType(s.pcap.LinkType()))
	return err
}

func (f *frame) set(data []byte, info gopacket.CaptureInfo, link linkType) {
	f.data, f.time, f.link = data, info.Timestamp, link
	f.length = max(info.Length, len(data))
}

func isEnd(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

// explain says where an error happened and what kind it is.
func (s *source) explain(err error) error {
	at := s.in.offset()
	if s.gate != nil && s.gate.err != nil {
		err = s.gate.err
	}
	switch {
	case s.in.file.err != nil:
		return fmt.Errorf("at byte %d: %w", s.in.file.n, s.in.file.err)
	case err == ErrTruncated, isEnd(err) && at != s.in.start:
		return fmt.Errorf("at byte %d: %w that begins at byte %d", s.in.file.n, ErrTruncated, s.in.start)
	case isEnd(err):
		return io.EOF
	case err == pcapgo.ErrNgVersionMismatch:
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	case !errors.Is(err, ErrFormat) && !errors.Is(err, ErrCorrupt):
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("at byte %d: %w", s.in.start, err)
}
