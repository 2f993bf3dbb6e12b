package remote

import (
	"io"
	"sync"
)

// backlog holds what one side gives until the other takes it, so that a slow
// taker never holds up the stream, which serves all programs.
type backlog struct {
	mu    sync.Mutex
	more  sync.Cond
	bytes []byte
	ended bool
}

func newBacklog() *backlog {
	b := &backlog{}
	b.more.L = &b.mu
	return b
}

// add appends p; end says that nothing follows. After the end nothing counts.
func (b *backlog) add(p []byte, end bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.bytes = append(b.bytes, p...)
	b.ended = end
	b.more.Broadcast()
}

// Read waits for bytes or the end.
func (b *backlog) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.bytes) == 0 {
		if b.ended {
			return 0, io.EOF
		}
		b.more.Wait()
	}
	n := copy(p, b.bytes)
	b.bytes = b.bytes[n:]
	return n, nil
}

// drain writes everything to w and closes it at the end. What w refuses is lost:
// a program that does not read its input is its own affair.
func (b *backlog) drain(w io.WriteCloser) {
	_, _ = io.Copy(w, b)
	_ = w.Close()
}
