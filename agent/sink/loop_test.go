package sink_test

import (
	"crypto/sha256"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
	"rocelink/fpga/pattern"
)

// loop makes a receive loop for SEND on a scripted device.
func loop(t testing.TB, slots, frameBytes int, s receive.Sink) (*receive.Loop, *scripted.QueuePair, []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	memory, err := verbs.AllocMemory(slots*frameBytes, false)
	must(err)
	t.Cleanup(func() { _ = memory.Free() })
	device, err := scripted.New(scripted.Config{}).Open("")
	must(err)
	pd, err := device.AllocPD()
	must(err)
	region, err := pd.Register(memory, verbs.LocalWrite)
	must(err)
	cq, err := device.CreateCQ(slots)
	must(err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: slots})
	must(err)
	must(qp.Init(verbs.LocalWrite))
	l, err := receive.New(receive.Config{CQ: cq, QP: qp, Memory: memory, LKey: region.LKey(), Verb: rocelink.VerbSend,
		Slots: uint32(slots), Stride: uint32(frameBytes), FrameBytes: uint32(frameBytes), Sink: s})
	must(err)
	must(l.Prepare())
	must(qp.ReadyToReceive(verbs.PeerAttributes{MTU: 4096, Address: netip.MustParseAddr("192.0.2.9")}))
	must(qp.ReadyToSend(0))
	return l, qp.(*scripted.QueuePair), memory.Bytes()
}

// Frames go through a loop into a file and are verified on the way, down to a
// last one that is shorter.
func TestVerifyIntoFile(t *testing.T) {
	const slots, frames, length, lastLength = 8, 400, 512, 77
	verify, err := sink.NewVerify(sink.VerifyConfig{Pattern: pattern.PRBS31})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "frames")
	file, err := sink.CreateFile(path, sink.FileConfig{Slots: slots, Buffer: 3 * length})
	if err != nil {
		t.Fatal(err)
	}
	l, qp, _ := loop(t, slots, length, sink.NewTee(slots, verify, file))
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()

	sum := sha256.New()
	deadline := time.Now().Add(20 * time.Second)
	for q := uint64(0); q < frames; {
		b := make([]byte, length)
		if q == frames-1 {
			b = b[:lastLength]
		}
		pattern.Fill(b, pattern.PRBS31, q)
		switch err := qp.Deliver(scripted.Message{Data: b}); {
		case err == nil:
			sum.Write(b)
			q++
		case !errors.Is(err, scripted.ErrNoReceive) || time.Now().After(deadline):
			t.Fatalf("frame %d: %v", q, err)
		default:
			runtime.Gosched() // receiver not ready: again
		}
	}
	for l.Totals().Messages < frames && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	l.Stop()
	if err := qp.SetError(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	report, err := file.Close()
	if err != nil {
		t.Fatal(err)
	}
	const size = (frames-1)*length + lastLength
	if report.Bytes != size || report.Frames != frames || string(sum.Sum(nil)) != string(report.SHA256[:]) {
		t.Errorf("report %+v, want %d frames, %d bytes, SHA-256 %x", report, frames, size, sum.Sum(nil))
	}
	if b, err := os.ReadFile(path); err != nil || sha256.Sum256(b) != report.SHA256 {
		t.Errorf("the file of %d bytes is not what the report says: %v", len(b), err)
	}
	if total := l.Totals(); total.Verified != frames || total.Accepted != frames || total.Lost() != 0 || l.Held() != 0 {
		t.Errorf("totals %+v, %d held", total, l.Held())
	}
	if r := verify.Report(); r.Verified != frames || r.Corrupt != 0 {
		t.Errorf("verified %+v", r)
	}
}

// A disk that fails is why the loop ends.
func TestFileFailureEndsLoop(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "frames"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := sink.NewFile(f, sink.FileConfig{Slots: 4, Buffer: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, qp, _ := loop(t, 4, 64, file)
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	if err := f.Close(); err != nil { // nothing can be written any more
		t.Fatal(err)
	}
	if err := qp.Deliver(scripted.Message{Data: make([]byte, 64)}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("Run: %v, want %v", err, os.ErrClosed)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the loop did not end")
	}
	if _, err := file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
	if l.Held() != 0 {
		t.Errorf("%d slots held", l.Held())
	}
}

// BenchmarkLoop is one 4 KiB frame through a loop into a sink.
func BenchmarkLoop(b *testing.B) {
	const slots, length = 64, 4096
	for _, c := range []struct {
		name   string
		config sink.VerifyConfig
	}{
		{"verify-counter", sink.VerifyConfig{Pattern: pattern.Counter}},
		{"verify-counter-crc", sink.VerifyConfig{Pattern: pattern.Counter, CRC: true}},
		{"verify-prbs31", sink.VerifyConfig{Pattern: pattern.PRBS31}},
		{"verify-crc", sink.VerifyConfig{External: true, CRC: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			verify, err := sink.NewVerify(c.config)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(length)
			// The device leaves the data alone: each slot holds the frame of
			// its number, and is shown as that.
			run(b, slots, length, c.config, sink.Func(func(f *receive.Frame) receive.Verdict {
				f.Sequence = uint64(f.Slot)
				return verify.Take(f)
			}))
			if r := verify.Report(); r.Verified != uint64(b.N) {
				b.Errorf("%d of %d frames verified, first bad %v", r.Verified, b.N, r.First)
			}
		})
	}
	b.Run("discard", func(b *testing.B) { run(b, slots, length, sink.VerifyConfig{}, sink.Discard{}) })
	b.Run("file", func(b *testing.B) {
		b.SetBytes(length)
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		file, err := sink.NewFile(noSync{null}, sink.FileConfig{Slots: slots, NoSum: true})
		if err != nil {
			b.Fatal(err)
		}
		run(b, slots, length, sink.VerifyConfig{}, file)
		if r, err := file.Close(); err != nil || r.Frames != uint64(b.N) {
			b.Errorf("%+v, %v", r, err)
		}
	})
}

// noSync hides Sync, which the null device refuses.
type noSync struct{ file *os.File }

func (n noSync) Write(b []byte) (int, error) { return n.file.Write(b) }
func (n noSync) Close() error                { return n.file.Close() }

// run receives b.N frames.
func run(b *testing.B, slots, length int, c sink.VerifyConfig, s receive.Sink) {
	done, left := make(chan struct{}), b.N
	l, qp, memory := loop(b, slots, length, sink.Func(func(f *receive.Frame) receive.Verdict {
		v := s.Take(f)
		if left--; left == 0 {
			close(done)
		}
		return v
	}))
	for i := range slots {
		frame := memory[i*length : (i+1)*length]
		pattern.Fill(frame, c.Pattern, uint64(i))
		if c.CRC {
			if err := pattern.SealCRC(frame); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	qp.Generate(&scripted.Generator{ByteLen: uint32(length), Count: uint64(b.N)})
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	<-done
	b.StopTimer()
	l.Stop()
	if err := qp.SetError(); err != nil {
		b.Fatal(err)
	}
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
