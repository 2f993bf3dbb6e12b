package roce

import "encoding/binary"

// ImmLen is the length of immediate data (IBTA 9.3.6), big-endian on the wire.
const ImmLen = 4

func decodeImm(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

func putImm(b []byte, v uint32) { binary.BigEndian.PutUint32(b, v) }
