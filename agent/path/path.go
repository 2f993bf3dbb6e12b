// Package path says where the frames of a stream are: it compares what board
// and host count along the way, names the first stage that falls behind, and
// says in a sentence what is wrong and what to do.
//
// Analyse is a pure function of a heard.View. It never compares the clocks of
// two machines: rates come from the sender's own uptime, ages from the arrival
// on this machine, and counts taken at different instants are compared only
// where their order in time allows a conclusion.
package path

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"rocelink"
	"rocelink/agent/heard"
)

// Name names a stage.
type Name string

// The stages, in the order they are shown.
const (
	Source       Name = "source"       // frames taken from the source
	Posted       Name = "posted"       // frames handed to the queue pair
	Sent         Name = "sent"         // packets sent for the first time
	Acknowledged Name = "acknowledged" // packets acknowledged
	Resent       Name = "resent"       // packets sent again
	MACOut       Name = "mac-out"      // frames the MAC sent, of all streams
	NICIn        Name = "nic-in"       // packets the host's device received, of all streams
	Delivered    Name = "delivered"    // frames acknowledged whole, or read
	Completions  Name = "completions"  // messages the receive loop took
	Accepted     Name = "accepted"     // frames the sink took
	Verified     Name = "verified"     // frames whose content was checked and right
)

// Names lists the stages in order.
var Names = []Name{Source, Posted, Sent, Acknowledged, Resent, MACOut, NICIn, Delivered, Completions, Accepted, Verified}

// State is how a stage is.
type State string

// The states.
const (
	OK      State = "ok"
	Broken  State = "broken"  // the first stage that falls behind
	After   State = "after"   // after a broken one that lets nothing through
	Absent  State = "absent"  // the verb or the device has no such stage
	Unknown State = "unknown" // not heard
)

// Stage is one stage of a path.
type Stage struct {
	Name  Name   `json:"name"`
	State State  `json:"state"`
	Unit  string `json:"unit"` // frames or packets
	// Port: the count is of the whole port, not of this stream alone.
	Port  bool           `json:"port,omitempty"`
	Count rocelink.Count `json:"count"` // since the session, or the port, began
	// Rate is per second; absent while there is one sample only.
	Rate *float64 `json:"rate,omitempty"`
	// AgeMS is how long ago the count was taken, at least.
	AgeMS int64 `json:"age_ms"`
	// Note says more about the figure; "" mostly.
	Note string `json:"note,omitempty"`
}

// Severity orders findings.
type Severity string

// The severities, worst last.
const (
	Healthy  Severity = "ok"
	Note     Severity = "note"     // worth saying, not wrong
	Warning  Severity = "warning"  // wrong, or about to be
	Critical Severity = "critical" // frames do not arrive, or are lost
)

// Rank orders severities: 0 is Healthy, 3 Critical.
func (s Severity) Rank() int {
	return slices.Index([]Severity{Healthy, Note, Warning, Critical}, s)
}

// Diagnosis is what is wrong and what to do.
type Diagnosis struct {
	// Rule is the stable name of the rule that matched.
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`             // a sentence
	Remedy   string   `json:"remedy,omitempty"` // what to do; "" when nothing is
}

// Link is the state of the board's link as last heard.
type Link struct {
	Up      bool   `json:"up"`
	State   string `json:"state"`
	Status  string `json:"status,omitempty"` // receive status word
	Problem string `json:"problem,omitempty"`
	Cause   string `json:"cause,omitempty"` // stable word for the problem
	FEC     string `json:"fec,omitempty"`
	// ForMS is how long it has been up or down; absent where the board's clock
	// makes no sense.
	ForMS  *int64         `json:"for_ms,omitempty"`
	Losses rocelink.Count `json:"losses"`
	// FEC counts codewords; absent where the MAC has no FEC.
	Corrected   *rocelink.Count `json:"fec_corrected,omitempty"`
	Uncorrected *rocelink.Count `json:"fec_uncorrected,omitempty"`
	// Optics are the cages that carry the link.
	Optics []Optic `json:"optics,omitempty"`
}

// Optic is a cage and its module as last heard.
type Optic struct {
	Cage         string                `json:"cage"`
	Phase        string                `json:"phase"`
	What         string                `json:"what,omitempty"` // vendor and part
	Copper       bool                  `json:"copper,omitempty"`
	TemperatureC *float64              `json:"temperature_c,omitempty"`
	Lanes        []rocelink.ModuleLane `json:"lanes,omitempty"`
	Alarms       []string              `json:"alarms,omitempty"` // and warnings
	Problem      string                `json:"problem,omitempty"`
}

// Path is a stream from the board's source to the host's sink. A board or a
// host without streams has a Path without Stream and stages.
type Path struct {
	ID      string         `json:"id"` // of board, host and stream; safe in a URL
	Board   string         `json:"board,omitempty"`
	Host    string         `json:"host,omitempty"`
	Stream  string         `json:"stream,omitempty"`
	Verb    rocelink.Verb  `json:"verb,omitempty"`
	Session rocelink.Count `json:"session,omitempty"`
	State   string         `json:"state,omitempty"` // of the stream, on the board if it is known there
	// BitsPerSecond is the goodput; absent while there is one sample only.
	BitsPerSecond *float64 `json:"bits_per_second,omitempty"`
	// Lost is how many frames of the session were lost, Resent its packets sent
	// again.
	Lost   rocelink.Count `json:"lost"`
	Resent rocelink.Count `json:"resent"`
	Stages []Stage        `json:"stages,omitempty"`
	// Broken is the first stage that falls behind; "" when none does.
	Broken    Name      `json:"broken,omitempty"`
	Diagnosis Diagnosis `json:"diagnosis"`
	Link      *Link     `json:"link,omitempty"`
}

// InOrder reports whether nothing is wrong.
func (p Path) InOrder() bool { return p.Diagnosis.Severity.Rank() <= Note.Rank() }

// ID names a path.
func ID(board, host, stream string) string {
	return rocelink.Token(board) + "." + rocelink.Token(host) + "." + rocelink.Token(stream)
}

type key struct{ board, host, stream string }

// Analyse tells of every stream that board or host know, of every board, and
// of every host: by board, host and stream.
func Analyse(v heard.View) []Path {
	found := map[key]*evidence{}
	get := func(k key) *evidence {
		e := found[k]
		if e == nil {
			e = &evidence{view: v, key: k}
			found[k] = e
		}
		return e
	}
	boards, hosts := map[string]*heard.Board{}, map[string]*heard.Host{}
	used := map[string]bool{}
	for i := range v.Boards {
		b := &v.Boards[i]
		boards[b.Name] = b
		last := b.Last()
		for n := range last.Streams {
			s := &last.Streams[n]
			e := get(key{b.Name, s.Host, s.Stream})
			if s.State == rocelink.StreamClosed {
				e.past = s
			} else {
				e.live = s
			}
		}
		if len(last.Streams) == 0 {
			get(key{board: b.Name})
		}
	}
	for i := range v.Hosts {
		h := &v.Hosts[i]
		hosts[h.Name] = h
		last := h.Last()
		for n := range last.Streams {
			s := &last.Streams[n]
			k := key{s.Board, h.Name, s.Stream}
			get(k).hosts = s
			used[h.Name] = true
		}
	}
	windows := map[key]*heard.Window{}
	for i := range v.Windows {
		w := &v.Windows[i]
		windows[key{w.Board, w.Host, w.Stream}] = w
	}
	busy := map[string]bool{} // boards with a stream according to their hosts
	for k := range found {
		if k.stream != "" {
			busy[k.board] = true
		}
		used[k.host] = true
	}
	for name := range hosts {
		if !used[name] {
			get(key{host: name})
		}
	}
	paths := make([]Path, 0, len(found))
	for k, e := range found {
		if k.stream == "" && k.host == "" && busy[k.board] {
			continue
		}
		e.board, e.host, e.window = boards[k.board], hosts[k.host], windows[k]
		paths = append(paths, e.path())
	}
	slices.SortFunc(paths, func(a, b Path) int {
		return cmp.Or(strings.Compare(a.Board, b.Board), strings.Compare(a.Host, b.Host), strings.Compare(a.Stream, b.Stream))
	})
	return paths
}

// InOrder reports whether nothing is wrong with any path.
func InOrder(paths []Path) bool {
	return !slices.ContainsFunc(paths, func(p Path) bool { return !p.InOrder() })
}

func (e *evidence) path() Path {
	e.collect()
	p := Path{
		ID: ID(e.key.board, e.key.host, e.key.stream), Board: e.key.board, Host: e.key.host, Stream: e.key.stream,
		Session: e.session(), State: e.state(), BitsPerSecond: e.goodput(), Lost: e.lost(),
	}
	switch {
	case e.at != nil:
		p.Verb, p.Resent = e.at.Verb, e.at.PacketsResent
	case e.hosts != nil:
		p.Verb = e.hosts.Verb
	}
	if e.board != nil {
		p.Link = e.link()
	}
	p.Diagnosis, p.Broken = e.diagnose()
	if e.key.stream != "" {
		p.Stages = e.stages(p.Broken, p.Diagnosis.Severity)
	}
	return p
}

// millis is a duration as records show it.
func millis(d time.Duration) int64 { return max(d.Milliseconds(), 0) }
