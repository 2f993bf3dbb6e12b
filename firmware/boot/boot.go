// Package boot is what runs as process 1 on a board: it brings the system up,
// keeps boardd running, and ends the machine's run in order. Nothing that is
// missing, wrong or late keeps the board from coming up; what it does then is
// the least it can: report, with the fabric's sender off.
//
// The kernel stands behind the interface System, so that all of this runs in a
// test; package kernel is the real one.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rocelink/boards"
)

const (
	daemonPath = "/bin/boardd"
	shellPath  = "/bin/sh"
	socketPath = runFolder + "/init.sock"

	// tickWithout is how often Init looks around when it has no watchdog.
	tickWithout = 5 * time.Second
	shellRetry  = time.Second
	maxProblem  = 2 << 10 // bytes of ROCELINK_PROBLEM, and of ROCELINK_FAULTS
	// trialTime is how long a new image has to report in.
	trialTime = 5 * time.Minute
	updateKey = "/etc/rocelink/update.pub"
)

// Config is what Init runs with. System must be set.
type Config struct {
	System System
	// Root is where the files are; "" is the root of the file system.
	Root string
	// Console takes the log; nil discards it.
	Console io.Writer
}

// Init is process 1.
type Init struct {
	sys     System
	root    string
	journal *Journal
	log     *slog.Logger

	build Build
	board *boards.Board // nil: the description cannot be read
	set   settings
	undo  []string // mounted by us, in order

	// Only the main loop uses these.
	daemon, shell     child
	daemonAt, shellAt *time.Timer
	trialAt           *time.Timer // the new image has not reported in
	watchdog          Watchdog
	fed               error
	ending            bool
	daemonErr         string // why it could not be started, or how it ended
	listener          net.Listener
	requests          chan How
	confirmed         chan struct{}
	background        sync.WaitGroup
	network           chan struct{} // the network changed: ask for the time

	mu       sync.Mutex
	problems []string // of the configuration: the sender stays off
	faults   []string // of the system
	state    state
}

// state is what others than the main loop may ask about.
type state struct {
	safe     bool
	restarts uint64
	clockSet bool
	netdev   string
	prefix   string
	ntp      []string // servers the network told us
	ending   bool
}

// New returns an Init that has not done anything yet.
func New(cfg Config) *Init {
	console := cfg.Console
	if console == nil {
		console = io.Discard
	}
	j := NewJournal(console)
	return &Init{
		sys: cfg.System, root: cfg.Root, journal: j, log: j.Logger("init: "),
		requests: make(chan How, 1), confirmed: make(chan struct{}, 1), network: make(chan struct{}, 1),
	}
}

// Run brings the system up and keeps it so until it is asked to end. It returns
// only when the machine's run could not be ended, or was a test's.
func (i *Init) Run() (how How) {
	defer func() {
		if p := recover(); p != nil {
			how = i.rescue(p)
		}
		i.journal.Close()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	i.setUp(ctx)
	how = i.loop()
	cancel()
	i.shutdown(how)
	return how
}

// setUp is the order of start.
func (i *Init) setUp(ctx context.Context) {
	begin := time.Now()
	i.mountAll()
	i.openKernelLog()
	i.readBuild()
	i.log.Info("rocelink", "board", i.build.Name, "version", i.build.Version)
	i.loadModules()
	if err := os.MkdirAll(i.path(runFolder), 0o755); err != nil {
		i.fault("%v", err)
	}
	i.configure()
	if err := i.sys.SetHostname(hostname(i.set.name)); err != nil {
		i.fault("set the host name: %v", err)
	}
	i.openWatchdog()
	i.listen()
	i.beside(ctx, "network", i.keepNetwork)
	i.beside(ctx, "clock", i.keepTime)
	if len(i.problems) > 0 {
		i.senderOff()
	}
	i.daemonAt, i.shellAt, i.trialAt = stopped(), stopped(), stopped()
	if i.set.trial {
		i.trialAt.Reset(trialTime)
		i.log.Info("this image is new: it must report in", "slot", i.set.slot, "within", trialTime)
	}
	i.startDaemon()
	i.startShell()
	i.log.Info("up", "after", time.Since(begin).Round(time.Millisecond), "problems", len(i.problems))
}

// stopped returns a timer that is not running.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// path is where a file of the system is.
func (i *Init) path(name string) string {
	if i.root == "" {
		return name
	}
	return filepath.Join(i.root, name)
}

func (i *Init) openKernelLog() {
	k, err := i.sys.KernelLog()
	if err != nil {
		i.fault("open the kernel's log: %v", err)
		return
	}
	i.journal.attach(k)
}

// beside runs a keeper beside the main loop. Should it panic, the board goes on
// without it until the machine is started again.
func (i *Init) beside(ctx context.Context, what string, keep func(context.Context)) {
	i.background.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				i.fault("%s: %v", what, p)
			}
		}()
		keep(ctx)
	})
}

// loop is the main loop; only it feeds the watchdog. It returns how the run
// should end.
func (i *Init) loop() How {
	tick := time.NewTicker(i.tick())
	defer tick.Stop()
	for {
		select {
		case e := <-i.sys.Events():
			if how, end := i.event(e); end {
				return how
			}
		case how := <-i.requests:
			return how
		case <-i.confirmed:
			i.trialAt.Stop()
		case <-i.trialAt.C:
			i.log.Error("the new image did not report in: the boot loader decides what is next", "within", trialTime)
			return Reboot
		case <-i.daemonAt.C:
			i.startDaemon()
		case <-i.shellAt.C:
			i.startShell()
		case <-tick.C:
			i.feed()
			i.reap()
			if i.daemon.sound(time.Now()) {
				i.log.Info("boardd runs again: out of the safe state")
				i.publish()
			}
		}
	}
}

// event handles an event and tells whether the run should end.
func (i *Init) event(e Event) (How, bool) {
	switch e {
	case EventReboot:
		return Reboot, true
	case EventPowerOff:
		return PowerOff, true
	case EventHalt:
		return Halt, true
	}
	i.reap()
	return 0, false
}

// reap takes the children that ended and tells whether there are others.
func (i *Init) reap() (others bool) {
	ended, others := i.sys.Reap()
	for _, e := range ended {
		switch e.PID {
		case i.daemon.pid:
			i.daemonErr = e.String()
			if i.ending {
				i.daemon.pid = 0
				i.log.Info("boardd ended", "how", e)
				continue
			}
			i.daemonEnded(e.String())
		case i.shell.pid:
			i.shell.pid = 0
			if !i.ending {
				i.shellAt.Reset(shellRetry)
			}
		}
	}
	return others
}

func (i *Init) startDaemon() {
	c, err := i.daemonCommand()
	if err == nil {
		c.Output = i.journal.Writer("")
		var pid int
		if pid, err = i.sys.Start(c); err == nil {
			i.daemon.start(pid, time.Now())
			i.publish()
			i.log.Info("boardd started", "pid", pid, "restarts", i.daemon.restarts)
			return
		}
	}
	i.daemonEnded(err.Error())
}

// daemonEnded decides what follows a crash.
func (i *Init) daemonEnded(how string) {
	was := i.daemon.safe
	wait := i.daemon.end(time.Now())
	i.daemonErr = how
	i.daemonAt.Reset(wait)
	i.publish()
	if !i.daemon.safe {
		i.log.Error("boardd ended", "how", how, "again-in", wait)
		return
	}
	if !was {
		i.log.Error("boardd ended too often: safe state, the sender is off", "ends", crashLimit, "within", crashWindow)
	}
	i.log.Error("boardd ended in the safe state", "how", how, "again-in", wait)
	i.senderOff()
}

func (i *Init) startShell() {
	if !i.set.shell {
		return
	}
	if _, err := os.Stat(i.path(shellPath)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the image has no %s: build it with the rescue shell", shellPath)
		}
		i.fault("rescue shell: %v", err)
		return
	}
	pid, err := i.sys.Start(Command{Path: shellPath, Env: []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/", "TERM=vt100"}})
	if err != nil {
		i.fault("rescue shell: %v", err)
		i.shellAt.Reset(shellRetry)
		return
	}
	i.shell.start(pid, time.Now())
	i.log.Warn("a rescue shell is open on the console: whoever sits there is root")
}

// publish copies what others may ask about.
func (i *Init) publish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state.safe, i.state.restarts, i.state.ending = i.daemon.safe, i.daemon.restarts, i.ending
}

// troubles is what is wrong with the configuration, and what with the system,
// each in one line.
func (i *Init) troubles() (problems, faults string) {
	i.mu.Lock()
	p, f := slices.Clone(i.problems), slices.Clone(i.faults)
	i.mu.Unlock()
	if i.daemon.safe {
		f = append(f, fmt.Sprintf("boardd ended %d times within %v, the last time: %s", crashLimit, crashWindow, i.daemonErr))
	}
	return oneLine(p), oneLine(f)
}

func oneLine(texts []string) string {
	text := printable(strings.Join(texts, "; "))
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	return text
}
