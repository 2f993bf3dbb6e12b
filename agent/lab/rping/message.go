package rping

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// MessageBytes is the length of every message, those that say go included.
const MessageBytes = 16

// MinText and MaxText are how long a text may be, the zero at its end included:
// rping refuses other sizes.
const (
	MinText = 26
	MaxText = 64<<10 - 1
)

// ErrProtocol means that the peer said something else than its part.
var ErrProtocol = errors.New("unexpected message")

// Buffer is memory of a side as the other one is told of it.
type Buffer struct {
	Address uint64
	RKey    uint32
	Size    uint32
}

// Append adds the message that names a buffer: address, key and size, big-endian.
func (b Buffer) Append(m []byte) []byte {
	m = binary.BigEndian.AppendUint64(m, b.Address)
	m = binary.BigEndian.AppendUint32(m, b.RKey)
	return binary.BigEndian.AppendUint32(m, b.Size)
}

// Parse reads a message that names a buffer. ErrProtocol: it is none, or no text
// is as long.
func Parse(m []byte) (Buffer, error) {
	if len(m) != MessageBytes {
		return Buffer{}, fmt.Errorf("%w: %d bytes, want %d", ErrProtocol, len(m), MessageBytes)
	}
	b := Buffer{Address: binary.BigEndian.Uint64(m), RKey: binary.BigEndian.Uint32(m[8:]), Size: binary.BigEndian.Uint32(m[12:])}
	if b.Size < MinText || b.Size > MaxText {
		return Buffer{}, fmt.Errorf("%w: a buffer of %d bytes, want %d to %d", ErrProtocol, b.Size, MinText, MaxText)
	}
	return b, nil
}

// Text fills b with the text of a ping, counted from 0, as rping does: a heading
// with the number, the characters from A to z in turn, from another one on in each
// ping, and a zero. b is MinText bytes at least.
func Text(b []byte, ping int) {
	const first, last = 'A', 'z'
	heading := strconv.AppendInt([]byte("rdma-ping-"), int64(ping), 10)
	heading = append(heading, ": "...)
	for i := range b[copy(b, heading):] {
		b[len(heading)+i] = byte(first + (ping+i)%(last-first+1))
	}
	b[len(b)-1] = 0
}
