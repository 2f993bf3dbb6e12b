package optics

import (
	"strings"
	"testing"

	"rocelink/firmware/optics/sff"
)

// A transmitter that is off is not too weak, and a wrong checksum is told.
func TestRecord(t *testing.T) {
	off := true
	module := func() sff.Module {
		return sff.Module{Present: true, ChecksumOK: true, Lanes: []sff.Lane{{Lane: 1}, {Lane: 2, TxDisabled: &off}}, Alarms: []sff.Alarm{
			{Quantity: sff.TxPower, Lane: 1, Bound: "low", Now: true}, {Quantity: sff.TxBias, Lane: 2, Bound: "low", Now: true},
			{Quantity: sff.Temperature, Bound: "high", Now: true},
		}}
	}
	for _, c := range []struct {
		name  string
		state State
		want  string
	}{
		{"running", State{Module: module()}, "lane 1 tx_power low, temperature high"},
		{"low power", State{Module: module(), LowPower: true}, "temperature high"},
		{"switched off by its pin", State{Module: module(), TxOff: true}, "temperature high"},
	} {
		r := c.state.Record()
		if got := strings.Join(r.Alarms, ", "); got != c.want || r.Problem != "" {
			t.Errorf("%s: %q, %q, want %q", c.name, got, r.Problem, c.want)
		}
		if len(c.state.Module.Alarms) != 3 {
			t.Errorf("%s: the module's own alarms were changed", c.name)
		}
	}
	m := module()
	m.ChecksumOK = false
	if r := (State{Module: m}).Record(); !strings.Contains(r.Problem, "checksum") {
		t.Errorf("problem %q", r.Problem)
	}
	if r := (State{Module: m, Problem: "of the cage"}).Record(); r.Problem != "of the cage" {
		t.Errorf("problem %q", r.Problem)
	}
}
