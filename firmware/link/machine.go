package link

import (
	"fmt"
	"time"
)

// State is a step of the bring-up.
type State string

// The steps, in order.
const (
	Down   State = "down"   // both directions off; after an error until the next attempt
	Reset  State = "reset"  // configured and reset
	Align  State = "align"  // receiving, sending remote fault, until the receiver is aligned
	Settle State = "settle" // sending, until nothing is wrong
	Up     State = "up"
)

// Config shapes a Machine. The zero value works.
type Config struct {
	// Stable is how many good readings in a row end a step; 0 is 5.
	Stable int
	// AlignWait bounds waiting for alignment before the MAC is reset again;
	// 0 is 3 s.
	AlignWait time.Duration
	// SettleWait bounds waiting for the peer to see us; 0 is 10 s.
	SettleWait time.Duration
	// ErrorWait is the time between an error of the MAC and the next attempt;
	// 0 is 1 s.
	ErrorWait time.Duration
	// TransceiverAfter is after how many resets in vain the transceivers are
	// reset too; 0 is 5.
	TransceiverAfter int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Machine brings one link up.
type Machine struct {
	mac MAC
	cfg Config

	state    State
	deadline time.Time // of the step
	stable   int       // good readings in a row
	vain     int       // resets that led nowhere
	status   Status
}

// Status is what the machine publishes.
type Status struct {
	State  State
	Up     bool
	Since  time.Time // when Up last changed
	Losses uint64    // times Up ended
	Resets uint64    // of the MAC
	Word   string    // receive status for people
	// Problem says why the link is not up, "" if it is.
	Problem string
}

// New returns a machine in state Down whose first Step begins.
func New(mac MAC, cfg Config) *Machine {
	if cfg.Stable <= 0 {
		cfg.Stable = 5
	}
	if cfg.AlignWait <= 0 {
		cfg.AlignWait = 3 * time.Second
	}
	if cfg.SettleWait <= 0 {
		cfg.SettleWait = 10 * time.Second
	}
	if cfg.ErrorWait <= 0 {
		cfg.ErrorWait = time.Second
	}
	if cfg.TransceiverAfter <= 0 {
		cfg.TransceiverAfter = 5
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Machine{mac: mac, cfg: cfg}
	m.status.Since = cfg.Now()
	m.enter(Down, 0)
	m.status.Problem = "not started"
	return m
}

// Status returns the state after the last Step.
func (m *Machine) Status() Status { return m.status }

// Step does what is due and reports whether the state changed. Call it every
// few ten milliseconds.
func (m *Machine) Step() bool {
	before := m.status
	if err := m.step(m.cfg.Now()); err != nil {
		m.status.Problem = err.Error()
		m.enter(Down, m.cfg.ErrorWait)
	}
	return before.State != m.status.State || before.Up != m.status.Up || before.Problem != m.status.Problem
}

// Stop switches the MAC off and returns to Down; the next Step begins anew.
func (m *Machine) Stop() error {
	m.enter(Down, 0)
	m.status.Problem = "stopped"
	return m.mac.Down()
}

// enter changes the state. The step ends after wait at the latest.
func (m *Machine) enter(s State, wait time.Duration) {
	now := m.cfg.Now()
	m.state, m.deadline, m.stable = s, now.Add(wait), 0
	m.status.State = s
	if up := s == Up; up != m.status.Up {
		m.status.Up, m.status.Since = up, now
		if !up {
			m.status.Losses++
		}
	}
}

func (m *Machine) step(now time.Time) error {
	switch m.state {
	case Down:
		if now.Before(m.deadline) {
			return nil
		}
		return m.reset()
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
	m.status.Word, m.status.Problem = r.Status, r.Diagnosis
	switch m.state {
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
			return m.reset()
		}
	case Settle:
		switch {
		case !r.Aligned && !r.Good:
			return m.listen()
		case m.steady(r.Good):
			m.vain = 0
			m.enter(Up, 0)
		case !now.Before(m.deadline):
			return m.reset()
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

// listen waits for alignment again, without a reset: that would take the signal
// from a peer that is about to align.
func (m *Machine) listen() error {
	if err := m.mac.Listen(); err != nil {
		return err
	}
	m.enter(Align, m.cfg.AlignWait)
	return nil
}

func (m *Machine) reset() error {
	m.vain++
	if m.vain > m.cfg.TransceiverAfter {
		m.vain = 1
		if err := m.mac.ResetTransceivers(); err != nil {
			return fmt.Errorf("link: %w", err)
		}
	}
	if err := m.mac.Reset(); err != nil {
		return err
	}
	m.status.Resets++
	m.enter(Reset, 0)
	return nil
}
