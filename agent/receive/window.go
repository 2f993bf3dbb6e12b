package receive

import (
	"time"

	"rocelink"
	"rocelink/agent/verbs"
)

// windowsKept is how many windows wait for a reader.
const windowsKept = 8

// publishEvery is the most that Loop.Totals lags while there is traffic.
const publishEvery = time.Millisecond

// account is what the loop counts, and the window it is in.
//
// Time is cut into windows as long as there is traffic: the first begins with
// the first message, each other where the one before ended. A stretch as long
// as a window without a message is idleness; the message after it is a first
// packet again, and nothing is published for the time between.
type account struct {
	total  rocelink.Totals
	before rocelink.Totals // total at the end of the window before

	// Of the window.
	open        bool
	start       time.Time
	endAt       time.Duration
	first       bool           // began after idleness
	lead        rocelink.Count // then: bytes of the first batch, which came before start
	minGap      time.Duration
	maxGap      time.Duration
	emptyPolls  uint64
	sleeps      uint64
	batches     uint64
	reposts     uint64
	byStatus    [verbs.Statuses]uint64
	named       map[string]rocelink.Count
	number      uint64
	previousEnd time.Time // of the window before; zero if there is none

	batchAt time.Duration // of the latest batch since idleness
	batched bool

	dirty  bool // total changed since it was stored for others
	stored time.Duration
}

// begin opens the first window of a verb that has no messages to begin with.
func (a *account) begin(l *Loop) {
	if l.kind == kindRead {
		a.start, a.endAt, a.open = l.begin, l.cfg.Window, true
	}
}

// arrived notes that a poll found something.
func (a *account) arrived(l *Loop, now time.Duration) {
	if !a.open {
		a.enter(l)
	}
	if a.batches == 1 && a.first {
		a.lead = a.total.Bytes - a.before.Bytes
	}
	a.batches++
	if a.batched {
		gap := now - a.batchAt
		if a.minGap == 0 || gap < a.minGap {
			a.minGap = gap
		}
		a.maxGap = max(a.maxGap, gap)
	}
	a.batchAt, a.batched = now, true
	a.dirty = true
}

// enter opens a window.
func (a *account) enter(l *Loop) {
	now := time.Now()
	a.open, a.first, a.start = true, false, a.previousEnd
	if a.previousEnd.IsZero() || now.Sub(a.previousEnd) >= l.cfg.Window {
		a.first, a.start = true, now
		a.batched = false
		a.emptyPolls, a.sleeps = 0, 0
	}
	a.endAt = a.start.Sub(l.begin) + l.cfg.Window
}

// empty notes a poll that found nothing, sleep a sleep. Those in idleness are
// nobody's.
func (a *account) empty() { a.emptyPolls++ }
func (a *account) sleep() { a.sleeps++ }

// name counts an error that has no status.
func (a *account) name(s string) {
	if a.named == nil {
		a.named = make(map[string]rocelink.Count)
	}
	a.named[s]++
}

// closes says when the open window ends.
func (a *account) closes() (time.Duration, bool) { return a.endAt, a.open }

// tick stores the totals for others and closes the window when it is time.
func (a *account) tick(l *Loop, now time.Duration, n int) {
	if a.dirty && (n == 0 || now-a.stored >= publishEvery) {
		a.store(l, now)
	}
	if a.open && now >= a.endAt {
		a.store(l, now)
		l.publish(a.close(l))
		a.open = l.kind == kindRead
	}
}

func (a *account) store(l *Loop, now time.Duration) {
	l.totals.store(&a.total)
	a.dirty, a.stored = false, now
}

// last publishes the window that says why the loop left.
func (a *account) last(l *Loop, reason string) {
	if !a.open {
		a.enter(l)
		a.first = false // there was no packet
	}
	a.store(l, l.now())
	w := a.close(l)
	w.Last, w.Reason = true, reason
	l.publish(w)
}

// close makes the record of the window and starts counting anew.
func (a *account) close(l *Loop) *rocelink.Window {
	end := time.Now()
	a.number++
	t, b := &a.total, &a.before
	w := &rocelink.Window{
		Version: rocelink.Version,
		Host:    l.cfg.Host, Board: l.cfg.Board, Stream: l.cfg.Stream, Session: l.cfg.Session,
		Verb: l.cfg.Verb, Number: rocelink.Count(a.number),
		Start: a.start, End: end, DurationNS: int64(end.Sub(a.start)),
		Messages: t.Messages - b.Messages, Bytes: t.Bytes - b.Bytes,
		MinGapNS: int64(a.minGap), MaxGapNS: int64(a.maxGap),
		EmptyPolls: rocelink.Count(a.emptyPolls), Batches: rocelink.Count(a.batches),
		Sleeps: rocelink.Count(a.sleeps), Reposts: rocelink.Count(a.reposts),
		Missing: t.Missing - b.Missing, Duplicate: t.Duplicate - b.Duplicate, Late: t.Late - b.Late,
		Overrun: t.Overrun - b.Overrun, Corrupt: t.Corrupt - b.Corrupt,
		Accepted: t.Accepted - b.Accepted, Verified: t.Verified - b.Verified,
		HeldSlots: rocelink.Count(l.held), Slots: rocelink.Count(l.cfg.Slots),
		Total: *t,
	}
	if l.pool != nil {
		w.HeldSlots = rocelink.Count(l.Held()) // the others' are not this stream's
	}
	rated := w.Bytes
	switch {
	case a.first && a.batches < 2:
		rated = 0 // all came before the start: a rate would be made up
	case a.first:
		rated -= a.lead
	}
	if w.DurationNS > 0 {
		w.BitsPerSecond = 8 * float64(rated) / (float64(w.DurationNS) / 1e9)
	}
	if a.first && w.Messages > 0 {
		first := a.start
		w.FirstPacket = &first
	}
	w.ByStatus, a.named = a.named, nil
	for s, n := range a.byStatus {
		if n == 0 {
			continue
		}
		if w.ByStatus == nil {
			w.ByStatus = make(map[string]rocelink.Count)
		}
		w.ByStatus[verbs.Status(s).String()] += rocelink.Count(n)
		a.byStatus[s] = 0
	}
	a.before = *t
	a.open, a.first, a.previousEnd, a.start = false, false, end, end
	a.endAt = end.Sub(l.begin) + l.cfg.Window
	a.minGap, a.maxGap = 0, 0
	a.emptyPolls, a.sleeps, a.batches, a.reposts = 0, 0, 0, 0
	return w
}

// publish passes a window on without ever waiting: the newest wins.
func (l *Loop) publish(w *rocelink.Window) {
	for {
		select {
		case l.windows <- w:
			return
		default:
		}
		select {
		case <-l.windows:
			l.dropped.Add(1)
		default:
		}
	}
}
