package sink

import (
	"fmt"
	"sync/atomic"

	"rocelink/agent/receive"
	"rocelink/fpga/pattern"
)

// Verify checks every byte of every frame against what the fabric's traffic
// generator makes for its sequence. Make one with NewVerify.
type Verify struct {
	kind    pattern.Kind
	content bool // false: only the CRC is checked
	crc     bool

	verified, corrupt atomic.Uint64
	first             atomic.Pointer[Corruption]
}

// VerifyConfig says what is in the frames.
type VerifyConfig struct {
	// Pattern is what the generator makes.
	Pattern pattern.Kind
	// CRC: the last 4 bytes are the CRC-32 of those before.
	CRC bool
	// External: the content is not known, only its CRC is checked.
	External bool
}

// Corruption is where a frame went wrong.
type Corruption struct {
	Sequence uint64
	// Offset is that of the first wrong byte; -1 if all are right but the CRC.
	Offset int
	Length int
}

// String describes the corruption in one line.
func (c Corruption) String() string {
	if c.Offset < 0 {
		return fmt.Sprintf("frame %d of %d bytes: wrong CRC", c.Sequence, c.Length)
	}
	return fmt.Sprintf("frame %d of %d bytes: first wrong byte at %d", c.Sequence, c.Length, c.Offset)
}

// VerifyReport is what a Verify has seen.
type VerifyReport struct {
	Verified, Corrupt uint64
	First             *Corruption // nil: none
}

// NewVerify makes a verifier.
func NewVerify(c VerifyConfig) (*Verify, error) {
	if !c.External && !c.Pattern.Valid() {
		return nil, fmt.Errorf("verify: %v: choose a pattern, or External", c.Pattern)
	}
	if c.External && !c.CRC {
		return nil, fmt.Errorf("verify: frames from outside without CRC: there is nothing to check")
	}
	return &Verify{kind: c.Pattern, content: !c.External, crc: c.CRC}, nil
}

// Take implements receive.Sink.
func (v *Verify) Take(f *receive.Frame) receive.Verdict {
	offset, ok := v.check(f)
	if ok {
		v.verified.Add(1)
		return receive.Verified
	}
	if !f.Intact() {
		// It was overwritten meanwhile: the loop sees that too and calls it
		// an overrun.
		return receive.Corrupt
	}
	v.corrupt.Add(1)
	if v.first.Load() == nil {
		v.first.CompareAndSwap(nil, &Corruption{Sequence: f.Sequence, Offset: offset, Length: len(f.Data)})
	}
	return receive.Corrupt
}

func (v *Verify) check(f *receive.Frame) (offset int, ok bool) {
	body := f.Data
	if v.crc {
		body = body[:max(len(body)-pattern.CRCLen, 0)]
	}
	if v.content {
		if offset := pattern.Check(body, v.kind, f.Sequence); offset >= 0 {
			return offset, false
		}
	}
	return -1, !v.crc || pattern.CheckCRC(f.Data)
}

// Report returns the counts so far. Any goroutine may call it.
func (v *Verify) Report() VerifyReport {
	return VerifyReport{Verified: v.verified.Load(), Corrupt: v.corrupt.Load(), First: v.first.Load()}
}
