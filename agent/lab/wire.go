//go:build linux

package lab

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxFrame has room for any frame of an interface whose MTU is 9000.
const maxFrame = 9216

// Wire is this process's end of a network cable to the guest: Ethernet frames
// without FCS. It is a pair of connected datagram sockets, in order and without
// loss; who sends faster than the other takes waits. One goroutine may read
// while others write.
type Wire struct {
	conn *net.UnixConn

	sent, received atomic.Uint64
}

// newWire returns a wire and the file of its other end.
func newWire() (*Wire, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "wire"), os.NewFile(uintptr(fds[1]), "wire")
	defer func() { _ = ours.Close() }()
	c, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	return &Wire{conn: c.(*net.UnixConn)}, theirs, nil
}

// Read waits for a frame.
func (w *Wire) Read(b []byte) (int, error) {
	n, err := w.conn.Read(b)
	if err == nil {
		w.received.Add(1)
	}
	return n, err
}

// Write sends a frame.
func (w *Wire) Write(frame []byte) (int, error) {
	n, err := w.conn.Write(frame)
	if err == nil {
		w.sent.Add(1)
	}
	return n, err
}

// Frames is how many frames were sent to the guest and came from it.
func (w *Wire) Frames() (sent, received uint64) { return w.sent.Load(), w.received.Load() }

// Close unplugs this end.
func (w *Wire) Close() error { return w.conn.Close() }
