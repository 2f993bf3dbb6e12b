package board

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/optics"
	"rocelink/firmware/optics/sff"
	"rocelink/fpga/model"
)

// simulated is a board on the software fabric with its module, in virtual time.
type simulated struct {
	*bench
	f *model.Fabric
}

func newSimulated(t *testing.T) *simulated {
	f, err := model.New(model.Config{QueuePairs: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	x := &simulated{f: f}
	x.bench = newBenchOf(t, func(cfg *Config) {
		cfg.Description = demo(t)
		cfg.Open = func(boards.Aperture) (Registers, error) { return played{f.Bus()}, nil }
		cfg.Sleep = func(d time.Duration) { x.pass(d) }
	})
	return x
}

func (x *simulated) pass(d time.Duration) {
	x.now = x.now.Add(d)
	x.f.Step(x.now.Sub(time.Unix(1e9, 0)))
}

// until runs the board until ok holds, and returns how long it took.
func (x *simulated) until(limit time.Duration, ok func(rocelink.BoardStatus) bool) time.Duration {
	x.t.Helper()
	begin := x.now
	for !ok(x.b.Status()) {
		if x.now.Sub(begin) > limit {
			x.t.Fatalf("not within %v: %+v", limit, x.b.Status())
		}
		x.pass(x.b.tick())
	}
	return x.now.Sub(begin)
}

func (x *simulated) sim(fault string, args ...string) {
	x.t.Helper()
	if err := x.f.Sim(fault, args, 0); err != nil {
		x.t.Fatal(err)
	}
}

// sumRight is what a decoder of the module's memory says of its checksums.
func (x *simulated) sumRight() bool {
	x.t.Helper()
	reply, err := x.b.module([]byte(`{"version":1,"cage":"qsfp0"}`))
	if err != nil {
		x.t.Fatal(err)
	}
	r := reply.(rocelink.ModuleReply)
	m, err := sff.Decode(sff.Memory{Lower: r.Lower, Upper: r.Upper})
	if err != nil {
		x.t.Fatal(err)
	}
	return m.ChecksumOK
}

func good(s rocelink.BoardStatus) bool {
	return s.Link.Up && s.Link.Cause == "" && len(s.Modules) == 1 && s.Modules[0].Phase == string(optics.Ready) && !s.Modules[0].LowPower
}

// A module that was there before the board began costs the link nothing to speak
// of.
func TestColdBringUpWithModule(t *testing.T) {
	x := newSimulated(t)
	took := x.until(time.Second, func(rocelink.BoardStatus) bool { return x.b.link.Up })
	t.Logf("up after %v", took)
	x.until(5*time.Second, good)
	m := x.b.Status().Modules[0]
	if m.Identifier != "QSFP28" || m.Vendor != "ROCELINK" || len(m.Lanes) != 4 || m.Problem != "" || len(m.Alarms) > 0 || len(m.Warnings) > 0 || m.Insertions != 1 {
		t.Errorf("%+v", m)
	}
	for _, l := range m.Lanes {
		if l.NoLight || l.TxDisabled || l.TxFault || l.RxPowerMW == nil || *l.RxPowerMW < 0.5 || l.TxPowerMW == nil || *l.TxPowerMW < 0.5 {
			t.Errorf("%+v", l)
		}
	}
}

// Each fault that takes the link down has its cause within seconds, and the link
// is back when it is cleared.
func TestProvokedCauses(t *testing.T) {
	for _, c := range []struct {
		do    string
		args  []string
		cause string
		lane  int
		text  string
	}{
		{"unplug", nil, rocelink.CauseNoModule, 0, "is empty"},
		{"dark", []string{"3"}, rocelink.CauseNoLight, 3, "no light on lane 3 of cage qsfp0"},
		{"dark", []string{"2", "4"}, rocelink.CauseNoLight, 2, "lane 2 and 4"},
		{"dark", nil, rocelink.CauseNoLight, 1, "no light on all 4 lanes"},
		{"low-power", nil, rocelink.CauseLowPower, 0, "low power"},
		{"tx-off", nil, rocelink.CauseTxDisabled, 1, "switched off"},
		{"tx-off", []string{"2"}, rocelink.CauseTxDisabled, 2, "lane 2"},
		{"fec-mismatch", nil, rocelink.CauseFECMismatch, 0, "FEC differs"},
		{"peer-silent", nil, rocelink.CauseNoLight, 1, "no light on all 4 lanes"},
		{"peer-blind", nil, rocelink.CausePeerBlind, 0, "does not see us"},
		{"high-ber", nil, rocelink.CauseHighBER, 0, "bit error rate"},
		{"no-clock", nil, rocelink.CauseNoClock, 0, "reference clock does not run"},
		{"wrong-rate", nil, rocelink.CauseWrongRate, 1, "does not lock"},
	} {
		t.Run(strings.Join(append([]string{c.do}, c.args...), " "), func(t *testing.T) {
			x := newSimulated(t)
			x.until(5*time.Second, good)
			x.sim(c.do, c.args...)
			// Transceivers are not reset before light has had its time.
			took := x.until(40*time.Second, func(s rocelink.BoardStatus) bool { return !s.Link.Up && s.Link.Cause == c.cause })
			if l := x.b.Status().Link; l.Lane != c.lane || !strings.Contains(l.Problem, c.text) || l.Remedy == "" {
				t.Errorf("%+v", l)
			}
			x.sim("clear")
			t.Logf("named after %v, good %v after its end", took, x.until(20*time.Second, good))
		})
	}
}

// A module on which the bus or the memory is at fault, or that is hot, is told
// of; a link that is up stays so.
func TestProvokedModule(t *testing.T) {
	for _, c := range []struct {
		do   string
		up   bool // all the while
		seen func(x *simulated, m rocelink.Module) bool
	}{
		{"i2c-stuck", true, func(_ *simulated, m rocelink.Module) bool { return strings.Contains(m.Problem, "holds the bus") }},
		{"i2c-nack", true, func(_ *simulated, m rocelink.Module) bool { return strings.Contains(m.Problem, "no acknowledge") }},
		{"hot", true, func(_ *simulated, m rocelink.Module) bool { return len(m.Alarms) == 1 && *m.TemperatureC > 80 }},
		{"checksum", false, func(x *simulated, m rocelink.Module) bool {
			return m.Phase == string(optics.Ready) && !x.sumRight()
		}},
	} {
		t.Run(c.do, func(t *testing.T) {
			x := newSimulated(t)
			x.until(5*time.Second, good)
			losses := x.b.Status().Link.Losses
			x.sim(c.do)
			x.until(15*time.Second, func(s rocelink.BoardStatus) bool { return c.seen(x, s.Modules[0]) })
			if got := x.b.Status().Link.Losses; (got == losses) != c.up {
				t.Errorf("lost %d times, before %d", got, losses)
			}
			x.sim("clear")
			x.until(20*time.Second, func(s rocelink.BoardStatus) bool { return good(s) && !c.seen(x, s.Modules[0]) })
		})
	}
}

// Every fault there is has a test above.
func TestEveryFaultIsProvoked(t *testing.T) {
	tested := strings.Fields("unplug dark low-power tx-off fec-mismatch peer-silent peer-blind high-ber no-clock wrong-rate i2c-stuck i2c-nack hot checksum")
	for _, f := range model.SimFaults() {
		if f.Ends == "" && !slices.Contains(tested, f.Name) {
			t.Errorf("%s is not provoked", f.Name)
		}
	}
}
