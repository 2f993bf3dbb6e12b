package sff

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes the module for people. A value beyond a warning threshold, or
// whose warning flag is latched, is marked with "!", one beyond an alarm
// threshold with "!!".
func (m Module) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-22s: %s\n", name, fmt.Sprintf(format, args...))
	}
	optional := func(name, value string) {
		if value != "" {
			line(name, "%s", value)
		}
	}
	line("Identifier", "%s (0x%02X)", m.Identifier, m.IdentifierCode)
	optional("Memory map", strings.TrimSpace(string(m.Management)+" "+strings.TrimPrefix(m.MapRevision, string(m.Management)+" ")))
	if m.Management != "" {
		line("Vendor", "%s", m.Vendor)
		optional("Vendor OUI", m.OUI)
		line("Part", "%s", m.Part)
		optional("Revision", m.Revision)
		line("Serial", "%s", m.Serial)
		optional("Date", m.Date)
	}
	optional("Connector", m.Connector)
	optional("Technology", m.Technology)
	optional("Compliance", strings.Join(m.Compliance, "; "))
	if m.RateMbps > 0 {
		line("Rate", "%d Mb/s a lane", m.RateMbps)
	}
	if m.WavelengthNM != nil {
		line("Wavelength", "%.2f nm", *m.WavelengthNM)
	}
	optional("Length", m.Length.String())
	if m.PowerClass > 0 {
		s := fmt.Sprint(m.PowerClass)
		if m.MaxPowerW != nil {
			s += fmt.Sprintf(" (at most %.1f W)", *m.MaxPowerW)
		}
		if p := m.PowerControl; p != nil && p.LowPower {
			s += ", low power by software"
		}
		line("Power class", "%s", s)
	}
	for _, c := range m.Checksums {
		state := "ok"
		if !c.OK {
			state = fmt.Sprintf("WRONG: 0x%02X, the bytes sum up to 0x%02X", c.Stored, c.Computed)
		}
		line("Checksum "+c.Name, "%s", state)
	}
	if m.NotReady {
		line("State", "not ready: the module is still starting")
	}
	if m.Management == SFF8636 || m.Management == SFF8472 {
		line("Temperature", "%s", m.value(Temperature, 0, m.TemperatureC, "%.2f °C"))
		line("Supply", "%s", m.value(Vcc, 0, m.VccV, "%.4f V"))
	}
	if err := b.Flush(); err != nil {
		return err
	}
	if err := m.lanesText(w); err != nil {
		return err
	}
	if err := m.limitsText(w); err != nil {
		return err
	}
	list := func(name string, alarms []Alarm) {
		for _, a := range alarms {
			fmt.Fprintf(b, "%s: %s\n", name, a)
		}
	}
	list("Alarm", m.Alarms)
	list("Warning", m.Warnings)
	for _, p := range m.Problems {
		fmt.Fprintf(b, "Note: %s\n", p)
	}
	return b.Flush()
}

func (l Length) String() string {
	var s []string
	for _, f := range []struct {
		name   string
		metres float64
	}{{"SMF", l.SMF}, {"OM1", l.OM1}, {"OM2", l.OM2}, {"OM3", l.OM3}, {"OM4", l.OM4}, {"cable", l.Cable}} {
		if f.metres > 0 {
			s = append(s, fmt.Sprintf("%s %g m", f.name, f.metres))
		}
	}
	return strings.Join(s, ", ")
}

// mark is the mark of a value.
func (m Module) mark(q Quantity, lane int) string {
	for _, a := range m.Alarms {
		if a.Quantity == q && a.Lane == lane {
			return " !!"
		}
	}
	for _, a := range m.Warnings {
		if a.Quantity == q && a.Lane == lane {
			return " !"
		}
	}
	return ""
}

func (m Module) value(q Quantity, lane int, v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v) + m.mark(q, lane)
}

// power is a power in both units.
func (m Module) power(q Quantity, lane int, mw, db *float64, none string) string {
	switch {
	case mw == nil:
		return "-"
	case db == nil:
		return none + m.mark(q, lane)
	}
	return fmt.Sprintf("%.4f mW %.2f dBm", *mw, *db) + m.mark(q, lane)
}

func (m Module) lanesText(w io.Writer) error {
	if len(m.Lanes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "Lane\tRx power\tTx power\tBias\tState")
	for _, l := range m.Lanes {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", l.Lane,
			m.power(RxPower, l.Lane, l.RxPowerMW, l.RxPowerDBm, "no light"),
			m.power(TxPower, l.Lane, l.TxPowerMW, l.TxPowerDBm, "dark"),
			m.value(TxBias, l.Lane, l.TxBiasMA, "%.3f mA"), l.state())
	}
	return t.Flush()
}

// state is what is not in order with a lane.
func (l Lane) state() string {
	var s []string
	for _, f := range []struct {
		set  *bool
		name string
	}{
		{l.RxLOS, "Rx loss of signal"}, {l.RxLOL, "Rx CDR unlocked"}, {l.TxLOS, "Tx loss of signal"},
		{l.TxLOL, "Tx CDR unlocked"}, {l.TxFault, "Tx fault"}, {l.TxDisabled, "Tx disabled"},
	} {
		if f.set != nil && *f.set {
			s = append(s, f.name)
		}
	}
	if len(s) == 0 {
		return "-"
	}
	return strings.Join(s, ", ")
}

func (m Module) limitsText(w io.Writer) error {
	if m.Thresholds == nil {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "Threshold\tlow alarm\tlow warning\thigh warning\thigh alarm")
	for _, r := range []struct {
		name string
		l    *Limits
	}{
		{"temperature °C", m.Thresholds.TemperatureC}, {"supply V", m.Thresholds.VccV}, {"Rx power mW", m.Thresholds.RxPowerMW},
		{"Tx power mW", m.Thresholds.TxPowerMW}, {"bias mA", m.Thresholds.TxBiasMA},
	} {
		if r.l != nil {
			fmt.Fprintf(t, "%s\t%.4f\t%.4f\t%.4f\t%.4f\n", r.name, r.l.LowAlarm, r.l.LowWarning, r.l.HighWarning, r.l.HighAlarm)
		}
	}
	return t.Flush()
}
