package clock

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ErrScript: a register export cannot be read.
var ErrScript = errors.New("clock script")

const (
	maxScript = 1 << 20
	maxSteps  = 1 << 14
	maxDelay  = 2 * time.Second
	maxDelays = 8
)

// step writes Data, or waits.
type step struct {
	register uint32
	data     []byte
	wait     time.Duration
}

func wrong(line int, format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %s", ErrScript, line, fmt.Sprintf(format, args...))
}

var (
	// ClockBuilder Pro: "0x0B24,0xC0" or "{ 0x0B24, 0xC0 },".
	pairForm = regexp.MustCompile(`^\{?\s*(0x[0-9A-Fa-f]{1,4})\s*,\s*(0x[0-9A-Fa-f]{1,2})\s*(?:\},?)?$`)
	// ClockBuilder Pro, in a comment: "# Delay 300 msec".
	delayForm = regexp.MustCompile(`(?i)^(?:#|/\*|//)\s*delay\s+([0-9]{1,9})\s*(msec|ms|sec|s)\b`)
	partForm  = regexp.MustCompile(`(?i)^(?:#|\*|/\*|//)?\s*part:\s*([a-z0-9]+)`)
	// Timing Commander: "Size: 0x6, Offset: 14, Data: 0x0300...".
	sizeForm = regexp.MustCompile(`(?i)^size:\s*(0x[0-9a-f]{1,4})\s*,\s*offset:\s*([0-9a-f]{2,4}|0x[0-9a-f]{1,4})\s*,\s*data:\s*0x([0-9a-f]+)$`)
	// TICS Pro: "R383<tab>0x017F0B", "R0 (INIT)<tab>0x000090".
	tiForm = regexp.MustCompile(`^R[0-9]{1,5}(?:\s*\(INIT\))?\s+0x([0-9A-Fa-f]{1,8})$`)
)

// parse reads the export for a part whole.
func parse(part string, text []byte) ([]step, error) {
	if len(text) > maxScript {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrScript, maxScript)
	}
	read := map[string]func(*script, int, string) error{
		"si5341": (*script).silabs, "si5345": (*script).silabs, "si5395": (*script).silabs,
		"8a34001":  (*script).renesas,
		"lmk04828": (*script).ti, "lmk04208": (*script).ti, "lmx2594": (*script).ti,
	}[part]
	if read == nil {
		return nil, fmt.Errorf("%w: part %q is not known", ErrScript, part)
	}
	s := &script{part: part}
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, 64<<10)
	n := 0
	for in.Scan() {
		n++
		line := strings.TrimSpace(in.Text())
		if line == "" {
			continue
		}
		if err := read(s, n, line); err != nil {
			return nil, err
		}
		if len(s.steps) > maxSteps {
			return nil, wrong(n, "more than %d writes", maxSteps)
		}
	}
	if err := in.Err(); err != nil {
		return nil, wrong(n+1, "%v", err)
	}
	if s.writes == 0 {
		return nil, fmt.Errorf("%w: holds no register for %s", ErrScript, part)
	}
	if s.array {
		return nil, wrong(n, "the list of registers does not end: the file is cut off")
	}
	// A design without these leaves the part halted or unprogrammed: the tool's
	// box for pre- and post-download writes was not ticked.
	if s.preamble != s.postamble {
		return nil, fmt.Errorf("%w: its preamble and postamble do not belong together: the file is cut off, or was exported without one", ErrScript)
	}
	return s.steps, nil
}

// script is what has been read.
type script struct {
	part                string
	steps               []step
	writes, delays      int
	opens               bool // the line before ends a declaration with =
	array, comment      bool
	preamble, postamble bool
}

func (s *script) write(register uint32, data []byte) {
	s.writes++
	s.steps = append(s.steps, step{register: register, data: data})
}

// silabs reads a line of ClockBuilder Pro's export, CSV or C header.
func (s *script) silabs(n int, line string) error {
	if m := partForm.FindStringSubmatch(line); m != nil && !strings.HasPrefix(strings.ToLower(m[1]), s.part) {
		return wrong(n, "is for %s, not for %s", m[1], s.part)
	}
	if m := delayForm.FindStringSubmatch(line); m != nil {
		d, err := strconv.Atoi(m[1])
		if err != nil {
			return wrong(n, "delay: %v", err)
		}
		wait := time.Duration(d) * time.Millisecond
		if m[2][0] == 's' || m[2][0] == 'S' {
			wait = time.Duration(d) * time.Second
		}
		if s.delays++; wait > maxDelay || s.delays > maxDelays {
			return wrong(n, "waits %v, want up to %d delays of %v", wait, maxDelays, maxDelay)
		}
		s.steps = append(s.steps, step{wait: wait})
	}
	switch text := strings.ToLower(line); {
	case strings.Contains(text, "start configuration preamble"):
		s.preamble = true
	case strings.Contains(text, "end configuration postamble"):
		s.postamble = true
	}
	if s.comment {
		s.comment = !strings.Contains(line, "*/")
		return nil
	}
	if strings.HasPrefix(line, "/*") {
		s.comment = !strings.Contains(line, "*/")
		return nil
	}
	switch {
	case line[0] == '#' || strings.HasPrefix(line, "//") || strings.EqualFold(line, "Address,Data"):
		return nil
	case line == "{" && s.opens:
		s.array, s.opens = true, false
		return nil
	case line == "};" && s.array:
		s.array = false
		return nil
	case line == "{", s.writes == 0 && !s.array && !strings.HasPrefix(line, "0x") && line[0] != '{':
		s.opens = strings.HasSuffix(line, "=") // the header's declarations
		return nil
	}
	m := pairForm.FindStringSubmatch(line)
	if m == nil {
		return wrong(n, "%.60q, want an address and a byte such as 0x0B24,0xC0", line)
	}
	register, err := strconv.ParseUint(m[1], 0, 16)
	if err != nil {
		return wrong(n, "%v", err)
	}
	value, err := strconv.ParseUint(m[2], 0, 8)
	if err != nil {
		return wrong(n, "%v", err)
	}
	if register&0xFF == pageRegister {
		return wrong(n, "writes the page register 0x%04X, which is not the design's to write", register)
	}
	s.write(uint32(register), []byte{byte(value)})
	return nil
}

// renesas reads a line of the 8A34001's export.
func (s *script) renesas(n int, line string) error {
	if line[0] == '#' || strings.HasPrefix(line, "//") {
		return nil
	}
	m := sizeForm.FindStringSubmatch(line)
	if m == nil {
		return wrong(n, "%.60q, want Size: 0x.., Offset: .., Data: 0x..", line)
	}
	size, err := strconv.ParseUint(m[1], 0, 16)
	if err != nil {
		return wrong(n, "%v", err)
	}
	offset, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(m[2]), "0x"), 16, 16)
	if err != nil {
		return wrong(n, "%v", err)
	}
	if size == 0 || size > 256 || uint64(len(m[3])) != 2*size {
		return wrong(n, "size %d, but %d digits of data", size, len(m[3]))
	}
	if offset&0xFF+size > 256 {
		return wrong(n, "%d bytes at 0x%04X pass the end of a page", size, offset)
	}
	data := make([]byte, size)
	for i := range data {
		v, err := strconv.ParseUint(m[3][2*i:2*i+2], 16, 8)
		if err != nil {
			return wrong(n, "%v", err)
		}
		data[i] = byte(v)
	}
	s.write(uint32(offset), data)
	return nil
}

// ti reads a line of TICS Pro's hex register export. The words are those that
// go over SPI: 32 bits for the LMK04208, 24 for the others.
func (s *script) ti(n int, line string) error {
	if line[0] == '#' || strings.HasPrefix(line, "//") {
		return nil
	}
	m := tiForm.FindStringSubmatch(line)
	if m == nil {
		return wrong(n, "%.60q, want a register and its word such as R0 0x000090", line)
	}
	word, err := strconv.ParseUint(m[1], 16, 32)
	if err != nil {
		return wrong(n, "%v", err)
	}
	size := 3
	if s.part == "lmk04208" {
		size = 4
	}
	if word>>(8*size) != 0 {
		return wrong(n, "0x%X has more than %d bits, which %s takes", word, 8*size, s.part)
	}
	// The first bit asks to read (LMK04828 and LMX2594 data sheets).
	if size == 3 && word>>23 != 0 {
		return wrong(n, "0x%06X reads a register", word)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(word >> (8 * (size - 1 - i)))
	}
	s.write(0, data)
	return nil
}
