package board

import (
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/link"
	"rocelink/fpga/model"
	"rocelink/fpga/regs"
)

// played are the registers of the software fabric.
type played struct{ regs.Bus }

func (played) Close() error { return nil }

// Each fault of the software fabric's link has its cause, sentence and remedy, and
// the link is back when the fault ends.
func TestFaultsOfTheSoftwareFabric(t *testing.T) {
	for _, c := range []struct {
		name  string
		link  model.Link
		cause string
		text  string
	}{
		{"nothing arrives", model.Link{Dark: true}, rocelink.CauseNoSignal, "no signal"},
		{"the peer has no FEC", model.Link{FEC: model.FECOff}, rocelink.CauseFECMismatch, "FEC differs"},
		{"the peer does not see us", model.Link{RemoteFault: true}, rocelink.CausePeerBlind, "does not see us"},
		{"the peer has no signal", model.Link{LocalFault: true}, rocelink.CausePeerBlind, "local fault"},
		{"bit errors", model.Link{HighBER: true}, rocelink.CauseHighBER, "bit error rate"},
		{"no clock", model.Link{NoClock: true}, rocelink.CauseNoClock, "reference clock does not run"},
		{"much is corrected", model.Link{CorrectedPerSecond: 3_000_000}, rocelink.CauseHighBER, "had to be corrected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := model.New(model.Config{QueuePairs: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			start := time.Unix(1e9, 0)
			var x *bench
			step := func(d time.Duration) { x.now = x.now.Add(d); f.Step(x.now.Sub(start)) }
			x = newBenchOf(t, func(cfg *Config) {
				cfg.Open = func(boards.Aperture) (Registers, error) { return played{f.Bus()}, nil }
				cfg.Sleep = func(d time.Duration) { step(d) }
			})
			run := func(d time.Duration) {
				for until := x.now.Add(d); x.now.Before(until); {
					step(x.b.tick())
				}
			}
			run(3 * time.Second)
			s := x.b.Status()
			if !s.Link.Up || s.Link.Cause != "" {
				t.Fatalf("%+v", s.Link)
			}
			f.SetLink(c.link)
			run(30 * time.Second)
			s = x.b.Status()
			if s.Link.Cause != c.cause || !strings.Contains(s.Link.Problem, c.text) || s.Link.Remedy == "" || s.Link.Up != (c.link.CorrectedPerSecond > 0) {
				t.Errorf("%+v", s.Link)
			}
			f.SetLink(model.Link{})
			run(20 * time.Second)
			if s := x.b.Status(); !s.Link.Up || s.Link.Cause != "" || s.Link.State != string(link.Up) {
				t.Errorf("after the fault: %+v", s.Link)
			}
		})
	}
}

// From nothing to a link that is good takes a fraction of a second: nothing is
// waited for that a register tells.
func TestColdBringUpIsQuick(t *testing.T) {
	f, err := model.New(model.Config{QueuePairs: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start := time.Unix(1e9, 0)
	var x *bench
	step := func(d time.Duration) { x.now = x.now.Add(d); f.Step(x.now.Sub(start)) }
	x = newBenchOf(t, func(cfg *Config) {
		cfg.Open = func(boards.Aperture) (Registers, error) { return played{f.Bus()}, nil }
		cfg.Sleep = func(d time.Duration) { step(d) }
	})
	for !x.b.link.Up && x.now.Sub(start) < 10*time.Second {
		step(x.b.tick())
	}
	if took := x.now.Sub(start); took > 300*time.Millisecond {
		t.Errorf("up after %v", took)
	} else {
		t.Logf("up after %v", took)
	}
}
