package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// The rate is exact over time, whatever the sizes divide into.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		kbps, burst, size uint32
		slack             time.Duration
	}{
		{1_000_000, 1, 8192, 0}, {999_983, 1, 1000, 0}, {64, 0, 1, 0}, {3, 1, 999, 0},
		{1_000_000, 16, 8192, 0}, {7_000_001, 3, 60_000, 0}, {1_000_000, 1, 8192, 20 * time.Millisecond},
		{3_000_000, 1, 100, 0}, // 266 2/3 ns: fractions add up
	} {
		t.Run(fmt.Sprintf("%d kb/s, %d bytes, burst %d", c.kbps, c.size, c.burst), func(t *testing.T) {
			w := newWorld(t, Config{QueuePairs: 1, PaceSlack: c.slack}, FaultConfig{})
			q := defaults()
			q.mtu, q.window = 4096, 256
			w.session(q, streamSettings{size: c.size, kbps: c.kbps, burst: c.burst})
			cost := time.Duration(float64(c.size) * 8e6 / float64(c.kbps))
			d := 2000*cost + cost/2
			w.run(d)
			burst := uint64(max(c.burst, 1))
			want := uint64(math.Floor(d.Seconds()*float64(c.kbps)*1000/(8*float64(c.size)))) + burst
			if got := w.streamStat(0, regs.StreamStatSourceFrames); got != want {
				t.Errorf("%d frames in %v, want %d", got, d, want)
			}
		})
	}
}

// A burst leaves back to back, then one frame at a time.
func TestBurst(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	var at []time.Duration
	w.tap = func([]byte) { at = append(at, w.now) }
	start := w.now
	w.session(defaults(), streamSettings{size: 1000, kbps: 8_000, burst: 4}) // 1 ms a frame
	w.run(5500 * time.Microsecond)
	want := []time.Duration{0, 0, 0, 0, 1, 2, 3, 4, 5}
	for i := range want {
		want[i] = start + want[i]*time.Millisecond
	}
	if !slices.Equal(at, want) {
		t.Errorf("packets at %v, want %v", at, want)
	}
}

// Late steps are caught up only as far as the slack goes.
func TestRateSlack(t *testing.T) {
	for slack, want := range map[time.Duration]uint64{0: 1001, 20 * time.Millisecond: 1021, 200 * time.Millisecond: 1101} {
		w := newWorld(t, Config{QueuePairs: 1, PaceSlack: slack}, FaultConfig{})
		w.session(defaults(), streamSettings{size: 1000, kbps: 8_000})
		w.f.Step(w.now)                      // the first frame
		w.now += 100*time.Millisecond + 1000 // nobody steps
		w.run(time.Second - 2000)
		got := w.streamStat(0, regs.StreamStatSourceFrames)
		if got+1 < want || got > want+1 {
			t.Errorf("slack %v: %d frames in 1.1 s, want %d", slack, got, want)
		}
	}
}

// No slot is overwritten that the host holds, and one that releases in time is
// never waited for.
func TestCredit(t *testing.T) {
	s := streamSettings{verb: regs.StreamConfigVerbWrite, size: 3000, credit: 1, count: 100}
	t.Run("held", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		hq, ring := w.session(defaults(), s)
		w.run(10 * time.Millisecond)
		if ring.next != 4 {
			t.Fatalf("%d frames into a ring of 4 slots that nobody releases", ring.next)
		}
		if n := w.streamStat(0, regs.StreamStatCreditStalls); n != 1 {
			t.Errorf("%d credit stalls, want 1", n)
		}
		reads := w.streamStat(0, regs.StreamStatCreditReads)
		if limit := uint64(10 * time.Millisecond / (20 * time.Microsecond)); reads < 10 || reads > limit {
			t.Errorf("the Credit word was read %d times in 10 ms", reads)
		}
		hq.mem[ring.slots*ring.stride] = 3 // released frames
		w.run(10 * time.Millisecond)
		if ring.next != 7 {
			t.Errorf("%d frames after 3 were released, want 7", ring.next)
		}
		if n := w.streamStat(0, regs.StreamStatReleased); n != 3 {
			t.Errorf("Released = %d, want 3", n)
		}
		ring.release()
		hq.mem[ring.slots*ring.stride] = 7
		w.delivered(0, s)
	})
	t.Run("in time", func(t *testing.T) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		q := defaults()
		q.window = 2 // less under way than half the ring
		_, ring := w.session(q, s)
		ring.release()
		w.delivered(0, s)
		if n := w.streamStat(0, regs.StreamStatCreditStalls); n != 0 {
			t.Errorf("%d credit stalls of a host that releases at once", n)
		}
		if n := w.streamStat(0, regs.StreamStatCreditReads); n == 0 || n > 100 {
			t.Errorf("%d READs of the Credit word for 100 frames", n)
		}
	})
}

// The READ checker finds a single wrong bit, wherever it is.
func TestReadFindsErrors(t *testing.T) {
	for _, crc := range []bool{false, true} {
		for _, at := range []int{0, 1, 1023, 1024, 4999 - 4, 4999} {
			w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
			s := streamSettings{verb: regs.StreamConfigVerbRead, size: 5000, count: 40, crc: crc, kind: regs.StreamConfigPatternPRBS31}
			hq, ring := w.session(defaults(), s)
			hq.mem[2*ring.stride+at] ^= 0x10
			w.until("stopped", time.Second, func() bool { return w.f.streams[0].state == streamStopped })
			good, bad := w.streamStat(0, regs.StreamStatReadGood), w.streamStat(0, regs.StreamStatReadBad)
			if good != 30 || bad != 10 {
				t.Errorf("CRC %v, byte %d: %d good, %d bad; want 30 and 10", crc, at, good, bad)
			}
		}
	}
}

// A READ outside the region is the peer's to refuse.
func TestReadRefused(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	hq, _ := w.session(defaults(), streamSettings{verb: regs.StreamConfigVerbRead, size: 5000, count: 40})
	hq.rkey++
	w.until("error", time.Second, func() bool { return w.f.qps[0].state == qpError })
	if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseRemoteAccess {
		t.Errorf("cause %d", cause)
	}
}

// READs under way are as many as the register says.
func TestMaxReads(t *testing.T) {
	for _, n := range []int{1, 2, 16} {
		w := newWorld(t, Config{QueuePairs: 1, MaxReads: n}, FaultConfig{})
		if got := w.read(w.core, regs.CoreMaxReads); got != uint32(n) {
			t.Errorf("MaxReads = %d, want %d", got, n)
		}
		hq, _ := w.session(defaults(), streamSettings{verb: regs.StreamConfigVerbRead, size: 100, count: 40})
		hq.mute = true
		w.run(time.Millisecond)
		if got := w.stat(0, regs.CoreStatPacketsSent); got != uint64(n) {
			t.Errorf("%d READs under way, want %d", got, n)
		}
	}
}

// Frames much larger than the retransmit ring, up to the largest.
func TestLargestFrame(t *testing.T) {
	for _, verb := range []uint32{regs.StreamConfigVerbSend, regs.StreamConfigVerbWrite, regs.StreamConfigVerbRead} {
		w := newWorld(t, Config{QueuePairs: 1, MaxWindow: 64}, FaultConfig{})
		q := defaults()
		q.mtu = 4096
		s := streamSettings{verb: verb, size: w.read(w.stream, regs.StreamMaxFrameBytes), count: 1, crc: true}
		w.session(q, s)
		w.delivered(0, s)
	}
}

func TestIPv6(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{Drop: 1, Seed: 4})
	w.frames = true
	w.host.addr = netip.MustParseAddr("2001:db8::20")
	w.address(regs.CoreLocalIP0, netip.MustParseAddr("2001:db8::10"))
	s := streamSettings{size: 5000, count: 100}
	w.tap = func(b []byte) {
		var f roce.Frame
		if err := f.Decode(b); err != nil || !f.ICRCOK(b) || f.Flow.Is4() {
			t.Fatalf("sent %x: %v", b, err)
		}
	}
	w.session(defaults(), s)
	w.delivered(0, s)
}

// What is on the wire is what the registers say.
func TestHeaders(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	q := defaults()
	var got []roce.Frame
	w.tap = func(b []byte) {
		var f roce.Frame
		if err := f.Decode(b); err != nil || !f.ICRCOK(b) {
			t.Fatalf("sent %x: %v", b, err)
		}
		f.Packet.Payload = nil
		got = append(got, f)
	}
	s := streamSettings{verb: regs.StreamConfigVerbWriteImm, size: 2500, count: 3, solicited: true}
	w.session(q, s)
	w.delivered(0, s)
	if len(got) != 9 {
		t.Fatalf("%d packets", len(got))
	}
	for i, f := range got {
		if f.Dst != hostMAC || f.Src != fabricMAC || f.Flow.Src != fabricIP || f.Flow.Dst != hostIP ||
			f.Flow.SrcPort != 0xC000 || f.Flow.ID != 0 || f.Flow.MayFragment || f.TrafficClass != 0x68 || f.TTL != 64 {
			t.Errorf("packet %d: headers %+v", i, f)
		}
		p := f.Packet
		first, last := i%3 == 0, i%3 == 2
		if p.PSN != q.psn.Add(i) || p.DestQP != q.remote() || p.PKey != 0xFFFF || !p.MigReq ||
			p.Opcode != roce.WriteOnlyImm.InMessage(first, last) || p.AckReq != last || p.SolicitedEvent != last {
			t.Errorf("packet %d: BTH %+v", i, p.BTH)
		}
		if first && (p.RETH.Length != 2500 || p.RETH.RKey != 0x1234 || p.RETH.Address != 0x7F12_8000_0000+uint64(i/3)*2520) {
			t.Errorf("packet %d: RETH %+v", i, p.RETH)
		}
		if last && p.Imm != uint32(i/3) {
			t.Errorf("packet %d: immediate %d", i, p.Imm)
		}
	}
}

// Queue pairs that all have work share the port evenly, whatever their number.
func TestFairness(t *testing.T) {
	for n := 2; n <= 16; n++ {
		w := newWorld(t, Config{QueuePairs: n}, FaultConfig{})
		w.oneWay = 0
		for i := range n {
			q := defaults()
			q.index, q.window = i, 256
			w.session(q, streamSettings{size: 16 * 1024})
		}
		for range 300 {
			w.tick(w.now)
		}
		least, most := uint64(math.MaxUint64), uint64(0)
		for i := range n {
			sent := w.f.qps[i].count.packetsSent
			least, most = min(least, sent), max(most, sent)
		}
		if least == 0 || most-least > 2*quantum {
			t.Errorf("%d queue pairs: one sent %d packets, another %d", n, least, most)
		}
	}
}

// Inside a message an acknowledgement is asked for often enough.
func TestAckRequests(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1, AckEvery: 10}, FaultConfig{})
	var at []int
	n := 0
	w.tap = func(b []byte) {
		if n++; b[headerBytes(true)+8]&0x80 != 0 {
			at = append(at, n)
		}
	}
	q := defaults()
	q.window = 256
	s := streamSettings{size: 35 * 1024, count: 2}
	w.session(q, s)
	w.delivered(0, s)
	if want := []int{10, 20, 30, 35, 45, 55, 65, 70}; !slices.Equal(at, want) {
		t.Errorf("acknowledgements asked for in packets %v, want %v", at, want)
	}
}

// The same registers and the same stimulus make the same packets.
func TestDeterministic(t *testing.T) {
	run := func() (all []byte) {
		w := newWorld(t, Config{MaxWindow: 32, Boot: 1}, FaultConfig{Drop: 3, Reorder: 3, Seed: 11})
		w.tap = func(b []byte) { all = append(all, b...) }
		for i := range 5 {
			q := defaults()
			q.index, q.window = i, 32
			w.session(q, streamSettings{index: i, verb: uint32(i), size: 4000, count: 40})
		}
		w.run(20 * time.Millisecond)
		return all
	}
	a, b := run(), run()
	if len(a) < 100_000 || !bytes.Equal(a, b) {
		t.Errorf("two runs sent %d and %d bytes, equal %v", len(a), len(b), bytes.Equal(a, b))
	}
}

// external runs a stream of a source and returns what the host got.
func external(t *testing.T, src *Source, s streamSettings) (frames [][]byte, w *world) {
	t.Helper()
	w = newWorld(t, Config{QueuePairs: 2, Sources: []*Source{nil, src}}, FaultConfig{Drop: 1, Seed: 2})
	if regs.CoreCapsExternal.Get(w.read(w.core, regs.CoreCaps)) != 1 {
		t.Error("Caps.External is not set")
	}
	again := func() {
		q := defaults()
		q.index = 1
		s.external = true
		hq, ring := w.session(q, s)
		if hq.wrote = nil; s.verb == regs.StreamConfigVerbWrite {
			hq.wrote = func(addr uint64, n int) error {
				if n != trailerBytes {
					frames = append(frames, bytes.Clone(hq.mem[addr-hq.base:][:n]))
				}
				return nil
			}
		}
		_ = ring
		hq.got = func(a arrived) error { frames = append(frames, bytes.Clone(a.data)); return nil }
		deadline := time.Now().Add(20 * time.Second)
		for w.f.streams[1].state != streamStopped {
			if !w.tick(w.now) {
				// Nothing to do but to wait for the reader, or for time.
				w.now += 10 * time.Microsecond
				if time.Now().After(deadline) {
					t.Fatal("the source does not end")
				}
			}
		}
		w.check()
		w.wire = nil
	}
	again()
	return frames, w
}

func TestExternalSource(t *testing.T) {
	data := make([]byte, 1<<20+4321)
	pattern.Fill(data, pattern.PRBS31, 5)
	for name, r := range map[string]io.Reader{
		"file":   bytes.NewReader(data),
		"pipe":   io.MultiReader(bytes.NewReader(data)),
		"pieces": iotest.OneByteReader(bytes.NewReader(data[:100_000])),
	} {
		for _, crc := range []bool{false, true} {
			for _, verb := range []uint32{regs.StreamConfigVerbSend, regs.StreamConfigVerbWrite} {
				if name != "file" && (crc || verb != 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", name, crc, verbName(verb)), func(t *testing.T) {
					src := NewSource(r, SourceConfig{Buffer: 100_000})
					defer src.Close()
					want := data
					if name == "pieces" {
						want = data[:100_000]
					}
					frames, w := external(t, src, streamSettings{verb: verb, size: 10_000, crc: crc})
					var got []byte
					for i, f := range frames {
						if i < len(frames)-1 && len(f) != 10_000 {
							t.Errorf("frame %d has %d bytes", i, len(f))
						}
						if crc {
							if !pattern.CheckCRC(f) {
								t.Errorf("frame %d of %d bytes has a wrong CRC", i, len(f))
							}
							f = f[:len(f)-4]
						}
						got = append(got, f...)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%d bytes arrived, %d were there", len(got), len(want))
					}
					if regs.StreamStatStateEnded.Get(func() uint32 { w.streamState(1); return w.read(w.stream, regs.StreamStatState) }()) != 1 {
						t.Error("Ended is not set")
					}
					if n := w.streamStat(1, regs.StreamStatSourceDropped); n != 0 {
						t.Errorf("%d frames of a file dropped", n)
					}
				})
			}
		}
	}
}

// A file begins anew with each session; a reader's error ends the stream and is
// told.
func TestExternalSourceAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	data := make([]byte, 50_000)
	pattern.Fill(data, pattern.Counter, 1)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	src := NewSource(f, SourceConfig{Buffer: 20_000})
	defer src.Close()
	for range 3 {
		frames, _ := external(t, src, streamSettings{size: 7000})
		if got := bytes.Join(frames, nil); !bytes.Equal(got, data) {
			t.Errorf("%d bytes arrived, %d were there", len(got), len(data))
		}
	}
	broken := errors.New("broken")
	src = NewSource(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), SourceConfig{})
	defer src.Close()
	external(t, src, streamSettings{size: 7000})
	if !errors.Is(src.Err(), broken) {
		t.Errorf("error of the source: %v", src.Err())
	}
	w := newWorld(t, Config{QueuePairs: 1, Sources: []*Source{src}}, FaultConfig{})
	w.fillStream(streamSettings{external: true, size: 0})
	if code, detail := w.command(w.stream, regs.StreamCommandOpCommit, 0); code != regs.StreamCommandStatusCodeBadValue || detail != uint32(regs.StreamFrameBytes) {
		t.Errorf("empty frames of an external source: status %d, detail %#x", code, detail)
	}
}

// What is left of a file in the ring is forgotten when it begins anew.
func TestSourceRestart(t *testing.T) {
	data := make([]byte, 10_000)
	pattern.Fill(data, pattern.PRBS31, 1)
	s := NewSource(bytes.NewReader(data), SourceConfig{Buffer: 3000})
	defer s.Close()
	for i := range 5 {
		s.begin(500)
		deadline := time.Now().Add(10 * time.Second)
		got := make([]byte, 500*(i+1))
		for at := 0; at < len(got); at += 500 {
			for {
				if n, _ := s.ready(500); n == 500 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("nothing comes")
				}
				runtime.Gosched()
			}
			s.read(got[at : at+500])
		}
		if !bytes.Equal(got, data[:len(got)]) {
			t.Errorf("start %d: not the beginning of the file", i)
		}
	}
}

// A lossy source drops whole frames while nobody takes them; a file waits.
func TestLossySource(t *testing.T) {
	data := make([]byte, 100_000)
	src := NewSource(bytes.NewBuffer(data), SourceConfig{Buffer: 25_000, Lossy: true})
	defer src.Close()
	w := newWorld(t, Config{QueuePairs: 1, Sources: []*Source{src}}, FaultConfig{})
	w.openQP(defaults())
	w.fillStream(streamSettings{external: true, size: 10_000})
	w.must(w.stream, regs.StreamCommandOpCommit, 0) // it flows from now on
	w.settled("end of the source", func() bool { return src.ended.Load() })
	w.must(w.stream, regs.StreamCommandOpStart, 0)
	w.until("stopped", time.Second, func() bool { return w.f.streams[0].state == streamStopped })
	if taken, dropped := w.streamStat(0, regs.StreamStatSourceFrames), w.streamStat(0, regs.StreamStatSourceDropped); taken != 2 || dropped != 8 {
		t.Errorf("%d frames taken, %d dropped; want 2 and 8", taken, dropped)
	}
}
