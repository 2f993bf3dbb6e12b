// Package heard keeps the last records of every board and host, each with the
// time it arrived, for those who look at them all: the analysis of a path, the
// metrics, the page.
//
// Records come from the network: a Store bounds what it keeps, refuses records
// that are malformed or published under another's subject, and counts what it
// refused. It never blocks who delivers.
package heard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rocelink"
)

// Config bounds a Store. The zero value works.
type Config struct {
	// Stale is the silence after which a record is old; 0 is DefaultStale.
	Stale time.Duration
	// Forget is the silence after which a name is forgotten; 0 is 10 min.
	Forget time.Duration
	// MaxBoards and MaxHosts bound the names kept; 0 is 4096 and 1024.
	MaxBoards, MaxHosts int
	// MaxStreams bounds the streams kept of one record; 0 is 64.
	MaxStreams int
	// MaxEvents bounds the events kept; 0 is 200.
	MaxEvents int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// DefaultStale is the silence after which a record is old: everyone publishes
// once a second.
const DefaultStale = 5 * time.Second

// StartsWithin is the time over which Board.StartsLately counts.
const StartsWithin = time.Minute

const (
	kept        = 5                      // records of a board or host
	apart       = 700 * time.Millisecond // at least, between those kept
	returnsSeen = 3                      // of an epoch that was over, until a name counts as taken twice
	twiceFor    = 30 * time.Second
	maxText     = 500 // bytes of an event's text
	maxCounters = 256 // of one record
)

// Reason is why a record was refused.
type Reason string

// The reasons.
const (
	Malformed Reason = "malformed" // no record, or too long
	Version   Reason = "version"   // of another version of the contract
	Name      Reason = "name"      // a name that cannot be one
	Subject   Reason = "subject"   // published under the subject of another
	Full      Reason = "full"      // more names than are kept
)

// Reasons lists every Reason.
var Reasons = []Reason{Malformed, Version, Name, Subject, Full}

// ErrRefused is wrapped by the errors of Take.
var ErrRefused = errors.New("record refused")

// Store keeps records. It is safe for concurrent use.
type Store struct {
	cfg Config

	mu        sync.Mutex
	boards    map[string]*history[rocelink.BoardStatus]
	hosts     map[string]*history[rocelink.HostStatus]
	windows   map[windowKey]Window
	events    []Event
	number    uint64
	refused   map[Reason]uint64
	connected bool
	since     time.Time
	watchers  map[chan struct{}]bool
	swept     time.Time
}

type windowKey struct{ host, stream string }

// entry is a record with its arrival.
type entry[T any] struct {
	record  T
	at      time.Time
	epoch   rocelink.Count
	sampled int64 // when its counters were taken, ms of its own uptime
}

// history is what is kept of one name.
type history[T any] struct {
	heard       []entry[T] // newest first
	starts      uint64
	started     time.Time
	lately      []time.Time
	goesOn      bool // through the last start
	beforeEpoch rocelink.Count
	returns     int
	lastReturn  time.Time
}

// New returns an empty store.
func New(c Config) *Store {
	c.Stale = cmp.Or(c.Stale, DefaultStale)
	c.Forget = cmp.Or(c.Forget, 10*time.Minute)
	c.MaxBoards = cmp.Or(c.MaxBoards, 4096)
	c.MaxHosts = cmp.Or(c.MaxHosts, 1024)
	c.MaxStreams = cmp.Or(c.MaxStreams, 64)
	c.MaxEvents = cmp.Or(c.MaxEvents, 200)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{
		cfg: c, boards: map[string]*history[rocelink.BoardStatus]{}, hosts: map[string]*history[rocelink.HostStatus]{},
		windows: map[windowKey]Window{}, refused: map[Reason]uint64{}, watchers: map[chan struct{}]bool{}, connected: true,
	}
}

// Take keeps the record of a message. An error wraps ErrRefused and says why;
// the record is counted and otherwise ignored.
func (s *Store) Take(subject string, data []byte) error {
	reason, err := s.take(subject, data)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	s.refused[reason]++
	s.mu.Unlock()
	return fmt.Errorf("%w: %s: %w", ErrRefused, subject, err)
}

func (s *Store) take(subject string, data []byte) (Reason, error) {
	rest, found := strings.CutPrefix(subject, rocelink.Root+".")
	if !found {
		return Subject, errors.New("not a subject of records")
	}
	tokens := strings.Split(rest, ".")
	switch {
	case len(tokens) == 3 && tokens[0] == "board" && tokens[2] == "status":
		var r rocelink.BoardStatus
		return s.decoded(data, &r, func() (string, []string) {
			return rocelink.BoardStatusSubject(r.Board), []string{r.Board}
		}, subject, func() (Reason, error) { return s.board(r) })
	case len(tokens) == 3 && tokens[0] == "host" && tokens[2] == "status":
		var r rocelink.HostStatus
		return s.decoded(data, &r, func() (string, []string) {
			return rocelink.HostStatusSubject(r.Host), []string{r.Host}
		}, subject, func() (Reason, error) { return s.host(r) })
	case len(tokens) == 3 && tokens[2] == "event" && (tokens[0] == "board" || tokens[0] == "host"):
		var r rocelink.Event
		return s.decoded(data, &r, func() (string, []string) {
			if tokens[0] == "board" {
				return rocelink.BoardEventSubject(r.From), []string{r.From}
			}
			return rocelink.HostEventSubject(r.From), []string{r.From}
		}, subject, func() (Reason, error) { s.event(r, tokens[0] == "board"); return "", nil })
	case len(tokens) == 4 && tokens[0] == "host" && tokens[2] == "stream":
		var r rocelink.Window
		return s.decoded(data, &r, func() (string, []string) {
			return rocelink.WindowSubject(r.Host, r.Stream), []string{r.Host, r.Stream}
		}, subject, func() (Reason, error) { return s.window(r) })
	}
	return Subject, errors.New("not a subject of records")
}

// decoded reads a record, checks that it is the subject owner's own, and keeps
// it.
func (s *Store) decoded(data []byte, record any, owner func() (string, []string), subject string, keep func() (Reason, error)) (Reason, error) {
	if err := rocelink.Decode(data, record); err != nil {
		if errors.Is(err, rocelink.ErrVersion) {
			return Version, err
		}
		return Malformed, err
	}
	own, parts := owner()
	for _, n := range parts {
		if err := rocelink.CheckName("record's", n); err != nil {
			return Name, err
		}
	}
	if own != subject {
		return Subject, fmt.Errorf("the record is %.80q's own", parts[0])
	}
	return keep()
}

func (s *Store) board(r rocelink.BoardStatus) (Reason, error) {
	r.Streams = named(r.Streams, s.cfg.MaxStreams, func(st rocelink.StreamStatus) []string { return []string{st.Host, st.Stream} })
	r.Fabric.Counters, r.Link.Counters = fewer(r.Fabric.Counters), fewer(r.Link.Counters)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	h := s.boards[r.Board]
	if h == nil {
		s.sweep(now, len(s.boards) >= s.cfg.MaxBoards)
		if len(s.boards) >= s.cfg.MaxBoards {
			return Full, fmt.Errorf("%d boards are known already", s.cfg.MaxBoards)
		}
		h = &history[rocelink.BoardStatus]{}
		s.boards[r.Board] = h
	}
	begins, goesOn := true, false
	if len(h.heard) > 0 {
		// A board begins an epoch when its program starts and another when it has
		// found its fabric: that is one start.
		last := h.heard[0].record
		goesOn = r.UptimeMS >= last.UptimeMS
		begins = last.Fabric.Present || !goesOn
	}
	if begins && len(h.heard) > 0 && h.heard[0].epoch != r.Epoch {
		h.goesOn = goesOn
	}
	h.add(entry[rocelink.BoardStatus]{r, now, r.Epoch, r.SampledMS}, begins)
	s.signal()
	return "", nil
}

func (s *Store) host(r rocelink.HostStatus) (Reason, error) {
	r.Streams = named(r.Streams, s.cfg.MaxStreams, func(st rocelink.HostStream) []string { return []string{st.Board, st.Stream} })
	r.Device.Counters = fewer(r.Device.Counters)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	h := s.hosts[r.Host]
	if h == nil {
		s.sweep(now, len(s.hosts) >= s.cfg.MaxHosts)
		if len(s.hosts) >= s.cfg.MaxHosts {
			return Full, fmt.Errorf("%d hosts are known already", s.cfg.MaxHosts)
		}
		h = &history[rocelink.HostStatus]{}
		s.hosts[r.Host] = h
	}
	h.add(entry[rocelink.HostStatus]{r, now, r.Epoch, r.UptimeMS}, true)
	s.signal()
	return "", nil
}

func (s *Store) window(r rocelink.Window) (Reason, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	key := windowKey{r.Host, r.Stream}
	if _, known := s.windows[key]; !known {
		most := s.cfg.MaxHosts * s.cfg.MaxStreams
		s.sweep(now, len(s.windows) >= most)
		if len(s.windows) >= most {
			return Full, fmt.Errorf("windows of %d streams are known already", most)
		}
	}
	s.windows[key] = Window{r, now}
	s.signal()
	return "", nil
}

func (s *Store) event(r rocelink.Event, board bool) {
	r.Text, r.Kind, r.Stream = cut(r.Text, maxText), cut(r.Kind, rocelink.MaxNameBytes), cut(r.Stream, rocelink.MaxNameBytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	if len(s.events) >= s.cfg.MaxEvents {
		s.events = slices.Delete(s.events, 0, len(s.events)-s.cfg.MaxEvents+1)
	}
	s.events = append(s.events, Event{Event: r, Number: s.number, At: s.cfg.Now(), Board: board})
	s.signal()
}

// add puts a record in front. The one before stays only if it is a sample of
// its own, far enough from the next. begins says whether another epoch means
// that the sender began anew.
func (h *history[T]) add(e entry[T], begins bool) {
	if len(h.heard) > 0 && h.heard[0].epoch != e.epoch {
		if h.beforeEpoch != 0 && e.epoch == h.beforeEpoch {
			// An epoch is a random number: one that was over does not come back
			// by a restart. A single late record may still do that.
			h.returns++
			h.lastReturn = e.at
		}
		h.beforeEpoch = h.heard[0].epoch
		h.heard = nil
		if begins {
			h.starts++
			h.started = e.at
			h.lately = append(h.lately, e.at)
		}
	}
	h.lately = slices.DeleteFunc(h.lately, func(t time.Time) bool { return e.at.Sub(t) > StartsWithin })
	switch n := len(h.heard); {
	case n == 0:
		h.heard = append(make([]entry[T], 0, kept), e)
		return
	case h.heard[0].sampled == e.sampled, n > 1 && h.heard[0].at.Sub(h.heard[1].at) < apart:
		h.heard[0] = e
		return
	case n == kept:
		h.heard = h.heard[:n-1]
	}
	h.heard = slices.Insert(h.heard, 0, e)
}

func (h *history[T]) twice(now time.Time) bool {
	return h.returns >= returnsSeen && now.Sub(h.lastReturn) < twiceFor
}

// sweep forgets who was silent for long: now and then, and when room is needed.
// The caller holds mu.
func (s *Store) sweep(now time.Time, full bool) {
	if !full && now.Sub(s.swept) < s.cfg.Forget/10 {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.boards, func(_ string, h *history[rocelink.BoardStatus]) bool {
		return now.Sub(h.heard[0].at) > s.cfg.Forget
	})
	maps.DeleteFunc(s.hosts, func(_ string, h *history[rocelink.HostStatus]) bool {
		return now.Sub(h.heard[0].at) > s.cfg.Forget
	})
	maps.DeleteFunc(s.windows, func(_ windowKey, w Window) bool { return now.Sub(w.At) > s.cfg.Forget })
}

// SetConnected says whether there is a NATS server. A new store believes so.
func (s *Store) SetConnected(connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected != connected {
		s.connected, s.since = connected, s.cfg.Now()
		s.signal()
	}
}

// Watch returns a channel that is signalled after a change, and how to give it
// back. Changes that come before the signal is taken are one.
func (s *Store) Watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[c] = true
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, c)
	}
}

// signal tells the watchers. The caller holds mu.
func (s *Store) signal() {
	for c := range s.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// View is what the store knows now.
func (s *Store) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	s.sweep(now, false)
	v := View{
		Now: now, Connected: s.connected, Since: s.since, Stale: s.cfg.Stale,
		Boards: make([]Board, 0, len(s.boards)), Hosts: make([]Host, 0, len(s.hosts)), Windows: make([]Window, 0, len(s.windows)),
		Events: slices.Clone(s.events), Refused: maps.Clone(s.refused),
	}
	for name, h := range s.boards {
		b := Board{Name: name, Heard: make([]BoardHeard, len(h.heard)), Starts: h.starts, Started: h.started, FabricOnly: h.goesOn, Twice: h.twice(now)}
		for _, t := range h.lately {
			if now.Sub(t) <= StartsWithin {
				b.StartsLately++
			}
		}
		for i, e := range h.heard {
			b.Heard[i] = BoardHeard{e.record, e.at}
		}
		v.Boards = append(v.Boards, b)
	}
	for name, h := range s.hosts {
		b := Host{Name: name, Heard: make([]HostHeard, len(h.heard)), Starts: h.starts, Started: h.started, Twice: h.twice(now)}
		for i, e := range h.heard {
			b.Heard[i] = HostHeard{e.record, e.at}
		}
		v.Hosts = append(v.Hosts, b)
	}
	for _, w := range s.windows {
		v.Windows = append(v.Windows, w)
	}
	slices.SortFunc(v.Boards, func(a, b Board) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(v.Hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(v.Windows, func(a, b Window) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Stream, b.Stream))
	})
	return v
}

// named keeps the first streams of a record whose names can be names.
func named[T any](list []T, most int, names func(T) []string) []T {
	list = slices.DeleteFunc(list, func(s T) bool {
		return slices.ContainsFunc(names(s), func(n string) bool { return rocelink.CheckName("stream's", n) != nil })
	})
	if len(list) <= most {
		return list
	}
	return slices.Clone(list[:most])
}

// fewer keeps the first counters by name of a record that has absurdly many.
func fewer(m map[string]rocelink.Count) map[string]rocelink.Count {
	if len(m) <= maxCounters {
		return m
	}
	some := map[string]rocelink.Count{}
	for _, name := range slices.Sorted(maps.Keys(m))[:maxCounters] {
		some[name] = m[name]
	}
	return some
}

// cut shortens text to n bytes without splitting a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
