package receive

import (
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/verbs/scripted"
)

// A window closes on time though nothing more comes, is not followed by empty
// ones, and the message after a silence is a first packet again.
func TestWindowAfterSilence(t *testing.T) {
	const length = 20 * time.Millisecond
	cross(t, streaming, func(t *testing.T, c Config) {
		c.Window, c.Host, c.Board, c.Stream, c.Session = length, "h", "b", "s", 1<<60
		r := newRig(t, c, scripted.Config{})
		go func() {
			r.ended <- r.loop.Run()
		}()
		take := func() *rocelink.Window {
			t.Helper()
			select {
			case w := <-r.loop.Windows():
				r.windows = append(r.windows, w)
				return w
			case <-time.After(patience):
				t.Fatal("no window")
				return nil
			}
		}
		for q := range uint64(3) {
			before := time.Now()
			r.send(q, frame(q, 64))
			w := take()
			if w.Messages != 1 || w.Bytes != 64 || w.Batches != 1 || w.Number != rocelink.Count(q+1) {
				t.Errorf("window %+v", w)
			}
			if w.Host != "h" || w.Board != "b" || w.Stream != "s" || w.Session != 1<<60 || w.Verb != c.Verb || w.Version != rocelink.Version {
				t.Errorf("window %+v is not this stream's", w)
			}
			if d := time.Duration(w.DurationNS); d < length {
				t.Errorf("window of %v, want %v at least", d, length)
			}
			if w.FirstPacket == nil || w.FirstPacket.Before(before) || !w.FirstPacket.Equal(w.Start) {
				t.Errorf("first packet %v, sent after %v", w.FirstPacket, before)
			}
			if w.MinGapNS != 0 || w.MaxGapNS != 0 {
				t.Errorf("gaps %d to %d of one batch", w.MinGapNS, w.MaxGapNS)
			}
			<-time.After(length + length/2) // silence
		}
		r.loop.Stop()
		r.must(r.qp.SetError())
		take()
		r.must(r.wait())
	})
}

// Under traffic windows follow each other without a gap.
func TestWindowsOfTraffic(t *testing.T) {
	cross(t, streaming, func(t *testing.T, c Config) {
		c.Window = 30 * time.Millisecond
		r := newRig(t, c, scripted.Config{})
		go func() { r.ended <- r.loop.Run() }()
		q := uint64(0)
		for ; len(r.windows) < 4; q++ {
			r.send(q, frame(q, 64))
			select {
			case w := <-r.loop.Windows():
				r.windows = append(r.windows, w)
			default:
			}
		}
		r.seen(q)
		r.loop.Stop()
		r.must(r.qp.SetError())
		for w := range r.loop.Windows() {
			r.windows = append(r.windows, w)
		}
		r.must(r.wait())
		follows, gaps := 0, 0
		for i, w := range r.windows {
			if w.Batches > 1 {
				gaps++
				if w.MinGapNS <= 0 {
					t.Errorf("window %d: smallest gap %d ns in %d batches", i+1, w.MinGapNS, w.Batches)
				}
			}
			if w.FirstPacket != nil || w.Last {
				continue
			}
			follows++
			if i == 0 || !w.Start.Equal(r.windows[i-1].End) {
				t.Errorf("window %d starts at %v, not where the one before ended", i+1, w.Start)
			}
		}
		if r.windows[0].FirstPacket == nil || follows == 0 || gaps == 0 {
			t.Errorf("first packet %v, %d windows follow another, %d have gaps", r.windows[0].FirstPacket, follows, gaps)
		}
	})
}

// The rate of a first window is that of what came after its start.
func TestRateOfAFirstWindow(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend, Window: time.Hour, FrameBytes: 64, Stride: 64}, scripted.Config{})
	r.run()
	r.send(0, frame(0, 60))
	r.seen(1)
	r.send(1, frame(1, 8))
	r.seen(2)
	r.stop()
	w := r.last()
	if want := 8 * 8 / (float64(w.DurationNS) / 1e9); w.FirstPacket == nil || w.BitsPerSecond != want {
		t.Errorf("%v b/s, want the %v of the 8 bytes after the first batch", w.BitsPerSecond, want)
	}
}

// A sink that stalls the loop makes a window long, and costs no counts.
func TestStalledLoop(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbSend, Window: 5 * time.Millisecond}, scripted.Config{})
	stall := make(chan struct{})
	r.loop.cfg.Sink = funcSink(func(f *Frame) Verdict {
		if f.Sequence == 2 {
			<-stall
		}
		return 0
	})
	r.run()
	r.sendAll(0, 3)
	<-time.After(30 * time.Millisecond)
	close(stall)
	r.sendAll(3, 10)
	r.seen(10)
	r.stop()
	long := false
	for _, w := range r.windows {
		long = long || w.DurationNS >= int64(25*time.Millisecond)
	}
	if !long {
		t.Errorf("no window tells of the stall")
	}
}

// Nobody takes windows: the loop goes on, the newest stay, the last among them.
func TestNoReader(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbRead, Window: MinWindow}, scripted.Config{})
	go func() { r.ended <- r.loop.Run() }()
	r.until(func() bool { return r.loop.Dropped() >= 3 }, "windows are dropped")
	r.loop.Stop()
	err := <-r.ended
	for w := range r.loop.Windows() {
		r.windows = append(r.windows, w)
	}
	r.must(err)
	if len(r.windows) != windowsKept {
		t.Errorf("%d windows left, want %d", len(r.windows), windowsKept)
	}
	for i, w := range r.windows {
		if w.Number != rocelink.Count(r.loop.Dropped())+rocelink.Count(i)+1 {
			t.Errorf("window %d left is number %d, %d were dropped", i, w.Number, r.loop.Dropped())
		}
	}
	r.checkWindows()
}

// Reposts are counted, the receives of Prepare are not.
func TestReposts(t *testing.T) {
	for _, v := range completing {
		r := newRig(t, Config{Verb: v}, scripted.Config{})
		r.run()
		r.sendAll(0, 40)
		r.until(func() bool { return r.qp.Outstanding() == r.cfg.receives() }, "all receives are posted again")
		r.seen(40)
		r.stop()
		var n rocelink.Count
		for _, w := range r.windows {
			n += w.Reposts
		}
		if n != 40 {
			t.Errorf("%s: %d re-posts of 40 messages", v, n)
		}
	}
}

// The end of the window is what a sleep ends at, not the next look at the queue
// pair's state.
func TestWindowEndsSleep(t *testing.T) {
	const length = 400 * time.Millisecond
	for try := range 4 {
		r := newRig(t, Config{Verb: rocelink.VerbSend, Window: length}, scripted.Config{})
		go func() { r.ended <- r.loop.Run() }()
		<-time.After(length / 2) // the state is looked at in the middle of the window
		r.send(0, frame(0, 64))
		w := <-r.loop.Windows()
		r.loop.Stop()
		r.must(r.qp.SetError())
		<-r.ended
		d := time.Duration(w.DurationNS)
		if d >= length && d < length+length/3 {
			return
		}
		if try == 3 {
			t.Errorf("window of %v, want %v", d, length)
		}
	}
}
