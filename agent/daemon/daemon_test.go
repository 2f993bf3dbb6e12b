package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rocelink/agent/stream"
	"rocelink/agent/verbs"
)

func TestParse(t *testing.T) {
	var c Config
	text := `
name: host1
device: soft:127.0.0.1
nats:
  listen: 127.0.0.1:0
streams:
  - board: demo        # the board's name
    verb: write
    frame: 64KiB
    rate: 1G
`
	if err := c.Parse("x.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Streams) != 1 || c.Streams[0].FrameBytes.Bytes != 65536 || c.Streams[0].Name != "write" || c.NATS.Listen != "127.0.0.1:0" {
		t.Errorf("%+v", c)
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"nmae: x", "nmae"},
		{"name: [1]", "name"},
		{"name: \"a\\nb\"", "host name"},
		{"streams:\n  - board: demo\n    verb: shout", "stream 1"},
		{"streams:\n  - board: demo\n    frame: 5 furlongs", "furlongs"},
		{"streams:\n  - {board: demo}\n  - {board: demo}", "two streams are called send"},
		{"nats: {url: 'nats://x', listen: '127.0.0.1:1'}", "not both"},
		{"name: x\n\t- y", "x.yaml"},
	} {
		var c Config
		err := c.Parse("x.yaml", []byte(tc.text))
		if err == nil {
			_, err = c.complete()
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v does not name %q", tc.text, err, tc.want)
		}
	}
	var c Config
	if err := c.Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestRunRefusesBeforeItOpensAnything(t *testing.T) {
	for _, c := range []Config{
		{Once: true},
		{Name: strings.Repeat("x", 100)},
	} {
		if err := Run(context.Background(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A device that is not there is an error that offers the software provider;
// with no device named, that is what is taken.
func TestDevice(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, name := range []string{"mlx5_none", "auto"} {
		if dev, err := openDevice(name, log); err == nil {
			dev.Close() // this machine has one
		} else if !strings.Contains(err.Error(), "soft:ADDRESS") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := openDevice("soft:192.0.2.1", log); !errors.Is(err, verbs.ErrNoDevice) || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("an address of another machine: %v", err)
	}
	dev, err := openDevice("soft:127.46.0.1", log)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

func TestSummaryIsWholeOrNotThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "s.json")
	if err := writeSummary(file, []stream.Result{{Stream: "a"}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back []stream.Result
	if err := json.Unmarshal(data, &back); err != nil || len(back) != 1 || back[0].Stream != "a" {
		t.Errorf("%s, %v", data, err)
	}
	if err := writeSummary(filepath.Join(dir, "none", "s.json"), nil); err == nil {
		t.Error("a folder that is not there was accepted")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".summary-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: a\nstreams:\n  - board: b\n    cpu: 1\n    lease: 2s\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Config
		if c.Parse("f", data) == nil {
			_, _ = c.complete()
		}
	})
}
