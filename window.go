package rocelink

import "time"

// Window is what the receive loop saw in about one second, from the first
// message after idleness or the end of the window before.
type Window struct {
	Version int    `json:"version"`
	Host    string `json:"host"`
	Board   string `json:"board"`
	Stream  string `json:"stream"`
	Session Count  `json:"session"`
	Verb    Verb   `json:"verb"`
	Number  Count  `json:"number"` // of the window in its session, from 1

	Start time.Time `json:"start"` // host clock
	End   time.Time `json:"end"`
	// DurationNS is End-Start by the monotonic clock.
	DurationNS int64 `json:"duration_ns"`
	// FirstPacket is set in a window that began after idleness: when the first
	// completion was seen.
	FirstPacket *time.Time `json:"first_packet,omitempty"`
	// Last: the loop left; Reason says why.
	Last   bool   `json:"last,omitempty"`
	Reason string `json:"reason,omitempty"`

	Messages Count `json:"messages"`
	Bytes    Count `json:"bytes"`
	// BitsPerSecond is 8·Bytes over the true duration.
	BitsPerSecond float64 `json:"bits_per_second"`

	// Smallest and largest time between two polls that found something.
	MinGapNS int64 `json:"min_gap_ns"`
	MaxGapNS int64 `json:"max_gap_ns"`

	EmptyPolls Count `json:"empty_polls"`
	Batches    Count `json:"batches"`
	Sleeps     Count `json:"sleeps"`
	Reposts    Count `json:"reposts"`
	// ByStatus counts completions by status name, errors only.
	ByStatus map[string]Count `json:"by_status,omitempty"`

	Missing   Count `json:"missing"`   // frame sequences never seen
	Duplicate Count `json:"duplicate"` // seen again
	Late      Count `json:"late"`      // seen after a later one
	Overrun   Count `json:"overrun"`   // slots overwritten before or while they were looked at
	Corrupt   Count `json:"corrupt"`   // frames whose content is wrong
	Accepted  Count `json:"accepted"`  // frames the sink took
	Verified  Count `json:"verified"`  // frames whose content was checked and right

	// HeldSlots is how many slots consumers held at the end.
	HeldSlots Count `json:"held_slots"`
	Slots     Count `json:"slots"`

	// Total is the same since the session began.
	Total Totals `json:"total"`
}

// Totals are sums over a session.
type Totals struct {
	Messages  Count `json:"messages"`
	Bytes     Count `json:"bytes"`
	Missing   Count `json:"missing"`
	Duplicate Count `json:"duplicate"`
	Late      Count `json:"late"`
	Overrun   Count `json:"overrun"`
	Corrupt   Count `json:"corrupt"`
	Accepted  Count `json:"accepted"`
	Verified  Count `json:"verified"`
	Errors    Count `json:"errors"` // completions with an error, flushes not counted
	Flushed   Count `json:"flushed"`
}

// Add adds other to t.
func (t *Totals) Add(other Totals) {
	t.Messages += other.Messages
	t.Bytes += other.Bytes
	t.Missing += other.Missing
	t.Duplicate += other.Duplicate
	t.Late += other.Late
	t.Overrun += other.Overrun
	t.Corrupt += other.Corrupt
	t.Accepted += other.Accepted
	t.Verified += other.Verified
	t.Errors += other.Errors
	t.Flushed += other.Flushed
}

// Lost is how many frames did not arrive whole and once.
func (t Totals) Lost() Count { return t.Missing + t.Overrun + t.Corrupt + t.Errors }
