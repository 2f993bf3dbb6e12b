package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rocelink/firmware/optics/opticstest"
)

// file writes a file for a command to read.
func file(t *testing.T, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestOptics(t *testing.T) {
	q := opticstest.SR4()
	q.Rx[3] = 0
	out, code, err := run(t.Context(), "optics", "--json", file(t, q.Dump(true)))
	if code != 0 {
		t.Fatal(code, err)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	for k, want := range map[string]any{
		"present": true, "identifier": "QSFP28", "vendor": "ROCELINK TEST", "part": "SR4-100G", "serial": "T0001",
		"copper": false, "checksum_ok": true, "temperature_c": 35.5, "vcc_v": 3.3,
	} {
		if m[k] != want {
			t.Errorf("%s is %v, want %v", k, m[k], want)
		}
	}
	dark := m["lanes"].([]any)[3].(map[string]any)
	if v, has := dark["rx_power_dbm"]; dark["rx_power_mw"] != 0.0 || !has || v != nil || dark["no_light"] != true || dark["tx_bias_ma"] != 6.8 {
		t.Errorf("dark lane: %v", dark)
	}
	if out, code, _ := run(t.Context(), "optics", file(t, q.Dump(false))); code != 0 || !strings.Contains(out, "no light") {
		t.Errorf("text: code %d\n%s", code, out)
	}
	for name, c := range map[string]struct {
		arg, want string
		json      bool
	}{
		"wrong size": {file(t, make([]byte, 100)), "100 bytes", false},
		"no module":  {file(t, make([]byte, 256)), "no module", true},
		"no file":    {"qsfp0", "no file", false},
		"directory":  {t.TempDir(), "read module", false},
	} {
		out, code, err := run(t.Context(), "optics", "--json", c.arg)
		if code != exitNoModule || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: code %d, %v", name, code, err)
		}
		var m struct{ Present *bool }
		if c.json && (json.Unmarshal([]byte(out), &m) != nil || m.Present == nil || *m.Present) || !c.json && out != "" {
			t.Errorf("%s printed %s", name, out)
		}
	}
}
