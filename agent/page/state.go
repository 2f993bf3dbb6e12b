package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"rocelink"
	"rocelink/agent/heard"
	"rocelink/agent/path"
)

// Records of a state, as the script reads them.
type (
	boardRow struct {
		Name     string        `json:"name"`
		Model    string        `json:"model"`
		Severity path.Severity `json:"severity"` // the worst of its paths
		Fresh    bool          `json:"fresh"`
		SilentMS int64         `json:"silent_ms"`
		UptimeMS int64         `json:"uptime_ms"`
		LinkUp   bool          `json:"link_up"`
		Link     string        `json:"link"`
		Fabric   string        `json:"fabric"`
		Streams  int           `json:"streams"`
	}
	pathRow struct {
		ID       string         `json:"id"`
		Board    string         `json:"board"`
		Host     string         `json:"host"`
		Stream   string         `json:"stream"`
		Verb     rocelink.Verb  `json:"verb"`
		State    string         `json:"state"`
		BPS      *float64       `json:"bps"`
		Lost     rocelink.Count `json:"lost"`
		Severity path.Severity  `json:"severity"`
		Rule     string         `json:"rule"`
		Text     string         `json:"text"`
	}
	eventRow struct {
		Number uint64 `json:"n"`
		AtMS   int64  `json:"at"` // arrival, ms since 1970
		From   string `json:"from"`
		Board  bool   `json:"board"`
		Kind   string `json:"kind"`
		Stream string `json:"stream"`
		Text   string `json:"text"`
	}
	overview struct {
		NowMS     int64      `json:"now"`
		Connected bool       `json:"connected"`
		Boards    []boardRow `json:"boards"`
		Paths     []pathRow  `json:"paths"`
		// MoreBoards and MorePaths are how many are not listed.
		MoreBoards int `json:"more_boards"`
		MorePaths  int `json:"more_paths"`
		// Wrong is how many paths are not in order.
		Wrong int `json:"wrong"`
	}
	detail struct {
		Path    path.Path  `json:"path"`
		SinceMS int64      `json:"since"`     // of the diagnosis, ms since 1970
		Then    *path.Link `json:"link_then"` // the link as it was at that time
		History history    `json:"history"`
		Events  []eventRow `json:"events"` // of the board, the host and the stream, newest first
	}
	history struct {
		EndMS  int64      `json:"end"` // time of the last point
		StepMS int64      `json:"step"`
		BPS    []*float64 `json:"bps"`    // oldest first; null: not known
		Lost   []uint64   `json:"lost"`   // frames in the step
		Resent []uint64   `json:"resent"` // packets in the step
	}
)

const (
	points    = 300 // of a history
	step      = time.Second
	maxEvents = 60
	maxPaths  = 8192 // with a history
)

// maker makes snapshots and keeps histories.
type maker struct {
	rows    int
	number  uint64
	tracker path.Tracker

	mu      sync.Mutex // of what follows: browsers read it
	plots   map[string]*plot
	sampled time.Time // the last point
}

// plot is the history of a path: a ring.
type plot struct {
	bps          [points]float32 // below 0: not known
	lost, resent [points]uint32
	next, n      int

	known     bool // what follows is of the point before
	session   rocelink.Count
	wasLost   rocelink.Count
	wasResent rocelink.Count
	seen      time.Time
}

func newMaker(rows int) *maker { return &maker{rows: rows, plots: map[string]*plot{}} }

// snapshot is the state of everything at a time. It does not change.
type snapshot struct {
	number uint64
	maker  *maker
	view   heard.View
	paths  []path.Path // worst first
	began  map[string]path.Began
	worst  map[string]path.Severity // of each board

	once     sync.Once
	overview []byte // of all rows; made when first asked for
	err      error
}

func (m *maker) snapshot(v heard.View) *snapshot {
	m.number++
	s := &snapshot{number: m.number, maker: m, view: v, paths: path.Analyse(v), worst: map[string]path.Severity{}}
	s.began = m.tracker.Update(v.Now, s.paths)
	m.sample(v.Now, s.paths)
	// Stable: within a severity by name.
	slices.SortStableFunc(s.paths, func(a, b path.Path) int {
		return cmp.Compare(b.Diagnosis.Severity.Rank(), a.Diagnosis.Severity.Rank())
	})
	for _, p := range s.paths {
		if p.Diagnosis.Severity.Rank() > max(s.worst[p.Board].Rank(), 0) || s.worst[p.Board] == "" {
			s.worst[p.Board] = p.Diagnosis.Severity
		}
	}
	return s
}

// sample adds a point to each history when a step is over.
func (m *maker) sample(now time.Time, paths []path.Path) {
	m.mu.Lock()
	defer m.mu.Unlock()
	steps := int(now.Sub(m.sampled) / step)
	switch {
	case m.sampled.IsZero() || steps > points:
		m.sampled, steps = now, 1
	case steps == 0:
		return
	default:
		m.sampled = m.sampled.Add(time.Duration(steps) * step)
	}
	for i := range paths {
		p := &paths[i]
		if p.Stream == "" {
			continue
		}
		g := m.plots[p.ID]
		if g == nil {
			if len(m.plots) >= maxPaths {
				continue
			}
			g = &plot{}
			m.plots[p.ID] = g
		}
		for range steps - 1 {
			g.add(-1, 0, 0)
		}
		bps, lost, resent := float32(-1), uint32(0), uint32(0)
		if p.BitsPerSecond != nil {
			bps = float32(*p.BitsPerSecond)
		}
		if g.known && g.session == p.Session {
			lost, resent = grown(g.wasLost, p.Lost), grown(g.wasResent, p.Resent)
		}
		g.known, g.session, g.wasLost, g.wasResent, g.seen = true, p.Session, p.Lost, p.Resent, now
		g.add(bps, lost, resent)
	}
	for id, g := range m.plots {
		if now.Sub(g.seen) > points*step {
			delete(m.plots, id)
		}
	}
}

func grown(from, to rocelink.Count) uint32 {
	if to < from {
		return 0
	}
	return uint32(min(to-from, 1<<32-1))
}

func (g *plot) add(bps float32, lost, resent uint32) {
	g.bps[g.next], g.lost[g.next], g.resent[g.next] = bps, lost, resent
	g.next = (g.next + 1) % points
	g.n = min(g.n+1, points)
}

// history copies the history of a path.
func (m *maker) history(id string) history {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := history{EndMS: m.sampled.UnixMilli(), StepMS: step.Milliseconds(), BPS: []*float64{}, Lost: []uint64{}, Resent: []uint64{}}
	g := m.plots[id]
	if g == nil {
		return h
	}
	for i := range g.n {
		k := (g.next - g.n + i + points) % points
		var bps *float64
		if g.bps[k] >= 0 {
			v := float64(g.bps[k])
			bps = &v
		}
		h.BPS, h.Lost, h.Resent = append(h.BPS, bps), append(h.Lost, uint64(g.lost[k])), append(h.Resent, uint64(g.resent[k]))
	}
	return h
}

// message is the state as one line of JSON: the overview, and the path a
// browser looks at.
func (s *snapshot) message(want wanted) ([]byte, error) {
	over, err := s.rows(want.filter)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, len(over)+16<<10))
	out.WriteString(`{"overview":`)
	out.Write(over)
	out.WriteString(`,"detail":`)
	var d []byte
	if p := s.selected(want.path); p == nil {
		d = []byte("null")
	} else if d, err = json.Marshal(s.detail(*p)); err != nil {
		return nil, err
	}
	out.Write(d)
	out.WriteString("}")
	return out.Bytes(), nil
}

// selected finds the path a browser looks at: without an ID the worst stream. A
// path that is gone is not replaced by another.
func (s *snapshot) selected(id string) *path.Path {
	for i := range s.paths {
		if p := &s.paths[i]; id == p.ID || id == "" && p.Stream != "" {
			return p
		}
	}
	if id == "" && len(s.paths) > 0 {
		return &s.paths[0]
	}
	return nil
}

func (s *snapshot) rows(filter string) ([]byte, error) {
	if filter == "" {
		s.once.Do(func() { s.overview, s.err = json.Marshal(s.list("")) })
		return s.overview, s.err
	}
	return json.Marshal(s.list(filter))
}

func (s *snapshot) list(filter string) overview {
	o := overview{NowMS: s.view.Now.UnixMilli(), Connected: s.view.Connected, Boards: []boardRow{}, Paths: []pathRow{}}
	hit := func(names ...string) bool {
		return filter == "" || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(strings.ToLower(n), filter) })
	}
	boards := slices.Clone(s.view.Boards)
	slices.SortStableFunc(boards, func(a, b heard.Board) int { return cmp.Compare(s.worst[b.Name].Rank(), s.worst[a.Name].Rank()) })
	for _, b := range boards {
		if !hit(b.Name) {
			continue
		}
		if len(o.Boards) >= s.maker.rows {
			o.MoreBoards++
			continue
		}
		last := b.Last()
		fabric := last.Fabric.Version
		switch {
		case !last.Fabric.Present:
			fabric = "missing"
		case last.Fabric.Emulated:
			fabric += " (software)"
		}
		streams := 0
		for _, st := range last.Streams {
			if st.State != rocelink.StreamClosed {
				streams++
			}
		}
		silent := b.Silent(s.view.Now)
		o.Boards = append(o.Boards, boardRow{
			Name: b.Name, Model: short(last.Model), Severity: s.worst[b.Name], Fresh: silent < s.view.Stale, SilentMS: silent.Milliseconds(),
			UptimeMS: last.UptimeMS, LinkUp: last.Link.Up, Link: short(last.Link.State), Fabric: short(fabric), Streams: streams,
		})
	}
	for _, p := range s.paths {
		if !p.InOrder() {
			o.Wrong++
		}
		if !hit(p.Board, p.Host, p.Stream) {
			continue
		}
		if len(o.Paths) >= s.maker.rows {
			o.MorePaths++
			continue
		}
		o.Paths = append(o.Paths, pathRow{
			ID: p.ID, Board: p.Board, Host: p.Host, Stream: p.Stream, Verb: p.Verb, State: short(p.State), BPS: p.BitsPerSecond, Lost: p.Lost,
			Severity: p.Diagnosis.Severity, Rule: p.Diagnosis.Rule, Text: p.Diagnosis.Text,
		})
	}
	return o
}

func (s *snapshot) detail(p path.Path) detail {
	b := s.began[p.ID]
	d := detail{Path: p, SinceMS: b.At.UnixMilli(), Then: b.Link, History: s.maker.history(p.ID), Events: []eventRow{}}
	for _, e := range slices.Backward(s.view.Events) {
		concerned := e.Board && e.From == p.Board || !e.Board && e.From == p.Host
		if !concerned || p.Stream != "" && e.Stream != "" && e.Stream != p.Stream {
			continue
		}
		if len(d.Events) >= maxEvents {
			break
		}
		d.Events = append(d.Events, eventRow{e.Number, e.At.UnixMilli(), e.From, e.Board, e.Kind, e.Stream, e.Text})
	}
	return d
}

// short bounds text that is no name.
func short(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
