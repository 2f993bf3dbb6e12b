// Package bitstream reads configuration files of AMD's programmable logic and
// says what they are and for which part: .bit and .bin of 7-series, UltraScale
// and UltraScale+ (UG470, UG570), .pdi of Versal (UG1283). It loads nothing.
//
// Inspect reads a file to its end; a file without the sync word, a broken header
// or one that ends early is an error. NewReader turns a .bit into what Linux's
// fpga_manager takes.
package bitstream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Errors of Inspect and NewReader.
var (
	// ErrNoSync: there is no sync word AA995566 where configuration data begins:
	// the file is no bitstream.
	ErrNoSync = errors.New("no sync word AA995566")
	// ErrHeader: the header of a .bit or .pdi is malformed.
	ErrHeader = errors.New("malformed header")
	// ErrTruncated: the file ends before its own lengths say.
	ErrTruncated = errors.New("file ends early")
	// ErrBootImage: the file is a boot image of a Zynq and not a bitstream.
	ErrBootImage = errors.New("boot image, not a bitstream")
)

// Format is the kind of a file.
type Format string

// The formats.
const (
	Bit Format = "bit" // a header, then configuration data
	Bin Format = "bin" // configuration data alone
	PDI Format = "pdi" // a Versal programmable device image
)

// ByteOrder is the order of bytes in the 32-bit words of configuration data.
type ByteOrder string

// The byte orders.
const (
	// BigEndian is AA 99 55 66 in the file: .bit files and the .bin that Vivado
	// writes.
	BigEndian ByteOrder = "big-endian"
	// Swapped is 66 55 99 AA in the file, as Linux's fpga_manager takes it on
	// Zynq (zynq-fpga.c, zynqmp-fpga.c) and bootgen -process_bitstream writes it.
	Swapped ByteOrder = "swapped"
)

// Info is what a file says of itself.
type Info struct {
	Format Format `json:"format"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`

	// Part is what the file is for: the part of the header, or else the device.
	Part string `json:"part,omitempty"`
	// Device is what the configuration data is for by its IDCODE.
	Device string `json:"device,omitempty"`
	IDCode Hex    `json:"idcode,omitempty"`

	Header *Header `json:"header,omitempty"` // .bit
	Config *Config `json:"config,omitempty"` // .bit and .bin
	PDI    *Image  `json:"pdi,omitempty"`    // .pdi

	Encrypted bool `json:"encrypted"`
	// Problems are contradictions within the file.
	Problems []string `json:"problems,omitempty"`

	need int64 // the size the file must have at least
}

// Hex is a 32-bit word that is written in hexadecimal; 0 is none.
type Hex uint32

func (h Hex) String() string { return fmt.Sprintf("0x%08X", uint32(h)) }

// MarshalText writes the word, nothing for 0.
func (h Hex) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (i *Info) problem(format string, args ...any) {
	i.Problems = append(i.Problems, fmt.Sprintf(format, args...))
}

// syncWindow is how far into configuration data the sync word is looked for: it
// follows a few dozen words of padding and bus width detection (UG570).
const syncWindow = 64 << 10

// syncWord begins configuration data (UG570, "Sync Word").
const syncWord = 0xAA995566

var (
	syncBig     = binary.BigEndian.AppendUint32(nil, syncWord)
	syncSwapped = binary.LittleEndian.AppendUint32(nil, syncWord)
)

// Inspect reads a file to its end and says what it is. What was found out
// before an error is in the Info.
func Inspect(r io.Reader) (Info, error) {
	sum := sha256.New()
	c := &counter{r: io.TeeReader(r, sum)}
	b := bufio.NewReaderSize(c, syncWindow)
	var info Info
	err := info.read(b)
	info.Part = info.Device
	if info.Header != nil {
		info.Part = info.Header.Part
	}
	// The rest belongs to size and hash whatever the file is.
	if _, e := io.Copy(io.Discard, b); e != nil {
		return info, fmt.Errorf("read bitstream: %w", e)
	}
	info.Size = c.n
	info.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err == nil && info.Size < info.need {
		err = fmt.Errorf("%d bytes, but its partitions reach to %d: %w", info.Size, info.need, ErrTruncated)
	}
	if err != nil {
		return info, fmt.Errorf("inspect bitstream: %w", err)
	}
	return info, nil
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (i *Info) read(b *bufio.Reader) error {
	start, err := peek(b, 64)
	if err != nil {
		return err
	}
	switch {
	case len(start) == 0:
		return fmt.Errorf("the file is empty: %w", ErrNoSync)
	case isPDI(start):
		i.Format = PDI
		return i.readPDI(b)
	case isBootImage(start):
		return fmt.Errorf("width detection and \"XNLX\" at 0x20 are those of a BOOT.BIN: %w", ErrBootImage)
	case isBit(start):
		i.Format = Bit
		h, err := readHeader(b)
		i.Header = h
		if err != nil {
			return err
		}
	default:
		i.Format = Bin
	}
	return i.readConfig(b)
}

// peek looks at up to n bytes; fewer at the end of the file.
func peek(b *bufio.Reader, n int) ([]byte, error) {
	p, err := b.Peek(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read bitstream: %w", err)
	}
	return p, nil
}

// isBootImage recognises the boot header of Zynq-7000 and ZynqMP (UG1283:
// width detection at 0x20, identification "XNLX" at 0x24).
func isBootImage(b []byte) bool {
	return len(b) >= 0x28 && bytes.Equal(b[0x20:0x24], syncSwapped) && bytes.Equal(b[0x24:0x28], []byte("XNLX"))
}

// findSync finds the sync word within the window; at is where it begins.
func findSync(b *bufio.Reader) (at int, order ByteOrder, err error) {
	window, err := peek(b, syncWindow)
	if err != nil {
		return 0, "", err
	}
	big, swapped := bytes.Index(window, syncBig), bytes.Index(window, syncSwapped)
	switch {
	case big < 0 && swapped < 0:
		hint := ""
		switch {
		case bytes.HasPrefix(window, []byte("\x7fELF")):
			hint = ", it is an ELF file"
		case bytes.HasPrefix(window, []byte("\x1f\x8b")):
			hint = ", it is compressed by gzip: unpack it first"
		case bytes.HasPrefix(window, []byte("xclbin2")):
			hint = ", it is an xclbin container: extract its bitstream section first"
		}
		return 0, "", fmt.Errorf("in the first %d bytes of the data%s: %w", len(window), hint, ErrNoSync)
	case swapped < 0 || big >= 0 && big < swapped:
		at, order = big, BigEndian
	default:
		at, order = swapped, Swapped
	}
	if at%4 != 0 {
		return 0, "", fmt.Errorf("the sync word lies at byte %d of the data, which is no word boundary: %w", at, ErrHeader)
	}
	return at, order, nil
}
