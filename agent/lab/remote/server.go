//go:build linux

package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drainTime bounds how long output that a program left behind may take to be sent:
// on a busy machine longer than one would think.
const drainTime = 15 * time.Second

// retry is the time between two attempts of a relay to reach a program that
// does not listen yet.
const retry = 50 * time.Millisecond

// ErrPowerOff is returned by Serve when the client asked for the machine's end.
var ErrPowerOff = errors.New("client asked to power off")

// Server runs what a Client asks for.
type Server struct {
	conn io.ReadWriteCloser

	mu  sync.Mutex // of enc and programs
	enc *json.Encoder
	// programs are those that run.
	programs map[uint64]*program
	all      sync.WaitGroup
}

// program is a running program at the server.
type program struct {
	input   *backlog
	cancel  context.CancelFunc
	process *os.Process
}

// Serve runs what the client at the other end of conn asks for until the stream
// ends or the client sends PowerOff, which is ErrPowerOff. hello is told to the
// client first. When Serve returns no program runs any more.
func Serve(ctx context.Context, conn io.ReadWriteCloser, hello string) error {
	s := &Server{conn: conn, enc: json.NewEncoder(conn), programs: map[uint64]*program{}}
	ctx, cancel := context.WithCancel(ctx)
	defer s.all.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := s.send(message{Hello: hello}); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	in := json.NewDecoder(bufio.NewReader(conn))
	for {
		var m message
		if err := in.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read request: %w", err)
		}
		switch {
		case m.PowerOff:
			return ErrPowerOff
		case m.Relay != nil:
			s.all.Go(func() { s.relay(ctx, m.ID, *m.Relay) })
		case m.Run != nil:
			s.start(ctx, m.ID, *m.Run)
		default:
			s.control(m)
		}
	}
}

func (s *Server) send(m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enc.Encode(m)
}

// end tells how a program ended. A stream that is gone needs no telling.
func (s *Server) end(id uint64, e Exit) { _ = s.send(message{ID: id, Exit: &e}) }

// control passes input, a signal or a kill to a running program. One that has
// ended needs none.
func (s *Server) control(m message) {
	s.mu.Lock()
	p := s.programs[m.ID]
	s.mu.Unlock()
	switch {
	case p == nil:
	case m.Kill:
		p.cancel()
	case m.Signal > 0:
		_ = p.process.Signal(syscall.Signal(m.Signal))
	default:
		p.input.add(m.Input, m.EndInput)
	}
}

// startSlack starts a program with a timer slack, which it takes over from the
// thread that makes it.
func startSlack(cmd *exec.Cmd, slack time.Duration) error {
	if slack <= 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack of %v: %w", slack, err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: what the thread had
	return cmd.Start()
}

func (s *Server) start(ctx context.Context, id uint64, c Command) {
	if len(c.Args) == 0 {
		s.end(id, Exit{Code: -1, Reason: "no program named"})
		return
	}
	if c.Limit <= 0 {
		c.Limit = DefaultLimit
	}
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	cmd := exec.CommandContext(limited, c.Args[0], c.Args[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	// A group of its own, so that what it started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainTime
	cmd.Stdout = output(func(b []byte) error { return s.send(message{ID: id, Output: b}) })
	cmd.Stderr = output(func(b []byte) error { return s.send(message{ID: id, Stderr: b}) })
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = startSlack(cmd, c.TimerSlack)
	}
	if err != nil {
		cancel()
		s.end(id, Exit{Code: -1, Reason: err.Error()})
		return
	}
	began := time.Now()
	p := &program{input: newBacklog(), cancel: cancel, process: cmd.Process}
	s.mu.Lock()
	s.programs[id] = p
	s.mu.Unlock()
	s.all.Go(func() { p.input.drain(stdin) })
	s.all.Go(func() {
		defer cancel()
		err := cmd.Wait()
		p.input.add(nil, true)
		s.mu.Lock()
		delete(s.programs, id)
		s.mu.Unlock()
		e := Exit{Code: cmd.ProcessState.ExitCode(), Elapsed: time.Since(began)}
		switch {
		case errors.Is(limited.Err(), context.DeadlineExceeded):
			e.Code, e.Reason = -1, fmt.Sprintf("killed after its limit of %v", c.Limit)
		case e.Code < 0:
			e.Reason = cmd.ProcessState.String()
		case err != nil && e.Code == 0:
			// Its output pipes stayed open: something it started lives on.
			e.Code, e.Reason = -1, err.Error()
		}
		s.end(id, e)
	})
}

// output is a writer that sends.
type output func([]byte) error

func (o output) Write(b []byte) (int, error) {
	if err := o(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// relay connects both ends and copies until either closes.
func (s *Server) relay(ctx context.Context, id uint64, r relay) {
	began := time.Now()
	err := func() error {
		limited, cancel := context.WithTimeout(ctx, r.Patience)
		defer cancel()
		to, err := dial(limited, r.To)
		if err != nil {
			return fmt.Errorf("relay to %s: %w", r.To, err)
		}
		defer func() { _ = to.Close() }()
		from, err := dial(limited, r.From)
		if err != nil {
			return fmt.Errorf("relay from %s: %w", r.From, err)
		}
		defer func() { _ = from.Close() }()
		stop := context.AfterFunc(ctx, func() { _, _ = to.Close(), from.Close() })
		defer stop()
		var both sync.WaitGroup
		both.Go(func() { copyHalf(to, from) })
		both.Go(func() { copyHalf(from, to) })
		both.Wait()
		return nil
	}()
	e := Exit{Elapsed: time.Since(began)}
	if err != nil {
		e.Code, e.Reason = -1, err.Error()
	}
	s.end(id, e)
}

// dial tries until something listens or ctx ends.
func dial(ctx context.Context, address string) (*net.TCPConn, error) {
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retry):
		}
	}
}

func copyHalf(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}
