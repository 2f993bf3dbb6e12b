//go:build verilator

package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"rocelink"
)

// buildRTL builds the program that plays the fabric with the verilated RTL, next
// to the others. The C++ must be there, see fpga/sim/verilate.
var buildRTL = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-tags", "verilator,realtime", "-o", programs+"/", "rocelink/fpga/sim/cmd/rocelink-fabric-rtl")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the fabric in RTL: %w\n%s", err, out)
	}
	return nil
})

// clockRan checks that the core's clock ran, and no faster than it says.
func clockRan(t *testing.T, s Summary) {
	t.Helper()
	if s.Clock == nil || s.Clock.Seconds == 0 {
		t.Fatal("nothing is known of the core's clock")
	}
	second := float64(s.Clock.Cycles) / s.Clock.Seconds
	t.Logf("%.0f cycles a second", second)
	// What is late is caught up with, so that a sample may hold a little more.
	if limit := 1.1 * 1e3 * float64(s.Clock.KHz); second == 0 || second > limit {
		t.Errorf("%.0f cycles a second of a clock of %d kHz", second, s.Clock.KHz)
	}
}

// All verbs through the RTL, without loss and with all that a network does.
func TestRTLDeliversEveryFrame(t *testing.T) {
	if err := buildRTL(); err != nil {
		t.Fatal(err)
	}
	for name, faults := range map[string][]string{
		"clean": nil,
		"loss":  {"--drop", "1", "--seed", "7"},
		"all":   {"--drop", "0.5", "--duplicate", "1", "--reorder", "1", "--corrupt", "0.5", "--seed", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			s, code := start(t, t.Context(), Config{Duration: 5 * time.Second, Verbs: rocelink.Verbs, Fabric: FabricRTL, Faults: faults})
			pass(t, s, code, len(rocelink.Verbs), 0)
			clockRan(t, s)
			resent := rocelink.Count(0)
			for _, r := range s.Streams {
				resent += r.Board.PacketsResent
			}
			if faults != nil && resent == 0 {
				t.Error("packets were lost, yet none was sent again")
			}
		})
	}
}

// A count of frames ends by itself, each of them right.
func TestRTLEndsAfterCount(t *testing.T) {
	if err := buildRTL(); err != nil {
		t.Fatal(err)
	}
	const count = 40
	verbs := []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite, rocelink.VerbRead}
	s, code := start(t, t.Context(), Config{Count: count, Verbs: verbs, Frame: "5000", MTU: 1024, Rate: "0", Fabric: FabricRTL})
	pass(t, s, code, len(verbs), count)
	for _, r := range s.Streams {
		packets := map[rocelink.Verb]rocelink.Count{rocelink.VerbSend: 5 * count, rocelink.VerbRead: count}[r.Verb]
		if packets != 0 && r.Board.PacketsSent != packets {
			t.Errorf("%s: %d packets for %d frames of 5000 bytes, want %d", r.Stream, r.Board.PacketsSent, count, packets)
		}
	}
}

// kill -9 of the fabric: it starts with another Boot, and the streams run anew.
func TestRTLSurvivesKill(t *testing.T) {
	if err := buildRTL(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	verbs := []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite}
	s, code := start(t, ctx, Config{Duration: time.Hour, Verbs: verbs, Fabric: FabricRTL, onRunning: func(r *run) {
		defer cancel()
		if !within(30*time.Second, func() bool { return r.sessionsSeen() == 2 }) {
			t.Error("no windows of both streams within 30 s")
			return
		}
		r.fabric.kill()
		if !within(60*time.Second, func() bool { return r.sessionsSeen() >= 4 && r.board.missing(r.Verbs) == "" }) {
			t.Errorf("no new session of both streams within a minute: %s", r.board.missing(r.Verbs))
		}
	}})
	if code != ExitOK || s.Restarts["rocelink-fabric-rtl"] != 1 {
		t.Errorf("exit code %d, restarts %v, problems %q", code, s.Restarts, s.Problems)
	}
	for _, r := range s.Streams {
		if r.Received() == 0 || r.Total.Lost() > 0 {
			t.Errorf("%s: %+v", r.Stream, r)
		}
	}
}
