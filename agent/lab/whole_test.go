//go:build lab

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/lab/remote"
	"rocelink/agent/path"
	status "rocelink/agent/report"
	hoststream "rocelink/agent/stream"
	"rocelink/fpga/model"
)

const (
	// natsInGuest is where the server inside rocelinkd listens.
	natsInGuest = "127.0.0.1:4222"
	labBoard    = "lab"
	labHost     = "guest"
)

// whole is the whole path: rocelinkd on rxe with its own NATS server in the
// guest, and here boardd, the real program, on the software fabric, which serves
// its registers in a file as it does for the demo and whose frames go to the
// wire as they are.
type whole struct {
	t       *testing.T
	ctx     context.Context
	segment *segment
	device  string // as rocelinkd is told
	fabric  *board
	agent   *remote.Process
	before  counters // of rxe
}

// newWhole starts everything but rocelinkd.
func newWhole(ctx context.Context, t *testing.T, s *segment) *whole {
	t.Helper()
	return newWholeOn(ctx, t, s, func(registers []uint32) *board {
		return newFabric(t, s, model.FaultConfig{}, model.Config{Registers: registers, PaceSlack: 20 * time.Millisecond})
	})
}

// newWholeOn is newWhole on another fabric, whose registers are in memory.
func newWholeOn(ctx context.Context, t *testing.T, s *segment, fabric func(registers []uint32) *board) *whole {
	t.Helper()
	registers := filepath.Join(t.TempDir(), "registers")
	shared, err := model.OpenShared(registers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &whole{t: t, ctx: ctx, segment: s, device: s.device, before: s.hardware(ctx, t)}
	w.fabric = fabric(shared.Registers())
	s.attach(t, w.fabric.Take)
	w.startBoard(registers)
	return w
}

// startBoard starts boardd, whose NATS server is in the guest.
func (w *whole) startBoard(registers string) {
	w.t.Helper()
	var said logged
	cmd := exec.Command(filepath.Join(*cache, "bin", "boardd"), "--board", "demo", "--registers", registers, "--name", labBoard,
		"--address", w.segment.Address.String(), "--mac", w.segment.MAC.String(), "--nats", "nats://"+w.forward(natsInGuest))
	cmd.Stdout, cmd.Stderr = &said, &said
	// It must not outlive this process, see Machine.run.
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		limit := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer limit.Stop()
		if err := <-ended; err != nil {
			w.t.Errorf("boardd: %v", err)
		}
		if w.t.Failed() {
			w.t.Logf("boardd said:\n%s", said.String())
		}
	})
}

// logged keeps what a program says.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// forward is a local address whose connections go to an address of the guest.
func (w *whole) forward(to string) string {
	w.t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(w.ctx)
	all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = near.Close() }()
				// Whoever connects gives up after some seconds and tries anew.
				limited, done := context.WithTimeout(ctx, 3*time.Second)
				far, err := guest.DialGuest(limited, to)
				done()
				if err != nil {
					return
				}
				defer func() { _ = far.Close() }()
				stop := context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
				defer stop()
				var both sync.WaitGroup
				for _, way := range [][2]net.Conn{{far, near}, {near, far}} {
					both.Go(func() {
						_, _ = io.Copy(way[0], way[1])
						_, _ = way[0].Close(), way[1].Close()
					})
				}
				both.Wait()
			})
		}
	})
	w.t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		all.Wait()
	})
	return ln.Addr().String()
}

// streams are the arguments for a stream of each verb, all alike. A guest that is
// slow for a second still has receives.
func streams(verbs []rocelink.Verb, more string) []string {
	var args []string
	for _, v := range verbs {
		args = append(args, "--stream", fmt.Sprintf("name=%s,board=%s,verb=%s,slots=64,%s", v, labBoard, v, more))
	}
	return args
}

// start starts rocelinkd.
func (w *whole) start(args ...string) {
	w.t.Helper()
	w.startAs(nil, args...)
}

// startAs starts rocelinkd by way of another program.
func (w *whole) startAs(by []string, args ...string) {
	w.t.Helper()
	command := slices.Concat(by, []string{"rocelinkd", "--device", w.device, "--name", labHost, "--nats-listen", natsInGuest}, args)
	p, err := guest.Start(remote.Command{Args: command, Limit: caseTime})
	if err != nil {
		w.t.Fatal(err)
	}
	w.agent = p
	w.t.Cleanup(func() {
		_ = p.Kill()
		<-p.Done()
		if w.t.Failed() {
			w.t.Logf("rocelinkd said:\n%s", p.Stderr())
		}
	})
}

// stop ends rocelinkd in order.
func (w *whole) stop() {
	w.t.Helper()
	if err := w.agent.Signal(int(syscall.SIGTERM)); err != nil {
		w.t.Fatal(err)
	}
	w.ended()
}

// lost ends rocelinkd, which must say that a stream was cut and why.
func (w *whole) lost(why string) {
	w.t.Helper()
	if err := w.agent.Signal(int(syscall.SIGTERM)); err != nil {
		w.t.Fatal(err)
	}
	e, err := w.agent.Wait()
	if e.Code != 1 || !strings.Contains(w.agent.Stderr(), why) {
		w.t.Fatalf("want an end that says %q: %v", why, err)
	}
}

// ended waits for rocelinkd to end in order.
func (w *whole) ended() {
	w.t.Helper()
	if _, err := w.agent.Finish(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// rocectl runs in the guest and returns what it says and its exit code.
func (w *whole) rocectl(args ...string) (string, int) {
	w.t.Helper()
	p, err := guest.Start(remote.Command{Args: append([]string{"rocectl"}, args...), Limit: caseTime})
	if err != nil {
		w.t.Fatal(err)
	}
	out, _ := p.Finish(w.ctx)
	e, _ := p.Wait()
	if e.Code < 0 {
		w.t.Fatalf("rocectl %v: %s", args, e.Reason)
	}
	return out + p.Stderr(), e.Code
}

// located is what rocectl where --json says.
type located struct {
	InOrder bool        `json:"in_order"`
	Paths   []path.Path `json:"paths"`
}

// where waits until rocectl where says so many streams are in order, and returns
// what it says then.
func (w *whole) where(count int) located {
	w.t.Helper()
	var last string
	for {
		out, code := w.rocectl("where", "--json")
		last = out
		var l located
		if code != 2 {
			if err := json.Unmarshal([]byte(out), &l); err != nil {
				w.t.Fatalf("%v in %s", err, out)
			}
			if l.InOrder != (code == 0) {
				w.t.Fatalf("exit code %d, but in_order is %v", code, l.InOrder)
			}
		}
		if code == 0 && len(l.Paths) == count {
			return l
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("the path is not in order in time; rocectl where said last:\n%s", last)
		case <-w.agent.Done():
			_, err := w.agent.Wait()
			w.t.Fatalf("rocelinkd ended: %v", err)
		default:
		}
	}
}

// status is what rocectl status --json says.
func (w *whole) status() status.Snapshot {
	w.t.Helper()
	s, out, err := w.tryStatus()
	if err != nil {
		w.t.Fatalf("%v in %s", err, out)
	}
	return s
}

func (w *whole) tryStatus() (s status.Snapshot, out string, err error) {
	w.t.Helper()
	out, _ = w.rocectl("status", "--json")
	err = json.Unmarshal([]byte(out), &s)
	return s, out, err
}

// until asks for the status until it satisfies done.
func (w *whole) until(what string, done func(rocelink.HostStatus, []rocelink.BoardStatus) bool) status.Snapshot {
	w.t.Helper()
	for {
		s, out, err := w.tryStatus()
		if err == nil && len(s.Hosts) == 1 && done(s.Hosts[0], s.Boards) {
			return s
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("%s: not in time; rocectl status says:\n%s", what, out)
		case <-w.agent.Done():
			_, err := w.agent.Wait()
			w.t.Fatalf("%s: rocelinkd ended: %v", what, err)
		default:
		}
	}
}

// deliver has every verb carry frames at once, with a board's queue pairs that
// wait so long for answers: each frame arrives once, in order and right, and
// rocelinkd, boardd, the fabric and the kernel's device agree on the count.
func (w *whole) deliver(count, frame rocelink.Count, rate string, timeout int) []hoststream.Result {
	t := w.t
	t.Helper()
	const summary = "/tmp/summary.json"
	w.start(append(streams(rocelink.Verbs, fmt.Sprintf("frame=%d,rate=%s,count=%d,timeout=%d", frame, rate, count, timeout)), "--once", "--summary", summary)...)
	w.ended()
	var results []hoststream.Result
	out := run(w.ctx, t, "cat", summary)
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	equal(t, "streams", len(results), len(rocelink.Verbs))
	for _, r := range results {
		equal(t, r.Stream+": problem", r.Problem, "")
		equal(t, r.Stream+": sessions", r.Sessions, 1)
		equal(t, r.Stream+": frames of the source", r.Board.SourceFrames, count)
		equal(t, r.Stream+": frames acknowledged to the board", r.Board.FramesDone, count)
		equal(t, r.Stream+": bytes acknowledged to the board", r.Board.BytesDone, count*frame)
		equal(t, r.Stream+": frames received", r.Received(), count)
		equal(t, r.Stream+": frames verified", r.Verified(), count)
		if r.Verb != rocelink.VerbRead {
			equal(t, r.Stream+": bytes received", r.Total.Bytes, count*frame)
		}
	}
	t.Logf("rxe %v", w.fabric.settled(w.ctx, t, w.before))
	return results
}

func TestWholePath(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		report(t)
		for _, r := range newWhole(bounded(t), t, s).deliver(250, 8192, "8M", 18) {
			equal(t, r.Stream+": timeouts", r.Board.Timeouts, 0)
		}
	})
}

// rocelinkd is killed with every stream running and started again: what rocectl
// says is right before, between and after.
func TestWholePathSurvivesKill(t *testing.T) {
	report(t)
	ctx := bounded(t)
	s := segments[1]
	w := newWhole(ctx, t, s)
	verbs := rocelink.Verbs
	args := streams(verbs, "frame=8192,rate=2M")
	w.start(args...)
	before := w.where(len(verbs))
	if err := w.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	<-w.agent.Done()
	if out, code := w.rocectl("status", "--json"); code != 2 {
		t.Errorf("without a server: exit code %d, %s", code, out)
	}
	w.start(args...)
	after := w.where(len(verbs))
	sessions := map[string]rocelink.Count{}
	for _, p := range before.Paths {
		sessions[p.Stream] = p.Session
	}
	for _, p := range after.Paths {
		if old, ok := sessions[p.Stream]; !ok || p.Session == old {
			t.Errorf("stream %s: session %d, before the kill %d", p.Stream, p.Session, old)
		}
		equal(t, p.Stream+": lost", p.Lost, 0)
		equal(t, p.Stream+": what is broken", p.Broken, "")
	}
	st := w.status()
	if len(st.Boards) != 1 || len(st.Hosts) != 1 || !st.Healthy() {
		t.Fatalf("status: %+v", st)
	}
	h, b := st.Hosts[0], st.Boards[0]
	equal(t, "the board's link is up", b.Link.Up, true)
	equal(t, "the device", h.Device.Name, s.device)
	equal(t, "the device's provider", h.Device.Provider, "ibverbs")
	equal(t, "the device's address", h.Device.Address, s.guestIP.String())
	equal(t, "the device's port is active", h.Device.Active, true)
	equal(t, "streams of the host", len(h.Streams), len(verbs))
	// The board may still list the sessions that were replaced.
	running := 0
	for _, x := range b.Streams {
		if x.State == rocelink.StreamRunning {
			running++
		}
	}
	equal(t, "running streams of the board", running, len(verbs))
	for _, x := range h.Streams {
		equal(t, x.Stream+": state", x.State, hoststream.StateRunning)
		equal(t, x.Stream+": opens", x.Opens, 1)
		equal(t, x.Stream+": corrupt", x.Total.Corrupt, 0)
		equal(t, x.Stream+": verified", x.Total.Verified, x.Total.Messages)
	}
	w.stop()
}

// rocectl doctor finds an rxe device fit.
func TestDoctorPasses(t *testing.T) {
	report(t)
	ctx := bounded(t)
	w := &whole{t: t, ctx: ctx}
	for _, s := range segments {
		out, code := w.rocectl("doctor", "--device", s.device)
		if code != 0 || !strings.Contains(out, " 0 FAIL: ready for rocelinkd") || !strings.Contains(out, s.guestIP.String()) {
			t.Errorf("exit code %d\n%s", code, out)
		}
		t.Logf("%s", out)
	}
}
