package pattern

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what a frame is filled with. A value that is none of the kinds fills
// with zeros and never checks as right.
type Kind uint8

// The kinds of pattern. The fabric's registers hold these numbers.
const (
	Counter Kind = 0
	PRBS31  Kind = 1
)

// ErrKind means the name of no kind of pattern.
var ErrKind = errors.New("pattern: no such kind")

// Valid reports whether k is a kind.
func (k Kind) Valid() bool { return k <= PRBS31 }

// String returns the name that ParseKind reads.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case PRBS31:
		return "prbs31"
	}
	return fmt.Sprintf("pattern(%d)", uint8(k))
}

// ParseKind reads the name of a kind, in upper or lower case. The error matches
// [ErrKind].
func ParseKind(s string) (Kind, error) {
	switch strings.ToLower(s) {
	case "counter":
		return Counter, nil
	case "prbs31":
		return PRBS31, nil
	}
	return 0, fmt.Errorf("%w: %q, want counter or prbs31", ErrKind, s)
}

// MarshalText returns the name of k. The error matches [ErrKind].
func (k Kind) MarshalText() ([]byte, error) {
	if !k.Valid() {
		return nil, fmt.Errorf("%w: %d", ErrKind, uint8(k))
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads a name as [ParseKind] does.
func (k *Kind) UnmarshalText(b []byte) error {
	v, err := ParseKind(string(b))
	if err != nil {
		return err
	}
	*k = v
	return nil
}
