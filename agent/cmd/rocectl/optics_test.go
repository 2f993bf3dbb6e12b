package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"rocelink"
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

// A module in a cage is shown as the same module in a file.
func TestOpticsOfACage(t *testing.T) {
	board := healthy()
	board.Modules = []rocelink.Module{{Cage: "qsfp0", Phase: "ready"}, {Cage: "qsfp1", Phase: "empty"}}
	url, nc := server(t, board)
	p := opticstest.SR4().Pages()
	_, err := nc.Subscribe(rocelink.RequestSubject("demo", rocelink.EndpointModule), func(m *nats.Msg) {
		var r rocelink.ModuleRequest
		if err := rocelink.Decode(m.Data, &r); err != nil {
			t.Error(err)
		}
		reply := rocelink.ModuleReply{Version: 1, State: rocelink.Module{Cage: r.Cage, Phase: "empty"}}
		if r.Cage == "qsfp0" {
			reply.State.Phase, reply.Lower, reply.Upper = "ready", p[0], map[byte][]byte{0: p[1], 1: p[2], 2: p[3], 3: p[4]}
		}
		data, err := json.Marshal(reply)
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	want, _, err := run(t.Context(), "optics", "--json", file(t, opticstest.SR4().Dump(true)))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--board", "demo"}, nil} {
		got, code, err := run(t.Context(), append([]string{"optics", "--json", "qsfp0", "--nats", url}, args...)...)
		if code != 0 || err != nil || got != want {
			t.Errorf("%q: code %d, %v\n%s", args, code, err, got)
		}
	}
	out, code, err := run(t.Context(), "optics", "--json", "qsfp1", "--board", "demo", "--nats", url)
	var m struct{ Present *bool }
	if code != exitNoModule || err == nil || !strings.Contains(err.Error(), "is empty") || json.Unmarshal([]byte(out), &m) != nil || m.Present == nil || *m.Present {
		t.Errorf("empty: code %d, %v\n%s", code, err, out)
	}
	if _, code, err := run(t.Context(), "optics", "qsfp9", "--nats", url); code != exitFailed || !strings.Contains(err.Error(), "demo qsfp0, demo qsfp1") {
		t.Errorf("no such cage: code %d, %v", code, err)
	}
	if _, code, err := run(t.Context(), "optics", "qsfp0", "--nats", "nats://127.0.0.1:1"); code != exitFailed || !strings.Contains(err.Error(), "no file") {
		t.Errorf("no server: code %d, %v", code, err)
	}
}

// A register is written by name, and what it then reads is shown.
func TestRegsWrite(t *testing.T) {
	url, nc := server(t, nil)
	_, err := nc.Subscribe(rocelink.RequestSubject("demo", rocelink.EndpointWriteRegister), func(m *nats.Msg) {
		var r rocelink.RegisterRequest
		if err := rocelink.Decode(m.Data, &r); err != nil || r.Value == nil {
			t.Error(err)
			return
		}
		data, err := json.Marshal(rocelink.RegisterReply{Version: 1, Block: r.Block, Name: r.Register, Value: *r.Value})
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	out, code, err := run(t.Context(), "regs", "cmac.userreg0", "--write", "0xcafe", "--board", "demo", "--nats", url)
	if code != 0 || !strings.Contains(out, "CMAC.UserReg0") || !strings.Contains(out, "0x0000cafe") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	for _, args := range [][]string{
		{"regs", "cmac.userreg0", "--write", "1"},
		{"regs", "cmac", "--write", "1", "--board", "demo"},
		{"regs", "--write", "1", "--board", "demo"},
		{"regs", "cmac.userreg0", "--write", "many", "--board", "demo"},
	} {
		if _, code, err := run(t.Context(), append(args, "--nats", url)...); code != exitFailed || err == nil {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}
