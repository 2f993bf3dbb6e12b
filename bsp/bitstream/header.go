package bitstream

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Header is the header of a .bit file. AMD does not document it; the fields are
// known from many tools (openFPGALoader's bitparser.cpp, Linux's fpga-bit
// converters) and hold for all families since Virtex.
type Header struct {
	Design  string   `json:"design"`
	UserID  string   `json:"userid,omitempty"`
	Version string   `json:"version,omitempty"` // of Vivado
	CRC     string   `json:"crc,omitempty"`
	Options []string `json:"options,omitempty"`
	Part    string   `json:"part"`
	Date    string   `json:"date"`
	Time    string   `json:"time"`
	Length  uint32   `json:"length"` // of the configuration data
}

// bitMagic begins a .bit file: a field of nine bytes and one that counts what is
// to follow.
var bitMagic = []byte{0x00, 0x09, 0x0F, 0xF0, 0x0F, 0xF0, 0x0F, 0xF0, 0x0F, 0xF0, 0x00, 0x00, 0x01}

// maxField bounds a field of the header: real ones hold some hundred bytes.
const maxField = 16 << 10

// isBit recognises a .bit file by its first field.
func isBit(b []byte) bool { return bytes.HasPrefix(b, bitMagic[:10]) }

// readHeader reads the header. What was read before an error is in the result.
func readHeader(b *bufio.Reader) (*Header, error) {
	h := new(Header)
	magic := make([]byte, len(bitMagic))
	if _, err := io.ReadFull(b, magic); err != nil {
		return h, short("the first field", err)
	}
	if !bytes.Equal(magic, bitMagic) {
		return h, fmt.Errorf("the first field is % X, want % X: %w", magic, bitMagic, ErrHeader)
	}
	for _, key := range []byte("abcd") {
		s, err := readField(b, key)
		if err != nil {
			return h, err
		}
		switch key {
		case 'a':
			h.design(s)
		case 'b':
			h.Part = s
		case 'c':
			h.Date = strings.ReplaceAll(s, "/", "-")
		case 'd':
			h.Time = s
		}
	}
	var e [5]byte
	if _, err := io.ReadFull(b, e[:]); err != nil {
		return h, short("field e", err)
	}
	if e[0] != 'e' {
		return h, fmt.Errorf("after field d comes 0x%02X, want field e: %w", e[0], ErrHeader)
	}
	h.Length = binary.BigEndian.Uint32(e[1:])
	if h.Length == 0 || h.Length%4 != 0 {
		return h, fmt.Errorf("field e: %d bytes of configuration data, want whole words: %w", h.Length, ErrHeader)
	}
	return h, nil
}

// short is the error of a file that ends.
func short(where string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("in %s: %w", where, ErrTruncated)
	}
	return fmt.Errorf("read %s: %w", where, err)
}

// readField reads a field: its letter, two bytes of length, a string that ends
// in a zero.
func readField(b *bufio.Reader, key byte) (string, error) {
	name := "field " + string(rune(key))
	var head [3]byte
	if _, err := io.ReadFull(b, head[:]); err != nil {
		return "", short(name, err)
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if head[0] != key || n == 0 || n > maxField {
		return "", fmt.Errorf("%s: begins with 0x%02X, %d bytes: %w", name, head[0], n, ErrHeader)
	}
	s := make([]byte, n)
	if _, err := io.ReadFull(b, s); err != nil {
		return "", short(name, err)
	}
	if s[n-1] != 0 {
		return "", fmt.Errorf("%s: the string does not end in a zero: %w", name, ErrHeader)
	}
	return printable(s[:n-1]), nil
}

// printable is bytes as valid text.
func printable(b []byte) string {
	s := bytes.Clone(b)
	for i, c := range s {
		if c < 0x20 || c > 0x7E {
			s[i] = '?'
		}
	}
	return string(s)
}

// design takes field a apart: "top;COMPRESS=TRUE;UserID=0XFFFFFFFF;Version=2023.2".
func (h *Header) design(s string) {
	name, rest, _ := strings.Cut(s, ";")
	h.Design = name
	for _, o := range strings.FieldsFunc(rest, func(r rune) bool { return r == ';' }) {
		key, value, _ := strings.Cut(o, "=")
		switch strings.ToUpper(strings.TrimSpace(key)) {
		case "USERID":
			h.UserID = value
		case "VERSION":
			h.Version = value
		case "SW_CRC":
			h.CRC = value
		default:
			h.Options = append(h.Options, o)
		}
	}
}

// option reports whether the header sets an option.
func (h *Header) option(name string) bool {
	for _, o := range h.Options {
		key, value, has := strings.Cut(o, "=")
		if strings.EqualFold(key, name) && (!has || strings.EqualFold(value, "TRUE")) {
			return true
		}
	}
	return false
}
