package udp

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrNotSupported means that this operating system has no implementation.
var ErrNotSupported = errors.New("roce/udp: not supported on this operating system")

// ErrAddress means an address that a Conn cannot listen on or send to.
var ErrAddress = errors.New("roce/udp: address cannot be used")

// SendError says that a packet could not be sent for a reason that will not go
// away by waiting. The packet has been dropped, as a network might have. It
// unwraps to the system's error.
type SendError struct {
	Dst  netip.AddrPort
	Size int
	Err  error
}

// Error names the destination, the size and the cause.
func (e *SendError) Error() string {
	return fmt.Sprintf("roce/udp: send %d bytes to %v: %v", e.Size, e.Dst, e.Err)
}

// Unwrap returns the system's error.
func (e *SendError) Unwrap() error { return e.Err }
