package roce

import (
	"errors"
	"fmt"
)

// MTU is a path MTU: the payload bytes of a full packet, a power of two from
// 256 to 4096.
type MTU int

// MaxMTU is the largest path MTU there is.
const MaxMTU MTU = 4096

// mtuOverhead is what a netdev's MTU must hold beside the payload: GRH or IPv6
// 40, UDP 8, BTH 12, XRC header 4, atomic header 28, ICRC 4. It is more than a
// SEND or WRITE needs. Linux subtracts the same 96 bytes (include/rdma/ib_addr.h,
// iboe_get_mtu), and both ends must come to the same answer.
const mtuOverhead = 40 + 8 + 12 + 4 + 28 + 4

// ErrMTU means a path MTU, or the code of one, that does not exist.
var ErrMTU = errors.New("roce: no such path MTU")

// Valid reports whether m is one of the five path MTUs.
func (m MTU) Valid() bool { return m >= 256 && m <= MaxMTU && m&(m-1) == 0 }

// Code returns the IBTA number of m, 1 for 256 to 5 for 4096 (IBTA,
// PathRecord "Mtu"), or 0 when m is not valid.
func (m MTU) Code() uint8 {
	switch m {
	case 256:
		return 1
	case 512:
		return 2
	case 1024:
		return 3
	case 2048:
		return 4
	case 4096:
		return 5
	}
	return 0
}

// MTUFromCode is the inverse of [MTU.Code]. The error matches [ErrMTU].
func MTUFromCode(code uint8) (MTU, error) {
	if code < 1 || code > 5 {
		return 0, fmt.Errorf("%w: code %d, want 1 (256) to 5 (4096)", ErrMTU, code)
	}
	return 128 << code, nil
}

// MTUForNetdev returns the largest path MTU that fits a network interface's
// MTU, 0 if not even 256 does.
func MTUForNetdev(netdevMTU int) MTU {
	for m := MaxMTU; m >= 256; m /= 2 {
		if int(m)+mtuOverhead <= netdevMTU {
			return m
		}
	}
	return 0
}

// Packets returns how many packets a message of n bytes takes: at least one.
func (m MTU) Packets(n int) int {
	if n <= 0 || m <= 0 {
		return 1
	}
	return (n-1)/int(m) + 1
}
