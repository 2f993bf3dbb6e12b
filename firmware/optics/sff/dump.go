package sff

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDump bounds a dump: 256 upper pages and the text that shows them.
const MaxDump = 1 << 18

// maxPages bounds the pages of a dump.
const maxPages = 1 + 256

// ParseDump reads a module's memory as a file: bytes, or text as ethtool -m
// with "hex on", i2cdump, hexdump -C and xxd write it.
//
// The bytes are the lower memory and upper page 00h, then the pages 01h, 02h
// and so on as far as the file goes; of an SFP 256 bytes at A0h, then 128 or 256
// at A2h.
func ParseDump(file []byte) (Memory, error) {
	if len(file) > MaxDump {
		return Memory{}, fmt.Errorf("parse dump: %d bytes, at most %d: %w", len(file), MaxDump, ErrSize)
	}
	data := file
	if isText(file) {
		var err error
		if data, err = parseText(file); err != nil {
			return Memory{}, fmt.Errorf("parse dump: %w", err)
		}
	}
	pages := len(data) / PageSize
	if len(data)%PageSize != 0 || pages < 2 || pages > maxPages {
		return Memory{}, fmt.Errorf("parse dump: %d bytes, want 256 and then whole pages of %d: %w", len(data), PageSize, ErrSize)
	}
	page := func(n int) []byte { return data[n*PageSize : (n+1)*PageSize] }
	m := Memory{Lower: page(0), Upper: map[uint8][]byte{0: page(1)}}
	if kindOf(m.Lower[0]) == sfpKind {
		switch pages {
		case 2:
		case 3, 4:
			m.Diagnostics = data[2*PageSize:]
		default:
			return Memory{}, fmt.Errorf("parse dump: %d bytes of an SFP, want 256, 384 or 512: %w", len(data), ErrSize)
		}
		return m, nil
	}
	for n := 2; n < pages; n++ {
		m.Upper[uint8(n-1)] = page(n)
	}
	return m, nil
}

// isText reports whether a file is text: the memory of a module is not, for
// identifiers are control characters.
func isText(b []byte) bool {
	if len(b) == 0 || !utf8.Valid(b) {
		return false
	}
	for _, c := range b {
		if c < 0x20 && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// lineBytes is what one line of a dump shows at most: what follows in it are
// the same bytes as characters.
const lineBytes = 16

// parseText reads lines of an offset and up to 16 bytes in hexadecimal, alone or
// in groups, or of bytes without an offset.
func parseText(file []byte) ([]byte, error) {
	var data []byte
	for n, raw := range bytes.Split(file, []byte("\n")) {
		line := strings.TrimSpace(string(raw))
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		offset, rest, has := cutOffset(fields)
		if !has && !isBytes(fields[0]) {
			continue // a heading
		}
		if has && offset != len(data) {
			if len(rest) == 0 && offset > len(data) {
				continue // hexdump ends with the length alone
			}
			return nil, fmt.Errorf("line %d: offset 0x%X, want 0x%X: the dump has a gap: %w", n+1, offset, len(data), ErrText)
		}
		start := len(data)
		for _, f := range rest {
			if f == "XX" {
				return nil, fmt.Errorf("line %d: the byte at 0x%X could not be read: %w", n+1, len(data), ErrText)
			}
			if !isBytes(f) || has && len(data)-start+len(f)/2 > lineBytes {
				break
			}
			for ; f != ""; f = f[2:] {
				v, err := strconv.ParseUint(f[:2], 16, 8)
				if err != nil {
					return nil, fmt.Errorf("line %d: %q is no byte: %w", n+1, f, ErrText)
				}
				data = append(data, byte(v))
			}
		}
		if len(data) == start && len(rest) > 0 {
			return nil, fmt.Errorf("line %d: no bytes after the offset: %w", n+1, ErrText)
		}
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("a text file without bytes in hexadecimal: %w", ErrText)
	}
	return data, nil
}

// cutOffset takes the offset from a line: "0x0010:" (ethtool), "10:" (i2cdump),
// "00000010:" (xxd), "00000010" (hexdump).
func cutOffset(fields []string) (offset int, rest []string, ok bool) {
	f := fields[0]
	s, colon := strings.CutSuffix(f, ":")
	s, prefix := strings.CutPrefix(s, "0x")
	if !colon && !prefix && len(s) != 8 && len(s) != 7 {
		return 0, fields, false
	}
	v, err := strconv.ParseUint(s, 16, 31)
	if err != nil {
		return 0, fields, false
	}
	return int(v), fields[1:], true
}

// isBytes reports whether a field is one or several bytes in hexadecimal.
func isBytes(f string) bool {
	if len(f)%2 != 0 || len(f) == 0 {
		return false
	}
	for _, c := range f {
		if !strings.ContainsRune("0123456789abcdefABCDEF", c) {
			return false
		}
	}
	return true
}
