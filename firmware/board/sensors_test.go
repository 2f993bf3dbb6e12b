package board

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
)

// What can be read is in the status; what cannot is told once, and again only when
// it is something else.
func TestSensors(t *testing.T) {
	var log bytes.Buffer
	x := newBenchOf(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if s := x.b.Status().Sensors; s != nil {
		t.Errorf("%+v before any was read", s)
	}
	const d = "bus/iio/devices/iio:device0/"
	sys := fstest.MapFS{
		d + "name": {Data: []byte("ams\n")}, d + "in_temp0_input": {Data: []byte("41250\n")}, d + "in_voltage0_input": {Data: []byte("x\n")},
	}
	told := x.b.readSensors(sys, "")
	told = x.b.readSensors(sys, told)
	if s := x.b.Status().Sensors; len(s) != 1 || s[0].Name != "temp0" || s[0].Unit != "C" || s[0].Value != 41.25 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(log.String(), "read the sensors"); n != 1 || told == "" {
		t.Errorf("told %d times: %s", n, &log)
	}
	sys[d+"in_voltage0_input"] = &fstest.MapFile{Data: []byte("850\n")}
	if told = x.b.readSensors(sys, told); told != "" || len(x.b.Status().Sensors) != 2 {
		t.Errorf("%q, %+v", told, x.b.Status().Sensors)
	}
}

func TestChip(t *testing.T) {
	var log bytes.Buffer
	x := newBenchOf(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if s := x.b.chip(fstest.MapFS{}); s != "" || strings.Contains(log.String(), "chip") {
		t.Errorf("nothing known: %q, %s", s, &log)
	}
	sys := fstest.MapFS{
		"bus/soc/devices/soc0/family": {Data: []byte("ZynqMP\n")}, "bus/soc/devices/soc0/serial_number": {Data: []byte("a\x01")},
	}
	if s := x.b.chip(sys); s != "; chip ZynqMP" || !strings.Contains(log.String(), "serial_number") {
		t.Errorf("%q, %s", s, &log)
	}
}
