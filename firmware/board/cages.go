package board

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/optics"
	"rocelink/firmware/optics/sff"
	"rocelink/firmware/wiring"
)

const (
	cageEvery  = time.Second           // samples of a module
	cageSoon   = 20 * time.Millisecond // while it comes up
	cageRetry  = 5 * time.Second       // after it could not be opened
	cageWedged = 2 * time.Second       // a step that takes longer hangs
	// alarmQuiet is how long an alarm must be away before it is new again.
	alarmQuiet = 10 * time.Second
)

// cage watches one cage in a goroutine of its own: a bus that is slow or hangs
// delays nothing but the cages on it.
type cage struct {
	desc   boards.Cage
	wiring *wiring.Wiring
	wake   chan struct{} // look at once

	drive *optics.Cage // of the goroutine; nil until it was opened

	mu    sync.Mutex
	state optics.State
	mem   sff.Memory
	began time.Time // of the step under way; zero between steps
	ended time.Time // of the last one
	due   time.Time

	// Of the board, as last seen.
	seen   optics.State
	alarms map[string]time.Time // when each was seen last
}

func newCage(d boards.Cage, w *wiring.Wiring, now time.Time) *cage {
	c := &cage{desc: d, wiring: w, wake: make(chan struct{}, 1), alarms: map[string]time.Time{}, due: now}
	c.state = optics.State{Cage: d.Name, Phase: optics.Starting, Since: now, Problem: "not looked at yet"}
	c.seen = c.state
	return c
}

// step looks at the cage once and says when to look again.
func (c *cage) step(now time.Time) time.Time {
	c.mu.Lock()
	c.began = now
	s := c.state
	c.mu.Unlock()
	wait := cageRetry
	var mem sff.Memory
	if c.drive == nil {
		drive, err := c.wiring.Cage(c.desc)
		if err != nil {
			if s.Phase != optics.Failed {
				s.Since = now
			}
			s.Phase, s.Problem = optics.Failed, err.Error()
		}
		c.drive = drive
	}
	if c.drive != nil {
		s, mem, wait = c.drive.Step(now), c.drive.Memory(), cageEvery
		switch s.Phase {
		case optics.Plugged, optics.Reset, optics.Starting:
			wait = cageSoon
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.mem, c.began, c.ended, c.due = s, mem, time.Time{}, now, now.Add(wait)
	return c.due
}

// run steps the cage until ctx ends.
func (c *cage) run(ctx context.Context, now func() time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.wake:
		}
		timer.Reset(max(c.step(now()).Sub(now()), 0))
	}
}

// soon makes the next look come at once.
func (c *cage) soon() {
	c.mu.Lock()
	c.due = time.Time{}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// last is what was seen last, and when. A cage whose step hangs shows nothing
// else.
func (c *cage) last(now time.Time) (optics.State, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.began.IsZero() && now.Sub(c.began) > cageWedged {
		return optics.State{
			Cage: c.desc.Name, Phase: optics.Failed, Since: c.began, Insertions: c.state.Insertions,
			Problem: fmt.Sprintf("the I2C bus %s has not answered since %s", c.desc.I2C, c.began.UTC().Format(time.TimeOnly)),
		}, c.ended
	}
	return c.state, c.ended
}

func (c *cage) isDue(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !now.Before(c.due)
}

// watch begins to set the clocks and watch the cages that are in the fabric, or
// those that are not. The caller holds mu.
func (b *Board) watch(inFabric bool, w *wiring.Wiring) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	b.openClocks(ctx, inFabric, w)
	if !inFabric && b.background && b.cfg.Description.SoC != "none" {
		b.watching.Go(func() { b.watchSensors(ctx) })
	}
	for i, d := range b.cfg.Description.Cages {
		if wiring.CageInFabric(b.cfg.Description, d) != inFabric {
			continue
		}
		c := newCage(d, w, b.cfg.Now())
		b.cages[i] = c
		if b.background {
			b.watching.Go(func() { c.run(ctx, b.cfg.Now) })
		}
	}
	return cancel
}

// stepCages steps the cages that are due where no goroutine does, and tells what
// changed. The caller holds mu.
func (b *Board) stepCages(now time.Time) {
	for _, c := range b.cages {
		if c == nil {
			continue
		}
		if !b.background && c.isDue(now) {
			c.step(now)
		}
		s, _ := c.last(now)
		b.tellCage(c, s, now)
	}
}

// tellCage tells what changed in a cage since it was seen last.
func (b *Board) tellCage(c *cage, s optics.State, now time.Time) {
	before := c.seen
	c.seen = s
	if s.Phase != before.Phase || s.Problem != before.Problem || s.LowPower != before.LowPower {
		b.dirty = true
	}
	switch {
	case before.Phase == optics.Ready && (s.Phase != optics.Ready || s.Insertions != before.Insertions):
		why := ""
		if s.Problem != "" {
			why = ": " + s.Problem
		}
		clear(c.alarms)
		b.emit("module-removed", "cage %s: %s is gone%s", s.Cage, moduleName(before.Module), why)
	case s.Phase == optics.Failed && before.Phase != optics.Failed:
		b.emit("module-failed", "cage %s: %s", s.Cage, s.Problem)
	}
	if s.Phase == optics.Ready && (before.Phase != optics.Ready || s.Insertions != before.Insertions) {
		text := moduleName(s.Module)
		if s.Problem != "" {
			text += ": " + s.Problem
		}
		b.emit("module-inserted", "cage %s: %s", s.Cage, text)
		if b.ofPort(c.desc) {
			b.renewLink()
		}
	}
	var fresh []string
	for _, a := range s.Believed(s.Module.Alarms) {
		a.Now, a.Latched = true, false // the same alarm, whichever way it is seen
		if seen, ok := c.alarms[a.String()]; !ok || now.Sub(seen) > alarmQuiet {
			fresh = append(fresh, a.String())
		}
		c.alarms[a.String()] = now
	}
	if len(fresh) > 0 {
		b.emit("module-alarm", "cage %s: %s beyond the alarm threshold", s.Cage, strings.Join(fresh, ", "))
	}
}

func moduleName(m sff.Module) string {
	name := strings.TrimSpace(m.Identifier + " " + m.Vendor + " " + m.Part)
	if m.Serial != "" {
		name += ", serial number " + m.Serial
	}
	return name
}

// modules are the cages for a status.
func (b *Board) modules(now time.Time) (list []rocelink.Module) {
	for i, c := range b.cages {
		if c == nil {
			list = append(list, rocelink.Module{
				Cage: b.cfg.Description.Cages[i].Name, Phase: string(optics.Starting), Since: b.start.UTC(),
				Problem: "waits for the fabric, on whose I2C bus it is",
			})
			continue
		}
		s, _ := c.last(now)
		list = append(list, s.Record())
	}
	return list
}

// module answers with the memory of a module.
func (b *Board) module(data []byte) (any, error) {
	var r rocelink.ModuleRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	if r.Cage == "" {
		return nil, rocelink.Refuse(rocelink.CodeBadRequest, "module: cage is missing")
	}
	names := []string{}
	for i, d := range b.cfg.Description.Cages {
		names = append(names, d.Name)
		if d.Name != r.Cage {
			continue
		}
		reply := rocelink.ModuleReply{Version: rocelink.Version, State: b.modules(b.cfg.Now())[i]}
		if c := b.cages[i]; c != nil && reply.State.Phase == string(optics.Ready) {
			c.mu.Lock()
			reply.Lower, reply.Upper, reply.Diagnostics = c.mem.Lower, c.mem.Upper, c.mem.Diagnostics
			c.mu.Unlock()
		}
		return reply, nil
	}
	if len(names) == 0 {
		return nil, rocelink.Refuse(rocelink.CodeUnsupported, "module: the description of this board has no cages")
	}
	return nil, rocelink.Refuse(rocelink.CodeBadRequest, "module: no cage %.40q: there is %s", r.Cage, strings.Join(names, ", "))
}
