package boards

import (
	"crypto/sha256"

	"rocelink/fpga/roce"
)

// NameMAC makes a MAC address of a board's name: the first octets of its
// SHA-256, unicast and locally administered (IEEE 802, 8.4). The same name
// always gives the same address, two names practically never do.
func NameMAC(name string) roce.MAC {
	h := sha256.Sum256([]byte("rocelink board " + name))
	m := roce.MAC(h[:6])
	m[0] = m[0]&^1 | 2
	return m
}
