// Package report renders status records for people, as tables in the manner
// of iproute2 and perftest.
package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"rocelink"
)

// Snapshot is the last record of each board and host.
type Snapshot struct {
	Boards []rocelink.BoardStatus `json:"boards"`
	Hosts  []rocelink.HostStatus  `json:"hosts"`
}

// Healthy reports whether every link is up, every fabric present and no
// stream failed.
func (s Snapshot) Healthy() bool {
	for _, b := range s.Boards {
		if !b.Fabric.Present || !b.Link.Up {
			return false
		}
		for _, st := range b.Streams {
			if st.State == rocelink.StreamError {
				return false
			}
		}
	}
	for _, h := range s.Hosts {
		if !h.Device.Active {
			return false
		}
		for _, st := range h.Streams {
			if st.Problem != "" || st.Total.Lost() > 0 {
				return false
			}
		}
	}
	return len(s.Boards)+len(s.Hosts) > 0
}

// Add keeps a record in place of an older one of the same name.
func (s *Snapshot) Add(record any) {
	switch r := record.(type) {
	case rocelink.BoardStatus:
		if i := slices.IndexFunc(s.Boards, func(b rocelink.BoardStatus) bool { return b.Board == r.Board }); i >= 0 {
			s.Boards[i] = r
			return
		}
		s.Boards = append(s.Boards, r)
		slices.SortFunc(s.Boards, func(a, b rocelink.BoardStatus) int { return strings.Compare(a.Board, b.Board) })
	case rocelink.HostStatus:
		if i := slices.IndexFunc(s.Hosts, func(h rocelink.HostStatus) bool { return h.Host == r.Host }); i >= 0 {
			s.Hosts[i] = r
			return
		}
		s.Hosts = append(s.Hosts, r)
		slices.SortFunc(s.Hosts, func(a, b rocelink.HostStatus) int { return strings.Compare(a.Host, b.Host) })
	}
}

// Text writes the snapshot as tables.
func (s Snapshot) Text(w io.Writer) error {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	for _, b := range s.Boards {
		t.board(b)
	}
	for _, h := range s.Hosts {
		t.host(h)
	}
	return t.Flush()
}

type table struct{ *tabwriter.Writer }

func (t table) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

func (t table) board(b rocelink.BoardStatus) {
	t.line("board %s: %s, up %s, epoch %x", Printable(b.Board), Printable(b.Model), ago(b.UptimeMS), uint64(b.Epoch))
	switch {
	case !b.Fabric.Present:
		t.line("    fabric missing: %s", Printable(b.Fabric.Problem))
	default:
		kind := ""
		if b.Fabric.Emulated {
			kind = " (software)"
		}
		t.line("    fabric %s%s, build %s, %d queue pairs, MTU up to %d, restarts %d", Printable(b.Fabric.Version), kind,
			Printable(b.Fabric.Build), b.Fabric.QueuePairs, b.Fabric.MaxMTU, b.Fabric.Restarts)
		if b.Fabric.Problem != "" {
			t.line("    problem: %s", Printable(b.Fabric.Problem))
		}
	}
	state := "DOWN (" + Printable(b.Link.State) + ")"
	if b.Link.Up {
		state = "UP"
	}
	if b.Problem != "" {
		t.line("    problem of the board: %s", Printable(b.Problem))
	}
	fec := ""
	if b.Link.FEC != "" {
		fec = ", FEC " + Printable(b.Link.FEC)
	}
	t.line("    link %s %s, status %s%s, lost %d times", Printable(b.Link.Driver), state, Printable(b.Link.Status), fec, b.Link.Losses)
	if b.Link.Problem != "" {
		t.line("    problem: %s", Printable(b.Link.Problem))
	}
	if b.Link.Remedy != "" && b.Link.Problem != "" {
		t.line("    remedy: %s", Printable(b.Link.Remedy))
	}
	t.hardware(b)
	if len(b.Streams) > 0 {
		t.line("    stream\tverb\tto\tstate\tframes\tacked\tsent\tresent\tRNR\tNAK\ttimeouts\tQP")
		for _, s := range b.Streams {
			t.line("    %s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s", Printable(s.Stream), s.Verb, Printable(s.Host), s.State,
				s.SourceFrames, s.FramesDone, s.PacketsSent, s.PacketsResent, s.RNRNAKs, s.SequenceNAKs+s.FatalNAKs, s.Timeouts, s.QPState)
			if s.Problem != "" {
				t.line("      %s", Printable(s.Problem))
			}
		}
	}
}

// linkCounters are those of the MAC that are shown, where it has them, in order.
var linkCounters = []string{
	"rsfec_corrected", "rsfec_uncorrected", "rx_bad_fcs", "rx_good_packets", "tx_good_packets", "rx_pause", "tx_pause",
}

// hardware shows what carries the link: counters, modules, clocks, sensors.
func (t table) hardware(b rocelink.BoardStatus) {
	var counters []string
	for _, n := range linkCounters {
		if v, ok := b.Link.Counters[n]; ok {
			counters = append(counters, fmt.Sprintf("%s %d", n, v))
		}
	}
	if len(counters) > 0 {
		t.line("    counters: %s", strings.Join(counters, ", "))
	}
	for _, m := range b.Modules {
		t.module(m)
	}
	for _, c := range b.Clocks {
		text := fmt.Sprintf("    clock %s", Printable(c.Name))
		if c.Hz > 0 {
			text += fmt.Sprintf(": %.6f MHz", c.Hz/1e6)
		}
		switch {
		case c.Problem != "":
			text += ", " + Printable(c.Problem)
		case c.Locked != nil && *c.Locked:
			text += ", locked"
		case c.Locked != nil:
			text += ", NOT LOCKED"
		}
		t.line("%s", text)
	}
	var sensors []string
	for _, s := range b.Sensors {
		digits := 3
		unit := Printable(s.Unit)
		if s.Unit == "C" {
			digits, unit = 1, "°C"
		}
		sensors = append(sensors, fmt.Sprintf("%s %.*f %s", Printable(s.Name), digits, s.Value, unit))
	}
	if len(sensors) > 0 {
		t.line("    sensors: %s", strings.Join(sensors, ", "))
	}
}

func (t table) module(m rocelink.Module) {
	text := fmt.Sprintf("    cage %s: %s", Printable(m.Cage), Printable(m.Phase))
	if m.Identifier != "" {
		text += fmt.Sprintf(", %s %s %s, serial number %s", Printable(m.Identifier), Printable(m.Vendor), Printable(m.Part), Printable(m.Serial))
	}
	if m.Copper {
		text += ", copper"
	}
	if m.LowPower {
		text += ", LOW POWER"
	}
	text += value(", %.1f °C", m.TemperatureC) + value(", %.2f V", m.VccV)
	t.line("%s", text)
	if m.Problem != "" {
		t.line("      problem: %s", Printable(m.Problem))
	}
	if measures(m) {
		t.line("      lane\tRx\tTx\tbias\tstate")
		for _, l := range m.Lanes {
			t.line("      %d\t%s\t%s\t%s\t%s", l.Lane, power(l.RxPowerMW), power(l.TxPowerMW), orDash(value("%.1f mA", l.TxBiasMA)), laneState(l))
		}
	}
	for _, a := range m.Alarms {
		t.line("      alarm: %s", Printable(a))
	}
	for _, a := range m.Warnings {
		t.line("      warning: %s", Printable(a))
	}
}

// measures reports whether any lane has something to show.
func measures(m rocelink.Module) bool {
	return slices.ContainsFunc(m.Lanes, func(l rocelink.ModuleLane) bool {
		return l.RxPowerMW != nil || l.TxPowerMW != nil || l.TxBiasMA != nil || laneState(l) != "ok"
	})
}

func laneState(l rocelink.ModuleLane) string {
	var s []string
	for _, f := range []struct {
		set  bool
		name string
	}{{l.NoLight, "NO LIGHT"}, {l.TxDisabled, "Tx OFF"}, {l.TxFault, "Tx FAULT"}} {
		if f.set {
			s = append(s, f.name)
		}
	}
	if len(s) == 0 {
		return "ok"
	}
	return strings.Join(s, ", ")
}

// power is a power in dBm; 0 mW has none.
func power(mw *float64) string {
	switch {
	case mw == nil:
		return "-"
	case *mw <= 0:
		return "0 mW"
	}
	return fmt.Sprintf("%.2f dBm", 10*math.Log10(*mw))
}

// value formats what is measured, "" for what is not.
func value(format string, v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}

func orDash(s string) string { return cmp.Or(s, "-") }

func (t table) host(h rocelink.HostStatus) {
	state := "DOWN"
	if h.Device.Active {
		state = "ACTIVE"
	}
	t.line("host %s: device %s %s %s, path MTU %d, address %s, up %s", Printable(h.Host), Printable(h.Device.Provider),
		Printable(h.Device.Name), state, h.Device.MTU, Printable(h.Device.Address), ago(h.UptimeMS))
	if h.Device.Problem != "" {
		t.line("    problem: %s", Printable(h.Device.Problem))
	}
	if len(h.Streams) > 0 {
		t.line("    stream\tverb\tfrom\tstate\tmessages\tbytes\tmissing\tlate\toverrun\tcorrupt\terrors\tverified")
		for _, s := range h.Streams {
			t.line("    %s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d", Printable(s.Stream), s.Verb, Printable(s.Board), s.State,
				s.Total.Messages, Bytes(uint64(s.Total.Bytes)), s.Total.Missing, s.Total.Late, s.Total.Overrun, s.Total.Corrupt, s.Total.Errors, s.Total.Verified)
			if s.Problem != "" {
				t.line("      %s", Printable(s.Problem))
			}
		}
	}
}

// WindowHeader is the heading over lines of WindowLine.
const WindowHeader = "time      host/stream           verb        messages      Gb/s  missing   late  overrun  corrupt  errors    held"

// WindowLine is a window in one line.
func WindowLine(w rocelink.Window) string {
	line := fmt.Sprintf("%s  %-20s  %-9s %10d %9.3f %8d %6d %8d %8d %7d %7d", w.End.Format("15:04:05"), Printable(w.Host)+"/"+Printable(w.Stream), w.Verb,
		w.Messages, w.BitsPerSecond/1e9, w.Missing, w.Late, w.Overrun, w.Corrupt, w.Failures(), w.HeldSlots)
	if w.Last {
		line += "  ended: " + Printable(w.Reason)
	}
	return line
}

// EventLine is an event in one line.
func EventLine(e rocelink.Event) string {
	of := Printable(e.From)
	if e.Stream != "" {
		of += "/" + Printable(e.Stream)
	}
	return fmt.Sprintf("%s  %-20s  %s: %s", e.Time.Local().Format("15:04:05"), of, Printable(e.Kind), Printable(e.Text))
}

// Printable is text from the network made safe for a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7F && r < 0xA0 || r == '�' {
			return '?'
		}
		return r
	}, s)
}

// Bytes writes a number of bytes with a binary unit.
func Bytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[u])
}

func ago(ms int64) string { return (time.Duration(ms) * time.Millisecond).Round(time.Second).String() }
