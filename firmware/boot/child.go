package boot

import "time"

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// A run of this length is no crash at start-up: the next wait is short again.
	soundRun = 10 * time.Second

	crashLimit  = 10
	crashWindow = time.Minute
	safeRetry   = time.Minute
)

// child is the history of a supervised program: how often it ended, and how
// long to wait before it is started again.
type child struct {
	pid      int // 0: not running
	started  time.Time
	backoff  time.Duration
	ends     []time.Time // within the window, oldest first
	restarts uint64
	safe     bool // it crashed too often
}

// start notes that the program runs.
func (c *child) start(pid int, now time.Time) { c.pid, c.started = pid, now }

// end notes that the program ended, or could not be started, and returns how
// long to wait. After crashLimit ends within crashWindow it is safe until a run
// has lasted as long as that window.
func (c *child) end(now time.Time) (wait time.Duration) {
	lasted := time.Duration(0)
	if c.pid != 0 {
		lasted = now.Sub(c.started)
	}
	c.pid = 0
	c.restarts++
	for len(c.ends) > 0 && now.Sub(c.ends[0]) >= crashWindow {
		c.ends = c.ends[1:]
	}
	c.ends = append(c.ends, now)
	switch {
	case c.safe && lasted < crashWindow:
		return safeRetry
	case len(c.ends) >= crashLimit:
		c.safe = true
		return safeRetry
	}
	c.safe = false
	if lasted >= soundRun || c.backoff == 0 {
		c.backoff = firstBackoff
	}
	wait = c.backoff
	c.backoff = min(2*c.backoff, lastBackoff)
	return wait
}

// sound notes that the program has run long enough to leave the safe state.
func (c *child) sound(now time.Time) bool {
	if !c.safe || c.pid == 0 || now.Sub(c.started) < crashWindow {
		return false
	}
	c.safe, c.backoff, c.ends = false, 0, nil
	return true
}
