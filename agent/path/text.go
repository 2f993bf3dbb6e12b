package path

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"rocelink"
	"rocelink/agent/report"
)

// Text writes paths for people, and since when each is as it is where that is
// known.
func Text(w io.Writer, paths []Path, began map[string]Began) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, p := range paths {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintln(t, heading(p))
		for _, s := range p.Stages {
			stageLine(t, s)
		}
		// Lines without cells end the columns above.
		if p.Link != nil {
			fmt.Fprintln(t, "    "+linkLine(*p.Link))
		}
		line := fmt.Sprintf("%s %s: %s", mark(p.Diagnosis.Severity), p.Diagnosis.Rule, report.Printable(p.Diagnosis.Text))
		if b, ok := began[p.ID]; ok && !p.InOrder() {
			line += fmt.Sprintf(" [since %s]", b.At.Local().Format("15:04:05"))
		}
		fmt.Fprintln(t, line)
		if p.Diagnosis.Remedy != "" {
			fmt.Fprintln(t, "    → "+report.Printable(p.Diagnosis.Remedy))
		}
	}
	return t.Flush()
}

func heading(p Path) string {
	switch {
	case p.Stream != "":
		line := fmt.Sprintf("stream %s: board %s → host %s", report.Printable(p.Stream), report.Printable(p.Board), report.Printable(p.Host))
		for _, word := range []string{string(p.Verb), p.State} {
			if word != "" {
				line += ", " + report.Printable(word)
			}
		}
		if p.BitsPerSecond != nil {
			line += fmt.Sprintf(", %.3f Gb/s", *p.BitsPerSecond/1e9)
		}
		return line
	case p.Board != "":
		return "board " + report.Printable(p.Board)
	}
	return "host " + report.Printable(p.Host)
}

// mark begins the line of a diagnosis.
func mark(s Severity) string {
	switch s {
	case Healthy:
		return "  ok"
	case Note:
		return "  note"
	case Warning:
		return "! warning"
	}
	return "!! CRITICAL"
}

func stageLine(w io.Writer, s Stage) {
	begin, note := "    ", s.Note
	if s.State == Broken {
		begin = "  > "
		note = strings.TrimSpace("← here " + note)
	}
	if s.Port {
		note = strings.TrimSpace("whole port " + note)
	}
	switch s.State {
	case Absent:
		fmt.Fprintf(w, "%s%s\t-\t\t\t\t%s\n", begin, s.Name, note)
		return
	case Unknown:
		fmt.Fprintf(w, "%s%s\tnot heard\t\t\t\t%s\n", begin, s.Name, note)
		return
	}
	if s.Count == 0 && s.Rate == nil && s.AgeMS == 0 && s.State == Broken {
		fmt.Fprintf(w, "%s%s\t\t\t\t\t%s\n", begin, s.Name, note)
		return
	}
	rate := ""
	if s.Rate != nil {
		rate = fmt.Sprintf("%.0f/s", *s.Rate)
	}
	fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s ago\t%s\n", begin, s.Name, grouped(s.Count), s.Unit, rate, span(time.Duration(s.AgeMS)*time.Millisecond), note)
}

// grouped writes a count with commas.
func grouped(n rocelink.Count) string {
	text := fmt.Sprint(uint64(n))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func linkLine(l Link) string {
	state := "DOWN"
	if l.Up {
		state = "up"
	}
	line := "link " + state
	if l.ForMS != nil {
		line += " for " + span(time.Duration(*l.ForMS)*time.Millisecond)
	}
	if l.Status != "" {
		line += ", receive status " + report.Printable(l.Status)
	}
	if l.Losses > 0 {
		line += fmt.Sprintf(", losses so far: %d", l.Losses)
	}
	if l.Corrected != nil {
		line += fmt.Sprintf(", FEC corrected %d codewords and %d not", *l.Corrected, *l.Uncorrected)
	}
	for _, o := range l.Optics {
		line += "\n  " + opticLine(o)
	}
	return line
}

func opticLine(o Optic) string {
	line := report.Printable(o.Cage) + ": " + report.Printable(o.Phase)
	if o.What != "" {
		line += " " + report.Printable(o.What)
	}
	if o.TemperatureC != nil {
		line += fmt.Sprintf(", %.1f °C", *o.TemperatureC)
	}
	var lanes []string
	for _, l := range o.Lanes {
		lanes = append(lanes, laneText(l))
	}
	if len(lanes) > 0 {
		line += ", light received " + strings.Join(lanes, ", ")
	}
	for _, a := range o.Alarms {
		line += "; " + report.Printable(a)
	}
	if o.Problem != "" {
		line += "; " + report.Printable(o.Problem)
	}
	return line
}

// laneText is the light a lane receives.
func laneText(l rocelink.ModuleLane) string {
	text := fmt.Sprintf("%d: ", l.Lane)
	switch {
	case l.NoLight, l.RxPowerMW != nil && *l.RxPowerMW <= 0:
		text += "DARK"
	case l.RxPowerMW != nil:
		text += fmt.Sprintf("%.1f dBm", 10*math.Log10(*l.RxPowerMW))
	default:
		text += "not monitored"
	}
	switch {
	case l.TxFault:
		text += " (laser FAULT)"
	case l.TxDisabled:
		text += " (transmitter off)"
	}
	return text
}
