package heard

import (
	"time"

	"rocelink"
)

// View is what the store knew at one instant. It shares nothing that changes;
// whoever has one may keep it and read it from any goroutine, but not write.
type View struct {
	Now time.Time // by the clock of this machine, with its monotonic reading
	// Connected is false while there is no NATS server: nothing can be heard.
	Connected bool
	// Since is when Connected last changed; zero while it never did.
	Since time.Time
	// Stale is the silence after which a record is old.
	Stale   time.Duration
	Boards  []Board // by name
	Hosts   []Host  // by name
	Windows []Window
	Events  []Event // oldest first
	Refused map[Reason]uint64
}

// Board is what was heard of one board, newest first.
type Board struct {
	Name string
	// Heard holds records of the present epoch whose counters were taken at
	// different times, newest first; there is at least one.
	Heard []BoardHeard
	// Starts counts the epochs begun since the board was first heard, and
	// Started is when the last of them was noticed; zero for the first.
	Starts  uint64
	Started time.Time
	// StartsLately are those within StartsWithin.
	StartsLately int
	// FabricOnly: at the last of them the program went on, and set its fabric up
	// again.
	FabricOnly bool
	// Twice: two programs publish under this name.
	Twice bool
}

// BoardHeard is a record with the time of its arrival.
type BoardHeard struct {
	rocelink.BoardStatus
	At time.Time
}

// Sampled is when the stream counters were taken, by the clock of this machine.
// It is late by the time the record was under way, never early.
func (b BoardHeard) Sampled() time.Time {
	late := min(max(b.UptimeMS-b.SampledMS, 0), maxLate.Milliseconds())
	return b.At.Add(-time.Duration(late) * time.Millisecond)
}

// maxLate bounds what a record may say of its own age.
const maxLate = time.Hour

// Last is the newest record.
func (b Board) Last() BoardHeard { return b.Heard[0] }

// Silent is how long nothing was heard.
func (b Board) Silent(now time.Time) time.Duration { return max(now.Sub(b.Last().At), 0) }

// Host is what was heard of one host, newest first, as of Board.
type Host struct {
	Name    string
	Heard   []HostHeard
	Starts  uint64
	Started time.Time
	Twice   bool
}

// HostHeard is a record with the time of its arrival.
type HostHeard struct {
	rocelink.HostStatus
	At time.Time
}

// Last is the newest record.
func (h Host) Last() HostHeard { return h.Heard[0] }

// Silent is how long nothing was heard.
func (h Host) Silent(now time.Time) time.Duration { return max(now.Sub(h.Last().At), 0) }

// Window is the last window of a stream.
type Window struct {
	rocelink.Window
	At time.Time
}

// Event is an event with the time of its arrival and a number that grows.
type Event struct {
	rocelink.Event
	Number uint64
	At     time.Time
	Board  bool // from a board, not from a host
}

// Board finds a board by name.
func (v View) Board(name string) (Board, bool) {
	for _, b := range v.Boards {
		if b.Name == name {
			return b, true
		}
	}
	return Board{}, false
}

// Host finds a host by name.
func (v View) Host(name string) (Host, bool) {
	for _, h := range v.Hosts {
		if h.Name == name {
			return h, true
		}
	}
	return Host{}, false
}
