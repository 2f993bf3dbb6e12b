// Package diagnose names the likely cause of a link that is down or poor, in
// words with what to do about it. It is a pure function of what was read: it
// touches nothing and remembers nothing.
//
// What was read may contradict itself: a line may tell the wrong presence, a
// module measure nothing or nonsense. What the MAC receives outweighs what a
// module says, and a link that is up has no cause.
package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"rocelink"
	"rocelink/firmware/link"
	"rocelink/firmware/optics"
	"rocelink/firmware/optics/sff"
)

// Input is what was read.
type Input struct {
	Fabric string // why there is no fabric, "" if there is one
	MAC    error  // why no MAC answers, nil if one does
	FEC    string // of our MAC: none, off or rs
	Clocks []rocelink.Clock
	Cages  []Cage // that carry the port, in the order of its lanes
	Link   link.Status
	// Starting: the present attempt has not had its time yet, or the modules were
	// not looked at since the link was lost. What only the MAC tells is not
	// judged.
	Starting bool
	Errors   Errors
}

// Cage is a cage of the port.
type Cage struct {
	optics.State
	// Lanes are those of the port that the cage carries, by lane of the cage;
	// empty: as many as it has, in order.
	Lanes []int
}

// Errors are those that were counted over some time while the link was up.
type Errors struct {
	Over                   time.Duration
	Corrected, Uncorrected uint64 // codewords of RS-FEC
	BadFrames              uint64 // wrong FCS
}

// Finding is a cause. The zero value is that nothing is wrong.
type Finding struct {
	Cause  string // one of the Cause constants of package rocelink
	Cage   string // it is in
	Lane   int    // of that cage, from 1
	Text   string // a sentence
	Remedy string // what to do about it
}

// laneMbps is the rate of a lane of 100GBASE-R with four lanes; lanes of 40G run
// at 10 312 Mb/s.
const laneMbps = 25_000

// Diagnose names the first cause on the way from the fabric to the peer that
// explains what was read.
func Diagnose(in Input) Finding {
	switch {
	case in.Fabric != "":
		return Finding{rocelink.CauseFabricMissing, "", 0, "there is no fabric: " + in.Fabric,
			"load a bitstream of rocelink for this board, and check the addresses in its description"}
	case in.MAC != nil:
		return Finding{rocelink.CauseMACMissing, "", 0, in.MAC.Error(),
			"check the MAC's address in the board's description, and that its clocks run"}
	case in.Link.Up:
		return in.quality()
	}
	if f := in.hardware(); f.Cause != "" {
		return f
	}
	r := in.Link.Reading
	// Lanes that all lock have light, and a clock: nothing on this side of them
	// can be what is missing.
	if !r.Aligned && !r.AllLocked() {
		for _, find := range []func(Input) Finding{clocks, modules, transmitters, light} {
			if f := find(in); f.Cause != "" {
				return f
			}
		}
	} else if f := transmitters(in); f.Cause != "" {
		return f
	}
	if r.Lanes == 0 || in.Starting {
		return starting(in.Link.State)
	}
	return in.signal()
}

// hardware is what the MAC itself cannot do.
func (in Input) hardware() Finding {
	switch err := in.Link.Err; {
	case errors.Is(err, link.ErrTransceivers):
		f := clocks(in)
		if f.Cause == "" {
			f = Finding{Cause: rocelink.CauseNoClock, Text: err.Error() + ": their reference clock does not run",
				Remedy: "check the reference clock of the transceivers: its chip, its frequency, and the quad it goes to"}
		}
		return f
	case err != nil:
		return Finding{Cause: rocelink.CauseMACMissing, Text: err.Error(),
			Remedy: "check that the bitstream has the MAC the board's description names, and that its clocks run"}
	case in.Link.Reading.Silent:
		return Finding{Cause: rocelink.CauseMACMissing, Text: "the MAC does not answer: its clock stopped, or its logic is gone",
			Remedy: "load the bitstream again"}
	}
	return Finding{}
}

func clocks(in Input) Finding {
	for _, c := range in.Clocks {
		remedy := "check the clock's chip, its power and its address in the board's description"
		switch {
		case c.Problem != "":
			return Finding{Cause: rocelink.CauseNoClock, Text: fmt.Sprintf("reference clock %s: %s", c.Name, c.Problem), Remedy: remedy}
		case c.Locked != nil && !*c.Locked:
			return Finding{Cause: rocelink.CauseNoClock, Text: fmt.Sprintf("reference clock %s is not locked", c.Name), Remedy: remedy}
		}
	}
	return Finding{}
}

// modules finds the first cage whose module is not there or not in use.
func modules(in Input) Finding {
	for _, c := range in.Cages {
		m := c.Record()
		f := Finding{Cage: c.Cage}
		of := "cage " + c.Cage
		switch {
		case c.Phase == optics.Empty:
			f.Cause, f.Text, f.Remedy = rocelink.CauseNoModule, of+" is empty", "plug a module or a cable"
			if c.Problem != "" {
				f.Text += ": " + c.Problem
			}
		case c.Phase == optics.Failed:
			f.Cause, f.Text = rocelink.CauseModuleFailed, of+": "+cmp.Or(c.Problem, "the module does not answer")
			f.Remedy = "plug the module again, or another one; if that does not help check the I2C bus and the cage's lines in the board's description"
		case c.Phase == optics.Reset:
			f.Cause, f.Text, f.Remedy = rocelink.CauseLowPower, of+": the module is held in reset", "wait until it is released; if it stays, check the polarity of the reset line"
		case c.Phase != optics.Ready:
			f.Cause, f.Text, f.Remedy = rocelink.CauseModuleStarts, of+": the module starts", "wait for some seconds"
			if c.Problem != "" {
				f.Text += ": " + c.Problem
			}
		case m.LowPower:
			f.Cause, f.Text = rocelink.CauseLowPower, of+": "+cmp.Or(c.Problem, "the module is in low power and neither sends nor receives")
			f.Remedy = "check the LPMode line and its polarity; a module that needs more than the cage supplies must be replaced"
		default:
			continue
		}
		return f
	}
	return Finding{}
}

func transmitters(in Input) Finding {
	for _, c := range in.Cages {
		for _, l := range c.lanes() {
			switch {
			case l.TxFault:
				return Finding{rocelink.CauseTxDisabled, c.Cage, l.Lane, fmt.Sprintf("the transmitter of %s failed", c.name(l.Lane)), "replace the module"}
			case l.TxDisabled:
				return Finding{rocelink.CauseTxDisabled, c.Cage, l.Lane, fmt.Sprintf("the transmitter of %s is switched off", c.name(l.Lane)),
					"switch it on: check TX disable, its line and its polarity"}
			}
		}
	}
	return Finding{}
}

// light finds lanes on which a module says that nothing is received.
func light(in Input) Finding {
	for _, c := range in.Cages {
		lanes := c.lanes()
		var dark []rocelink.ModuleLane
		for _, l := range lanes {
			if l.NoLight {
				dark = append(dark, l)
			}
		}
		if len(dark) == 0 {
			continue
		}
		f := Finding{Cause: rocelink.CauseNoLight, Cage: c.Cage, Lane: dark[0].Lane}
		switch {
		case len(dark) == len(lanes) && len(lanes) > 1:
			f.Text = fmt.Sprintf("no light on all %d lanes of cage %s", len(lanes), c.Cage)
			f.Remedy = "check that the peer is on and sends, and that the fibre is plugged at both ends and the right way round"
		default:
			var names []string
			for _, l := range dark {
				names = append(names, fmt.Sprint(l.Lane))
			}
			f.Text = fmt.Sprintf("no light on lane %s of cage %s", strings.Join(names, " and "), c.Cage)
			if len(c.Lanes) > 0 && len(lanes) == 1 {
				f.Text += fmt.Sprintf(", lane %d of the port", c.Lanes[0])
			}
			f.Remedy = "clean or replace the fibre of that lane, and check that lane of the peer's module"
		}
		f.Text += power(dark[0].RxPowerMW)
		return f
	}
	return Finding{}
}

// signal judges what the receiver makes of what arrives.
func (in Input) signal() Finding {
	r := in.Link.Reading
	locked := bits.OnesCount32(r.Locked)
	switch {
	case r.PeerFault || r.RemoteFault && (r.Aligned || r.HighBER):
		return in.blind()
	case r.HighBER:
		return in.errors("the bit error rate is high")
	case r.Good:
		return starting(in.Link.State)
	case r.Aligned:
		return Finding{Cause: rocelink.CauseNotAligned, Text: fmt.Sprintf("receive status %s: damaged frames or ordered sets arrive", r.Status),
			Remedy: "check the peer's port and FEC of both ends"}
	case locked == 0 && r.RemoteFault && !r.LocalFault:
		return in.blind() // what says so cannot be heard without lock
	case locked == 0:
		return in.nothingLocks()
	case !r.AllLocked():
		return Finding{Cause: rocelink.CauseNotAligned,
			Text:   fmt.Sprintf("only %d of %d lanes lock (%#05x)", locked, r.Lanes, r.Locked),
			Remedy: "check each lane of the fibre and of both modules"}
	case r.MarkersLost || r.Synced == 0:
		return in.fec("all lanes lock, but no alignment markers come")
	}
	return Finding{Cause: rocelink.CauseNotAligned, Text: "all lanes lock, but do not align" + in.synced() + ", receive status " + r.Status,
		Remedy: "check that no lanes are crossed and that all go the same way, and FEC of both ends"}
}

// nothingLocks tells apart why no lane locks, which the MAC alone cannot.
func (in Input) nothingLocks() Finding {
	lit := len(in.Cages) > 0 // all lanes are known to have light
	locks := lit             // and the modules' clock recovery locks to it
	for _, c := range in.Cages {
		m := c.Module
		if m.RateMbps > 0 && m.RateMbps < laneMbps*9/10 {
			return Finding{Cause: rocelink.CauseWrongRate, Cage: c.Cage, Lane: 1,
				Text:   fmt.Sprintf("no lane locks, and the module in cage %s is made for %d Mb/s a lane, not for %d", c.Cage, m.RateMbps, laneMbps),
				Remedy: "plug a module or cable for 100G (QSFP28, or SFP28 in each cage)"}
		}
		for _, l := range c.decoded() {
			if l.RxLOL != nil && *l.RxLOL {
				return Finding{Cause: rocelink.CauseWrongRate, Cage: c.Cage, Lane: l.Lane,
					Text:   fmt.Sprintf("there is light on %s, but the module's clock recovery does not lock to it", c.name(l.Lane)),
					Remedy: "set the peer's port to 100G: a lane runs at 25.78 GBd"}
			}
			lit = lit && (l.RxPowerMW != nil || l.RxLOS != nil)
			locks = locks && l.RxLOL != nil
		}
		lit = lit && len(c.Module.Lanes) > 0
	}
	switch {
	case in.Link.Reading.MarkersLost:
		return in.fec("a signal comes, but no alignment markers")
	case lit && locks:
		return in.fec("there is light on every lane, and the modules lock to it, but no lane of the MAC does")
	case lit:
		return Finding{Cause: rocelink.CauseWrongRate, Text: "there is light on every lane, but none locks: the peer sends at another rate, or with another FEC (this end: " + fecName(in.FEC) + ")",
			Remedy: "set the peer's port to 100G with the same FEC"}
	}
	f := Finding{Cause: rocelink.CauseNoSignal, Text: "no signal: no lane locks, and there are no optics to ask",
		Remedy: "check module, cable, and that the peer is on and set to 100G with the same FEC (this end: " + fecName(in.FEC) + ")"}
	if len(in.Cages) > 0 {
		f.Cage = in.Cages[0].Cage
		f.Text = "no lane locks, and what is plugged in cage " + f.Cage + " measures no light"
		if in.Cages[0].Module.Copper {
			f.Text = "no lane locks; the copper cable in cage " + f.Cage + " measures nothing"
		}
	}
	return f
}

func (in Input) fec(why string) Finding {
	return Finding{Cause: rocelink.CauseFECMismatch, Text: why + ": FEC differs from the peer (this end: " + fecName(in.FEC) + ")",
		Remedy: "set the same FEC at both ends; SR4 modules and copper cables need RS-FEC, LR4 modules none"}
}

// blind is that the peer does not see us.
func (in Input) blind() Finding {
	f := Finding{Cause: rocelink.CausePeerBlind, Text: "the peer does not see us (remote fault)",
		Remedy: "check our transmitter, the fibre towards the peer, and FEC of both ends"}
	if in.Link.Reading.PeerFault {
		f.Text = "the peer sends local fault: its receiver has no signal of ours"
	}
	weak := math.Inf(1)
	for _, c := range in.Cages {
		for _, l := range c.lanes() {
			if l.TxPowerMW != nil && *l.TxPowerMW < weak {
				weak, f.Cage = *l.TxPowerMW, c.Cage
			}
		}
	}
	if !math.IsInf(weak, 1) {
		f.Text += "; the weakest lane we send on has" + strings.TrimPrefix(power(&weak), ":")
	}
	return f
}

func (in Input) errors(what string) Finding {
	f := Finding{Cause: rocelink.CauseHighBER, Text: what, Remedy: "check and clean the fibre ends, the module and the cable"}
	if in.FEC != "rs" {
		f.Remedy += "; SR4 modules and copper cables need RS-FEC at both ends"
	}
	return f
}

// Codewords a second of RS(528,514) at 103.125 Gb/s (IEEE 802.3 clause 91), and
// the share of corrected ones that is too much: one in twenty is a bit error
// ratio of 1e-5, where a good link has none in hours and 5e-5 is the limit.
const (
	codewordsPerSecond = 103_125_000_000 / 5280
	correctedShare     = 20
)

// quality judges a link that is up.
func (in Input) quality() Finding {
	e := in.Errors
	most := uint64(e.Over.Seconds() * codewordsPerSecond / correctedShare)
	switch {
	case e.Over <= 0:
	case e.Uncorrected > 0:
		return in.errors(fmt.Sprintf("the bit error rate is high: %d codewords in %v could not be corrected", e.Uncorrected, e.Over.Round(time.Second)))
	case e.BadFrames > 0:
		return in.errors(fmt.Sprintf("the bit error rate is high: %d frames in %v had a wrong FCS", e.BadFrames, e.Over.Round(time.Second)))
	case e.Corrected > most:
		return in.errors(fmt.Sprintf("the bit error rate is high: %d codewords in %v had to be corrected", e.Corrected, e.Over.Round(time.Second)))
	}
	return Finding{}
}

// starting is a step with which nothing is known to be wrong.
func starting(s link.State) Finding {
	f := Finding{Cause: rocelink.CauseStarting, Remedy: "wait for some seconds"}
	switch s {
	case link.Clock:
		f.Text = "waits for a reference clock"
	case link.Module:
		f.Text = "waits for a module"
	case link.Transceivers:
		f.Text = "the transceivers are being reset"
	case link.Align:
		f.Text = "waits for alignment"
	case link.Settle:
		f.Text = "aligned, waits until nothing is wrong"
	default:
		f.Text = "the link is being set up"
	}
	return f
}

func (in Input) synced() string {
	r := in.Link.Reading
	if n := bits.OnesCount32(r.Synced); n < r.Lanes {
		return fmt.Sprintf(": %d of %d find their markers (%#05x)", n, r.Lanes, r.Synced)
	}
	return ""
}

// lanes are those of the module that the port uses.
func (c Cage) lanes() []rocelink.ModuleLane {
	all := c.Record().Lanes
	if n := len(c.Lanes); n > 0 && n < len(all) {
		return all[:n]
	}
	return all
}

func (c Cage) decoded() []sff.Lane {
	all := c.Module.Lanes
	if n := len(c.Lanes); n > 0 && n < len(all) {
		return all[:n]
	}
	return all
}

// name is a lane for people.
func (c Cage) name(lane int) string {
	if len(c.Module.Lanes) == 1 {
		return "cage " + c.Cage
	}
	return fmt.Sprintf("lane %d of cage %s", lane, c.Cage)
}

// power is a power for people, "" if it is not measured.
func power(mw *float64) string {
	switch {
	case mw == nil:
		return ""
	case *mw <= 0:
		return ": 0 mW"
	}
	return fmt.Sprintf(": %.4f mW, %.1f dBm", *mw, 10*math.Log10(*mw))
}

func fecName(fec string) string {
	if fec == "rs" {
		return "RS-FEC"
	}
	return "no FEC"
}
