// Package demo runs the whole path on one machine: it starts the software
// fabric, boardd and rocelinkd as processes of their own, shows what they
// publish, and gives a verdict at the end. It needs no root and no hardware.
package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"rocelink"
	"rocelink/agent/report"
	"rocelink/agent/stream"
)

// Config shapes a run. The zero value of most fields is a default.
type Config struct {
	Programs string // folder of the programs
	Dir      string // logs, register file, summary
	// Duration of the run. 0: 10 s, or with Source until the source ends.
	Duration time.Duration
	// Verbs runs one stream each. Default: all; with Source: write-imm.
	Verbs []rocelink.Verb
	Frame string // frame bytes, as in "64KiB"
	Rate  string // payload rate of each stream, as in "1G"; "0" is no limit
	Count uint64 // frames of each stream; 0: until the end
	MTU   int
	// Source is a file (or "-": standard input) to send in place of the
	// generator's pattern; Sink a file to write what arrives to.
	Source, Sink string
	// Fabric is what plays the fabric: FabricModel (default), or FabricRTL.
	Fabric     string
	Faults     []string // arguments of the fabric such as "--drop=1"
	NATSListen string   // default 127.0.0.1:4222, or a free port if that is taken
	// Board is a board that QEMU plays, such as qemu-zcu102: boardd then runs in
	// its image, on emulated ARM cores. Default: boardd runs on this machine.
	Board string
	// Image is the image of Board; default build/BOARD/BOARD.itb.
	Image        string
	HTTP         string // where the live page is served; "": nowhere
	HostAddress  string // default 127.0.0.1
	BoardAddress string // default 127.0.0.2
	Capture      string // pcap file the fabric writes
	Out          io.Writer
	JSON         bool      // the summary as JSON instead of a table
	Progress     io.Writer // lines while it runs; default Out

	// server is the URL of a NATS server to use in place of rocelinkd's own.
	server string
	// onRunning is called once all streams run; tests break things there.
	onRunning func(*run)
}

// What plays the fabric.
const (
	FabricModel = "model" // in Go
	FabricRTL   = "rtl"   // the RTL in simulation
)

// Exit codes of a run.
const (
	ExitOK     = 0 // nothing was lost or corrupt
	ExitLost   = 1 // something was lost, corrupt or did not run
	ExitFailed = 2 // the demo could not be run
)

const (
	boardName    = "demo"
	emulatorHost = "10.0.2.2" // this machine as QEMU's user network shows it
	startLimit   = 20 * time.Second
	bootLimit    = 2 * time.Minute // of an emulated board
	stopLimit    = 15 * time.Second
	maxRestarts  = 20
	defaultRun   = 10 * time.Second
	defaultRate  = "1G"
	rtlRate      = "5M" // four of them are a fifth of what a clock of 250 kHz carries
	defaultFrame = "64KiB"
)

// Run runs the demo until its duration is over, the source has ended or ctx
// is cancelled, and returns the exit code.
func Run(ctx context.Context, c Config) (int, error) {
	c, err := c.complete()
	if err != nil {
		return ExitFailed, err
	}
	r := &run{Config: c, url: "nats://" + c.NATSListen, board: newBoardView(), failed: make(chan error, 1)}
	if c.Fabric == FabricRTL {
		r.clock = new(Clock)
	}
	if c.server != "" {
		r.url = c.server
	}
	return r.do(ctx)
}

func (c Config) complete() (Config, error) {
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Progress == nil {
		c.Progress = c.Out
	}
	if c.Programs == "" || c.Dir == "" {
		return c, errors.New("give the folder of the programs and a folder to work in")
	}
	if c.Duration < 0 {
		return c, fmt.Errorf("duration %v: give 0 or more", c.Duration)
	}
	if c.Duration == 0 && c.Source == "" && c.Count == 0 {
		c.Duration = defaultRun
	}
	if len(c.Verbs) == 0 {
		c.Verbs = []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWriteImm, rocelink.VerbWrite, rocelink.VerbRead}
		if c.Source != "" {
			c.Verbs = []rocelink.Verb{rocelink.VerbWriteImm}
		}
	}
	if c.Board != "" && c.Source == "-" {
		return c, errors.New("an emulated board's fabric has no standard input: give a file as source")
	}
	switch {
	case c.Fabric == "":
		c.Fabric = FabricModel
	case c.Fabric != FabricModel && c.Fabric != FabricRTL:
		return c, fmt.Errorf("fabric %q: give %s or %s", c.Fabric, FabricModel, FabricRTL)
	case c.Fabric == FabricRTL && c.Source != "":
		return c, errors.New("the fabric in RTL takes no source here: it cannot tell the end of one; leave out the source or the fabric")
	}
	if c.Source != "" && len(c.Verbs) > 1 {
		return c, fmt.Errorf("a source file feeds one stream, not %d: give one verb", len(c.Verbs))
	}
	if c.Sink != "" && len(c.Verbs) > 1 {
		return c, fmt.Errorf("a sink file takes one stream, not %d: give one verb", len(c.Verbs))
	}
	if c.Frame == "" {
		c.Frame = defaultFrame
	}
	if c.Rate == "" {
		c.Rate = defaultRate
		if c.Fabric == FabricRTL {
			c.Rate = rtlRate
		}
		if c.Source != "" {
			c.Rate = "0"
		}
	}
	if c.HostAddress == "" {
		c.HostAddress = "127.0.0.1"
	}
	if c.BoardAddress == "" {
		c.BoardAddress = "127.0.0.2"
	}
	if c.NATSListen == "" {
		c.NATSListen = "127.0.0.1:4222"
		if l, err := net.Listen("tcp", c.NATSListen); err == nil {
			l.Close()
		} else if c.NATSListen, err = freePort(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// run is one run under way.
type run struct {
	Config
	url                   string
	fabric, boardd, hostd *process
	board                 *boardView
	watch                 *watcher
	clock                 *Clock      // of a core in simulation, else nil
	running               atomic.Bool // all streams have run
	failed                chan error  // why the demo cannot run
}

// processes are the programs of this run, in the order in which they end.
func (r *run) processes() []*process {
	if r.fabric == nil {
		return []*process{r.hostd, r.boardd}
	}
	return []*process{r.hostd, r.boardd, r.fabric}
}

// fail ends the start; the first reason counts.
func (r *run) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// exitCode is the exit status of a program, -1 if a signal ended it.
func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.Progress, format+"\n", args...) }

func (r *run) do(ctx context.Context) (code int, err error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return ExitFailed, fmt.Errorf("%w", err)
	}
	summary := filepath.Join(r.Dir, "summary.json")
	if err := os.Remove(summary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return ExitFailed, fmt.Errorf("%w", err)
	}
	died := make(chan string, 16)
	again := func(p *process, err error) bool {
		code := exitCode(err)
		if ctx.Err() != nil || p == r.hostd && (code == 0 || code == 1) {
			return false // rocelinkd ends by itself when its streams have ended
		}
		if code >= 0 && !r.running.Load() {
			// It ended by itself before anything ran: it would do so again.
			r.fail(fmt.Errorf("%s ended with exit status %d: %s", p.name, code, lastLine(p.log)))
			return false
		}
		select {
		case died <- fmt.Sprintf("%s: %v; starting it again (%s)", p.name, err, p.log):
		default:
		}
		return p.restarted() < maxRestarts
	}
	r.build(summary)
	defer func() {
		if stopErr := r.stopAll(); stopErr != nil && err == nil && code == ExitOK {
			code, err = ExitLost, stopErr
		}
	}()
	r.say("rocelink demo: board, fabric, wire, receive loop, status on this machine (%s, software verbs)",
		map[string]string{FabricModel: "software fabric", FabricRTL: "fabric in RTL, verilated"}[r.Fabric])
	for _, p := range r.processes() {
		if err := p.start(again); err != nil {
			return ExitFailed, err
		}
	}
	watch, err := newWatcher(r.url, r.board, r.unit())
	if err != nil {
		return ExitFailed, err
	}
	r.watch = watch
	defer watch.close()
	r.say("  NATS      %s   see more from another terminal: %s --nats %s status", r.url, filepath.Join(r.Programs, "rocectl"), r.url)
	if r.HTTP != "" {
		r.say("  page      http://%s/", r.HTTP)
	}

	if err := r.awaitRunning(ctx, watch, died); err != nil {
		return ExitFailed, err
	}
	r.running.Store(true)
	if r.onRunning != nil {
		go r.onRunning(r)
	}
	r.loop(ctx, watch, died)
	r.sampleClock()
	hostErr := r.hostd.stop(stopLimit)
	watch.drain()
	return r.conclude(summary, watch, hostErr)
}

func (r *run) build(summary string) {
	registers := filepath.Join(r.Dir, "fabric.regs")
	fabric := append([]string{"--registers", registers}, r.Faults...)
	if r.Source != "" {
		fabric = append(fabric, "--source", r.Source)
	}
	if r.Capture != "" {
		fabric = append(fabric, "--pcap", r.Capture)
	}
	board := []string{"--board", "demo", "--registers", registers, "--name", boardName, "--nats", r.url, "--address", r.BoardAddress}
	host := []string{"--nats-listen", r.NATSListen}
	if r.server != "" {
		host = []string{"--nats", r.server}
	}
	host = append(host, "--device", "soft:"+r.HostAddress, "--name", "host", "--summary", summary, "--once")
	if r.HTTP != "" {
		host = append(host, "--http", r.HTTP)
	}
	for _, v := range r.Verbs {
		spec := fmt.Sprintf("name=%s,board=%s,verb=%s,frame=%s,rate=%s", v, boardName, v, r.Frame, r.Rate)
		if r.Count > 0 {
			spec += fmt.Sprintf(",count=%d", r.Count)
		}
		if r.MTU > 0 {
			spec += fmt.Sprintf(",mtu=%d", r.MTU)
		}
		if r.Source != "" {
			spec += ",source=external"
		}
		if r.Sink != "" {
			spec += ",sink=file:" + r.Sink
		}
		host = append(host, "--stream", spec)
	}
	add := func(name string, args []string) *process {
		p := &process{name: name, path: filepath.Join(r.Programs, name), args: args, log: logFile(r.Dir, name)}
		_ = os.Remove(p.log)
		return p
	}
	r.hostd = add("rocelinkd", host)
	if r.Board != "" {
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.url, "nats://"))
		run := []string{"run", "--board", r.Board, "--name", boardName, "--nats", "nats://" + emulatorHost + ":" + port, "--address", r.BoardAddress,
			"--fabric", filepath.Join(r.Programs, r.fabricProgram())}
		if r.Image != "" {
			run = append(run, "--image", r.Image)
		}
		run = append(run, "--fabric-arg", "--sim="+registers+".sim")
		for _, a := range fabric[2:] { // it chooses the register file itself
			run = append(run, "--fabric-arg", a)
		}
		r.boardd = add("rocelink-image", run)
		return
	}
	r.fabric, r.boardd = add(r.fabricProgram(), fabric), add("boardd", board)
	if r.Source == "-" {
		r.fabric.in = os.Stdin
	}
}

// fabricProgram plays the fabric.
func (r *run) fabricProgram() string {
	if r.Fabric == FabricRTL {
		return "rocelink-fabric-rtl"
	}
	return "rocelink-fabric"
}

// unit is what rates are shown in.
func (r *run) unit() unit {
	if r.Fabric == FabricRTL {
		return unit{"Mb/s", 1e6}
	}
	return unit{"Gb/s", 1e9}
}

func (r *run) sampleClock() {
	if r.clock != nil {
		r.clock.sample(r.watch.nc)
	}
}

func (r *run) startLimit() time.Duration {
	if r.Board != "" {
		return bootLimit
	}
	return startLimit
}

// awaitRunning waits until every stream is open, showing the steps.
func (r *run) awaitRunning(ctx context.Context, w *watcher, died <-chan string) error {
	limit := time.NewTimer(r.startLimit())
	defer limit.Stop()
	fabricShown, linkShown := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.failed:
			return err
		case <-r.hostd.done:
			if code := exitCode(r.hostd.err); code > 1 {
				return <-r.failed
			}
			return nil // all ended already; conclude tells how
		case <-limit.C:
			r.tails()
			return fmt.Errorf("not all streams were running after %v: %s", r.startLimit(), r.board.missing(r.Verbs))
		case text := <-died:
			r.say("  %s", text)
		case <-w.changed:
			b := r.board.status()
			if b.Fabric.Present && !fabricShown {
				fabricShown = true
				r.say("  fabric    RoCE core %s, %d queue pairs, path MTU %d", b.Fabric.Version, b.Fabric.QueuePairs, b.Fabric.MaxMTU)
			}
			if b.Link.Up && !linkShown {
				linkShown = true
				r.say("  board     %s: %s link up, %s", report.Printable(b.Board), b.Link.Driver, r.BoardAddress)
			}
			if r.board.missing(r.Verbs) == "" {
				var names []string
				for _, v := range r.Verbs {
					names = append(names, string(v))
				}
				r.say("  streams   %s, frames of %s at %s\n", strings.Join(names, ", "), r.Frame, rateText(r.Rate))
				return nil
			}
		}
	}
}

func rateText(rate string) string {
	if rate == "0" {
		return "full rate"
	}
	return rate + "b/s each"
}

// loop prints a line a second until the end.
func (r *run) loop(ctx context.Context, w *watcher, died <-chan string) {
	if ctx.Err() != nil {
		return
	}
	begin := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var end <-chan time.Time
	if r.Duration > 0 {
		t := time.NewTimer(r.Duration)
		defer t.Stop()
		end = t.C
	}
	w.begin()
	r.sampleClock()
	r.say("%s", w.heading(r.Verbs))
	for {
		select {
		case <-ctx.Done():
			r.say("interrupted: ending the streams")
			return
		case <-end:
			return
		case <-r.hostd.done:
			return
		case text := <-died:
			r.say("  %s", text)
		case <-w.changed:
		case <-tick.C:
			r.say("%s", w.line(time.Since(begin), r.Verbs))
			r.sampleClock()
		}
	}
}

func (r *run) stopAll() error {
	var errs []error
	for _, p := range r.processes() {
		if err := p.stop(stopLimit); err != nil && p != r.hostd {
			errs = append(errs, fmt.Errorf("%s: %w (%s)", p.name, err, p.log))
		}
	}
	return errors.Join(errs...)
}

// Summary is what the demo says at its end.
type Summary struct {
	OK       bool            `json:"ok"`
	Streams  []stream.Result `json:"streams"`
	Restarts map[string]int  `json:"restarts,omitempty"`
	Problems []string        `json:"problems,omitempty"`
	// Clock is that of a core in simulation.
	Clock *Clock `json:"clock,omitempty"`
	// SHA-256 of source and sink where both are files.
	SourceSHA256 string `json:"source_sha256,omitempty"`
	SinkSHA256   string `json:"sink_sha256,omitempty"`
}

func (r *run) conclude(file string, w *watcher, hostErr error) (int, error) {
	s := Summary{Clock: r.clock}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.Streams)
	}
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	if err != nil {
		problem("rocelinkd left no summary: %v", err)
	} else if hostErr != nil {
		problem("rocelinkd: %v", hostErr)
	}
	for _, v := range r.Verbs {
		found := false
		for _, res := range s.Streams {
			found = found || res.Stream == string(v)
		}
		if !found {
			problem("stream %s has no result", v)
		}
	}
	for _, res := range s.Streams {
		if res.Problem != "" {
			problem("stream %s: %s", res.Stream, res.Problem)
		}
	}
	for _, text := range w.lost() {
		problem("%s", text)
	}
	for _, p := range r.processes() {
		if n := p.restarted(); n > 0 {
			if s.Restarts == nil {
				s.Restarts = map[string]int{}
			}
			s.Restarts[p.name] = n
		}
	}
	if r.Sink != "" {
		if s.SinkSHA256, err = hashFile(r.Sink); err != nil {
			problem("sink: %v", err)
		}
		if r.Source != "" && r.Source != "-" {
			if s.SourceSHA256, err = hashFile(r.Source); err != nil {
				problem("source: %v", err)
			} else if s.SourceSHA256 != s.SinkSHA256 {
				problem("sink %s differs from source %s", r.Sink, r.Source)
			}
		}
	}
	s.OK = len(s.Problems) == 0
	if err := s.write(r.Out, r.JSON); err != nil {
		return ExitFailed, err
	}
	if !s.OK {
		r.tails()
		return ExitLost, nil
	}
	return ExitOK, nil
}

func (s Summary) write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stream\tsource frames\tacknowledged\treceived\tverified\tmissing\tcorrupt\terrors\tpackets\tresent\tsessions\t")
	for _, r := range s.Streams {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Stream, r.Board.SourceFrames, r.Board.FramesDone,
			r.Received(), r.Verified(), r.Total.Missing+r.Total.Overrun, r.Total.Corrupt+r.Board.ReadBad, r.Total.Errors, r.Board.PacketsSent, r.Board.PacketsResent, r.Sessions)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for name, n := range s.Restarts {
		fmt.Fprintf(w, "%s was started again %d times\n", name, n)
	}
	if s.Clock != nil {
		s.Clock.write(w)
	}
	if s.SinkSHA256 != "" {
		if s.SourceSHA256 != "" {
			fmt.Fprintf(w, "source sha256 %s\n", s.SourceSHA256)
		}
		fmt.Fprintf(w, "sink   sha256 %s\n", s.SinkSHA256)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(w, "problem: %s\n", report.Printable(p))
	}
	verdict := "PASS: every frame arrived once, in order, and was right"
	if !s.OK {
		verdict = "FAIL"
	}
	fmt.Fprintln(w, verdict)
	return nil
}

func hashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// lastLine is the last line of a log.
func lastLine(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimRight(string(data), "\n")
	return report.Printable(text[strings.LastIndexByte(text, '\n')+1:])
}

// tails shows the end of each log, where the reason of a failure is.
func (r *run) tails() {
	const lines = 8
	for _, p := range r.processes() {
		data, err := os.ReadFile(p.log)
		if err != nil || len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		r.say("--- end of %s", p.log)
		for _, l := range all[max(0, len(all)-lines):] {
			r.say("    %s", report.Printable(l))
		}
	}
}
