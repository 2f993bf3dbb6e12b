package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// signal is what an end puts on the wire.
type signal int

const (
	dark signal = iota
	fault
	frames
)

// end is one end of a cable.
type end struct {
	tx    signal
	rx    bool
	peer  *end
	fixed *Reading // overrides what is received
	fail  error
	calls []string
	ready int  // reads until the receiver is aligned to a signal
	stuck bool // the transceivers stay in reset
	seen  int
}

func (e *end) Name() string { return "end" }

func (e *end) do(name string, tx signal, rx bool) error {
	e.calls = append(e.calls, name)
	if e.fail != nil {
		return e.fail
	}
	e.tx, e.rx = tx, rx
	return nil
}

func (e *end) Down() error                      { return e.do("down", dark, false) }
func (e *end) Reset() error                     { return e.do("reset", dark, false) }
func (e *end) ResetTransceivers() error         { return e.do("transceivers", dark, false) }
func (e *end) TransceiversReady() (bool, error) { return !e.stuck, e.fail }
func (e *end) Listen() error                    { return e.do("listen", fault, true) }
func (e *end) Transmit() error                  { return e.do("transmit", frames, true) }

func (e *end) Read() (Reading, error) {
	if e.fail != nil {
		return Reading{}, e.fail
	}
	if e.fixed != nil {
		return *e.fixed, nil
	}
	if e.peer == nil || e.peer.tx == dark || !e.rx {
		e.seen = 0
		return Reading{Status: "dark"}, nil
	}
	if e.seen++; e.seen <= e.ready {
		return Reading{Status: "locking"}, nil
	}
	if e.peer.tx == fault {
		return Reading{Aligned: true, Status: "rfi", RemoteFault: true}, nil
	}
	return Reading{Aligned: true, Good: true, Status: "good"}, nil
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

const tick = 50 * time.Millisecond

func machine(e *end, c *clock) *Machine { return New(e, Config{Now: c.now}) }

// run steps the machines until done, at most for d of the clock.
func run(c *clock, d time.Duration, done func() bool, ms ...*Machine) bool {
	for until := c.t.Add(d); c.t.Before(until); c.t = c.t.Add(tick) {
		for _, m := range ms {
			m.Step()
		}
		if done() {
			return true
		}
	}
	return false
}

func pair() (*end, *end) {
	a, b := &end{ready: 3}, &end{ready: 3}
	a.peer, b.peer = b, a
	return a, b
}

// Two ends that do the same come up, whichever starts when.
func TestTwoEnds(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		a, b := pair()
		a.ready, b.ready = rnd.IntN(40), rnd.IntN(40)
		c := &clock{}
		ma, mb := machine(a, c), machine(b, c)
		never := func() bool { return false }
		run(c, time.Duration(rnd.IntN(20))*time.Second, never, ma)
		run(c, time.Duration(rnd.IntN(3))*time.Second, never, mb)
		up := func() bool { return ma.Status().Up && mb.Status().Up }
		if !run(c, 30*time.Second, up, ma, mb) {
			t.Fatalf("seed %d: %+v, %+v", seed, ma.Status(), mb.Status())
		}
		// One end restarts: both come back, and the loss is counted.
		losses := ma.Status().Losses
		mb.Stop()
		if run(c, 5*time.Second, func() bool { return !ma.Status().Up }, ma) != true {
			t.Fatalf("seed %d: the loss went unseen", seed)
		}
		if !run(c, 30*time.Second, up, ma, mb) {
			t.Fatalf("seed %d after restart: %+v, %+v", seed, ma.Status(), mb.Status())
		}
		if ma.Status().Losses <= losses || ma.Status().Err != nil {
			t.Errorf("seed %d: %+v", seed, ma.Status())
		}
	}
}

func TestOrder(t *testing.T) {
	a, b := pair()
	b.tx = frames
	c := &clock{}
	m := machine(a, c)
	var states []State
	for range 30 {
		if m.Step(); len(states) == 0 || states[len(states)-1] != m.Status().State {
			states = append(states, m.Status().State)
		}
		c.t = c.t.Add(tick)
	}
	if got, want := fmt.Sprint(states), "[transceivers reset align settle up]"; got != want {
		t.Errorf("states %v, want %v", got, want)
	}
	if got, want := fmt.Sprint(a.calls), "[transceivers reset listen transmit]"; got != want {
		t.Errorf("calls %v, want %v", got, want)
	}
}

// One bad reading starts the count again.
func TestGoodMustHold(t *testing.T) {
	a := &end{}
	c := &clock{}
	m := machine(a, c)
	good, bad := &Reading{Aligned: true, Good: true}, &Reading{HighBER: true}
	for i := range 400 {
		if a.fixed = good; i%5 == 4 {
			a.fixed = bad
		}
		m.Step()
		c.t = c.t.Add(tick)
		if m.Status().Up {
			t.Fatalf("up after at most 4 good readings in a row")
		}
	}
}

func TestNeverAligned(t *testing.T) {
	a := &end{}
	c := &clock{}
	m := machine(a, c)
	run(c, 60*time.Second, func() bool { return m.Status().Up }, m)
	s := m.Status()
	if s.Up || s.Reading.Status != "dark" || s.Err != nil || s.Losses != 0 {
		t.Errorf("%+v", s)
	}
	// Reset about every 3 s, the transceivers at first and after every fifth time,
	// and frames are never let out.
	count := map[string]int{}
	for _, k := range a.calls {
		count[k]++
	}
	if count["transmit"] != 0 || count["reset"] < 15 || count["reset"] > 21 || count["transceivers"] < 3 || count["transceivers"] > 5 {
		t.Errorf("%v", count)
	}
}

// The peer never sees us: we keep sending for the bound, then reset.
func TestRemoteFaultStays(t *testing.T) {
	a := &end{fixed: &Reading{Aligned: true, RemoteFault: true}}
	c := &clock{}
	m := machine(a, c)
	run(c, 9*time.Second, func() bool { return false }, m)
	if s := m.Status(); s.State != Settle || a.tx != frames || !s.Reading.RemoteFault {
		t.Errorf("%+v", s)
	}
	run(c, 5*time.Second, func() bool { return m.Status().Resets == 2 }, m)
	if m.Status().Resets != 2 {
		t.Errorf("%+v", m.Status())
	}
}

func TestErrorsAreRetried(t *testing.T) {
	a, b := pair()
	b.tx = frames
	c := &clock{}
	m := machine(a, c)
	isUp := func() bool { return m.Status().Up }
	if !run(c, 10*time.Second, isUp, m) {
		t.Fatal("not up")
	}
	a.fail = errors.New("bus error")
	m.Step()
	if s := m.Status(); s.Up || s.State != Down || s.Losses != 1 || s.Err == nil || s.Err.Error() != "bus error" {
		t.Errorf("%+v", s)
	}
	// Attempts are a second apart.
	a.calls = nil
	run(c, 10*time.Second, isUp, m)
	if n := len(a.calls); n < 8 || n > 11 {
		t.Errorf("%d attempts in 10 s", n)
	}
	a.fail = nil
	if !run(c, 10*time.Second, isUp, m) {
		t.Errorf("%+v", m.Status())
	}
}

// Nothing touches the transceivers before clock and module are there, each wait
// is bounded, and what is waited for is told.
func TestWaits(t *testing.T) {
	a, b := pair()
	b.tx = frames
	c := &clock{t: time.Unix(1e9, 0)}
	var waits State = Clock
	m := New(a, Config{Now: c.now, Ready: func() State { return waits }})
	never := func() bool { return false }
	run(c, 3*time.Second, never, m)
	if s := m.Status(); s.State != Clock || len(a.calls) != 0 {
		t.Fatalf("%+v after %v", s, a.calls)
	}
	waits = Module
	run(c, 3*time.Second, never, m)
	if s := m.Status(); s.State != Module || len(a.calls) != 0 || s.Entered.Sub(time.Unix(1e9, 0)) != 3*time.Second {
		t.Fatalf("%+v after %v", s, a.calls)
	}
	waits = ""
	start := c.t
	if !run(c, 10*time.Second, func() bool { return m.Status().Up }, m) || c.t.Sub(start) > time.Second {
		t.Fatalf("%+v after %v", m.Status(), c.t.Sub(start))
	}
	// What is said to be missing while the link works is no reason to end it.
	waits = Module
	if run(c, 30*time.Second, func() bool { return !m.Status().Up }, m) {
		t.Errorf("%+v", m.Status())
	}
	// It comes up although a line says that there is no module, after the bound.
	m.Restart()
	start = c.t
	if !run(c, 30*time.Second, func() bool { return m.Status().Up }, m) || c.t.Sub(start) < 10*time.Second || c.t.Sub(start) > 11*time.Second {
		t.Errorf("%+v after %v", m.Status(), c.t.Sub(start))
	}
}

// A module that is plugged makes everything begin anew, from the transceivers on.
func TestRestart(t *testing.T) {
	a := &end{}
	c := &clock{}
	m := machine(a, c)
	run(c, time.Second, func() bool { return false }, m)
	a.calls = nil
	m.Restart()
	run(c, time.Second, func() bool { return false }, m)
	if got := fmt.Sprint(a.calls); got != "[transceivers reset listen]" {
		t.Errorf("calls %s", got)
	}
}

// Transceivers that stay in reset are an error with a name, and tried again.
func TestTransceiversStuck(t *testing.T) {
	a, b := pair()
	b.tx = frames
	a.stuck = true
	c := &clock{}
	m := machine(a, c)
	run(c, 20*time.Second, func() bool { return false }, m)
	n := 0
	for _, k := range a.calls {
		if k == "transceivers" {
			n++
		}
	}
	if s := m.Status(); !errors.Is(s.Err, ErrTransceivers) || n < 8 || n > 11 {
		t.Errorf("%+v, %d resets", s, n)
	}
	a.stuck = false
	if !run(c, 5*time.Second, func() bool { return m.Status().Up }, m) || m.Status().Err != nil {
		t.Errorf("%+v", m.Status())
	}
}
