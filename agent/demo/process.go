package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is one program of the demo, started again when it dies.
type process struct {
	name string
	path string
	args []string
	log  string // file that takes its standard error
	in   *os.File

	mu       sync.Mutex
	cmd      *exec.Cmd
	stopping bool
	restarts int

	// done is closed when the program has ended and is not started again;
	// err is valid then.
	done chan struct{}
	err  error
}

// restartDelay keeps a program that dies at once from being started in a loop.
const restartDelay = 300 * time.Millisecond

// start runs the program until stop; died is told of every end that was not
// asked for and says whether to start it again.
func (p *process) start(died func(p *process, err error) (again bool)) error {
	p.done = make(chan struct{})
	started := make(chan error, 1)
	go p.run(started, died)
	return <-started
}

func (p *process) run(started chan<- error, died func(*process, error) bool) {
	// The death signal below follows the thread that started the program.
	runtime.LockOSThread()
	defer close(p.done)
	for first := true; ; first = false {
		cmd, err := p.launch()
		if first {
			started <- err
		}
		if err == nil {
			err = cmd.Wait()
		}
		p.mu.Lock()
		stopping := p.stopping
		p.mu.Unlock()
		if stopping || first && cmd == nil || !died(p, err) {
			p.err = err
			return
		}
		time.Sleep(restartDelay)
		p.mu.Lock()
		p.restarts++
		p.mu.Unlock()
	}
}

func (p *process) launch() (*exec.Cmd, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: log: %w", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if p.in != nil {
		cmd.Stdin = p.in
	}
	// Its own group: Ctrl-C reaches the demo alone, which then ends the
	// programs in order. If the demo is killed, they get SIGTERM.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, errors.New("stopped before it started")
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w: run make build first", p.name, err)
	}
	p.cmd = cmd
	return cmd, nil
}

// stop asks the program to end and waits; after limit it is killed.
func (p *process) stop(limit time.Duration) error {
	p.mu.Lock()
	p.stopping = true
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil || p.done == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		_ = cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %v and was killed: see %s", p.name, limit, p.log)
	}
}

func (p *process) restarted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

func logFile(dir, name string) string { return filepath.Join(dir, name+".log") }
