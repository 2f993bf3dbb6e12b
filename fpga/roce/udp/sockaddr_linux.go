package udp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// sockaddr is a struct sockaddr_in or sockaddr_in6 as the kernel reads it.
type sockaddr struct {
	raw [unix.SizeofSockaddrInet6]byte
	len uint32
}

// Offsets into both.
const (
	saPort   = 2
	saAddr4  = 4
	saFlow6  = 4
	saAddr6  = 8
	saScope6 = 24
)

// makeSockaddr returns the kernel's form of an address in the given family.
func makeSockaddr(addr netip.AddrPort, v6 bool) (sockaddr, error) {
	var s sockaddr
	a := addr.Addr().Unmap()
	switch {
	case !a.IsValid():
		return s, fmt.Errorf("%w: none given", ErrAddress)
	case a.Is4() && !v6:
		s.len = unix.SizeofSockaddrInet4
		binary.NativeEndian.PutUint16(s.raw[:], unix.AF_INET)
		ip := a.As4()
		copy(s.raw[saAddr4:], ip[:])
	case a.Is6() && v6:
		s.len = unix.SizeofSockaddrInet6
		binary.NativeEndian.PutUint16(s.raw[:], unix.AF_INET6)
		ip := a.As16()
		copy(s.raw[saAddr6:], ip[:])
		scope, err := scopeID(a.Zone())
		if err != nil {
			return s, fmt.Errorf("%w: %v: %w", ErrAddress, addr, err)
		}
		binary.NativeEndian.PutUint32(s.raw[saScope6:], scope)
	default:
		return s, fmt.Errorf("%w: %v is of another family than the socket", ErrAddress, addr)
	}
	binary.BigEndian.PutUint16(s.raw[saPort:], addr.Port())
	return s, nil
}

// scopeID returns the interface index of a zone, which is a number or a name.
func scopeID(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return uint32(ifi.Index), nil
}

// addrPort returns the address that the kernel wrote. A scope becomes a numeric
// zone.
func (s *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.raw[saPort:])
	switch binary.NativeEndian.Uint16(s.raw[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.raw[saAddr4:saAddr4+4])), port)
	case unix.AF_INET6:
		a := netip.AddrFrom16([16]byte(s.raw[saAddr6 : saAddr6+16])).Unmap()
		if scope := binary.NativeEndian.Uint32(s.raw[saScope6:]); scope != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}
