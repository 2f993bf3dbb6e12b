package link

import (
	"errors"
	"fmt"
	"time"
)

// ErrTransceivers: the transceivers do not come out of their reset, which takes
// a reference clock.
var ErrTransceivers = errors.New("the transceivers do not come out of reset")

// State is a step of the bring-up.
type State string

// The steps, in order.
const (
	Down         State = "down"         // both directions off; after an error until the next attempt
	Clock        State = "clock"        // a reference clock is not running yet
	Module       State = "module"       // a module is not plugged, or not ready yet
	Transceivers State = "transceivers" // in reset
	Reset        State = "reset"        // configured and reset
	Align        State = "align"        // receiving, sending remote fault, until the receiver is aligned
	Settle       State = "settle"       // sending, until nothing is wrong
	Up           State = "up"
)

// Config shapes a Machine. The zero value works.
type Config struct {
	// Ready tells what the transceivers must wait for: Clock, Module, or "" when
	// all is there. nil: nothing.
	Ready func() State
	// ReadyWait bounds that wait: what tells may be wrong, and the link is tried
	// all the same; 0 is 10 s.
	ReadyWait time.Duration
	// Stable is how many good readings in a row end a step; 0 is 5.
	Stable int
	// TransceiverWait bounds the reset of the transceivers; 0 is 1 s.
	TransceiverWait time.Duration
	// AlignWait bounds waiting for alignment before the MAC is reset again;
	// 0 is 3 s.
	AlignWait time.Duration
	// SettleWait bounds waiting for the peer to see us; 0 is 10 s.
	SettleWait time.Duration
	// ErrorWait is the time between an error of the MAC and the next attempt;
	// 0 is 1 s.
	ErrorWait time.Duration
	// TransceiverAfter is after how many resets in vain everything is done
	// again from the clock on; 0 is 5.
	TransceiverAfter int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Machine brings one link up.
type Machine struct {
	mac MAC
	cfg Config

	deadline time.Time // of the step
	stable   int       // good readings in a row
	status   Status
}

// Status is what the machine publishes.
type Status struct {
	State   State
	Entered time.Time // when State began
	Up      bool
	Since   time.Time // when Up last changed
	Losses  uint64    // times Up ended
	Resets  uint64    // of the MAC
	Vain    int       // resets since the transceivers were reset or the link was up
	Reading Reading   // the last one of this attempt
	// Err is the last error of the MAC; nil when it answers again.
	Err error
}

// New returns a machine in state Down whose first Step begins.
func New(mac MAC, cfg Config) *Machine {
	for _, d := range []struct {
		v    *time.Duration
		zero time.Duration
	}{
		{&cfg.ReadyWait, 10 * time.Second}, {&cfg.TransceiverWait, time.Second}, {&cfg.AlignWait, 3 * time.Second},
		{&cfg.SettleWait, 10 * time.Second}, {&cfg.ErrorWait, time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.zero
		}
	}
	if cfg.Stable <= 0 {
		cfg.Stable = 5
	}
	if cfg.TransceiverAfter <= 0 {
		cfg.TransceiverAfter = 5
	}
	if cfg.Ready == nil {
		cfg.Ready = func() State { return "" }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Machine{mac: mac, cfg: cfg}
	m.status.Since = cfg.Now()
	m.enter(Down, 0)
	return m
}

// Status returns the state after the last Step.
func (m *Machine) Status() Status { return m.status }

// Step does what is due and reports whether the state changed. Call it every
// few ten milliseconds.
func (m *Machine) Step() bool {
	before := m.status.State
	if err := m.step(m.cfg.Now()); err != nil {
		m.status.Err = err
		m.enter(Down, m.cfg.ErrorWait)
	}
	switch m.status.State {
	case Reset, Align, Settle, Up:
		m.status.Err = nil // what failed works again
	}
	return before != m.status.State
}

// Stop switches the MAC off and returns to Down; the next Step begins anew.
func (m *Machine) Stop() error {
	m.Restart()
	return m.mac.Down()
}

// Restart begins anew from the clock on, as when a module was plugged or a
// clock came back.
func (m *Machine) Restart() {
	m.status.Err = nil
	m.enter(Down, 0)
}

// enter changes the state. The step ends after wait at the latest.
func (m *Machine) enter(s State, wait time.Duration) {
	now := m.cfg.Now()
	m.deadline, m.stable = now.Add(wait), 0
	m.status.State, m.status.Entered = s, now
	if s != Align && s != Settle && s != Up {
		m.status.Reading = Reading{}
	}
	if up := s == Up; up != m.status.Up {
		m.status.Up, m.status.Since = up, now
		if !up {
			m.status.Losses++
		}
	}
}

func (m *Machine) step(now time.Time) error {
	switch m.status.State {
	case Down:
		if now.Before(m.deadline) {
			return nil
		}
		m.deadline = now.Add(m.cfg.ReadyWait)
		return m.prepare(now)
	case Clock, Module:
		return m.prepare(now)
	case Transceivers:
		ready, err := m.mac.TransceiversReady()
		switch {
		case err != nil:
			return err
		case ready:
			m.status.Vain = 0
			return m.reset()
		case !now.Before(m.deadline):
			return fmt.Errorf("%w after %v", ErrTransceivers, m.cfg.TransceiverWait)
		}
		return nil
	case Reset:
		if err := m.mac.Listen(); err != nil {
			return err
		}
		m.enter(Align, m.cfg.AlignWait)
		return nil
	}
	r, err := m.mac.Read()
	if err != nil {
		return err
	}
	m.status.Reading = r
	switch m.status.State {
	case Align:
		// Remote fault does not count here: two ends that wait for each other
		// to take it back would wait for ever.
		switch {
		case m.steady(r.Aligned):
			if err := m.mac.Transmit(); err != nil {
				return err
			}
			m.enter(Settle, m.cfg.SettleWait)
		case !now.Before(m.deadline):
			return m.again(now)
		}
	case Settle:
		switch {
		case !r.Aligned && !r.Good:
			return m.listen()
		case m.steady(r.Good):
			m.status.Vain = 0
			m.enter(Up, 0)
		case !now.Before(m.deadline):
			return m.again(now)
		}
	case Up:
		switch {
		case r.Good:
		case r.Aligned:
			// Only the peer lost us: what we send is what it needs to come back.
			m.enter(Settle, m.cfg.SettleWait)
		default:
			return m.listen()
		}
	}
	return nil
}

// steady counts good readings and reports that there were enough in a row.
func (m *Machine) steady(good bool) bool {
	if !good {
		m.stable = 0
		return false
	}
	m.stable++
	return m.stable >= m.cfg.Stable
}

// prepare waits for clock and module until the deadline, then begins with the
// transceivers: a module that came late or a clock that changed leaves them
// locked to nothing.
func (m *Machine) prepare(now time.Time) error {
	if s := m.cfg.Ready(); s != "" && now.Before(m.deadline) {
		if s != m.status.State {
			m.enter(s, m.deadline.Sub(now))
		}
		return nil
	}
	if err := m.mac.ResetTransceivers(); err != nil {
		return err
	}
	m.enter(Transceivers, m.cfg.TransceiverWait)
	return nil
}

// listen waits for alignment again, without a reset: that would take the signal
// from a peer that is about to align.
func (m *Machine) listen() error {
	if err := m.mac.Listen(); err != nil {
		return err
	}
	m.enter(Align, m.cfg.AlignWait)
	return nil
}

// again follows an attempt that led nowhere.
func (m *Machine) again(now time.Time) error {
	if m.status.Vain < m.cfg.TransceiverAfter {
		return m.reset()
	}
	m.enter(Down, 0)
	m.deadline = now.Add(m.cfg.ReadyWait)
	return m.prepare(now)
}

func (m *Machine) reset() error {
	m.status.Vain++
	if err := m.mac.Reset(); err != nil {
		return err
	}
	m.status.Resets++
	m.enter(Reset, 0)
	return nil
}
