package sink

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"sync/atomic"

	"rocelink/agent/receive"
)

// DefaultBuffer is how much File gathers before it writes.
const DefaultBuffer = 4 << 20

// File writes frames one after the other, in the order of their sequence, as
// they are. Take only queues the frame; a goroutine copies it into a buffer or,
// if it is large, writes it straight from its slot, and then releases the slot.
// A writer that is too slow thus holds up the sender, not the loop. What is
// gathered is written when the buffer is full or nothing more is queued.
//
// Close it after the loop's Run has returned.
type File struct {
	w      io.WriteCloser
	config FileConfig

	// queue has one producer, the loop, and one consumer, the writer.
	queue  []receive.Frame
	mask   uint64
	head   atomic.Uint64 // next to write
	tail   atomic.Uint64 // next to queue
	asleep atomic.Bool
	wake   chan struct{}

	closing atomic.Bool
	done    chan struct{}
	refused atomic.Uint64

	// The writer's, until done is closed.
	buffer []byte
	sum    hash.Hash
	report FileReport
	next   uint64
	owner  receive.Owner // of the latest frame
	err    error
}

// FileConfig shapes a File.
type FileConfig struct {
	// Slots is how many the loop has, at least.
	Slots int
	// Buffer is how much is gathered; 0 is DefaultBuffer. A frame of at least
	// half of it is not copied.
	Buffer int
	// NoSum leaves out the SHA-256, for streams faster than it.
	NoSum bool
}

// FileReport is what was written.
type FileReport struct {
	Frames, Bytes uint64
	// SHA256 is that of all bytes; zero with NoSum.
	SHA256 [sha256.Size]byte
	// Missing is how many sequences are left out between the first frame of
	// the stream and the last written.
	Missing uint64
	// Refused is how many frames came too late to be written in order.
	Refused uint64
	// Torn is how many frames were overwritten while they were written.
	Torn uint64
}

// CreateFile creates or truncates a file and writes to it.
func CreateFile(path string, c FileConfig) (*File, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("file sink: %w", err)
	}
	s, err := NewFile(f, c)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return s, nil
}

// NewFile writes to w and closes it in the end. If w has a Sync method, as
// files do, Close calls that first.
func NewFile(w io.WriteCloser, c FileConfig) (*File, error) {
	if c.Slots < 1 {
		return nil, fmt.Errorf("file sink: %d slots: give the number the loop has", c.Slots)
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Buffer < 1 {
		return nil, fmt.Errorf("file sink: buffer of %d bytes: give 0 or more", c.Buffer)
	}
	size := 1
	for size < c.Slots {
		size *= 2
	}
	f := &File{
		w: w, config: c,
		queue: make([]receive.Frame, size), mask: uint64(size - 1),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		buffer: make([]byte, 0, c.Buffer),
	}
	if !c.NoSum {
		f.sum = sha256.New()
	}
	go f.run()
	return f, nil
}

// Take implements receive.Sink.
func (f *File) Take(frame *receive.Frame) receive.Verdict {
	if frame.Late || f.closing.Load() {
		f.refused.Add(1)
		return receive.Refused
	}
	tail := f.tail.Load()
	if tail-f.head.Load() == uint64(len(f.queue)) {
		// Each slot is queued once at most, so the loop has more than it said.
		frame.Owner.Fail(fmt.Errorf("file sink: more than the %d slots it was made for", f.config.Slots))
		f.refused.Add(1)
		return receive.Refused
	}
	f.queue[tail&f.mask] = *frame
	f.tail.Store(tail + 1)
	f.rouse()
	return receive.Kept
}

// rouse wakes the writer if it sleeps.
func (f *File) rouse() {
	if f.asleep.Load() && f.asleep.CompareAndSwap(true, false) {
		f.wake <- struct{}{}
	}
}

// run is the writer.
func (f *File) run() {
	defer close(f.done)
	for {
		head := f.head.Load()
		if head == f.tail.Load() {
			f.flush()
			if !f.sleep(head) {
				f.end()
				return
			}
			continue
		}
		frame := f.queue[head&f.mask]
		f.queue[head&f.mask] = receive.Frame{}
		f.head.Store(head + 1)
		f.owner = frame.Owner
		if f.err == nil {
			f.write(&frame)
		}
		// After an error too: the loop drains, and slots keep going back.
		frame.Release()
	}
}

// sleep waits for a frame and reports false if there will be none.
func (f *File) sleep(head uint64) bool {
	f.asleep.Store(true)
	more, closing := f.tail.Load() != head, f.closing.Load()
	if !more && !closing {
		<-f.wake
		return true
	}
	if !f.asleep.CompareAndSwap(true, false) {
		<-f.wake // somebody is waking already
	}
	return more
}

func (f *File) write(frame *receive.Frame) {
	data := frame.Data
	if len(data) > cap(f.buffer)-len(f.buffer) || 2*len(data) >= cap(f.buffer) {
		f.flush()
	}
	if 2*len(data) >= cap(f.buffer) {
		f.out(data)
	} else {
		f.buffer = append(f.buffer, data...)
	}
	if f.err != nil {
		return
	}
	if !frame.Intact() {
		f.report.Torn++
	}
	f.report.Missing += frame.Sequence - f.next
	f.next = frame.Sequence + 1
	f.report.Frames++
}

// flush writes what is gathered.
func (f *File) flush() {
	if len(f.buffer) > 0 && f.err == nil {
		f.out(f.buffer)
	}
	f.buffer = f.buffer[:0]
}

// out writes. The first error ends the loop and everything after it is dropped.
func (f *File) out(b []byte) {
	n, err := f.w.Write(b)
	if f.sum != nil {
		f.sum.Write(b[:min(max(n, 0), len(b))])
	}
	f.report.Bytes += uint64(max(n, 0))
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil {
		return
	}
	f.err = fmt.Errorf("file sink: write %d bytes after %d: %w", len(b), f.report.Bytes, err)
	f.owner.Fail(f.err)
}

// end completes the report.
func (f *File) end() {
	if f.sum != nil {
		f.sum.Sum(f.report.SHA256[:0])
	}
	if s, ok := f.w.(interface{ Sync() error }); ok && f.err == nil {
		if err := s.Sync(); err != nil {
			f.err = fmt.Errorf("file sink: sync after %d bytes: %w", f.report.Bytes, err)
		}
	}
	if err := f.w.Close(); err != nil && f.err == nil {
		f.err = fmt.Errorf("file sink: close after %d bytes: %w", f.report.Bytes, err)
	}
}

// Close writes what is queued, closes the file and reports. Every frame is
// released when it returns. It is idempotent.
func (f *File) Close() (FileReport, error) {
	f.closing.Store(true)
	f.rouse()
	<-f.done
	r := f.report
	r.Refused = f.refused.Load()
	return r, f.err
}
