package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// CRCLen is the length of the trailer.
const CRCLen = 4

// ErrShort means a frame that is too short for a trailer.
var ErrShort = errors.New("pattern: frame too short for a CRC trailer")

// SealCRC writes the CRC of the bytes before to the last four of b. The error
// matches [ErrShort].
func SealCRC(b []byte) error {
	n := len(b) - CRCLen
	if n < 0 {
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrShort, len(b), CRCLen)
	}
	binary.LittleEndian.PutUint32(b[n:], crc32.ChecksumIEEE(b[:n]))
	return nil
}

// CheckCRC reports whether the last four bytes of b are the CRC of those before.
// A frame too short for a trailer has no right one.
func CheckCRC(b []byte) (ok bool) {
	n := len(b) - CRCLen
	return n >= 0 && binary.LittleEndian.Uint32(b[n:]) == crc32.ChecksumIEEE(b[:n])
}
