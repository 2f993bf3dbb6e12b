package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rocelink/fpga/model"
)

func TestSim(t *testing.T) {
	f, err := model.New(model.Config{QueuePairs: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file := filepath.Join(t.TempDir(), "regs")
	s, err := model.ServeSim(f, file+".sim")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "faults.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sim := func(args ...string) (string, error) {
		out, _, err := run(t.Context(), append(append([]string{"sim"}, args...), "--fabric", file)...)
		return out, err
	}
	if _, err := sim("dark", "3", "--for", "1h"); err != nil {
		t.Error(err)
	}
	write("- {do: hot}\n- {after: 2s, do: dark, arg: [1, 2], for: 500ms}\n- {after: 1m, do: light, arg: 3}\n")
	if _, err := sim("script", script); err != nil {
		t.Error(err)
	}
	out, err := sim("list")
	if err != nil || !strings.Contains(out, "dark 3") || !strings.Contains(out, "hot") || !strings.Contains(out, "2 steps") {
		t.Errorf("%s, %v", out, err)
	}
	out, err = sim("list", "--json")
	var r simReply
	if err != nil || json.NewDecoder(bytes.NewBufferString(out)).Decode(&r) != nil || len(r.Active) != 2 || r.Active[0].Lane != 3 || r.Active[0].LeftMS == 0 || r.Waiting != 2 {
		t.Errorf("%s, %v", out, err)
	}
	if out, err = sim("clear"); err != nil {
		t.Error(out, err)
	}
	if active, waiting := f.SimState(); len(active)+waiting > 0 {
		t.Errorf("%v, %d", active, waiting)
	}

	for _, text := range []string{"", "[", "do: hot", "- {do: hot, more: 1}", "- {do: no}", "- {do: hot, after: soon}", "- {do: hot, for: -1s}", "- {do: dark, arg: {a: 1}}", "- {do: dark, arg: 7}"} {
		write(text)
		if _, err := sim("script", script); err == nil {
			t.Errorf("script %q is taken", text)
		}
	}
	for _, args := range [][]string{{}, {"no"}, {"dark", "5"}, {"hot", "--for", "1us"}, {"clear", "--for", "1s"}, {"script", "no/such/file"}, {"list", "more"}} {
		if _, err := sim(args...); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if active, waiting := f.SimState(); len(active)+waiting > 0 {
		t.Errorf("what was refused acts: %v, %d", active, waiting)
	}

	// The help tells every fault there is.
	for _, x := range model.SimFaults() {
		if !strings.Contains(simCommand().Long, x.Name) {
			t.Errorf("the help does not tell %s", x.Name)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := sim("clear"); err == nil || !strings.Contains(err.Error(), "no software fabric runs") {
		t.Errorf("without a fabric: %v", err)
	}
}

func FuzzScript(f *testing.F) {
	f.Add([]byte("- {after: 2s, do: dark, arg: 3}"))
	f.Add([]byte("- {do: tx-off, arg: [1, 2], for: 500ms}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		steps, err := parseScript(bytes.NewReader(data))
		if err == nil && len(steps) == 0 {
			t.Error("no steps, and no error")
		}
	})
}
