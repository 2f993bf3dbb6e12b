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
	ready int // reads until the receiver is aligned to a signal
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

func (e *end) Down() error              { return e.do("down", dark, false) }
func (e *end) Reset() error             { return e.do("reset", dark, false) }
func (e *end) ResetTransceivers() error { return e.do("transceivers", dark, false) }
func (e *end) Listen() error            { return e.do("listen", fault, true) }
func (e *end) Transmit() error          { return e.do("transmit", frames, true) }

func (e *end) Read() (Reading, error) {
	if e.fail != nil {
		return Reading{}, e.fail
	}
	if e.fixed != nil {
		return *e.fixed, nil
	}
	if e.peer == nil || e.peer.tx == dark || !e.rx {
		e.seen = 0
		return Reading{Status: "dark", Diagnosis: "no signal"}, nil
	}
	if e.seen++; e.seen <= e.ready {
		return Reading{Status: "locking", Diagnosis: "not aligned"}, nil
	}
	if e.peer.tx == fault {
		return Reading{Aligned: true, Status: "rfi", Diagnosis: "the peer does not see us"}, nil
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
		if ma.Status().Losses <= losses || ma.Status().Problem != "" {
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
	if got, want := fmt.Sprint(states), "[reset align settle up]"; got != want {
		t.Errorf("states %v, want %v", got, want)
	}
	if got, want := fmt.Sprint(a.calls), "[reset listen transmit]"; got != want {
		t.Errorf("calls %v, want %v", got, want)
	}
}

// One bad reading starts the count again.
func TestGoodMustHold(t *testing.T) {
	a := &end{}
	c := &clock{}
	m := machine(a, c)
	good, bad := &Reading{Aligned: true, Good: true}, &Reading{Diagnosis: "noise"}
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
	if s.Up || s.Problem != "no signal" || s.Losses != 0 {
		t.Errorf("%+v", s)
	}
	// Reset about every 3 s, the transceivers every fifth time, and frames are
	// never let out.
	count := map[string]int{}
	for _, k := range a.calls {
		count[k]++
	}
	if count["transmit"] != 0 || count["reset"] < 15 || count["reset"] > 21 || count["transceivers"] < 2 || count["transceivers"] > 4 {
		t.Errorf("%v", count)
	}
}

// The peer never sees us: we keep sending for the bound, then reset.
func TestRemoteFaultStays(t *testing.T) {
	a := &end{fixed: &Reading{Aligned: true, Diagnosis: "the peer does not see us"}}
	c := &clock{}
	m := machine(a, c)
	run(c, 9*time.Second, func() bool { return false }, m)
	if s := m.Status(); s.State != Settle || a.tx != frames || s.Problem == "" {
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
	if s := m.Status(); s.Up || s.State != Down || s.Losses != 1 || s.Problem != "bus error" {
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
