// Package rocelink is the contract between board and host: the NATS subjects,
// the requests a board answers, and the status records both sides publish.
//
// Records are JSON objects with a version. A reader takes any record of its
// own version and ignores fields it does not know; another version is refused
// by name, never guessed at. 64-bit counters travel as decimal strings
// (Count), since many readers keep numbers as doubles.
package rocelink

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Version is the version of the records and requests in this package. It is
// also part of every subject ("rocelink.v1").
const Version = 1

// MaxRecord is the largest record a reader accepts, in bytes.
const MaxRecord = 256 << 10

// ErrVersion: the record speaks another version of the contract.
var ErrVersion = errors.New("unsupported record version")

// Count is a 64-bit counter. In JSON it is a decimal string; a number is
// accepted when read.
type Count uint64

// MarshalJSON encodes the counter as a decimal string.
func (c Count) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 22)
	b = append(b, '"')
	b = strconv.AppendUint(b, uint64(c), 10)
	return append(b, '"'), nil
}

// UnmarshalJSON accepts a decimal string or a number.
func (c *Count) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("counter %.40q: want a decimal number below 2^64", s)
	}
	*c = Count(v)
	return nil
}

// header is what every record begins with.
type header struct {
	Version int `json:"version"`
}

// Decode reads a record or request into v after checking its size and version.
func Decode(data []byte, v any) error {
	if len(data) > MaxRecord {
		return fmt.Errorf("decode record: %d bytes, at most %d are accepted", len(data), MaxRecord)
	}
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("decode record: %w", err)
	}
	if h.Version != Version {
		return fmt.Errorf("decode record: version %d, this program speaks %d: update the older side: %w", h.Version, Version, ErrVersion)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode record: %w", err)
	}
	return nil
}
