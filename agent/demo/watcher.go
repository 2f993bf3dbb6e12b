package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/stream"
)

// boardView is the last status of the board.
type boardView struct {
	mu   sync.Mutex
	last rocelink.BoardStatus
}

func newBoardView() *boardView { return &boardView{} }

func (b *boardView) status() rocelink.BoardStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

func (b *boardView) set(s rocelink.BoardStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = s
}

// missing names the streams the board does not run yet.
func (b *boardView) missing(verbs []rocelink.Verb) string {
	status := b.status()
	running := map[string]bool{}
	for _, s := range status.Streams {
		running[s.Stream] = s.State != rocelink.StreamOpen && s.State != rocelink.StreamClosed
	}
	var names []string
	for _, v := range verbs {
		if !running[string(v)] {
			names = append(names, string(v))
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case status.Board == "":
		return "the board was not heard"
	case !status.Fabric.Present:
		return "fabric missing: " + status.Fabric.Problem
	case !status.Link.Up:
		return "link down: " + status.Link.Problem
	}
	return "not running: " + strings.Join(names, ", ")
}

// watcher follows what host and board publish.
type watcher struct {
	nc      *nats.Conn
	changed chan struct{}
	board   *boardView
	unit    unit

	mu       sync.Mutex
	latest   map[string]map[rocelink.Count]rocelink.Window // by stream and session
	interval map[string]sample
	before   rocelink.BoardStatus // when the line before was made
}

// unit is one of rates.
type unit struct {
	name string
	bits float64 // a second
}

// sample sums windows since the line before.
type sample struct {
	messages, gaps, errors uint64
	bits, seconds          float64
}

func newWatcher(url string, board *boardView, u unit) (*watcher, error) {
	w := &watcher{changed: make(chan struct{}, 1), board: board, unit: u, latest: map[string]map[rocelink.Count]rocelink.Window{}, interval: map[string]sample{}}
	nc, err := rocelink.Connect(rocelink.Access{URL: url}, rocelink.Client{Name: "rocelink-demo", Retry: true})
	if err != nil {
		return nil, err
	}
	w.nc = nc
	for subject, take := range map[string]nats.MsgHandler{rocelink.AnyWindow: w.window, rocelink.AnyBoardStatus: w.status} {
		if _, err := nc.Subscribe(subject, take); err != nil {
			nc.Close()
			return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
	}
	return w, nil
}

func (w *watcher) close() { w.nc.Close() }

// drain takes what was published before the server went.
func (w *watcher) drain() { _ = w.nc.FlushTimeout(100 * time.Millisecond) }

func (w *watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watcher) status(m *nats.Msg) {
	var s rocelink.BoardStatus
	if rocelink.Decode(m.Data, &s) != nil || s.Board != boardName {
		return
	}
	w.board.set(s)
	w.signal()
}

func (w *watcher) window(m *nats.Msg) {
	var r rocelink.Window
	if rocelink.Decode(m.Data, &r) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest[r.Stream] == nil {
		w.latest[r.Stream] = map[rocelink.Count]rocelink.Window{}
	}
	w.latest[r.Stream][r.Session] = r
	s := w.interval[r.Stream]
	s.messages += uint64(r.Messages)
	s.gaps += uint64(r.Missing + r.Late + r.Duplicate)
	s.errors += uint64(r.Corrupt + r.Overrun)
	s.errors += uint64(r.Failures())
	s.bits += float64(r.Bytes) * 8
	s.seconds += time.Duration(r.DurationNS).Seconds()
	w.interval[r.Stream] = s
}

// sample asks the board for its counters now; without an answer the last
// status has to do.
func (w *watcher) sample() {
	ctx, cancel := context.WithTimeout(context.Background(), sampleLimit)
	defer cancel()
	var s rocelink.BoardStatus
	if stream.Request(ctx, w.nc, boardName, rocelink.EndpointStatus, nil, &s) == nil {
		w.board.set(s)
	}
}

const sampleLimit = 300 * time.Millisecond

// begin makes the next line count from now.
func (w *watcher) begin() {
	w.sample()
	now := w.board.status()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = now
	clear(w.interval)
}

func (w *watcher) heading(verbs []rocelink.Verb) string {
	h := fmt.Sprintf("%6s %10s %9s", "time", "messages", w.unit.name)
	for _, v := range verbs {
		h += fmt.Sprintf(" %9s", v)
	}
	return h + fmt.Sprintf(" %6s %6s %7s", "gaps", "errors", "resent")
}

// line is the last second. READ is counted by the board, everything else by
// the host.
func (w *watcher) line(at time.Duration, verbs []rocelink.Verb) string {
	w.sample()
	now := w.board.status()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range now.Streams {
		if s.Verb != rocelink.VerbRead {
			continue
		}
		if old, ok := streamOf(w.before, s.Session); ok && now.SampledMS > w.before.SampledMS {
			// What the host counts of a READ stream is the loop's, not frames.
			w.interval[s.Stream] = sample{
				messages: uint64(s.FramesDone - old.FramesDone),
				errors:   uint64(s.ReadBad - old.ReadBad),
				bits:     float64(s.BytesDone-old.BytesDone) * 8,
				seconds:  float64(now.SampledMS-w.before.SampledMS) / 1e3,
			}
		}
	}
	var resent uint64
	for _, s := range now.Streams {
		if old, ok := streamOf(w.before, s.Session); ok {
			resent += uint64(s.PacketsResent - old.PacketsResent)
		}
	}
	w.before = now
	var sum sample
	columns := ""
	for _, v := range verbs {
		s := w.interval[string(v)]
		rate := 0.0
		if s.seconds > 0 {
			rate = s.bits / s.seconds / w.unit.bits
		}
		sum.messages += s.messages
		sum.gaps += s.gaps
		sum.errors += s.errors
		sum.bits += rate
		columns += fmt.Sprintf(" %9.3f", rate)
	}
	clear(w.interval)
	return fmt.Sprintf("%4.0f s %10d %9.3f%s %6d %6d %7d", at.Seconds(), sum.messages, sum.bits, columns, sum.gaps, sum.errors, resent)
}

func streamOf(b rocelink.BoardStatus, session rocelink.Count) (rocelink.StreamStatus, bool) {
	for _, s := range b.Streams {
		if s.Session == session {
			return s, true
		}
	}
	return rocelink.StreamStatus{}, false
}

// sessions is how many sessions have brought messages.
func (w *watcher) sessions() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sessions := range w.latest {
		for _, r := range sessions {
			if r.Total.Messages > 0 {
				n++
			}
		}
	}
	return n
}

// total is the sum of all sessions.
func (w *watcher) total() (t rocelink.Totals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sessions := range w.latest {
		for _, r := range sessions {
			t.Add(r.Total)
		}
	}
	return t
}

// lost names what sessions lost according to their last windows, also those of
// a rocelinkd that was killed.
func (w *watcher) lost() (problems []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, sessions := range w.latest {
		for _, r := range sessions {
			if n := r.Total.Lost() + r.Total.Late + r.Total.Duplicate; n > 0 {
				problems = append(problems, fmt.Sprintf("stream %s, session %x: %d frames missing, late, duplicate, overrun, corrupt or in error", name, uint64(r.Session), n))
			}
		}
	}
	return problems
}
