package path

import (
	"cmp"
	"fmt"
	"slices"

	"rocelink"
)

// linkCause matches a link that is down for a cause the board names. What the
// board says to do goes before the rule's remedy.
func linkCause(cause string) func(*evidence) *match {
	return func(e *evidence) *match {
		if e.board == nil || e.board.Last().Link.Up || e.board.Last().Link.Cause != cause {
			return nil
		}
		return e.linkMatch()
	}
}

// linkDown matches every other link that is down.
func linkDown(e *evidence) *match {
	if e.board == nil || e.board.Last().Link.Up {
		return nil
	}
	return e.linkMatch()
}

// linkPoor matches a link that is up and told to be bad.
func linkPoor(e *evidence) *match {
	if e.board == nil || !e.board.Last().Link.Up || e.board.Last().Link.Cause == "" {
		return nil
	}
	l := e.board.Last().Link
	return &match{stage: MACOut, text: "the link is up, but poor: " + brief(cmp.Or(l.Problem, l.Cause)), remedy: brief(l.Remedy)}
}

func (e *evidence) linkMatch() *match {
	l := e.board.Last().Link
	since := ""
	if d, known := e.linkFor(); known {
		since = " " + e.since(d)
	}
	text := "link down" + since
	if l.Cause == rocelink.CauseNoLight && l.Lane > 0 {
		text = fmt.Sprintf("lane %d dark%s, link down", l.Lane, since)
	}
	if l.State != "" {
		text += ", at step " + brief(l.State)
	}
	if l.Problem != "" {
		text += ": " + brief(l.Problem)
	}
	return &match{stage: MACOut, text: text, remedy: brief(l.Remedy)}
}

// link tells of the board's link.
func (e *evidence) link() *Link {
	b := e.board.Last()
	l := &Link{
		Up: b.Link.Up, State: b.Link.State, Status: b.Link.Status, Problem: brief(b.Link.Problem), Cause: brief(b.Link.Cause),
		FEC: brief(b.Link.FEC), Losses: b.Link.Losses,
	}
	if since, known := e.linkFor(); known {
		ms := millis(since)
		l.ForMS = &ms
	}
	if v, ok := b.Link.Counters["rsfec_corrected"]; ok {
		u := b.Link.Counters["rsfec_uncorrected"]
		l.Corrected, l.Uncorrected = &v, &u
	}
	for _, m := range b.Modules {
		if len(l.Optics) >= maxOptics {
			break
		}
		if len(b.Link.Cages) > 0 && !slices.Contains(b.Link.Cages, m.Cage) {
			continue
		}
		o := Optic{
			Cage: brief(m.Cage), Phase: brief(m.Phase), What: brief(joined(m.Vendor, m.Part)), TemperatureC: m.TemperatureC, Problem: brief(m.Problem),
			Copper: m.Copper,
		}
		o.Lanes = append(o.Lanes, m.Lanes[:min(len(m.Lanes), maxLanes)]...)
		for _, a := range slices.Concat(m.Alarms, m.Warnings) {
			// What is beyond an alarm's threshold is beyond the warning's too.
			if a = brief(a); len(o.Alarms) < maxLanes && !slices.Contains(o.Alarms, a) {
				o.Alarms = append(o.Alarms, a)
			}
		}
		l.Optics = append(l.Optics, o)
	}
	return l
}

// What a record may make a path hold.
const (
	maxOptics = 8
	maxLanes  = 8
)

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}
