package roce

import "encoding/binary"

// ImmLen is the length of immediate data, big-endian on the wire.
const ImmLen = 4

func decodeImm(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

func putImm(b []byte, v uint32) { binary.BigEndian.PutUint32(b, v) }
