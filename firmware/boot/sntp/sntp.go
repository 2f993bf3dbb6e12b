// Package sntp asks a server for the time (RFC 4330, the client's side). It is
// our own since the libraries for it bring cryptography along that doubles
// their size, and a board's image counts its bytes.
package sntp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// ErrAnswer: the answer cannot be used.
var ErrAnswer = errors.New("unusable answer")

// Layout of a packet (RFC 4330, 4).
const (
	size        = 48
	offFirst    = 0 // leap indicator 7..6, version 5..3, mode 2..0
	offStratum  = 1
	offOrigin   = 24
	offReceive  = 32
	offTransmit = 40

	version      = 4
	modeClient   = 3
	modeServer   = 4
	leapUnsynced = 3
	maxStratum   = 15

	port = "123"
)

// epoch1900 is the start of NTP's era 0 in Unix seconds, epoch2036 that of era
// 1: times whose highest bit is 0 belong to it (RFC 4330, 3).
const (
	epoch1900 = -2208988800
	epoch2036 = epoch1900 + 1<<32
)

// Query returns by how much the local clock is behind the server's. The server
// is a host, perhaps with a port. Query ends with ctx, or with an answer.
func Query(ctx context.Context, server string) (behind time.Duration, err error) {
	address := server
	if _, _, err := net.SplitHostPort(server); err != nil {
		address = net.JoinHostPort(server, port)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return 0, fmt.Errorf("ask for the time: %w", err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()

	// A random number in place of the time of sending: the server repeats it,
	// and nobody off the path can guess it. It need not be secret, so that the
	// kernel's entropy is not waited for.
	nonce := rand.Uint64()
	sent := time.Now()
	if _, err := c.Write(request(nonce)); err != nil {
		return 0, fmt.Errorf("ask for the time: %w", err)
	}
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		took := time.Since(sent)
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return 0, fmt.Errorf("no answer: %w", err)
		}
		a, err := parse(buf[:n], nonce)
		if errors.Is(err, errOther) {
			continue // late, or not from the server
		}
		if err != nil {
			return 0, err
		}
		return a.behind(sent, took), nil
	}
}

func request(nonce uint64) []byte {
	b := make([]byte, size)
	b[offFirst] = version<<3 | modeClient
	binary.BigEndian.PutUint64(b[offTransmit:], nonce)
	return b
}

// errOther: the packet answers another question.
var errOther = errors.New("answer to another question")

type answer struct{ received, sent time.Time }

func parse(b []byte, nonce uint64) (answer, error) {
	if len(b) < size || binary.BigEndian.Uint64(b[offOrigin:]) != nonce || b[offFirst]&7 != modeServer {
		return answer{}, errOther
	}
	switch stratum := b[offStratum]; {
	case stratum == 0:
		return answer{}, fmt.Errorf("server refuses, code %q: %w", b[12:16], ErrAnswer)
	case stratum > maxStratum:
		return answer{}, fmt.Errorf("stratum %d: %w", stratum, ErrAnswer)
	case b[offFirst]>>6 == leapUnsynced:
		return answer{}, fmt.Errorf("server is not synchronised: %w", ErrAnswer)
	}
	received, sent := binary.BigEndian.Uint64(b[offReceive:]), binary.BigEndian.Uint64(b[offTransmit:])
	if received == 0 || sent == 0 {
		return answer{}, fmt.Errorf("no time in it: %w", ErrAnswer)
	}
	return answer{timestamp(received), timestamp(sent)}, nil
}

// timestamp reads seconds and their 2^-32 parts.
func timestamp(v uint64) time.Time {
	seconds, fraction := int64(v>>32), v&0xFFFFFFFF
	base := int64(epoch1900)
	if seconds < 1<<31 {
		base = epoch2036
	}
	return time.Unix(base+seconds, int64(fraction*1e9>>32))
}

// behind is the offset of RFC 4330, 5. took was measured by the monotonic
// clock.
func (a answer) behind(sent time.Time, took time.Duration) time.Duration {
	sent = sent.Round(0)
	return a.received.Sub(sent)/2 + a.sent.Sub(sent.Add(took))/2
}
