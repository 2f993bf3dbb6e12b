package model

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// sourceChunk is how much of a reader is asked for at once.
const sourceChunk = 256 << 10

// SourceConfig shapes a Source.
type SourceConfig struct {
	// Buffer is the size of the ring between reader and fabric in bytes; 0 is
	// 32 MiB. Frames must fit into it.
	Buffer int
	// Lossy drops whole frames while the ring is full, as a converter does
	// that cannot wait. Otherwise the reader waits.
	Lossy bool
}

// Source is the external source of one stream: it gives the bytes of a reader,
// of which the stream makes frames. A goroutine reads, so that a slow reader
// never holds up the fabric. It begins when a stream is configured to use the
// source; a reader that can seek is set to its beginning each time.
type Source struct {
	reader io.Reader
	lossy  bool
	memory []byte

	// The goroutine writes tail, the fabric head; memory between them belongs
	// to the fabric, the rest to the goroutine.
	head, tail atomic.Uint64
	ended      atomic.Bool // nothing follows tail
	dropped    atomic.Uint64

	frame  atomic.Uint32 // bytes of a frame
	wanted atomic.Uint32 // how often a stream was configured
	given  atomic.Uint32 // which of these the ring belongs to
	hungry atomic.Bool   // the fabric found too little
	notify atomic.Pointer[func()]
	wake   chan struct{} // the fabric changed head or wanted

	closing sync.Once
	closed  chan struct{}
	mu      sync.Mutex
	err     error
}

// NewSource returns a source that reads from r. It does not close r.
func NewSource(r io.Reader, cfg SourceConfig) *Source {
	if cfg.Buffer <= 0 {
		cfg.Buffer = 32 << 20
	}
	s := &Source{
		reader: r,
		lossy:  cfg.Lossy,
		memory: make([]byte, cfg.Buffer),
		wake:   make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	go s.run()
	return s
}

// Close ends the reading; a Read that is under way is not waited for.
func (s *Source) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return nil
}

// Dropped is how many frames were dropped because the stream could not take
// them; only a lossy source drops.
func (s *Source) Dropped() uint64 { return s.dropped.Load() }

// Err returns the error that ended the reader, nil for the end of the data.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// setNotify sets what is called when data arrives that the fabric waits for.
func (s *Source) setNotify(f func()) { s.notify.Store(&f) }

func (s *Source) capacity() uint32 { return uint32(min(len(s.memory), 1<<31)) }

// begin starts anew with frames of n bytes.
func (s *Source) begin(n uint32) {
	s.frame.Store(n)
	s.wanted.Add(1)
	s.signal()
}

func (s *Source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ready returns how many of the next n bytes are there, and whether no more
// will follow them.
func (s *Source) ready(n uint32) (have uint32, last bool) {
	if s.given.Load() != s.wanted.Load() {
		s.hungry.Store(true)
		if s.given.Load() != s.wanted.Load() {
			return 0, false
		}
	}
	last = s.ended.Load() // before tail: what it ends is then in tail
	got := s.tail.Load() - s.head.Load()
	if got < uint64(n) && !last {
		s.hungry.Store(true)
		// It may have come just before hungry was seen.
		last = s.ended.Load()
		got = s.tail.Load() - s.head.Load()
	}
	return uint32(min(got, uint64(n))), last
}

// read takes bytes that are there.
func (s *Source) read(dst []byte) {
	head := s.head.Load()
	at := int(head % uint64(len(s.memory)))
	n := copy(dst, s.memory[at:])
	copy(dst[n:], s.memory)
	s.head.Store(head + uint64(len(dst)))
	s.signal()
}

// run fills the ring.
func (s *Source) run() {
	var spare []byte
	for {
		if w := s.wanted.Load(); w != s.given.Load() {
			s.restart()
			s.given.Store(w)
			s.tell()
		}
		var progress bool
		switch {
		case s.given.Load() == 0 || s.ended.Load():
		case s.lossy:
			n := int(s.frame.Load())
			if s.free() < n {
				if cap(spare) < n {
					spare = make([]byte, n)
				}
				got, err := io.ReadFull(s.reader, spare[:n])
				if got > 0 {
					s.dropped.Add(1)
				}
				s.publish(0, err)
			} else {
				s.publish(s.fill(n))
			}
			progress = true
		case s.free() > 0:
			at := int(s.tail.Load() % uint64(len(s.memory)))
			n := min(s.free(), sourceChunk, len(s.memory)-at)
			s.publish(s.reader.Read(s.memory[at : at+n]))
			progress = true
		}
		if progress {
			select {
			case <-s.closed:
				return
			default:
				continue
			}
		}
		select {
		case <-s.closed:
			return
		case <-s.wake:
		}
	}
}

// restart goes to the beginning of what can seek. What cannot goes on where it
// is, with what the ring holds.
func (s *Source) restart() {
	k, ok := s.reader.(io.Seeker)
	if !ok {
		return
	}
	if _, err := k.Seek(0, io.SeekStart); err != nil {
		return // a pipe
	}
	s.tail.Store(s.head.Load())
	s.ended.Store(false)
	s.mu.Lock()
	s.err = nil
	s.mu.Unlock()
}

func (s *Source) free() int { return len(s.memory) - int(s.tail.Load()-s.head.Load()) }

// fill reads n bytes into the ring, for which there is room.
func (s *Source) fill(n int) (got int, err error) {
	at := int(s.tail.Load() % uint64(len(s.memory)))
	first := min(n, len(s.memory)-at)
	got, err = io.ReadFull(s.reader, s.memory[at:at+first])
	if err == nil && first < n {
		var more int
		more, err = io.ReadFull(s.reader, s.memory[:n-first])
		got += more
	}
	return got, err
}

// publish hands over n bytes and an error that ends the reader.
func (s *Source) publish(n int, err error) {
	s.tail.Add(uint64(n))
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			s.mu.Lock()
			s.err = fmt.Errorf("read the external source: %w", err)
			s.mu.Unlock()
		}
		s.ended.Store(true)
	}
	s.tell()
}

// tell wakes the fabric if it waits for this source.
func (s *Source) tell() {
	if !s.hungry.Load() || !s.hungry.Swap(false) {
		return
	}
	if f := s.notify.Load(); f != nil {
		(*f)()
	}
}
