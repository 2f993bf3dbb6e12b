package model

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrSim is what every refusal of a fault to provoke matches.
var ErrSim = errors.New("cannot be provoked")

// exchangeTime is how long the cage is empty while modules are exchanged: longer
// than the time between two looks at it.
const exchangeTime = 1500 * time.Millisecond

// maxAgenda bounds what waits for its time.
const maxAgenda = 1000

// provoked is what the faults that are active do, together.
type provoked struct {
	unplugged, lowPower, wrongRate, stuck, nack, checksum, hot bool
	silent, fec, blind, highBER, noClock                       bool

	dark, txOff uint8         // lanes
	exchanged   time.Duration // until when the cage is empty for an exchange
}

// SimFault describes a fault that can be provoked.
type SimFault struct {
	Name  string `json:"name"`
	Lanes bool   `json:"lanes"` // takes lanes, 1 to 4; none are all
	// Ends: it ends another one instead of lasting.
	Ends string `json:"ends,omitempty"`
	Doc  string `json:"doc"`

	apply func(p *provoked, lane uint8)
}

// all is what "clear" ends.
const all = "all"

var simFaults = []SimFault{
	{Name: "unplug", Doc: "pull the module", apply: func(p *provoked, _ uint8) { p.unplugged = true }},
	{Name: "plug", Ends: "unplug", Doc: "plug it again"},
	{Name: "dark", Lanes: true, Doc: "no light arrives on these lanes", apply: func(p *provoked, l uint8) { p.dark |= l }},
	{Name: "light", Lanes: true, Ends: "dark", Doc: "light arrives again"},
	{Name: "low-power", Doc: "something holds LPMode", apply: func(p *provoked, _ uint8) { p.lowPower = true }},
	{Name: "tx-off", Lanes: true, Doc: "transmitters are off", apply: func(p *provoked, l uint8) { p.txOff |= l }},
	{Name: "fec-mismatch", Doc: "the peer uses another FEC", apply: func(p *provoked, _ uint8) { p.fec = true }},
	{Name: "peer-silent", Doc: "the peer sends nothing", apply: func(p *provoked, _ uint8) { p.silent = true }},
	{Name: "peer-blind", Doc: "the peer does not see us", apply: func(p *provoked, _ uint8) { p.blind = true }},
	{Name: "high-ber", Doc: "so many bit errors that no frame is good", apply: func(p *provoked, _ uint8) { p.highBER = true }},
	{Name: "no-clock", Doc: "the reference clock stops", apply: func(p *provoked, _ uint8) { p.noClock = true }},
	{Name: "wrong-rate", Doc: "light of another rate, to which nothing locks", apply: func(p *provoked, _ uint8) { p.wrongRate = true }},
	{Name: "i2c-stuck", Doc: "a device holds the module's bus", apply: func(p *provoked, _ uint8) { p.stuck = true }},
	{Name: "i2c-nack", Doc: "the module does not acknowledge", apply: func(p *provoked, _ uint8) { p.nack = true }},
	{Name: "checksum", Doc: "another module, whose memory has a wrong checksum", apply: func(p *provoked, _ uint8) { p.checksum = true }},
	{Name: "hot", Doc: "the module is too hot", apply: func(p *provoked, _ uint8) { p.hot = true }},
	{Name: "clear", Ends: all, Doc: "end all of them, and what a script has yet to do"},
}

// SimFaults lists what can be provoked.
func SimFaults() []SimFault { return slices.Clone(simFaults) }

// SimStep is one step of a script.
type SimStep struct {
	After time.Duration // after the step before
	Do    string        // name of a fault
	Args  []string
	For   time.Duration // after which it ends by itself; 0: never
}

// SimActive is a fault that is active.
type SimActive struct {
	Name string
	Lane int           // from 1; 0: of no lane
	Left time.Duration // until it ends; 0: it does not by itself
}

// action is a step that has been understood.
type action struct {
	at    time.Duration
	fault *SimFault
	lanes []int // 0: of no lane
	last  time.Duration
}

// active is a fault with its end.
type active struct {
	fault *SimFault
	lane  int
	until time.Duration
}

// simulation is the faults that are active, and those that will be.
type simulation struct {
	active   []active
	agenda   []action // by time
	provoked provoked
	deadline time.Duration
}

func understand(s SimStep) (a action, err error) {
	refuse := func(format string, args ...any) (action, error) {
		return a, fmt.Errorf("%s: %s: %w", s.Do, fmt.Sprintf(format, args...), ErrSim)
	}
	i := slices.IndexFunc(simFaults, func(f SimFault) bool { return f.Name == s.Do })
	if i < 0 {
		var names []string
		for _, f := range simFaults {
			names = append(names, f.Name)
		}
		return a, fmt.Errorf("%.40q: no such fault, there is %s: %w", s.Do, strings.Join(names, ", "), ErrSim)
	}
	a = action{fault: &simFaults[i], last: s.For}
	switch {
	case s.After < 0 || s.For < 0:
		return refuse("after %v, for %v: want times that are not negative", s.After, s.For)
	case a.fault.Ends != "" && s.For != 0:
		return refuse("ends others and lasts for no time")
	case !a.fault.Lanes && len(s.Args) > 0:
		return refuse("takes no argument, but has %.40q", s.Args[0])
	case len(s.Args) > opticalLanes:
		return refuse("%d lanes, there are %d", len(s.Args), opticalLanes)
	case !a.fault.Lanes:
		a.lanes = []int{0}
	case len(s.Args) == 0:
		a.lanes = []int{1, 2, 3, 4}
	}
	for _, arg := range s.Args {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > opticalLanes {
			return refuse("lane %.40q, want 1 to %d", arg, opticalLanes)
		}
		a.lanes = append(a.lanes, n)
	}
	return a, nil
}
