package cmac

import (
	"testing"
	"time"

	"rocelink/firmware/link"
	"rocelink/firmware/poll"
	"rocelink/fpga/model"
	"rocelink/fpga/regs"
)

// Driver and machine against the model's MAC, whose registers have the real
// read side effects and fault where nothing decodes.
func TestAgainstModel(t *testing.T) {
	for _, c := range []struct {
		name  string
		fec   FEC
		link  model.Link
		after time.Duration // until the state is looked at
		up    bool
		reads func(link.Reading) bool // while it is not up
	}{
		{"healthy", RSFEC, model.Link{}, 2 * time.Second, true, nil},
		{"healthy, core without RS-FEC", NoFEC, model.Link{FEC: model.FECOff}, 2 * time.Second, true, nil},
		{"FEC switched off", FECOff, model.Link{FEC: model.FECOff}, 2 * time.Second, true, nil},
		{"slow to align", RSFEC, model.Link{AlignTime: 2500 * time.Millisecond}, 5 * time.Second, true, nil},
		{"the peer waits for our signal", RSFEC, model.Link{Waits: true, AlignTime: 100 * time.Millisecond}, 2 * time.Second, true, nil},
		{"dark", RSFEC, model.Link{Dark: true}, 2 * time.Second, false, func(r link.Reading) bool { return r.LocalFault && r.Locked == 0 && !r.MarkersLost }},
		{"remote fault", RSFEC, model.Link{RemoteFault: true}, 2 * time.Second, false, func(r link.Reading) bool { return r.Aligned && r.RemoteFault }},
		{"local fault of the peer", RSFEC, model.Link{LocalFault: true}, 2 * time.Second, false, func(r link.Reading) bool { return r.PeerFault }},
		{"high bit error rate", RSFEC, model.Link{HighBER: true}, 2 * time.Second, false, func(r link.Reading) bool { return r.HighBER }},
		{"the peer has no FEC", RSFEC, model.Link{FEC: model.FECOff}, 2 * time.Second, false, func(r link.Reading) bool { return r.MarkersLost }},
		{"only the peer has FEC", FECOff, model.Link{FEC: model.FECOn}, 2 * time.Second, false, func(r link.Reading) bool { return r.MarkersLost }},
		{"only the peer has FEC, core without", NoFEC, model.Link{FEC: model.FECOn}, 2 * time.Second, false, func(r link.Reading) bool { return r.MarkersLost }},
	} {
		f, err := model.New(model.Config{Link: c.link})
		if err != nil {
			t.Fatal(err)
		}
		var now time.Duration
		clock := func() time.Time { return time.Unix(0, 0).Add(now) }
		sleep := func(d time.Duration) { now += d; f.Step(now) }
		m, err := Open(regs.At(f.Bus(), model.CMACBase), Config{FEC: c.fec, Poll: poll.Poll{Now: clock, Sleep: sleep}})
		if err != nil {
			t.Fatal(c.name, err)
		}
		l := link.New(m, link.Config{Now: clock})
		run := func(d time.Duration) {
			for end := now + d; now < end; {
				l.Step()
				sleep(50 * time.Millisecond)
			}
		}
		run(c.after)
		s := l.Status()
		if s.Up != c.up || s.Err != nil || !c.up && !c.reads(s.Reading) {
			t.Errorf("%s: %+v, want up %v", c.name, s, c.up)
		}
		if _, err := m.Sample(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.up {
			// Loss and recovery.
			f.SetLink(model.Link{Dark: true, FEC: c.link.FEC})
			run(time.Second)
			if s := l.Status(); s.Up || s.Losses != 1 {
				t.Errorf("%s, then dark: %+v", c.name, s)
			}
		}
		// Once the peer is right, the link comes up whatever was before.
		good := model.Link{FEC: model.FECFollows, AlignTime: 200 * time.Millisecond}
		f.SetLink(good)
		run(15 * time.Second)
		if s := l.Status(); !s.Up {
			t.Errorf("%s, then healthy: %+v", c.name, s)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Corrected codewords arrive once, at whoever asks.
func TestModelCounters(t *testing.T) {
	f, err := model.New(model.Config{Link: model.Link{CorrectedPerSecond: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var now time.Duration
	m, err := Open(regs.At(f.Bus(), model.CMACBase), Config{FEC: RSFEC, Poll: poll.Poll{
		Now: func() time.Time { return time.Unix(0, 0).Add(now) }, Sleep: func(d time.Duration) { now += d; f.Step(now) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{m.Reset, m.Listen, m.Transmit} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Sample(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		now += time.Second
		f.Step(now)
		if _, err := m.Sample(); err != nil {
			t.Fatal(err)
		}
	}
	if c := m.Total(); c.RSFECCorrected != 5000 || c.Cycles != 5*322265625 {
		t.Errorf("%+v", c)
	}
}
