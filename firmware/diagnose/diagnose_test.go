package diagnose

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/firmware/link"
	"rocelink/firmware/optics"
	"rocelink/firmware/optics/opticstest"
	"rocelink/firmware/optics/sff"
)

func decode(dump []byte) sff.Module {
	mem, err := sff.ParseDump(dump)
	if err != nil {
		panic(err)
	}
	m, err := sff.Decode(mem)
	if err != nil {
		panic(err)
	}
	return m
}

// plugged is a cage with a module that is ready.
func plugged(name string, dump []byte, change ...func(*Cage)) Cage {
	c := Cage{State: optics.State{Cage: name, Phase: optics.Ready, Insertions: 1, Module: decode(dump)}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func qsfp(change func(q *opticstest.QSFP)) []byte {
	q := opticstest.SR4()
	if change != nil {
		change(&q)
	}
	return q.Dump(true)
}

// sfps are the four cages of a breakout cable.
func sfps(change func(n int, s *opticstest.SFP)) []Cage {
	var list []Cage
	for n := range 4 {
		s := opticstest.SR()
		if change != nil {
			change(n, &s)
		}
		list = append(list, plugged(fmt.Sprintf("sfp%d", n), s.Dump(), func(c *Cage) { c.Lanes = []int{n + 1} }))
	}
	return list
}

func phase(p optics.Phase, problem string) []Cage {
	return []Cage{{State: optics.State{Cage: "qsfp0", Phase: p, Problem: problem}}}
}

const all = 1<<20 - 1

// reading is what a MAC with 20 lanes reads; down is the state of a link that
// waits for alignment.
func down(r link.Reading) link.Status {
	if r.Lanes == 0 {
		r.Lanes = 20
	}
	return link.Status{State: link.Align, Reading: r}
}

var dark = down(link.Reading{LocalFault: true, Status: "0xc0"})

func TestCauses(t *testing.T) {
	sr4 := func(change func(*opticstest.QSFP), more ...func(*Cage)) []Cage {
		return []Cage{plugged("qsfp0", qsfp(change), more...)}
	}
	flag := func(of func(l *sff.Lane) **bool, lane int) func(*Cage) {
		return func(c *Cage) { *of(&c.Module.Lanes[lane-1]) = new(true) }
	}
	no, yes := false, true
	for _, c := range []struct {
		name   string
		in     Input
		cause  string
		cage   string
		lane   int
		text   string
		remedy string
	}{
		{"up", Input{Link: link.Status{Up: true, State: link.Up}}, "", "", 0, "", ""},
		{"no fabric", Input{Fabric: "the identity reads 0", MAC: errors.New("x")}, rocelink.CauseFabricMissing, "", 0, "identity reads 0", "bitstream"},
		{"no MAC", Input{MAC: errors.New("CMAC missing"), Cages: phase(optics.Empty, "")}, rocelink.CauseMACMissing, "", 0, "CMAC missing", "address"},
		{"the MAC is silent", Input{Link: down(link.Reading{Silent: true})}, rocelink.CauseMACMissing, "", 0, "does not answer", "bitstream"},
		{"the MAC does not hold a register", Input{Link: link.Status{State: link.Down, Err: errors.New("CMAC.ConfigTx: wrote 0x1")}}, rocelink.CauseMACMissing, "", 0, "ConfigTx", "MAC"},
		{"transceivers in reset", Input{Link: link.Status{State: link.Down, Err: fmt.Errorf("%w after 1s", link.ErrTransceivers)}}, rocelink.CauseNoClock, "", 0, "reference clock does not run", "frequency"},
		{"transceivers in reset, the clock is known", Input{
			Link: link.Status{State: link.Down, Err: link.ErrTransceivers}, Clocks: []rocelink.Clock{{Name: "ref", Locked: &no}},
		}, rocelink.CauseNoClock, "", 0, "clock ref is not locked", "chip"},
		{"clock not locked", Input{Link: dark, Clocks: []rocelink.Clock{{Name: "sys", Locked: &yes}, {Name: "ref", Locked: &no}}, Cages: phase(optics.Empty, "")},
			rocelink.CauseNoClock, "", 0, "clock ref", "chip"},
		{"clock cannot be set", Input{Link: dark, Clocks: []rocelink.Clock{{Name: "ref", Problem: "no acknowledge"}}}, rocelink.CauseNoClock, "", 0, "no acknowledge", "chip"},
		{"a clock that tells nothing", Input{Link: dark, Clocks: []rocelink.Clock{{Name: "ref"}}}, rocelink.CauseNoSignal, "", 0, "no optics", "peer"},
		{"no module", Input{Link: dark, Cages: phase(optics.Empty, "")}, rocelink.CauseNoModule, "qsfp0", 0, "is empty", "plug"},
		{"one of four empty", Input{Link: dark, Cages: append(sfps(nil)[:3], Cage{State: optics.State{Cage: "sfp3", Phase: optics.Empty}})}, rocelink.CauseNoModule, "sfp3", 0, "cage sfp3", "plug"},
		{"module failed", Input{Link: dark, Cages: phase(optics.Failed, "no acknowledge")}, rocelink.CauseModuleFailed, "qsfp0", 0, "no acknowledge", "plug"},
		{"module seen", Input{Link: dark, Cages: phase(optics.Plugged, "")}, rocelink.CauseModuleStarts, "qsfp0", 0, "starts", "wait"},
		{"module starts", Input{Link: dark, Cages: phase(optics.Starting, "not ready")}, rocelink.CauseModuleStarts, "qsfp0", 0, "not ready", "wait"},
		{"module in reset", Input{Link: dark, Cages: phase(optics.Reset, "")}, rocelink.CauseLowPower, "qsfp0", 0, "held in reset", "polarity"},
		{"module in low power", Input{Link: dark, Cages: sr4(nil, func(c *Cage) { c.LowPower = true })}, rocelink.CauseLowPower, "qsfp0", 0, "low power", "LPMode"},
		{"module of a class too high", Input{Link: dark, Cages: sr4(nil, func(c *Cage) { c.LowPower, c.Problem = true, "power class 7" })}, rocelink.CauseLowPower, "qsfp0", 0, "power class 7", "LPMode"},
		{"transmitter off", Input{Link: dark, Cages: sr4(nil, flag(func(l *sff.Lane) **bool { return &l.TxDisabled }, 2))}, rocelink.CauseTxDisabled, "qsfp0", 2, "lane 2 of cage qsfp0 is switched off", "switch it on"},
		{"transmitter off and aligned", Input{
			Link: down(link.Reading{Aligned: true, RemoteFault: true, Locked: all, Synced: all}), Cages: sr4(nil, flag(func(l *sff.Lane) **bool { return &l.TxDisabled }, 4)),
		}, rocelink.CauseTxDisabled, "qsfp0", 4, "switched off", "switch"},
		{"transmitter failed", Input{Link: dark, Cages: sr4(nil, flag(func(l *sff.Lane) **bool { return &l.TxFault }, 1))}, rocelink.CauseTxDisabled, "qsfp0", 1, "failed", "replace"},
		{"SFP switched off by its line", Input{Link: dark, Cages: func() []Cage { c := sfps(nil); c[2].TxOff = true; return c }()}, rocelink.CauseTxDisabled, "sfp2", 1, "cage sfp2", "switch"},
		{"no light on one lane", Input{Link: down(link.Reading{LocalFault: true, Locked: 0xFFFFF >> 5}), Cages: sr4(func(q *opticstest.QSFP) { q.Rx[2] = 0 })}, rocelink.CauseNoLight, "qsfp0", 3, "lane 3 of cage qsfp0: 0 mW", "clean"},
		{"next to no light on two", Input{Link: dark, Cages: sr4(func(q *opticstest.QSFP) { q.Rx[1], q.Rx[3] = 0.0005, 0.0001 })}, rocelink.CauseNoLight, "qsfp0", 2, "lane 2 and 4 of cage qsfp0: 0.0005 mW, -33.0 dBm", "clean"},
		{"no light at all", Input{Link: dark, Cages: sr4(func(q *opticstest.QSFP) { q.Rx = [4]float64{} })}, rocelink.CauseNoLight, "qsfp0", 1, "all 4 lanes", "peer"},
		{"no light while starting", Input{Starting: true, Link: dark, Cages: sr4(func(q *opticstest.QSFP) { q.Rx[0] = 0 })}, rocelink.CauseNoLight, "qsfp0", 1, "lane 1", "clean"},
		{"weak and flagged", Input{Link: dark, Cages: sr4(func(q *opticstest.QSFP) { q.Rx[0] = 0.01 }, flag(func(l *sff.Lane) **bool { return &l.RxLOS }, 1))}, rocelink.CauseNoLight, "qsfp0", 1, "lane 1", "clean"},
		{"no light in one of four cages", Input{Link: dark, Cages: sfps(func(n int, s *opticstest.SFP) {
			if n == 1 {
				s.Rx = 0
			}
		})}, rocelink.CauseNoLight, "sfp1", 1, "lane 1 of cage sfp1, lane 2 of the port", "clean"},
		{"no power monitor, and the flag says no light", Input{Link: dark, Cages: sr4(nil, func(c *Cage) {
			for i := range c.Module.Lanes {
				c.Module.Lanes[i].RxPowerMW = nil
			}
			c.Module.Lanes[3].RxLOS = &yes
		})}, rocelink.CauseNoLight, "qsfp0", 4, "lane 4", "clean"},
		{"neither power nor flags", Input{Link: dark, Cages: sr4(nil, func(c *Cage) {
			for i := range c.Module.Lanes {
				c.Module.Lanes[i].RxPowerMW, c.Module.Lanes[i].RxLOS, c.Module.Lanes[i].RxLOL = nil, nil, nil
			}
		})}, rocelink.CauseNoSignal, "qsfp0", 0, "measures no light", "peer"},
		{"a stale flag", Input{Link: dark, Cages: sr4(nil, flag(func(l *sff.Lane) **bool { return &l.RxLOS }, 1))}, rocelink.CauseFECMismatch, "", 0, "light on every lane", "same FEC"},
		{"copper", Input{Link: dark, Cages: []Cage{plugged("qsfp0", opticstest.CR4().Dump(false))}}, rocelink.CauseNoSignal, "qsfp0", 0, "copper cable", "peer"},
		{"copper breakout", Input{Link: dark, Cages: sfps(func(_ int, s *opticstest.SFP) { s.Copper = true })}, rocelink.CauseNoSignal, "sfp0", 0, "copper cable", "peer"},
		{"no cages", Input{Link: dark}, rocelink.CauseNoSignal, "", 0, "no optics", "peer"},
		{"40G module", Input{Link: dark, Cages: sr4(nil, func(c *Cage) { c.Module.RateMbps = 10300 })}, rocelink.CauseWrongRate, "qsfp0", 1, "10300 Mb/s", "QSFP28"},
		{"wrong rate", Input{Link: dark, Cages: sr4(nil, flag(func(l *sff.Lane) **bool { return &l.RxLOL }, 1))}, rocelink.CauseWrongRate, "qsfp0", 1, "clock recovery", "100G"},
		{"wrong rate or FEC, nothing tells", Input{FEC: "rs", Link: dark, Cages: sfps(nil)}, rocelink.CauseWrongRate, "", 0, "another rate, or with another FEC (this end: RS-FEC)", "100G"},
		{"FEC differs, markers lost", Input{FEC: "off", Link: down(link.Reading{LocalFault: true, MarkersLost: true}), Cages: sfps(nil)}, rocelink.CauseFECMismatch, "", 0, "this end: no FEC", "same FEC"},
		{"FEC differs, light and locked modules", Input{FEC: "rs", Link: dark, Cages: sr4(nil)}, rocelink.CauseFECMismatch, "", 0, "this end: RS-FEC", "same FEC"},
		{"FEC differs, copper", Input{Link: down(link.Reading{LocalFault: true, MarkersLost: true}), Cages: []Cage{plugged("qsfp0", opticstest.CR4().Dump(false))}}, rocelink.CauseFECMismatch, "", 0, "markers", "same FEC"},
		{"FEC differs, lanes lock", Input{Link: down(link.Reading{LocalFault: true, Locked: all}), Cages: sr4(nil)}, rocelink.CauseFECMismatch, "", 0, "all lanes lock", "same FEC"},
		{"lanes crossed", Input{Link: down(link.Reading{LocalFault: true, Locked: all, Synced: all}), Cages: sr4(nil)}, rocelink.CauseNotAligned, "", 0, "do not align", "crossed"},
		{"some markers", Input{Link: down(link.Reading{LocalFault: true, Locked: all, Synced: 0xFFFF0}), Cages: sr4(nil)}, rocelink.CauseNotAligned, "", 0, "16 of 20", "crossed"},
		{"some lanes", Input{Link: down(link.Reading{LocalFault: true, Locked: 0xFFFF0}), Cages: sr4(nil)}, rocelink.CauseNotAligned, "", 0, "only 16 of 20 lanes lock (0xffff0)", "each lane"},
		{"damaged frames", Input{Link: down(link.Reading{Aligned: true, Status: "0x1003", Locked: all, Synced: all})}, rocelink.CauseNotAligned, "", 0, "0x1003", "peer"},
		{"peer blind", Input{Link: down(link.Reading{Aligned: true, RemoteFault: true, Locked: all, Synced: all}), Cages: sr4(nil)}, rocelink.CausePeerBlind, "qsfp0", 0, "does not see us (remote fault); the weakest lane we send on has 1.0000 mW", "transmitter"},
		{"peer blind, no optics", Input{Link: down(link.Reading{Aligned: true, RemoteFault: true, Locked: all, Synced: all})}, rocelink.CausePeerBlind, "", 0, "does not see us", "transmitter"},
		{"peer says local fault", Input{Link: down(link.Reading{PeerFault: true, LocalFault: true, Locked: all, Synced: all})}, rocelink.CausePeerBlind, "", 0, "local fault", "transmitter"},
		{"bit errors", Input{FEC: "off", Link: down(link.Reading{HighBER: true, Locked: all, Synced: all}), Cages: sr4(nil)}, rocelink.CauseHighBER, "", 0, "bit error rate", "RS-FEC at both ends"},
		{"up, codewords lost", Input{FEC: "rs", Link: link.Status{Up: true}, Errors: Errors{Over: time.Second, Uncorrected: 7}}, rocelink.CauseHighBER, "", 0, "7 codewords in 1s could not", "clean"},
		{"up, frames lost", Input{FEC: "off", Link: link.Status{Up: true}, Errors: Errors{Over: time.Second, BadFrames: 3}}, rocelink.CauseHighBER, "", 0, "3 frames", "RS-FEC"},
		{"up, much corrected", Input{FEC: "rs", Link: link.Status{Up: true}, Errors: Errors{Over: time.Second, Corrected: 2_000_000}}, rocelink.CauseHighBER, "", 0, "2000000 codewords", "clean"},
		{"up, some corrected", Input{FEC: "rs", Link: link.Status{Up: true}, Errors: Errors{Over: time.Second, Corrected: 10_000}}, "", "", 0, "", ""},
		{"waits for a clock", Input{Link: link.Status{State: link.Clock}}, rocelink.CauseStarting, "", 0, "reference clock", "wait"},
		{"waits for alignment", Input{Starting: true, Link: dark}, rocelink.CauseStarting, "", 0, "alignment", "wait"},
		{"good, but not for long", Input{Link: link.Status{State: link.Settle, Reading: link.Reading{Lanes: 20, Good: true, Aligned: true, Locked: all, Synced: all}}}, rocelink.CauseStarting, "", 0, "until nothing is wrong", "wait"},

		// What contradicts itself.
		{"the line says empty, the lanes lock", Input{Link: down(link.Reading{LocalFault: true, Locked: all, Synced: all}), Cages: phase(optics.Empty, "")}, rocelink.CauseNotAligned, "", 0, "do not align", ""},
		{"the module says dark, the lanes lock", Input{Link: down(link.Reading{Aligned: true, RemoteFault: true, Locked: all, Synced: all}), Cages: sr4(func(q *opticstest.QSFP) { q.Rx = [4]float64{} })}, rocelink.CausePeerBlind, "qsfp0", 0, "does not see us", ""},
		{"everything says no, the link is up", Input{Link: link.Status{Up: true}, Clocks: []rocelink.Clock{{Name: "ref", Locked: &no}}, Cages: phase(optics.Failed, "x")}, "", "", 0, "", ""},
		{"aligned with an unlocked clock", Input{Link: down(link.Reading{Aligned: true, RemoteFault: true, Locked: all, Synced: all}), Clocks: []rocelink.Clock{{Name: "ref", Locked: &no}}}, rocelink.CausePeerBlind, "", 0, "", ""},
		{"remote fault without lock", Input{Link: down(link.Reading{RemoteFault: true})}, rocelink.CausePeerBlind, "", 0, "does not see us", ""},
		{"remote and local fault without lock", Input{Link: down(link.Reading{RemoteFault: true, LocalFault: true}), Cages: sr4(func(q *opticstest.QSFP) { q.Rx[3] = 0 })}, rocelink.CauseNoLight, "qsfp0", 4, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Diagnose(c.in)
			if f.Cause != c.cause || f.Cage != c.cage || f.Lane != c.lane || !strings.Contains(f.Text, c.text) || !strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("%+v, want %s in cage %q lane %d, %q, %q", f, c.cause, c.cage, c.lane, c.text, c.remedy)
			}
			if f.Cause == "" && f != (Finding{}) || f.Cause != "" && (f.Text == "" || f.Remedy == "") {
				t.Errorf("%+v: a cause has a sentence and a remedy, and no cause has neither", f)
			}
		})
	}
}

// Whatever is read, a link that is down has a cause and a sentence, one that is
// up and without errors has none, and a lane belongs to a cage.
func TestAnythingHasACause(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	coin := func() bool { return rnd.IntN(2) == 0 }
	phases := []optics.Phase{optics.Empty, optics.Plugged, optics.Reset, optics.Starting, optics.Ready, optics.Failed}
	states := []link.State{link.Down, link.Clock, link.Module, link.Transceivers, link.Reset, link.Align, link.Settle, link.Up}
	for range 20000 {
		in := Input{FEC: []string{"", "none", "off", "rs"}[rnd.IntN(4)], Starting: coin()}
		in.Link = link.Status{State: states[rnd.IntN(len(states))], Reading: link.Reading{
			Aligned: coin(), Good: coin(), Silent: rnd.IntN(9) == 0, Lanes: rnd.IntN(2) * 20, Locked: rnd.Uint32() & all, Synced: rnd.Uint32() & all,
			MarkersLost: coin(), LocalFault: coin(), RemoteFault: coin(), PeerFault: coin(), HighBER: coin(),
		}}
		in.Link.Up = in.Link.State == link.Up
		for n := range rnd.IntN(5) {
			q := opticstest.SR4()
			for i := range q.Rx {
				q.Rx[i] *= float64(rnd.IntN(2))
			}
			c := plugged(fmt.Sprint(n), q.Dump(true))
			if c.Phase = phases[rnd.IntN(len(phases))]; c.Phase != optics.Ready {
				c.Module = sff.Module{}
			} else if coin() {
				c.Module.Lanes = c.Module.Lanes[:rnd.IntN(5)]
			}
			for range rnd.IntN(6) {
				c.Lanes = append(c.Lanes, rnd.IntN(9))
			}
			c.LowPower, c.TxOff = rnd.IntN(8) == 0, rnd.IntN(8) == 0
			in.Cages = append(in.Cages, c)
		}
		f := Diagnose(in)
		if (f.Cause == "") != in.Link.Up || (f.Text == "") != (f.Cause == "") || f.Lane != 0 && f.Cage == "" {
			t.Fatalf("%+v of %+v", f, in)
		}
	}
}
