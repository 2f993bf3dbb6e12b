package roce

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MAC is an Ethernet address.
type MAC [6]byte

// ErrMAC means text that is not an Ethernet address.
var ErrMAC = errors.New("roce: not an Ethernet address")

// String returns the address as six pairs of hexadecimal digits.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// IsUnicast reports whether m can be the address of a host: not zero, not a
// group. A sender must not be enabled towards anything else.
func (m MAC) IsUnicast() bool { return m != MAC{} && m[0]&1 == 0 }

// ParseMAC reads six pairs of hexadecimal digits with ":" or "-" between. The
// error matches [ErrMAC].
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 || s[2] != ':' && s[2] != '-' {
		return MAC{}, fmt.Errorf("%w: %q, want 02:00:00:00:00:0a", ErrMAC, s)
	}
	for i, part := range strings.Split(s, s[2:3]) {
		v, err := strconv.ParseUint(part, 16, 8)
		if err != nil || i >= len(m) || len(part) != 2 {
			return MAC{}, fmt.Errorf("%w: %q, want 02:00:00:00:00:0a", ErrMAC, s)
		}
		m[i] = byte(v)
	}
	return m, nil
}
