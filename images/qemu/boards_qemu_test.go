//go:build qemu && linux

package qemu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/boards"
	"rocelink/images"
	"rocelink/images/qemu"
)

// Limits for machines that are busy with other things.
const (
	bootLimit   = 3 * time.Minute
	streamLimit = 2 * time.Minute
	frames      = 1000
	maxMemory   = 32 << 20 // of boardd
)

// console notes when a line came.
type console struct {
	mu    sync.Mutex
	lines bytes.Buffer
	text  string // of the line that is waited for
	seen  time.Time
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines.Write(b)
	if c.seen.IsZero() && bytes.Contains(c.lines.Bytes(), []byte(c.text)) {
		c.seen = time.Now()
	}
	return len(b), nil
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines.String()
}

func (c *console) when() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

func serve(t testing.TB, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not come up")
	}
	return s
}

// programs builds what runs beside the board.
func programs(t testing.TB) (fabric, agent string) {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command("go", "build", "-o", dir+"/", "rocelink/fpga/model/cmd/rocelink-fabric", "rocelink/agent/cmd/rocelinkd")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "rocelink-fabric"), filepath.Join(dir, "rocelinkd")
}

// Each board: its image is built, boots, finds the fabric, brings the link up,
// reports, and sends a stream that arrives whole.
func TestBoards(t *testing.T) {
	if _, err := exec.LookPath(qemu.Program); err != nil {
		t.Fatalf("%v: install qemu-system-arm", err)
	}
	fabric, agent := programs(t)
	n := 0
	for _, name := range boards.Names() {
		b, err := boards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if b.Boot == nil || b.Boot.Emulator == nil {
			continue
		}
		n++
		address := fmt.Sprintf("127.41.%d.%d", os.Getpid()%250, n)
		t.Run(name, func(t *testing.T) { testBoard(t, name, b, fabric, agent, address) })
		t.Run(name+" with a broken card", func(t *testing.T) { testBrokenCard(t, name, b, fabric, address) })
	}
	if n < 2 {
		t.Errorf("%d boards for QEMU, want two", n)
	}
}

// provoke sends a line to the socket of the software fabric.
func provoke(t *testing.T, socket, line string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
	var reply struct{ Error string }
	if err := json.NewDecoder(c).Decode(&reply); err != nil || reply.Error != "" {
		t.Fatalf("%s: %q, %v", line, reply.Error, err)
	}
}

// running is a board that runs, with what it says.
type running struct {
	testing.TB
	ctx      context.Context
	nc       *nats.Conn
	machine  *qemu.Machine
	console  *console
	statuses chan *rocelink.BoardStatus
	server   *server.Server
	port     int
	begin    time.Time
	made     time.Time // the image's time, from which the board's clock starts
}

// start builds a board's image and boots it; it is called called. The machine
// ends with the test.
func start(t testing.TB, name, called string, c qemu.Config, build images.Config) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit+2*streamLimit)
	t.Cleanup(cancel)
	r := &running{TB: t, ctx: ctx, statuses: make(chan *rocelink.BoardStatus, 256)}
	build.Board, build.Out, build.Source, build.Cache = name, t.TempDir(), "../..", os.Getenv("ROCELINK_CACHE")
	if build.Cache == "" {
		build.Cache = "../../build/cache"
	}
	build.Progress = func(s string) { t.Log(s) }
	r.begin = time.Now()
	result, err := images.Build(ctx, build)
	if err != nil {
		t.Fatal(err)
	}
	r.made = time.Unix(result.Time, 0)
	t.Logf("image built in %v", time.Since(r.begin).Round(time.Millisecond))
	for _, f := range result.Files {
		t.Logf("  %s: %d bytes", f.Name, f.Bytes)
	}
	if c.Image, err = os.ReadFile(filepath.Join(build.Out, images.ImageFile(name))); err != nil {
		t.Fatal(err)
	}
	if build.CardConfig != "" {
		c.Card = filepath.Join(build.Out, images.CardFile)
	}

	r.nc, r.server = natsPair(t)
	r.port = r.server.Addr().(*net.TCPAddr).Port
	if _, err := r.nc.Subscribe(rocelink.BoardStatusSubject(called), func(m *nats.Msg) {
		var st rocelink.BoardStatus
		if err := json.Unmarshal(m.Data, &st); err != nil {
			t.Errorf("status: %v", err)
			return
		}
		select {
		case r.statuses <- &st:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}

	r.console = &console{text: "Run /init as init process"}
	c.Console, c.Messages = r.console, r.console
	c.Arguments = append(c.Arguments,
		fmt.Sprintf("rocelink.nats=nats://%s:%d", qemu.Host, r.port),
		"loglevel=7") // shows when the kernel hands over
	run, stop := context.WithCancel(ctx)
	r.begin = time.Now()
	if r.machine, err = qemu.Start(run, c); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := r.machine.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("end: %v", err)
		}
		if t.Failed() {
			t.Logf("console:\n%s", r.console)
		}
	})
	return r
}

// wait returns the first status that is as wanted.
func (r *running) wait(what string, limit time.Duration, want func(st *rocelink.BoardStatus) bool) *rocelink.BoardStatus {
	r.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	var last *rocelink.BoardStatus
	for {
		select {
		case st := <-r.statuses:
			if last = st; want(st) {
				return st
			}
		case <-r.machine.Done():
			r.Fatalf("%s: the board ended: %v", what, r.machine.Wait())
		case <-timeout.C:
			r.Fatalf("%s: not within %v; the last status is %+v", what, limit, last)
		}
	}
}

func whatever(*rocelink.BoardStatus) bool { return true }

func testBoard(t *testing.T, name string, b *boards.Board, fabric, agent, address string) {
	sim := filepath.Join(t.TempDir(), "sim")
	r := start(t, name, name, qemu.Config{
		Board: b, Fabric: []string{fabric, "--sim", sim}, Arguments: []string{"rocelink.address=" + address, "rocelink.shell=1"},
	}, images.Config{Shell: "busybox"})
	first := r.wait("a status", bootLimit, whatever)
	now := time.Now()
	if first.Board != name || first.Model != b.Model {
		t.Errorf("board %q, model %q", first.Board, first.Model)
	}
	if at := r.console.when(); at.IsZero() {
		t.Errorf("the console does not say %q", r.console.text)
	} else {
		t.Logf("kernel %v, from its handing over to the first status %v, by the board's clock %v",
			at.Sub(r.begin).Round(time.Millisecond), now.Sub(at).Round(time.Millisecond), first.Time.Sub(r.made).Round(time.Millisecond))
	}
	up := r.wait("link up", time.Minute, func(st *rocelink.BoardStatus) bool { return st.Fabric.Present && st.Link.Up })
	if !up.Fabric.Emulated || up.Fabric.Problem != "" {
		t.Errorf("fabric %+v", up.Fabric)
	}

	// A stream of the host agent's, every frame checked.
	stream(t, r.ctx, agent, r.server.ClientURL(), name, strings.Replace(address, ".41.", ".42.", 1))

	// The module behind the I2C of the fabric: a lane goes dark, the board names
	// it, and the link comes back with the light.
	r.wait("a module", time.Minute, func(st *rocelink.BoardStatus) bool {
		return len(st.Modules) == 1 && st.Modules[0].Phase == "ready" && len(st.Modules[0].Lanes) == 4
	})
	provoke(t, sim, `{"do":"dark","args":["3"]}`)
	r.wait("the cause", time.Minute, func(st *rocelink.BoardStatus) bool {
		return !st.Link.Up && st.Link.Cause == rocelink.CauseNoLight && st.Link.Lane == 3
	})
	provoke(t, sim, `{"do":"clear"}`)
	r.wait("the link again", time.Minute, func(st *rocelink.BoardStatus) bool { return st.Link.Up && st.Link.Cause == "" })

	// The NATS server goes and comes back; the board is the same one.
	r.server.Shutdown()
	r.server.WaitForShutdown()
	for len(r.statuses) > 0 {
		<-r.statuses // those of before
	}
	defer serve(t, r.port).Shutdown()
	if after := r.wait("a status after the NATS server's restart", time.Minute, whatever); after.Epoch != first.Epoch {
		t.Errorf("the board restarted: epoch %v, was %v", after.Epoch, first.Epoch)
	}

	// What boardd has taken of the memory at most (proc(5), VmHWM).
	r.enter("grep VmHWM /proc/$(pidof boardd)/status")
	if kib := r.number(regexp.MustCompile(`VmHWM:\s*(\d+) kB`)); kib > maxMemory>>10 {
		t.Errorf("boardd takes %d KiB of memory, want at most %d", kib, maxMemory>>10)
	} else {
		t.Logf("boardd takes %d KiB of memory", kib)
	}

	// boardd is killed: it comes back with another epoch, and the link with it.
	r.enter("kill -9 $(pidof boardd)")
	r.wait("a status of the next boardd", time.Minute, func(st *rocelink.BoardStatus) bool {
		return st.Epoch != first.Epoch && st.Fabric.Present && st.Link.Up
	})

	// The board powers itself off in order, asked over NATS.
	q, err := json.Marshal(rocelink.PowerRequest{Version: rocelink.Version, Action: rocelink.PowerOff, Reason: "the test ends"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.nc.Request(rocelink.RequestSubject(name, rocelink.EndpointPower), q, time.Minute); err != nil || m.Header.Get("Nats-Service-Error") != "" {
		t.Fatalf("power-off: %v %v", err, m)
	}
	select {
	case <-r.machine.Done():
		if err := r.machine.Wait(); err != nil {
			t.Errorf("power-off: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the board does not power itself off")
	}
}

// number waits for a number on the console.
func (r *running) number(form *regexp.Regexp) int {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if m := form.FindStringSubmatch(r.console.String()); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				r.Fatal(err)
			}
			return n
		}
	}
	r.Fatalf("the console does not say %v", form)
	return 0
}

// enter types a line at the rescue shell.
func (r *running) enter(line string) {
	r.Helper()
	if _, err := io.WriteString(r.machine, line+"\n"); err != nil {
		r.Fatal(err)
	}
}

// A card whose configuration is broken: what is right on it counts, the board
// comes up and reports, and the fabric stays untouched.
func testBrokenCard(t *testing.T, name string, b *boards.Board, fabric, address string) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	called := "card-" + name
	if err := os.WriteFile(file, []byte("name: "+called+"\nlog-level: loud\nfrequency: 12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, name, called, qemu.Config{
		Board: b, Fabric: []string{fabric},
		Arguments: []string{"rocelink.address=" + address, "rocelink.shell=1", "rocelink.watchdog=3s"},
	}, images.Config{CardConfig: file, Shell: "busybox"})
	first := r.wait("a status", bootLimit, whatever)
	last := r.wait("a later status", time.Minute, func(st *rocelink.BoardStatus) bool { return st.Sequence > first.Sequence+2 })
	if last.Fabric.Present || last.Link.Up || last.Fabric.Problem == "" {
		t.Errorf("fabric %+v, link %+v", last.Fabric, last.Link)
	}
	for _, want := range []string{"loud", "frequency"} {
		if !strings.Contains(r.console.String(), want) || !strings.Contains(last.Problem, want) {
			t.Errorf("console or problem %q does not name %q", last.Problem, want)
		}
	}

	// Process 1 stands still: the watchdog resets the machine, which ends it here.
	r.enter("mkdir /tmp/g && mount -t cgroup2 none /tmp/g && mkdir /tmp/g/still && echo 1 > /tmp/g/still/cgroup.procs && echo 1 > /tmp/g/still/cgroup.freeze")
	select {
	case <-r.machine.Done():
		if err := r.machine.Wait(); err != nil {
			t.Errorf("the watchdog: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("process 1 stands still and the watchdog does not reset the machine")
	}
}

// What an image costs: its size and the time it takes to build once everything
// is fetched, and on the board the time from the kernel's handing over to the
// first status, by the guest's clock, and boardd's memory.
func BenchmarkBoard(b *testing.B) {
	const name = "qemu-versal"
	d, err := boards.Load(name)
	if err != nil {
		b.Fatal(err)
	}
	fabric, _ := programs(b)
	for range b.N {
		r := start(b, name, name, qemu.Config{
			Board: d, Fabric: []string{fabric}, Arguments: []string{"rocelink.address=127.41.251.1", "rocelink.shell=1"},
		}, images.Config{Shell: "busybox"})
		first := r.wait("a status", bootLimit, whatever)
		b.ReportMetric(first.Time.Sub(r.made).Seconds(), "guest-s/first-status")
		r.enter("grep VmHWM /proc/$(pidof boardd)/status")
		b.ReportMetric(float64(r.number(regexp.MustCompile(`VmHWM:\s*(\d+) kB`)))/1024, "MiB/boardd")

		begin, out := time.Now(), b.TempDir()
		cache := os.Getenv("ROCELINK_CACHE")
		if cache == "" {
			cache = "../../build/cache"
		}
		result, err := images.Build(r.ctx, images.Config{Board: name, Out: out, Source: "../..", Cache: cache})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(begin).Seconds(), "s/build")
		for _, f := range result.Files {
			if strings.HasPrefix(f.Name, images.InitramfsFile) {
				b.ReportMetric(float64(f.Bytes)/(1<<20), "MiB/initramfs")
			}
		}
	}
}

// natsPair is a server, and a client that comes back when the server does.
func natsPair(t testing.TB) (*nats.Conn, *server.Server) {
	t.Helper()
	s := serve(t, server.RANDOM_PORT)
	t.Cleanup(s.Shutdown)
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, s
}

// stream runs the agent until a stream of the board's has ended by itself.
func stream(t *testing.T, ctx context.Context, agent, url, board, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, streamLimit)
	defer cancel()
	summary := filepath.Join(t.TempDir(), "summary.json")
	spec := fmt.Sprintf("name=%s,board=%s,verb=send,frame=16KiB,rate=100M,count=%d", board, board, frames)
	c := exec.CommandContext(ctx, agent, "--nats", url, "--device", "soft:"+address, "--name", "host-"+board,
		"--stream", spec, "--once", "--summary", summary)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("rocelinkd: %v\n%s", err, out)
	}
	data, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	var results []struct {
		Total   rocelink.Totals `json:"total"`
		Problem string          `json:"problem"`
	}
	if err := json.Unmarshal(data, &results); err != nil || len(results) != 1 {
		t.Fatalf("summary: %v", err)
	}
	if x := results[0]; x.Total.Verified != frames || x.Problem != "" {
		t.Errorf("%d frames verified, want %d: %s\n%s", x.Total.Verified, frames, x.Problem, data)
	}
}
