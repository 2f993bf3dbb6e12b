package board

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/clock"
	"rocelink/firmware/wiring"
)

const (
	clockEvery = time.Second     // looks at the lock
	clockRetry = 5 * time.Second // after one could not be set
)

// refClock is a reference clock.
type refClock struct {
	desc   boards.Clock
	wiring *wiring.Wiring
	record string       // its file; empty: none
	drive  *clock.Clock // of the goroutine that sets it; nil until it was opened
	set    bool         // of that goroutine

	mu    sync.Mutex
	state rocelink.Clock
	tried bool
	due   time.Time

	seen rocelink.Clock // of the board
}

// clockNotSet is what a clock shows before the first attempt ended.
const clockNotSet = "not set yet"

func (c *refClock) last() (s rocelink.Clock, tried bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.tried
}

// step sets the clock, or looks whether it is still locked.
func (c *refClock) step(ctx context.Context, now time.Time) {
	err := c.open()
	if err == nil {
		if !c.set {
			err = c.drive.Configure(ctx)
		} else {
			err = c.drive.Check()
		}
		// A clock that lost its lock is set anew.
		c.set = err == nil
	}
	s := rocelink.Clock{Name: c.desc.Name}
	if c.drive != nil {
		st := c.drive.State()
		s.Hz, s.Locked = st.Hz, st.Locked
	}
	wait := clockEvery
	if err != nil {
		s.Problem, wait = strings.TrimPrefix(err.Error(), "clock "+c.desc.Name+": "), clockRetry
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.tried, c.due = s, true, now.Add(wait)
}

func (c *refClock) open() error {
	if c.drive != nil {
		return nil
	}
	bus, err := c.wiring.Through(c.desc.I2C, c.desc.Route)
	if err != nil {
		return err
	}
	cfg := clock.Config{Record: c.record}
	if c.desc.Lock != nil {
		l, err := c.wiring.Line(c.desc.Lock)
		if err != nil {
			return fmt.Errorf("lock line: %w", err)
		}
		cfg.Lock = l.Pin // the level: the clock knows its polarity
	}
	c.drive, err = clock.New(c.desc, bus, cfg)
	return err
}

// stepAll steps those that are due, in the order of the description.
func stepAll(ctx context.Context, list []*refClock, now func() time.Time) {
	for _, c := range list {
		c.mu.Lock()
		due := !now().Before(c.due)
		c.mu.Unlock()
		if due && ctx.Err() == nil {
			c.step(ctx, now())
		}
	}
}

// openClocks begins to set the clocks that are in the fabric, or those that are
// not, until ctx ends. The caller holds mu.
func (b *Board) openClocks(ctx context.Context, inFabric bool, w *wiring.Wiring) {
	var list []*refClock
	for i, d := range b.cfg.Description.Clocks {
		if wiring.ClockInFabric(b.cfg.Description, d) != inFabric {
			continue
		}
		c := &refClock{desc: d, wiring: w, state: rocelink.Clock{Name: d.Name, Problem: clockNotSet}}
		if b.cfg.Run != "" {
			c.record = filepath.Join(b.cfg.Run, "clock-"+d.Name)
		}
		c.seen = c.state
		b.clocks[i] = c
		list = append(list, c)
	}
	if len(list) == 0 || !b.background {
		return
	}
	b.watching.Go(func() {
		ticker := time.NewTicker(clockEvery)
		defer ticker.Stop()
		for {
			stepAll(ctx, list, b.cfg.Now)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

// stepClocks steps the clocks where no goroutine does, and tells what changed. The
// caller holds mu.
func (b *Board) stepClocks() {
	for _, c := range b.clocks {
		if c == nil {
			continue
		}
		if !b.background {
			stepAll(context.Background(), []*refClock{c}, b.cfg.Now)
		}
		s, _ := c.last()
		before := c.seen
		c.seen = s
		switch {
		case s.Problem == before.Problem:
		case s.Problem == "":
			b.emit("clock-ready", "reference clock %s runs", s.Name)
			b.renewLink()
		default:
			b.emit("clock-failed", "reference clock %s: %s", s.Name, s.Problem)
		}
	}
}

// clockRecords are the clocks for a status. The caller holds mu.
func (b *Board) clockRecords() (list []rocelink.Clock) {
	for i, c := range b.clocks {
		if c == nil {
			list = append(list, rocelink.Clock{Name: b.cfg.Description.Clocks[i].Name, Problem: "waits for the fabric, on whose I2C bus it is"})
			continue
		}
		s, _ := c.last()
		list = append(list, s)
	}
	return list
}

// failedClocks are those with which something is wrong that was tried.
func (b *Board) failedClocks() (list []rocelink.Clock) {
	for _, c := range b.clocks {
		if c == nil {
			continue
		}
		if s, tried := c.last(); tried {
			list = append(list, s)
		}
	}
	return list
}

// clocksReady reports whether every clock runs.
func (b *Board) clocksReady() bool {
	for _, c := range b.clocks {
		if c == nil {
			return false
		}
		if s, tried := c.last(); !tried || s.Problem != "" {
			return false
		}
	}
	return true
}
