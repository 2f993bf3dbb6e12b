package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Sim provokes a fault of the module or of the link, or ends it: args are its
// lanes, and it ends by itself after a time unless that is 0. The error matches
// [ErrSim]; nothing has changed then.
func (f *shell) Sim(fault string, args []string, last time.Duration) error {
	a, err := understand(SimStep{Do: fault, Args: args, For: last})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.fault.Ends == all {
		f.sim.agenda = nil
	}
	f.sim.run(f.now, a)
	f.poll()
	return nil
}

// SimScript provokes one fault after the other, each at its time from now on,
// instead of what an earlier script had yet to do. If one step is refused none
// is taken.
func (f *shell) SimScript(steps []SimStep) error {
	if len(steps) > maxAgenda {
		return fmt.Errorf("%d steps, want at most %d: %w", len(steps), maxAgenda, ErrSim)
	}
	var agenda []action
	var at time.Duration
	for i, s := range steps {
		a, err := understand(s)
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if s.After > Never/2-at {
			return fmt.Errorf("step %d: after %v: too late: %w", i+1, s.After, ErrSim)
		}
		at += s.After
		a.at = at
		agenda = append(agenda, a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range agenda {
		agenda[i].at += f.now
	}
	f.sim.agenda = agenda
	f.poll()
	return nil
}

// SimState returns the faults that are active, and how many steps of a script are
// yet to come.
func (f *shell) SimState() (list []SimActive, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.sim.active {
		s := SimActive{Name: a.fault.Name, Lane: a.lane}
		if a.until != Never {
			s.Left = a.until - f.now
		}
		list = append(list, s)
	}
	return list, len(f.sim.agenda)
}

// run makes a step.
func (s *simulation) run(now time.Duration, a action) {
	for _, lane := range a.lanes {
		ended := a.fault.Name
		if a.fault.Ends != "" {
			ended = a.fault.Ends
		}
		s.active = slices.DeleteFunc(s.active, func(x active) bool {
			return ended == all || x.fault.Name == ended && x.lane == lane
		})
		if a.fault.Ends != "" {
			continue
		}
		until := Never
		if a.last > 0 && a.last < Never-now {
			until = now + a.last
		}
		s.active = append(s.active, active{a.fault, lane, until})
	}
	slices.SortStableFunc(s.active, func(x, y active) int {
		return cmp.Or(cmp.Compare(x.fault.Name, y.fault.Name), cmp.Compare(x.lane, y.lane))
	})
}

// poll makes the steps that are due and ends what has lasted its time.
func (s *simulation) poll(now time.Duration) {
	for len(s.agenda) > 0 && s.agenda[0].at <= now {
		a := s.agenda[0]
		s.agenda = s.agenda[1:]
		s.run(a.at, a)
	}
	s.deadline = Never
	s.active = slices.DeleteFunc(s.active, func(a active) bool { return a.until <= now })
	before := s.provoked
	p := &s.provoked // on the heap already
	*p = provoked{exchanged: before.exchanged}
	for _, a := range s.active {
		s.deadline = min(s.deadline, a.until)
		a.fault.apply(p, 1<<max(a.lane-1, 0))
	}
	if len(s.agenda) > 0 {
		s.deadline = min(s.deadline, s.agenda[0].at)
	}
	if p.checksum != before.checksum {
		p.exchanged = now + exchangeTime
	}
}

// light is the link with what the faults do between the peer and the module.
func (p *provoked) light(l Link) Link {
	l.Dark = l.Dark || p.silent
	l.DarkLanes |= p.dark
	l.RemoteFault = l.RemoteFault || p.blind
	l.HighBER = l.HighBER || p.highBER
	l.NoClock = l.NoClock || p.noClock
	if p.fec {
		l.FEC = FECDiffers
	}
	return l
}
