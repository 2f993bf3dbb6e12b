package sink

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rocelink/agent/receive"
	"rocelink/fpga/pattern"
)

// owner lends frames as a loop does, and notes what comes back.
type owner struct {
	mu       sync.Mutex
	lent     map[int]bool
	back     []uint64
	twice    int
	torn     bool
	failures chan error
	returned chan uint64
}

func newOwner() *owner {
	return &owner{lent: make(map[int]bool), failures: make(chan error, 16), returned: make(chan uint64, 1<<16)}
}

func (o *owner) Release(f receive.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.lent[f.Slot] {
		o.twice++
		return
	}
	delete(o.lent, f.Slot)
	o.back = append(o.back, f.Sequence)
	o.returned <- f.Sequence
}

func (o *owner) Intact(f receive.Frame) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.torn && o.lent[f.Slot]
}

func (o *owner) Fail(err error) {
	select {
	case o.failures <- err:
	default:
	}
}

// show hands a frame to a sink and, like the loop, takes it back unless kept.
func (o *owner) show(s receive.Sink, q uint64, slot int, data []byte) receive.Verdict {
	o.mu.Lock()
	o.lent[slot] = true
	o.mu.Unlock()
	v := s.Take(&receive.Frame{Sequence: q, Slot: slot, Data: data, Owner: o})
	if v&receive.Kept == 0 {
		o.mu.Lock()
		if !o.lent[slot] {
			o.twice++
		}
		delete(o.lent, slot)
		o.mu.Unlock()
	}
	return v
}

func (o *owner) held() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lent)
}

// awaitBack waits until a frame of this sequence was released.
func (o *owner) awaitBack(t *testing.T, q uint64) {
	t.Helper()
	for {
		select {
		case got := <-o.returned:
			if got == q {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("frame %d was not released", q)
		}
	}
}

func TestDiscardAndFunc(t *testing.T) {
	o := newOwner()
	if v := o.show(Discard{}, 0, 0, nil); v != 0 {
		t.Errorf("verdict %b", v)
	}
	f := Func(func(f *receive.Frame) receive.Verdict {
		if f.Sequence != 7 {
			t.Errorf("frame %d", f.Sequence)
		}
		return receive.Verified
	})
	if v := o.show(f, 7, 0, nil); v != receive.Verified {
		t.Errorf("verdict %b", v)
	}
}

func TestVerify(t *testing.T) {
	for _, kind := range []pattern.Kind{pattern.Counter, pattern.PRBS31} {
		for _, crc := range []bool{false, true} {
			for _, length := range []int{0, 1, 3, 4, 5, 64, 1023, 4096} {
				v, err := NewVerify(VerifyConfig{Pattern: kind, CRC: crc})
				if err != nil {
					t.Fatal(err)
				}
				o := newOwner()
				const q = 1<<33 + 5
				b := make([]byte, length)
				pattern.Fill(b, kind, q)
				if crc && length >= pattern.CRCLen {
					if err := pattern.SealCRC(b); err != nil {
						t.Fatal(err)
					}
				}
				want := receive.Verified
				if crc && length < pattern.CRCLen {
					want = receive.Corrupt // there is no room for what must be there
				}
				if got := o.show(v, q, 0, b); got != want {
					t.Errorf("%v, CRC %v, %d bytes: verdict %b, want %b", kind, crc, length, got, want)
				}
				if length == 0 || crc && length < pattern.CRCLen {
					continue
				}
				at := rand.IntN(length)
				b[at] ^= 1 << rand.IntN(8)
				if got := o.show(v, q, 0, b); got != receive.Corrupt {
					t.Errorf("%v, CRC %v, %d bytes, byte %d wrong: verdict %b", kind, crc, length, at, got)
				}
				if got := o.show(v, q+1, 0, b); got != receive.Corrupt && length > 4 {
					t.Errorf("%v, CRC %v, %d bytes: another sequence: verdict %b", kind, crc, length, got)
				}
				r := v.Report()
				if crc && at >= length-pattern.CRCLen {
					at = -1
				}
				if r.Verified != 1 || r.Corrupt < 1 || r.First == nil || *r.First != (Corruption{q, at, length}) {
					t.Errorf("%v, CRC %v: report %+v, want first %+v", kind, crc, r, Corruption{q, at, length})
				}
			}
		}
	}
}

// What was overwritten meanwhile is the peer's speed, not its fault.
func TestVerifyTorn(t *testing.T) {
	v, err := NewVerify(VerifyConfig{})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	o.torn = true
	if got := o.show(v, 3, 0, make([]byte, 64)); got != receive.Corrupt {
		t.Errorf("verdict %b", got)
	}
	if r := v.Report(); r.Corrupt != 0 || r.First != nil {
		t.Errorf("report %+v", r)
	}
}

func TestVerifyExternal(t *testing.T) {
	v, err := NewVerify(VerifyConfig{External: true, CRC: true})
	if err != nil {
		t.Fatal(err)
	}
	b := append(bytes.Repeat([]byte("data"), 16), 0, 0, 0, 0)
	if err := pattern.SealCRC(b); err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	if got := o.show(v, 3, 0, b); got != receive.Verified {
		t.Errorf("verdict %b", got)
	}
	b[5]++
	if got := o.show(v, 4, 0, b); got != receive.Corrupt {
		t.Errorf("verdict %b", got)
	}
	if s := v.Report().First.String(); !strings.Contains(s, "frame 4") || !strings.Contains(s, "CRC") {
		t.Errorf("first: %s", s)
	}
	for _, c := range []VerifyConfig{{External: true}, {Pattern: 9}} {
		if _, err := NewVerify(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// The file holds every byte of every frame once, in order, however the lengths
// lie to the buffer.
func TestFile(t *testing.T) {
	for _, buffer := range []int{0, 1, 100, 1000} {
		path := filepath.Join(t.TempDir(), "frames")
		f, err := CreateFile(path, FileConfig{Slots: 5, Buffer: buffer})
		if err != nil {
			t.Fatal(err)
		}
		o := newOwner()
		var want []byte
		free := make(chan int, 5)
		for i := range 5 {
			free <- i
		}
		rnd := rand.New(rand.NewPCG(1, uint64(buffer)))
		const frames = 500
		for q := range uint64(frames) {
			length := rnd.IntN(300)
			if q%50 == 0 {
				length = 0
			}
			b := make([]byte, length)
			pattern.Fill(b, pattern.Counter, q)
			want = append(want, b...)
			for o.held() == 5 {
				o.awaitBack(t, q-5)
			}
			if v := o.show(f, q, int(q%5), b); v != receive.Kept {
				t.Fatalf("verdict %b", v)
			}
			if q >= 4 {
				o.awaitBack(t, q-4) // its slot is the next one's
			}
		}
		r, err := f.Close()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("buffer %d: %d bytes in the file, want %d, or they differ", buffer, len(got), len(want))
		}
		if w := (FileReport{Frames: frames, Bytes: uint64(len(want)), SHA256: sha256.Sum256(want)}); r != w {
			t.Errorf("report %+v, want %+v", r, w)
		}
		if o.held() != 0 || o.twice != 0 {
			t.Errorf("%d slots held, %d released twice", o.held(), o.twice)
		}
		if again, err := f.Close(); err != nil || again != r {
			t.Errorf("second Close: %+v, %v", again, err)
		}
		if v := o.show(f, 501, 0, []byte("x")); v != receive.Refused {
			t.Errorf("verdict after Close %b", v)
		}
	}
}

// pipe is a file that can be watched and broken.
type pipe struct {
	mu     sync.Mutex
	data   []byte
	closed int
	err    error
	short  bool
	gate   chan struct{}
	sync   error
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.gate != nil {
		<-p.gate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	if p.short {
		b = b[:len(b)/2]
	}
	p.data = append(p.data, b...)
	return len(b), nil
}

func (p *pipe) Sync() error { return p.sync }

func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed++
	return nil
}

// Gaps are reported, late frames are not written.
func TestFileSequence(t *testing.T) {
	p := &pipe{}
	f, err := NewFile(p, FileConfig{Slots: 4, NoSum: true})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	o.show(f, 2, 0, []byte("two"))
	o.lent[3] = true
	if v := f.Take(&receive.Frame{Sequence: 1, Slot: 3, Late: true, Data: []byte("one"), Owner: o}); v != receive.Refused {
		t.Errorf("late frame: verdict %b", v)
	}
	o.show(f, 5, 1, []byte("five"))
	r, err := f.Close()
	if err != nil || string(p.data) != "twofive" || r != (FileReport{Frames: 2, Bytes: 7, Missing: 4, Refused: 1}) || p.closed != 1 {
		t.Errorf("%q, report %+v, %v, closed %d times", p.data, r, err, p.closed)
	}
}

// A frame that was overwritten while it was written is reported.
func TestFileTorn(t *testing.T) {
	f, err := NewFile(&pipe{}, FileConfig{Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	o.torn = true
	o.show(f, 0, 0, []byte("data"))
	if r, err := f.Close(); err != nil || r.Torn != 1 {
		t.Errorf("report %+v, %v", r, err)
	}
}

// While the disk is busy slots stay with the sink; Take never waits.
func TestFileSlowDisk(t *testing.T) {
	p := &pipe{gate: make(chan struct{})}
	f, err := NewFile(p, FileConfig{Slots: 4, Buffer: 4})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	for q := range uint64(4) {
		o.show(f, q, int(q), []byte("frame"))
	}
	if n := o.held(); n != 4 {
		t.Errorf("%d slots held, want 4", n)
	}
	close(p.gate)
	o.awaitBack(t, 3)
	if _, err := f.Close(); err != nil || string(p.data) != strings.Repeat("frame", 4) {
		t.Errorf("%q, %v", p.data, err)
	}
}

// An error of the disk ends the loop, and no slot gets lost.
func TestFileFails(t *testing.T) {
	full := errors.New("no space left")
	for name, p := range map[string]*pipe{"error": {err: full}, "short": {short: true}} {
		f, err := NewFile(p, FileConfig{Slots: 4, Buffer: 4})
		if err != nil {
			t.Fatal(err)
		}
		want := full
		if p.short {
			want = io.ErrShortWrite
		}
		o := newOwner()
		o.show(f, 0, 0, []byte("frame"))
		select {
		case err := <-o.failures:
			if !errors.Is(err, want) {
				t.Errorf("%s: the loop ends with %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the loop was not told", name)
		}
		o.show(f, 1, 1, []byte("more"))
		r, err := f.Close()
		if !errors.Is(err, want) || p.closed != 1 || len(o.failures) != 0 {
			t.Errorf("%s: Close: %v, closed %d times, %d failures more", name, err, p.closed, len(o.failures))
		}
		if o.held() != 0 || r.Bytes != uint64(len(p.data)) || r.SHA256 != sha256.Sum256(p.data) {
			t.Errorf("%s: %d held, report %+v, %q written", name, o.held(), r, p.data)
		}
	}
	f, err := NewFile(&pipe{sync: full}, FileConfig{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Close(); !errors.Is(err, full) {
		t.Errorf("Close: %v, want the error of Sync", err)
	}
}

func TestFileConfig(t *testing.T) {
	for _, c := range []FileConfig{{}, {Slots: -1}, {Slots: 1, Buffer: -1}} {
		if _, err := NewFile(&pipe{}, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if _, err := CreateFile(filepath.Join(t.TempDir(), "no", "such"), FileConfig{Slots: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such folder: %v", err)
	}
	// A loop with more slots than it said.
	p := &pipe{gate: make(chan struct{})}
	f, err := NewFile(p, FileConfig{Slots: 1, Buffer: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	for q := range uint64(4) { // one is being written, one queued
		o.show(f, q, int(q), []byte("frame"))
	}
	if len(o.failures) == 0 {
		t.Error("the loop was not told")
	}
	close(p.gate)
	if _, err := f.Close(); err != nil || o.held() != 0 {
		t.Errorf("Close: %v, %d held", err, o.held())
	}
}

// keeper keeps frames until told.
type keeper struct {
	frames  []receive.Frame
	at      bool // released within Take
	verdict receive.Verdict
}

func (k *keeper) Take(f *receive.Frame) receive.Verdict {
	if k.at {
		f.Release()
	} else {
		k.frames = append(k.frames, *f)
	}
	f.Sequence, f.Owner = 999, nil // what one does to it the next does not see
	return receive.Kept | k.verdict
}

func TestTee(t *testing.T) {
	verify, err := NewVerify(VerifyConfig{})
	if err != nil {
		t.Fatal(err)
	}
	a, b, quick := &keeper{}, &keeper{}, &keeper{at: true}
	o := newOwner()
	good := make([]byte, 64)
	pattern.Fill(good, pattern.Counter, 5)

	if v := o.show(NewTee(4, a, verify, quick, b), 5, 3, good); v != receive.Kept|receive.Verified {
		t.Errorf("verdict %b", v)
	}
	if !a.frames[0].Intact() || o.held() != 1 {
		t.Error("the frame is gone")
	}
	a.frames[0].Release()
	if o.held() != 1 {
		t.Error("released while another keeps it")
	}
	b.frames[0].Release()
	if o.held() != 0 || o.twice != 0 || o.back[0] != 5 {
		t.Errorf("%d held, %d twice, back %d", o.held(), o.twice, o.back)
	}
	// None keeps it, or all have released it already: the loop has it back.
	for _, tee := range []*Tee{NewTee(4, verify), NewTee(4, quick), NewTee(4)} {
		if v := o.show(tee, 5, 3, good); v&receive.Kept != 0 || o.twice != 0 {
			t.Errorf("verdict %b, %d twice", v, o.twice)
		}
	}
	if v := o.show(NewTee(4, verify, Func(func(*receive.Frame) receive.Verdict { return receive.Refused })), 6, 3, good); v != receive.Refused|receive.Corrupt {
		t.Errorf("verdict %b", v)
	}
	fails := NewTee(1, Func(func(f *receive.Frame) receive.Verdict { f.Owner.Fail(io.EOF); return 0 }))
	if o.show(fails, 5, 0, good); <-o.failures != io.EOF {
		t.Error("the failure does not reach the loop")
	}
	if v := o.show(fails, 5, 1, good); v != receive.Refused || len(o.failures) != 1 {
		t.Errorf("slot beyond the tee: verdict %b, %d failures", v, len(o.failures))
	}
}

// Consumers on goroutines of their own release in any order.
func TestTeeConcurrent(t *testing.T) {
	const slots, frames = 8, 5000
	o := newOwner()
	var sinks []receive.Sink
	var consumers sync.WaitGroup
	var channels []chan receive.Frame
	for range 3 {
		c := make(chan receive.Frame, slots)
		channels = append(channels, c)
		consumers.Go(func() {
			for f := range c {
				if len(f.Data) != 8 || !f.Intact() {
					t.Errorf("frame %d: %d bytes, intact %v", f.Sequence, len(f.Data), f.Intact())
				}
				f.Release()
			}
		})
		sinks = append(sinks, Func(func(f *receive.Frame) receive.Verdict { c <- *f; return receive.Kept }))
	}
	tee := NewTee(slots, sinks...)
	for q := range uint64(frames) {
		v := o.show(tee, q, int(q%slots), make([]byte, 8))
		if q < slots-1 {
			continue
		}
		// The slot of the next frame must be back.
		if o.mu.Lock(); o.lent[int((q+1)%slots)] {
			o.mu.Unlock()
			o.awaitSlot(t, int((q+1)%slots))
		} else {
			o.mu.Unlock()
		}
		_ = v
	}
	for _, c := range channels {
		close(c)
	}
	consumers.Wait()
	if o.held() != 0 || o.twice != 0 {
		t.Errorf("%d held, %d released twice", o.held(), o.twice)
	}
}

func (o *owner) awaitSlot(t *testing.T, slot int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		o.mu.Lock()
		lent := o.lent[slot]
		o.mu.Unlock()
		if !lent {
			return
		}
		select {
		case <-o.returned:
		case <-time.After(time.Until(end)):
			t.Fatalf("slot %d does not come back", slot)
		}
	}
}
