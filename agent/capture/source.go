package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
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
	readSize = 256 << 10 // how much is read from a file at a time

	// maxCaptured bounds the bytes of one frame, as libpcap does
	// (MAXIMUM_SNAPLEN).
	maxCaptured = 256 << 10

	// Magic numbers (draft-ietf-opsawg-pcap, section 4).
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
	magicGzip  = 0x1f8b // RFC 1952, section 2.3.1

	pcapHeaderLen = 24
	pcapRecordLen = 16
	pcapMajor     = 2
)

// source reads the frames of a capture, pcap or pcapng. What it holds in
// memory does not depend on the file.
type source struct {
	r     *bufio.Reader
	order binary.ByteOrder
	ng    bool
	n     uint64 // frames so far
	next  int64  // offset of the byte that r delivers next
	start int64  // offset of the record in work
	data  []byte

	// pcap
	link linkType
	unit int64 // nanoseconds in a unit of the fraction of a time stamp

	// pcapng
	interfaces []iface
}

// newSource reads the header of a capture.
func newSource(r io.Reader) (*source, error) {
	s := &source{r: bufio.NewReaderSize(r, readSize), order: binary.LittleEndian}
	if err := s.open(); err != nil {
		return nil, s.locate(err)
	}
	return s, nil
}

func (s *source) open() error {
	b, err := s.r.Peek(4)
	if len(b) < 4 {
		if err != io.EOF {
			return err
		}
		return fmt.Errorf("%w: it has %d bytes", ErrFormat, len(b))
	}
	magic := binary.LittleEndian.Uint32(b)
	if magic != magicMicro && magic != magicNano {
		s.order = binary.BigEndian
		magic = binary.BigEndian.Uint32(b)
	}
	switch {
	case magic == blockSection:
		s.ng = true
		return nil
	case magic == magicMicro:
		s.unit = int64(time.Microsecond)
	case magic == magicNano:
		s.unit = int64(time.Nanosecond)
	case magic>>16 == magicGzip:
		return fmt.Errorf("%w: it is compressed by gzip, decompress it first", ErrFormat)
	default:
		return fmt.Errorf("%w: it begins with % x", ErrFormat, b)
	}
	h, err := s.take(pcapHeaderLen)
	if err != nil {
		return err
	}
	if v := s.order.Uint16(h[4:]); v != pcapMajor {
		return fmt.Errorf("%w: pcap version %d, want %d", ErrFormat, v, pcapMajor)
	}
	// The upper half holds the length of the frame check sequence; where a
	// packet ends is known from IP.
	s.link = linkType(s.order.Uint32(h[20:]))
	return nil
}

// read reads a frame. At the end of the file the error is io.EOF itself.
func (s *source) read(f *frame) error {
	var err error
	if s.ng {
		err = s.readBlocks(f)
	} else {
		err = s.readRecord(f)
	}
	if err != nil {
		return s.locate(err)
	}
	s.n++
	f.number = s.n
	f.length = max(f.length, len(f.data))
	return nil
}

func (s *source) readRecord(f *frame) error {
	if err := s.begin(); err != nil {
		return err
	}
	h, err := s.take(pcapRecordLen)
	if err != nil {
		return err
	}
	captured := s.order.Uint32(h[8:])
	if captured > maxCaptured {
		return fmt.Errorf("%w: it claims %d captured bytes, the limit is %d", ErrCorrupt, captured, maxCaptured)
	}
	f.time = time.Unix(int64(s.order.Uint32(h)), int64(s.order.Uint32(h[4:]))*s.unit).UTC()
	f.link = s.link
	f.length = int(s.order.Uint32(h[12:]))
	f.data, err = s.take(int(captured))
	return err
}

// begin starts a record. The end of the file is regular only here.
func (s *source) begin() error {
	s.start = s.next
	_, err := s.r.Peek(1)
	return err
}

// take reads n bytes, which stay valid until the next take. n is within the
// limits of this package, whatever the file says.
func (s *source) take(n int) ([]byte, error) {
	if cap(s.data) < n {
		s.data = make([]byte, max(n, 16<<10))
	}
	b := s.data[:n]
	m, err := io.ReadFull(s.r, b)
	s.next += int64(m)
	return b, inside(err)
}

// skip drops n bytes.
func (s *source) skip(n int64) error {
	for n > 0 {
		m, err := s.r.Discard(int(min(n, 1<<30)))
		s.next += int64(m)
		n -= int64(m)
		if err != nil {
			return inside(err)
		}
	}
	return nil
}

// inside turns the end of the file into an error.
func inside(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrTruncated
	}
	return err
}

// locate says where err happened.
func (s *source) locate(err error) error {
	switch {
	case err == io.EOF:
		return err
	case err == ErrTruncated:
		return fmt.Errorf("at byte %d: %w that begins at byte %d", s.next, err, s.start)
	case errors.Is(err, ErrFormat), errors.Is(err, ErrCorrupt):
		return fmt.Errorf("at byte %d: %w", s.start, err)
	}
	return fmt.Errorf("at byte %d: %w", s.next, err)
}
