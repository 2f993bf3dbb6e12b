package rocelink

import "time"

// Window is what the receive loop saw in about one second, from the first
// message after idleness or the end of the window before.
type Window struct {
	Version int    `json:"version"` // of the contract
	Host    string `json:"host"`    // name of the agent
	Board   string `json:"board"`   // name of the board
	Stream  string `json:"stream"`  // name the agent gave the stream
	Session Count  `json:"session"` // number the board gave at open
	Verb    Verb   `json:"verb"`    // send, send-imm, write, write-imm or read
	Number  Count  `json:"number"`  // of the window in its session, from 1

	Start time.Time `json:"start"` // host clock
	End   time.Time `json:"end"`   // host clock
	// DurationNS is End-Start by the monotonic clock.
	DurationNS int64 `json:"duration_ns"`
	// FirstPacket is set in a window that began after idleness: when the first
	// completion was seen.
	FirstPacket *time.Time `json:"first_packet,omitempty"`
	// Last: the loop left; Reason says why.
	Last   bool   `json:"last,omitempty"`
	Reason string `json:"reason,omitempty"` // why the loop left

	Messages Count `json:"messages"` // completions without error, or slots found written
	Bytes    Count `json:"bytes"`    // of those messages
	// BitsPerSecond is 8·Bytes over the true duration. In a window with
	// first_packet the bytes of the first batch are left out: they came before
	// the window began.
	BitsPerSecond float64 `json:"bits_per_second"`

	// Smallest and largest time between two polls that found something.
	MinGapNS int64 `json:"min_gap_ns"` // smallest time between two polls that found something
	MaxGapNS int64 `json:"max_gap_ns"` // largest such time

	EmptyPolls Count `json:"empty_polls"` // polls that found nothing
	Batches    Count `json:"batches"`     // polls that found something
	Sleeps     Count `json:"sleeps"`      // waits on the completion channel
	Reposts    Count `json:"reposts"`     // receives posted again
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
	Slots     Count `json:"slots"` // slots of the region

	// Counters is what the device's own counters moved by since the window
	// before, by name; those that did not move are left out. They are the whole
	// device's, not the stream's, and some devices refresh them rarely.
	Counters map[string]Count `json:"counters,omitempty"`

	// Total is the same since the session began.
	Total Totals `json:"total"`
}

// StatusFlushed is the key of ByStatus for receives that ended unused because
// the queue pair went to error, as at the end of every session.
const StatusFlushed = "flushed"

// Failures is how many completions had an error of their own.
func (w Window) Failures() (n Count) {
	for status, k := range w.ByStatus {
		if status != StatusFlushed {
			n += k
		}
	}
	return n
}

// Totals are sums over a session.
type Totals struct {
	Messages  Count `json:"messages"`  // completions without error, or slots found written
	Bytes     Count `json:"bytes"`     // of those messages
	Missing   Count `json:"missing"`   // frame sequences never seen
	Duplicate Count `json:"duplicate"` // seen again
	Late      Count `json:"late"`      // seen after a later one
	Overrun   Count `json:"overrun"`   // slots overwritten before or while they were looked at
	Corrupt   Count `json:"corrupt"`   // content wrong
	Accepted  Count `json:"accepted"`  // taken by the sink
	Verified  Count `json:"verified"`  // content checked and right
	Errors    Count `json:"errors"`    // completions with an error, flushes not counted
	Flushed   Count `json:"flushed"`   // receives that ended unused
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
