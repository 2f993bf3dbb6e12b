package slow_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Frames of both sides are whole, in turns, and what is offered stays.
func TestArbiter(t *testing.T) {
	if _, err := exec.LookPath("iverilog"); err != nil {
		t.Skip("iverilog is not installed")
	}
	sources := []string{"arbiter.sv", "../../rtl/shell/rl_slow_tx.sv"}
	for _, source := range sources {
		if _, err := os.ReadFile(source); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "bench")
	if out, err := exec.Command("iverilog", append([]string{"-g2012", "-o", program}, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("vvp", "-n", program).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Fatalf("%v: %.300s", err, out)
	}
}
