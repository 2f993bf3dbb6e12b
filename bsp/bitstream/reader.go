package bitstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Reader gives a file as Linux's fpga_manager takes it: of a .bit the data
// without the header, and the words of a .bit or .bin swapped if they are not
// yet. A .pdi passes unchanged.
type Reader struct {
	Format Format
	Header *Header   // of a .bit
	From   ByteOrder // of the file; a PDI has none

	b     *bufio.Reader
	swap  bool
	left  int64 // bytes to come, or -1
	chunk []byte
	buf   []byte // what of chunk was not read yet
	err   error
}

// NewReader reads the beginning of a file. A file without sync word is refused,
// as by Inspect.
func NewReader(r io.Reader) (*Reader, error) {
	d := &Reader{b: bufio.NewReaderSize(r, syncWindow), left: -1, chunk: make([]byte, 64<<10)}
	start, err := peek(d.b, 64)
	if err != nil {
		return nil, err
	}
	switch {
	case isPDI(start):
		d.Format = PDI
		return d, nil
	case isBootImage(start):
		return nil, fmt.Errorf("convert bitstream: %w", ErrBootImage)
	case isBit(start):
		d.Format = Bit
		if d.Header, err = readHeader(d.b); err != nil {
			return nil, fmt.Errorf("convert bitstream: %w", err)
		}
		d.left = int64(d.Header.Length)
	default:
		d.Format = Bin
	}
	if _, d.From, err = findSync(d.b); err != nil {
		return nil, fmt.Errorf("convert bitstream: %w", err)
	}
	d.swap = d.From == BigEndian
	return d, nil
}

// Read ends in ErrTruncated, and not in io.EOF, where the file is too short.
func (d *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(d.buf) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		d.fill()
	}
	n := copy(p, d.buf)
	d.buf = d.buf[n:]
	return n, nil
}

// fill reads the next chunk.
func (d *Reader) fill() {
	want := d.chunk
	if d.left >= 0 {
		want = want[:min(int64(len(want)), d.left)]
		if len(want) == 0 {
			d.err = io.EOF
			return
		}
	}
	n, err := io.ReadFull(d.b, want)
	if d.left >= 0 {
		d.left -= int64(n)
	}
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case ended && d.left > 0:
		d.err = fmt.Errorf("convert bitstream: %d bytes of configuration data are missing: %w", d.left, ErrTruncated)
	case ended && d.Format != PDI && n%4 != 0:
		d.err = fmt.Errorf("convert bitstream: %d bytes after the last whole word: %w", n%4, ErrTruncated)
	case ended:
		d.err = io.EOF
	case err != nil:
		d.err = fmt.Errorf("convert bitstream: %w", err)
	}
	d.buf = want[:n]
	if d.swap {
		d.buf = d.buf[:n&^3]
		for at := 0; at < len(d.buf); at += 4 {
			binary.LittleEndian.PutUint32(d.buf[at:], binary.BigEndian.Uint32(d.buf[at:]))
		}
	}
}
