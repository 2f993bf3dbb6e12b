package daemon

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rocelink/boards"
)

// alone is the environment of a boardd without a process 1 of ours.
func alone(string) string { return "" }

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestExitCodes(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--help", exitOK, "--registers /dev/shm/"},
		{"-h", exitOK, "rfsoc4x2"},
		{"", exitUsage, "--board is missing"},
		{"--board", exitUsage, "--help"},
		{"--colour red", exitUsage, "colour"},
		{"--board demo extra", exitUsage, "extra"},
		{"--board demo --tls-cert x", exitFailed, "go together"},
		{"--board demo --creds x --nkey y", exitFailed, "exclude"},
		{"--board demo --traffic-class 256", exitUsage, "traffic-class"},
		{"--board demo --lease 1ms", exitUsage, "--lease"},
		{"--board demo --log-level loud", exitUsage, "log-level"},
		{"--board z80 --address 10.0.0.1", exitFailed, "demo, qemu-versal"},
		{"--board " + none + ".yaml", exitFailed, "no such file"},
		{"--board vck190 --address 10.0.0.1", exitFailed, "i2c[0].device: "},
		{"--board demo --address 10.0.0.1", exitFailed, "--registers"},
		{"--board demo --registers " + none, exitFailed, "--address"},
		{"--board demo --registers " + none + " --address ten", exitFailed, "--address"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --mac 01:00:00:00:00:00", exitFailed, "MAC"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --mac x", exitFailed, "--mac"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --mtu 1500", exitFailed, "MTU"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --fec x", exitFailed, "FEC"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --creds " + none, exitFailed, "no such file"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --nkey " + none, exitFailed, "no such file"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --nats ://", exitFailed, "URL 1"},
		{"--board demo --registers " + none + " --address 10.0.0.1 --nats none", exitOK, "stopped"},
	} {
		var out bytes.Buffer
		if code := run(ended(), strings.Fields(c.args), alone, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("boardd %s: exit %d, want %d, and %q in:\n%s", c.args, code, c.code, c.says, &out)
		}
	}
}

// A password in a URL never reaches the log, whatever is wrong.
func TestSecretsAreNotLogged(t *testing.T) {
	for _, u := range []string{"nats://user:hunter2@127.44.0.9:1", "nats://user:hunter2@%zz", "nats://user:hunter2@"} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		var out bytes.Buffer
		run(ctx, []string{"--board", "demo", "--registers", "/nonexistent", "--address", "127.44.0.8", "--nats", u, "--log-level", "debug"}, alone, &out)
		cancel()
		if strings.Contains(out.String(), "hunter2") {
			t.Errorf("%s", &out)
		}
	}
}

func TestIdentity(t *testing.T) {
	o, err := parse([]string{"--board", "demo", "--registers", "/dev/shm/x", "--name", "n", "--address", "10.0.0.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	a := c.Description.Apertures[0]
	if c.MAC != boards.NameMAC("n") || c.Address.String() != "10.0.0.1" || a.File != "/dev/shm/x" || a.Base != 0 || c.NATS == nil {
		t.Errorf("%+v %+v", c, a)
	}
	// The override leaves the built-in description alone.
	if d, err := boards.Load("demo"); err != nil || d.Apertures[0].File != "" {
		t.Errorf("%+v, %v", d, err)
	}
}
