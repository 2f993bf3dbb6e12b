package path_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/broker"
	"rocelink/agent/heard"
	"rocelink/agent/page"
	"rocelink/agent/path"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/stream"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/soft"
	"rocelink/fpga/roce"
)

// The twelve faults, provoked in the real programs: a software fabric, boardd,
// a host, a NATS server, UDP between them.

// programs builds the programs once.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rocelink-path-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "rocelink/fpga/model/cmd/rocelink-fabric", "rocelink/firmware/cmd/boardd", "rocelink/agent/cmd/rocelinkd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built.Load() {
		if dir, _ := programs(); dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

var built atomic.Bool

// addresses gives each run its own pair in 127.47.0.0/16.
var next atomic.Uint32

func addresses() (host, board string) {
	n := (uint32(os.Getpid())*32 + next.Add(1)) % (254 * 127)
	return fmt.Sprintf("127.47.%d.%d", 1+n/127, 2*(n%127)+1), fmt.Sprintf("127.47.%d.%d", 1+n/127, 2*(n%127)+2)
}

// rig is a board, a host and a server.
type rig struct {
	t         *testing.T
	dir       string
	registers string
	broker    *broker.Broker
	store     *heard.Store
	shown     pageStates
	hostAt    string
	boardAt   string
	boardd    *exec.Cmd
}

func newRig(t *testing.T, fabric ...string) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the real programs")
	}
	built.Store(true)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, registers: filepath.Join(t.TempDir(), "fabric.regs"), store: heard.New(heard.Config{})}
	r.hostAt, r.boardAt = addresses()
	if r.broker, err = broker.Start(broker.Config{Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.broker.Close)
	nc, err := rocelink.Connect(rocelink.Access{URL: r.broker.URL()}, rocelink.Client{Name: "test", Retry: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	stop, err := r.store.Follow(nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	live := page.New(r.store, page.Config{Interval: 5 * time.Millisecond})
	web := httptest.NewServer(live)
	r.shown.more = make(chan struct{})
	response, err := http.Get(web.URL + "/live")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { defer close(read); r.shown.read(response.Body) }()
	t.Cleanup(func() { live.Close(); response.Body.Close(); <-read; web.Close() })
	r.start("rocelink-fabric", append([]string{"--registers", r.registers}, fabric...)...)
	r.startBoard()
	return r
}

func (r *rig) startBoard() {
	r.t.Helper()
	r.boardd = r.start("boardd", "--board", "demo", "--registers", r.registers, "--name", "demo", "--nats", r.broker.URL(), "--address", r.boardAt)
}

// start runs a program until the test ends.
func (r *rig) start(name string, args ...string) *exec.Cmd {
	r.t.Helper()
	c := exec.Command(filepath.Join(r.dir, name), args...)
	if slices.Contains(args, "-") { // a source that gives nothing
		in, err := c.StdinPipe()
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { in.Close() })
	}
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	r.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGCONT)
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = c.Process.Kill()
			<-ended
		}
	})
	return c
}

// open runs the host's half in this process, on a device that may be wrong.
func (r *rig) open(spec string, wrong func(verbs.Device) verbs.Device, take stream.Taker) {
	r.t.Helper()
	dev, err := soft.New().Open(r.hostAt)
	if err != nil {
		r.t.Fatal(err)
	}
	if wrong != nil {
		dev = wrong(dev)
	}
	if take == nil {
		take = func(int) (receive.Sink, error) { return sink.Discard{}, nil }
	}
	nc, err := rocelink.Connect(rocelink.Access{URL: r.broker.URL()}, rocelink.Client{Name: "host", Retry: true})
	if err != nil {
		r.t.Fatal(err)
	}
	agent, err := stream.New(stream.Config{Host: "host", NATS: nc, Device: dev})
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := stream.ParseSpec("board=demo," + spec)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	running, err := agent.Open(ctx, s, take)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		<-running.Done()
		if err := agent.Close(); err != nil {
			r.t.Error(err)
		}
		nc.Close()
		_ = dev.Close()
	})
}

// await waits until one of some rules is the diagnosis, with all of some words
// in its sentence, and returns the path.
func (r *rig) await(rules []string, words ...string) path.Path {
	r.t.Helper()
	changed, unwatch := r.store.Watch()
	defer unwatch()
	limit := time.After(40 * time.Second)
	tick := time.NewTicker(250 * time.Millisecond) // silence is a change too
	defer tick.Stop()
	seen := map[string]string{}
	for {
		for _, p := range path.Analyse(r.store.View()) {
			if slices.Contains(rules, p.Diagnosis.Rule) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.Diagnosis.Text, w) }) {
				return p
			}
			seen[p.Diagnosis.Rule] = p.Diagnosis.Text
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-limit:
			data, _ := json.MarshalIndent(path.Analyse(r.store.View()), "", " ")
			r.t.Fatalf("never %q with %q; seen: %q\n%s", rules, words, seen, data)
		}
	}
}

// awaitInOrder waits until frames of the stream get through. A machine that is
// busy may have packets sent again.
func (r *rig) awaitInOrder() {
	r.t.Helper()
	r.await([]string{"healthy", "resent", "board-back"})
}

// expect waits for a rule and the words of its sentence, and checks the stage:
// in what `rocectl where` prints, and on the page.
func (r *rig) expect(rule string, stage path.Name, words ...string) {
	r.t.Helper()
	p := r.await([]string{rule}, words...)
	if p.Broken != stage {
		r.t.Errorf("%s at %q, want %q", rule, p.Broken, stage)
	}
	var where strings.Builder
	if err := path.Text(&where, []path.Path{p}, nil); err != nil || !strings.Contains(where.String(), p.Diagnosis.Text) {
		r.t.Errorf("where does not say %q: %v\n%s", p.Diagnosis.Text, err, &where)
	}
	r.onPage(rule, stage, words)
	r.t.Logf("%s at %s: %s", rule, p.Broken, p.Diagnosis.Text)
}

// pageStates collects what the page shows, as a browser that looks at the worst
// path gets it. A fault may last shorter than a person looks.
type pageStates struct {
	mu   sync.Mutex
	seen []path.Path
	more chan struct{}
}

func (s *pageStates) read(body io.Reader) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var shown struct {
			Detail struct {
				Path path.Path `json:"path"`
			} `json:"detail"`
		}
		if !ok || json.Unmarshal([]byte(data), &shown) != nil {
			continue
		}
		s.mu.Lock()
		s.seen = append(s.seen, shown.Detail.Path)
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
	}
}

// onPage waits until the page has shown the rule, its words and the broken
// stage.
func (r *rig) onPage(rule string, stage path.Name, words []string) {
	r.t.Helper()
	limit := time.After(40 * time.Second)
	for at := 0; ; {
		r.shown.mu.Lock()
		seen, more := r.shown.seen[at:], r.shown.more
		r.shown.mu.Unlock()
		for _, p := range seen {
			if p.Diagnosis.Rule == rule && p.Broken == stage && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.Diagnosis.Text, w) }) {
				return
			}
		}
		at += len(seen)
		select {
		case <-more:
		case <-limit:
			r.t.Errorf("the page never shows %s at %q with %q", rule, stage, words)
			return
		}
	}
}

// wrongDevice changes what the host tells the board, or does itself.
type wrongDevice struct {
	verbs.Device
	psn       int32 // added to what the board sends first
	rkey      uint32
	noReceive bool
}

func (d wrongDevice) AllocPD() (verbs.ProtectionDomain, error) {
	pd, err := d.Device.AllocPD()
	return wrongDomain{pd, d}, err
}

type wrongDomain struct {
	verbs.ProtectionDomain
	d wrongDevice
}

func (p wrongDomain) Register(m *verbs.Memory, a verbs.Access) (verbs.MemoryRegion, error) {
	r, err := p.ProtectionDomain.Register(m, a)
	return wrongRegion{r, p.d.rkey}, err
}

func (p wrongDomain) CreateQP(c verbs.QPConfig) (verbs.QueuePair, error) {
	q, err := p.ProtectionDomain.CreateQP(c)
	return &wrongPair{QueuePair: q, d: p.d}, err
}

type wrongRegion struct {
	verbs.MemoryRegion
	flip uint32
}

func (r wrongRegion) RKey() uint32 { return r.MemoryRegion.RKey() ^ r.flip }

type wrongPair struct {
	verbs.QueuePair
	d wrongDevice

	mu   sync.Mutex
	kept []verbs.ReceiveRequest
}

func (q *wrongPair) ReadyToReceive(p verbs.PeerAttributes) error {
	p.PSN = roce.PSN(uint32(p.PSN)+uint32(q.d.psn)) & roce.PSNMask
	return q.QueuePair.ReadyToReceive(p)
}

func (q *wrongPair) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	if !q.d.noReceive {
		return q.QueuePair.PostReceive(rs)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kept = append(q.kept, rs...)
	return len(rs), nil
}

// SetError posts what was withheld, so that it is flushed and the loop ends.
func (q *wrongPair) SetError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.kept) > 0 {
		if _, err := q.QueuePair.PostReceive(q.kept); err != nil {
			return err
		}
		q.kept = nil
	}
	return q.QueuePair.SetError()
}

// slow is a consumer that keeps every frame and lets go of one at a time.
type slow struct {
	frames      chan receive.Frame
	ended, done chan struct{}
}

func newSlow(each time.Duration) stream.Taker {
	return func(int) (receive.Sink, error) {
		s := &slow{make(chan receive.Frame, 1<<10), make(chan struct{}), make(chan struct{})}
		go s.run(each)
		return s, nil
	}
}

func (s *slow) run(each time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(each)
	defer tick.Stop()
	for f := range s.frames {
		select {
		case <-tick.C:
		case <-s.ended: // at the end everything at once
		}
		f.Release()
	}
}

func (s *slow) Take(f *receive.Frame) receive.Verdict {
	s.frames <- *f
	return receive.Kept
}

// Close is called once the loop has ended.
func (s *slow) Close() error {
	close(s.ended)
	close(s.frames)
	<-s.done
	return nil
}

func wrong(d wrongDevice) func(verbs.Device) verbs.Device {
	return func(dev verbs.Device) verbs.Device {
		d.Device = dev
		return d
	}
}

func TestProvokedHealthy(t *testing.T) {
	r := newRig(t)
	r.open("verb=send,frame=16KiB,rate=50M", nil, nil)
	r.awaitInOrder()
}

func TestProvokedNoReceivePosted(t *testing.T) {
	r := newRig(t)
	r.open("verb=send,frame=4KiB,rate=50M", wrong(wrongDevice{noReceive: true}), nil)
	r.expect("no-receive", path.Completions, "no receive posted")
}

func TestProvokedWrongPSN(t *testing.T) {
	t.Run("behind", func(t *testing.T) {
		r := newRig(t)
		r.open("verb=send,frame=4KiB,rate=50M", wrong(wrongDevice{psn: -1000}), nil)
		r.expect("wrong-psn", path.Acknowledged, "board sends, nothing acknowledged: host queue pair not ready or PSN differs")
	})
	t.Run("ahead", func(t *testing.T) {
		r := newRig(t)
		r.open("verb=send,frame=4KiB,rate=50M", wrong(wrongDevice{psn: 1 << 22}), nil)
		r.expect("wrong-psn", path.Acknowledged, "PSN differs")
	})
}

func TestProvokedWrongRKey(t *testing.T) {
	r := newRig(t)
	r.open("verb=write,frame=4KiB,rate=50M", wrong(wrongDevice{rkey: 0xFF00}), nil)
	r.expect("wrong-rkey", path.Acknowledged, "rkey", "fatal NAK")
}

func TestProvokedRNRStorm(t *testing.T) {
	r := newRig(t)
	r.open("verb=send,frame=4KiB,rate=50M,slots=64", nil, newSlow(2*time.Millisecond))
	r.expect("rnr-storm", path.Accepted, "receiver not ready: ", " of messages waited; consumer holds ", " of 64 slots")
}

func TestProvokedSlowConsumer(t *testing.T) {
	r := newRig(t)
	r.open("verb=write,frame=4KiB,rate=50M,slots=64", nil, newSlow(2*time.Millisecond))
	r.expect("slow-consumer", path.Accepted, "slow consumer: ", " of 64 slots")
}

func TestProvokedLink(t *testing.T) {
	for _, tc := range []struct{ flags, rule, words string }{
		{"--link-dark", "lane-dark", "no light on all 4 lanes"},
		{"--link-fec=off", "fec-mismatch", "FEC differs from the peer"},
		{"--link-remote-fault", "link-remote-fault", "does not see us"},
		{"--link-high-ber", "link-high-ber", "bit error rate is high"},
	} {
		t.Run(tc.flags[2:], func(t *testing.T) {
			r := newRig(t, tc.flags)
			r.open("verb=send,frame=4KiB,rate=50M", nil, nil)
			r.expect(tc.rule, path.MACOut, "link down", tc.words)
		})
	}
}

// sim asks the fabric's socket for a fault.
func (r *rig) sim(request string) {
	r.t.Helper()
	c, err := net.Dial("unix", r.registers+".sim")
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, request); err != nil {
		r.t.Fatal(err)
	}
	var reply struct{ Error string }
	if err := json.NewDecoder(c).Decode(&reply); err != nil || reply.Error != "" {
		r.t.Fatalf("%s: %q, %v", request, reply.Error, err)
	}
}

// A link that was good is lost for what the module and the MAC tell apart, and
// comes back.
func TestProvokedModule(t *testing.T) {
	r := newRig(t)
	r.open("verb=send,frame=4KiB,rate=50M", nil, nil)
	r.awaitInOrder()
	for _, tc := range []struct {
		do, rule string
		words    []string
	}{
		{`"dark","args":["3"]`, "lane-dark", []string{"lane 3 dark since", "link down", "no light on lane 3 of cage qsfp0"}},
		{`"fec-mismatch"`, "fec-mismatch", []string{"link down", "FEC differs from the peer"}},
	} {
		r.sim(`{"do":` + tc.do + `}`)
		r.expect(tc.rule, path.MACOut, tc.words...)
		r.sim(`{"do":"clear"}`)
		r.awaitInOrder()
	}
}

func TestProvokedPeerSilent(t *testing.T) {
	r := newRig(t)
	host := r.start("rocelinkd", "--nats", r.broker.URL(), "--device", "soft:"+r.hostAt, "--name", "host", "--stream", "board=demo,verb=send,frame=4KiB,rate=50M")
	r.awaitInOrder()
	if err := host.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.expect("peer-silent", path.Acknowledged, "the host fell silent")
	r.expect("host-stale", path.Completions, "host host has not been heard since ")
}

func TestProvokedLoss(t *testing.T) {
	r := newRig(t, "--drop", "2")
	r.open("verb=send,frame=16KiB,rate=50M", nil, nil)
	r.expect("loss", path.Resent, "packets are lost on the way", "sent again")
}

func TestProvokedDamage(t *testing.T) {
	r := newRig(t, "--corrupt", "2")
	r.open("verb=send,frame=16KiB,rate=50M", nil, nil)
	r.expect("loss", path.Resent, "wrong ICRC")
}

func TestProvokedSourceIdle(t *testing.T) {
	r := newRig(t, "--source", "-")
	r.open("verb=send,frame=4KiB,source=external", nil, nil)
	r.expect("source-idle", path.Source, "source idle: no frame since the stream began")
}

func TestProvokedNATSDown(t *testing.T) {
	r := newRig(t)
	r.open("verb=send,frame=16KiB,rate=50M", nil, nil)
	r.awaitInOrder()
	r.broker.Close()
	r.expect("nats-down", "", "no connection to a NATS server since ")
	// It comes back at the same place, and everyone finds it.
	address := strings.TrimPrefix(r.broker.URL(), "nats://")
	if _, _, err := net.SplitHostPort(address); err != nil {
		t.Fatal(err)
	}
	again, err := broker.Start(broker.Config{Listen: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	r.awaitInOrder()
}

func TestProvokedBoardRestart(t *testing.T) {
	r := newRig(t)
	r.open("verb=send,frame=16KiB,rate=50M", nil, nil)
	r.awaitInOrder()
	if err := r.boardd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.expect("board-stale", path.Source, "board demo has not been heard since ")
	r.startBoard()
	r.expect("board-restarted", path.Source, "board demo restarted ")
	r.expect("board-back", "", "board demo restarted ", "the stream runs again")
}
