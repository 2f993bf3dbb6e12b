package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/broker"
	"rocelink/agent/stream"
)

// programs is where TestMain builds the real programs.
var programs string

func TestMain(m *testing.M) {
	code := func() int {
		dir, err := os.MkdirTemp("", "rocelink-programs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", dir+"/", "rocelink/fpga/model/cmd/rocelink-fabric", "rocelink/firmware/cmd/boardd", "rocelink/agent/cmd/rocelinkd", "rocelink/agent/cmd/rocectl")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
			return 1
		}
		programs = dir
		return m.Run()
	}()
	os.Exit(code)
}

// addresses gives each run its own pair in 127.45.0.0/16, so that runs side by
// side do not meet on UDP port 4791.
var nextAddress atomic.Uint32

func addresses() (host, board string) {
	n := (uint32(os.Getpid())*64 + nextAddress.Add(1)) % (254 * 127)
	return fmt.Sprintf("127.45.%d.%d", 1+n/127, 2*(n%127)+1), fmt.Sprintf("127.45.%d.%d", 1+n/127, 2*(n%127)+2)
}

// start runs the demo and returns its summary, which must be JSON.
func start(t *testing.T, ctx context.Context, c Config) (Summary, int) {
	t.Helper()
	var out, progress bytes.Buffer
	c.Programs, c.Dir, c.Out, c.Progress, c.JSON = programs, t.TempDir(), &out, &progress, true
	c.HostAddress, c.BoardAddress = addresses()
	var err error
	if c.NATSListen, err = freePort(); err != nil {
		t.Fatal(err)
	}
	code, err := Run(ctx, c)
	if t.Failed() || err != nil || testing.Verbose() {
		t.Logf("progress:\n%s", progress.String())
	}
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	var s Summary
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("summary: %v\n%s", err, out.String())
	}
	if code != ExitOK {
		t.Logf("progress:\n%s", progress.String())
	}
	return s, code
}

// pass checks that every stream delivered count frames (any number above 0 for
// count 0) once, in order and right.
func pass(t *testing.T, s Summary, code int, streams int, count uint64) {
	t.Helper()
	if code != ExitOK || !s.OK || len(s.Problems) > 0 {
		t.Errorf("exit code %d, problems %q", code, s.Problems)
	}
	if len(s.Streams) != streams {
		t.Errorf("%d streams, want %d", len(s.Streams), streams)
	}
	for _, r := range s.Streams {
		if r.Received() == 0 || r.Verified() != r.Received() || r.Board.SourceFrames != r.Received() || count > 0 && uint64(r.Received()) != count {
			t.Errorf("%s: source %d, received %d, verified %d, want %d", r.Stream, r.Board.SourceFrames, r.Received(), r.Verified(), count)
		}
	}
}

func TestAllVerbs(t *testing.T) {
	s, code := start(t, t.Context(), Config{Duration: 2 * time.Second, Verbs: rocelink.Verbs, Rate: "200M"})
	pass(t, s, code, len(rocelink.Verbs), 0)
}

// Injected faults end with every frame delivered once, in order, verified.
func TestFaults(t *testing.T) {
	for _, fault := range []string{"drop", "duplicate", "reorder", "corrupt", "delay"} {
		t.Run(fault, func(t *testing.T) {
			s, code := start(t, t.Context(), Config{Verbs: rocelink.Verbs, Count: 300, Frame: "20000", MTU: 1024, Rate: "0", Faults: []string{"--" + fault, "1", "--seed", "7"}})
			pass(t, s, code, len(rocelink.Verbs), 300)
			resent := rocelink.Count(0)
			for _, r := range s.Streams {
				resent += r.Board.PacketsResent
			}
			if fault == "drop" && resent == 0 {
				t.Error("packets were dropped, yet none was sent again")
			}
		})
	}
}

// Every message size of the issue verifies over SEND and WRITE.
func TestSizes(t *testing.T) {
	verbs := []rocelink.Verb{rocelink.VerbSend, rocelink.VerbSendImm, rocelink.VerbWrite, rocelink.VerbWriteImm}
	const mtu = 1024
	for _, size := range []int{0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 8192, 8193, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s, code := start(t, t.Context(), Config{Verbs: verbs, Count: 50, Frame: fmt.Sprint(size), MTU: mtu, Rate: "0"})
			pass(t, s, code, len(verbs), 50)
			for _, r := range s.Streams {
				packets := max((size+mtu-1)/mtu, 1)
				if r.Verb == rocelink.VerbWrite {
					packets++ // the slot's trailer
				}
				if got := int(r.Board.PacketsSent); r.Verb != rocelink.VerbWrite && got != 50*packets || got < 50*packets {
					t.Errorf("%s: %d packets sent for 50 messages of %d bytes, want %d", r.Stream, got, size, 50*packets)
				}
			}
		})
	}
}

// A file comes out as it went in, whatever the frame size, with the last short
// frame right.
func TestSourceFile(t *testing.T) {
	source := filepath.Join(t.TempDir(), "recording.bin")
	data := make([]byte, 3<<20+12345)
	_, _ = rand.Read(data)
	if err := os.WriteFile(source, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		verb  rocelink.Verb
		frame string
	}{
		{rocelink.VerbSend, "64KiB"},
		{rocelink.VerbSendImm, "1000"},
		{rocelink.VerbWrite, "4096"},
		{rocelink.VerbWriteImm, "65537"},
		{rocelink.VerbWriteImm, "16MiB"}, // the whole file is one short frame
	} {
		t.Run(fmt.Sprintf("%s %s", tc.verb, tc.frame), func(t *testing.T) {
			sink := filepath.Join(t.TempDir(), "out.bin")
			s, code := start(t, t.Context(), Config{Verbs: []rocelink.Verb{tc.verb}, Frame: tc.frame, Source: source, Sink: sink, Faults: []string{"--drop", "0.5"}})
			if code != ExitOK || s.SourceSHA256 == "" || s.SourceSHA256 != s.SinkSHA256 {
				t.Errorf("exit code %d, problems %q, %s against %s", code, s.Problems, s.SourceSHA256, s.SinkSHA256)
			}
			out, err := os.ReadFile(sink)
			if err != nil || !bytes.Equal(out, data) {
				t.Errorf("%d bytes came out of %d (%v)", len(out), len(data), err)
			}
		})
	}
}

func TestInterruptEndsCleanly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	s, code := start(t, ctx, Config{Duration: time.Hour, Rate: "100M", onRunning: func(*run) { cancel() }})
	if code != ExitOK || !s.OK {
		t.Errorf("exit code %d, problems %q", code, s.Problems)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}

// kill -9 of any program: the others recover by themselves, and nothing of what
// was acknowledged is lost. Four times in a row.
func TestKillAnyProgram(t *testing.T) {
	for _, tc := range []struct {
		name   string
		victim func(*run) *process
	}{
		{"rocelink-fabric", func(r *run) *process { return r.fabric }},
		{"boardd", func(r *run) *process { return r.boardd }},
		{"rocelinkd", func(r *run) *process { return r.hostd }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			const times = 4
			s, code := start(t, ctx, Config{Duration: time.Hour, Rate: "100M", Verbs: []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite}, onRunning: func(r *run) {
				defer cancel()
				for i := range times {
					before := r.sessionsSeen()
					p := tc.victim(r)
					p.kill()
					if !within(30*time.Second, func() bool { return r.sessionsSeen() >= before+2 && r.board.missing(r.Verbs) == "" }) {
						t.Errorf("kill %d of %s: no new session of both streams within 30 s: %s", i+1, tc.name, r.board.missing(r.Verbs))
						return
					}
				}
			}})
			if code != ExitOK || s.Restarts[tc.name] < times {
				t.Errorf("exit code %d, restarts %v, problems %q", code, s.Restarts, s.Problems)
			}
			for _, r := range s.Streams {
				if r.Received() == 0 || r.Total.Lost() > 0 {
					t.Errorf("%s: %+v", r.Stream, r)
				}
			}
		})
	}
}

// NATS absent at the start, and gone for longer than a lease in mid-run: data
// goes on, and status comes back.
func TestNATSComesAndGoes(t *testing.T) {
	listen, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	serve := func() *broker.Broker {
		b, err := broker.Start(broker.Config{Listen: listen})
		if err != nil {
			t.Errorf("NATS server: %v", err)
		}
		return b
	}
	var server *broker.Broker
	up := time.AfterFunc(time.Second, func() { server = serve() })
	defer up.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const away = 6 * time.Second // the lease is 5 s
	s, code := start(t, ctx, Config{Duration: time.Hour, Rate: "20M", Frame: "4096", Verbs: []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite}, server: "nats://" + listen, onRunning: func(r *run) {
		defer cancel()
		if !within(20*time.Second, func() bool { return r.sessionsSeen() == 2 }) {
			t.Error("no windows of both streams")
			return
		}
		before := uint64(r.watch.total().Messages)
		server.Close()
		time.Sleep(away) // the outage itself
		server = serve()
		// 20 Mb/s of 4096-byte frames are 610 messages a second and stream.
		want := before + uint64(2*610*away.Seconds()*0.7)
		if !within(20*time.Second, func() bool { return uint64(r.watch.total().Messages) >= want }) {
			t.Errorf("%d messages before the outage, %d after it, want %d", before, uint64(r.watch.total().Messages), want)
		}
	}})
	if server != nil {
		defer server.Close()
	}
	pass(t, s, code, 2, 0)
	for _, r := range s.Streams {
		if r.Sessions != 1 {
			t.Errorf("%s: %d sessions, want the one that went on", r.Stream, r.Sessions)
		}
	}
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
}

// sessionsSeen is how many sessions have sent windows with messages.
func (r *run) sessionsSeen() (n int) { return r.watch.sessions() }

func within(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

func TestBadSettings(t *testing.T) {
	for _, c := range []Config{
		{},
		{Programs: "x", Dir: "y", Duration: -1},
		{Programs: "x", Dir: "y", Source: "f", Verbs: rocelink.Verbs},
		{Programs: "x", Dir: "y", Sink: "f"},
		{Programs: "x", Dir: "y", Fabric: "asic"},
		{Programs: "x", Dir: "y", Fabric: FabricRTL, Source: "f"},
	} {
		if code, err := Run(t.Context(), c); err == nil || code != ExitFailed {
			t.Errorf("%+v: exit code %d, %v", c, code, err)
		}
	}
	code, err := Run(t.Context(), Config{Programs: filepath.Join(t.TempDir(), "none"), Dir: t.TempDir()})
	if code != ExitFailed || err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("no programs: exit code %d, %v", code, err)
	}
}

// A program that ends by itself at the start would do so for ever: its own
// words end the demo at once.
func TestSettingThatAProgramRefuses(t *testing.T) {
	host, board := addresses()
	listen, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Programs: programs, Dir: t.TempDir(), HostAddress: host, BoardAddress: board, NATSListen: listen, Duration: time.Hour}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"fault":   {func(c *Config) { c.Faults = []string{"--drop", "1000"} }, "drop 1000"},
		"frame":   {func(c *Config) { c.Frame = "5 furlongs" }, "furlongs"},
		"address": {func(c *Config) { c.HostAddress = "192.0.2.1" }, "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			tc.change(&c)
			began := time.Now()
			code, err := Run(t.Context(), c)
			if code != ExitFailed || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("exit code %d, %v does not name %q", code, err, tc.want)
			}
			if d := time.Since(began); d > startLimit {
				t.Errorf("it took %v", d)
			}
		})
	}
}

func TestSummaryTable(t *testing.T) {
	s := Summary{Streams: []stream.Result{{Stream: "send", Verb: rocelink.VerbSend, Total: rocelink.Totals{Messages: 5, Verified: 5}}}, Problems: []string{"x\x1b[1m"}, Restarts: map[string]int{"boardd": 2}}
	var b strings.Builder
	if err := s.write(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"send", "problem: x?[1m", "boardd was started again 2 times", "FAIL"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
