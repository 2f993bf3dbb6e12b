package board

import (
	"slices"
	"time"

	"rocelink/boards"
	"rocelink/firmware/diagnose"
	"rocelink/firmware/link"
	"rocelink/firmware/optics"
)

const (
	// linkGrace is how long a link that was just reset may take before what the
	// MAC reads is held against it.
	linkGrace = time.Second
	// lookGrace bounds how long the sentence about a lost link waits for a look at
	// the modules.
	lookGrace = 300 * time.Millisecond
	// errorHold is for how long errors of a link that is up are told.
	errorHold = 5 * time.Second
)

// judge names the cause of what is wrong with the link. The caller holds mu.
func (b *Board) judge(now time.Time) {
	in := diagnose.Input{FEC: b.cfg.FEC, Link: b.link, Clocks: b.failedClocks(), Errors: b.errors.shown}
	switch {
	case b.hw == nil:
		in.Fabric = b.missing
	case b.hw.mac == nil:
		in.MAC = b.hw.macError
	}
	s := b.link
	in.Starting = (s.State == link.Align || s.State == link.Settle) && s.Vain == 1 && now.Sub(s.Entered) < linkGrace
	for _, c := range b.cages {
		if c == nil || !b.ofPort(c.desc) {
			continue
		}
		st, at := c.last(now)
		in.Cages = append(in.Cages, diagnose.Cage{State: st, Lanes: c.desc.Lanes})
		if !b.downAt.IsZero() && at.Before(b.downAt) && now.Sub(b.downAt) < lookGrace {
			in.Starting = true
		}
	}
	f := diagnose.Diagnose(in)
	if f.Cause != b.finding.Cause || f.Cage != b.finding.Cage || f.Lane != b.finding.Lane {
		b.dirty = true
	}
	b.finding = f
	if !b.downAt.IsZero() && !in.Starting {
		b.tellDown()
	}
}

// tellDown tells that the link was lost, with the cause.
func (b *Board) tellDown() {
	b.downAt = time.Time{}
	b.emit("link-down", "%s: %s", b.finding.Text, b.finding.Remedy)
}

// ofPort reports whether a cage carries the port: one that has lanes of it, or any
// where the description gives lanes to none. The others are watched and shown, and
// the link does not wait for them.
func (b *Board) ofPort(d boards.Cage) bool {
	return len(d.Lanes) > 0 || !slices.ContainsFunc(b.cfg.Description.Cages, func(c boards.Cage) bool { return len(c.Lanes) > 0 })
}

// ready tells what the transceivers must wait for.
func (b *Board) ready() link.State {
	if !b.clocksReady() {
		return link.Clock
	}
	for i, c := range b.cages {
		if !b.ofPort(b.cfg.Description.Cages[i]) {
			continue
		}
		if c == nil {
			return link.Module
		}
		if s, _ := c.last(b.cfg.Now()); s.Phase != optics.Ready {
			return link.Module
		}
	}
	return ""
}

// renewLink begins the bring-up anew, for a module that came or a clock that
// runs again. A link that is up needs neither, and one that waits sees it
// itself. The caller holds mu.
func (b *Board) renewLink() {
	if b.hw == nil || b.hw.link == nil || b.link.Up {
		return
	}
	switch b.hw.link.Status().State {
	case link.Down, link.Clock, link.Module:
	default:
		b.hw.link.Restart()
	}
}

// errorCount follows the errors of a link that is up.
type errorCount struct {
	at     time.Time // of base; zero: there is none
	base   map[string]uint64
	shown  diagnose.Errors
	toldAt time.Time
}

// The counters of a MAC that tell errors, whatever the MAC.
const (
	countCorrected   = "rsfec_corrected"
	countUncorrected = "rsfec_uncorrected"
	countBadFCS      = "rx_bad_fcs"
)

// sample compares the counters with those before.
func (e *errorCount) sample(now time.Time, m mac, up bool) {
	if !up {
		*e = errorCount{}
		return
	}
	counts := map[string]uint64{}
	m.Each(func(name string, v uint64) {
		switch name {
		case countCorrected, countUncorrected, countBadFCS:
			counts[name] = v
		}
	})
	if !e.at.IsZero() {
		since := func(name string) uint64 { return counts[name] - e.base[name] }
		d := diagnose.Errors{Over: now.Sub(e.at), Corrected: since(countCorrected), Uncorrected: since(countUncorrected), BadFrames: since(countBadFCS)}
		bad := diagnose.Diagnose(diagnose.Input{Link: link.Status{Up: true}, Errors: d}).Cause != ""
		if bad {
			e.toldAt = now
		}
		if bad || now.Sub(e.toldAt) >= errorHold {
			e.shown = d
		}
	}
	e.at, e.base = now, counts
}
