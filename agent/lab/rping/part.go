package rping

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"rocelink/fpga/roce"
)

// Connection is one side of a reliable connection. Each method returns when what
// it does is done.
type Connection interface {
	// Send sends a message to the peer's next receive.
	Send(message []byte) error
	// Receive returns the peer's next message, valid until the next call;
	// io.EOF after the peer has hung up.
	Receive() (message []byte, err error)
	// Read fetches the peer's buffer. What it returns is valid until the next
	// call.
	Read(Buffer) (text []byte, err error)
	// Write puts a text that Read returned into the peer's buffer.
	Write(to Buffer, text []byte) error
}

// Memory is a buffer of our own.
type Memory struct {
	Buffer
	Bytes []byte // Size of them
}

// Client pings count times: the text is in source, the server brings it to sink.
// An error says in which ping.
func Client(c Connection, source, sink Memory, count int) error {
	for n := range count {
		if err := ping(c, source, sink, n); err != nil {
			return fmt.Errorf("ping %d of %d: %w", n, count, err)
		}
	}
	return nil
}

func ping(c Connection, source, sink Memory, n int) error {
	Text(source.Bytes, n)
	clear(sink.Bytes)
	for _, b := range []Buffer{source.Buffer, sink.Buffer} {
		if err := c.Send(b.Append(nil)); err != nil {
			return err
		}
		m, err := c.Receive()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		// What it says beside go is left over from before.
		if len(m) != MessageBytes {
			return fmt.Errorf("%w: %d bytes, want %d", ErrProtocol, len(m), MessageBytes)
		}
	}
	return compare("what came back", sink.Bytes, source.Bytes)
}

// Server answers until the client hangs up between two pings, and says how many
// there were. It knows what rping's client writes and compares.
func Server(c Connection) (pings int, err error) {
	want := make([]byte, MaxText)
	for ; ; pings++ {
		m, err := c.Receive()
		if errors.Is(err, io.EOF) {
			return pings, nil
		}
		if err == nil {
			err = answer(c, m, want, pings)
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return pings, fmt.Errorf("ping %d: %w", pings, err)
		}
	}
}

func answer(c Connection, m, want []byte, n int) error {
	source, err := Parse(m)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	text, err := c.Read(source)
	if err != nil {
		return err
	}
	want = want[:source.Size]
	Text(want, n)
	if err := compare("what was read", text, want); err != nil {
		return err
	}
	var goOn [MessageBytes]byte
	if err := c.Send(goOn[:]); err != nil {
		return err
	}
	if m, err = c.Receive(); err != nil {
		return err
	}
	sink, err := Parse(m)
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	if sink.Size < source.Size {
		return fmt.Errorf("%w: a sink of %d bytes for %d", ErrProtocol, sink.Size, source.Size)
	}
	if err := c.Write(sink, text); err != nil {
		return err
	}
	return c.Send(goOn[:])
}

// ErrText means that a text came that is not what was sent.
var ErrText = errors.New("wrong text")

func compare(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%w: %s differs from byte %d of %d on: %.20q, want %.20q", ErrText, what, at, len(want), got[at:], want[at:])
}

// Report is what a side came to, in JSON.
type Report struct {
	Pings int
	// Messages and Bytes are what the receive loop took.
	Messages, Bytes uint64
	MTU             roce.MTU // the connection's
}
