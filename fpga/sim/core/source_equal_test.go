//go:build verilator

package core

import (
	"math/rand/v2"
	"sync"
	"testing"

	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// feed is what the model's source reads: what was given to it since it began
// anew. Whoever gives waits until the source has it all, so that nothing here
// depends on when its goroutine runs.
type feed struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte
	begun   int  // how often it was set to its beginning
	waits   bool // in Read, with nothing to return
	stirred bool
}

func newFeed() *feed {
	f := &feed{}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// Read waits for data. A source that reads again has published what it got.
func (f *feed) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.waits = true; len(f.data) == 0 && !f.stirred; f.changed.Wait() {
		f.changed.Broadcast()
	}
	f.waits, f.stirred = false, false
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

// Seek drops what was not read.
func (f *feed) Seek(int64, int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = nil
	f.begun++
	return 0, nil
}

// begin returns when the source has begun for the nth time.
func (f *feed) begin(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stirred = true // it looks up from Read only with a result
	for f.changed.Broadcast(); f.begun < n || !f.waits; f.changed.Wait() {
	}
}

// give returns when the source has the data.
func (f *feed) give(data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = append(f.data, data...)
	for f.changed.Broadcast(); len(f.data) > 0 || !f.waits; f.changed.Wait() {
	}
}

// The external source of RTL and model: the same frames of FrameBytes to both,
// random commands, acknowledgements and NAKs, a generator beside it, and each
// time the same packets, registers and counters. The model cuts frames from a
// stream of bytes, so they all have one length; there are never more than the
// RTL's memory takes at once, since what is still outside of it when a session
// ends is for the next, which a model that begins anew has thrown away.
func TestEqualSource(t *testing.T) {
	const sequences, steps, most = 6, 100, 20 // frames that a source holds
	var taken, sessions uint64
	count := func(p *pair) {
		p.streamState(0)
		taken += p.get64(p.stream, regs.StreamStatSourceFrames)
	}
	for seed := range uint64(sequences) {
		rng := rand.New(rand.NewPCG(seed, 3))
		f := newFeed()
		source := model.NewSource(f, model.SourceConfig{Buffer: 1 << 20})
		p := newPair(t, uint32(seed), source)
		p.seen = map[string]bool{}
		var begun int
		var bytes, offered uint32
		var did []string
		for range steps {
			kind := []string{"offer", "offer", "offer", "offer", "offer", "ack", "ack", "ack", "ack", "ack", "ack", "ack", "ack",
				"rnr", "nak", "stale", "damage", "stop", "wait", "setup", "session"}[rng.IntN(21)]
			if bytes == 0 {
				kind = "session"
			}
			did = append(did, kind)
			switch kind {
			case "session":
				count(p)
				q := qp(0)
				q.mtu, q.window, q.psn = roce.MTU([]int{256, 1024, 4096}[rng.IntN(3)]), []uint32{7, 16, 40}[rng.IntN(3)], roce.PSN(rng.Uint32N(1<<24))
				q.timeout = []uint32{0, 4}[rng.IntN(2)]
				bytes, offered = []uint32{1, 63, 64, 256, 1000, 5000, 9001}[rng.IntN(7)], 0
				c := streamConfig{verb: uint32(rng.IntN(4)), external: true, bytes: bytes, slots: 3, stride: 9024, base: rng.Uint64() >> 1, solicited: rng.IntN(2) == 0}
				p.run(true, regs.StreamCommandOpReset, 0)
				p.run(false, regs.CoreCommandOpReset, 0)
				p.both(func(b *bench) { b.program(q); b.describe(c) })
				p.run(false, regs.CoreCommandOpCommit, 0)
				p.run(true, regs.StreamCommandOpCommit, 0)
				begun++
				f.begin(begun)
				p.run(true, regs.StreamCommandOpStart, 0)
				sessions++
			case "offer":
				p.streamState(0)
				n := uint32(p.get64(p.stream, regs.StreamStatSourceFrames))
				for range min(most-(offered-n), 1+rng.Uint32N(6)) {
					frame := make([]byte, bytes)
					for i := range frame {
						frame[i] = byte(rng.Uint32())
					}
					p.settle()
					p.Offer(frame, rng.IntN(200))
					f.give(frame)
					offered++
				}
				for p.settle(); p.Offered() > 0; p.settle() {
				}
			case "setup": // of another one
				p.do(step{kind, seedOf(rng, 1+rng.Uint64N(2))})
			default:
				p.do(step{kind, seedOf(rng, 0)})
			}
			p.compare()
			if t.Failed() {
				t.Fatalf("seed %d, after %v", seed, did)
			}
		}
		count(p)
		if err := source.Close(); err != nil {
			t.Error(err)
		}
		f.mu.Lock() // its goroutine is in Read
		f.stirred = true
		f.changed.Broadcast()
		f.mu.Unlock()
	}
	if taken < 20*sequences || sessions < 2*sequences {
		t.Errorf("only %d frames were taken in %d sessions", taken, sessions)
	}
	t.Logf("%d frames in %d sessions", taken, sessions)
}

// seedOf is a seed of a step that is for a queue pair.
func seedOf(rng *rand.Rand, index uint64) uint64 {
	for {
		seed := rng.Uint64() >> 40
		if rand.New(rand.NewPCG(seed, 77)).Uint64N(3) == index {
			return seed
		}
	}
}
