package model

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxSimLine bounds a request.
	maxSimLine = 1 << 20
	// simIdle is how long a connection may say nothing.
	simIdle = 10 * time.Second
	// maxSimMS is the longest time in a request: a hundred years.
	maxSimMS = int64(100 * 365 * 24 * time.Hour / time.Millisecond)
)

// SimRequest is a line to the socket of a software fabric: a fault to provoke, or
// a script. Neither asks for the list alone.
type SimRequest struct {
	Do     string        `json:"do,omitempty"`
	Args   []string      `json:"args,omitempty"`
	ForMS  int64         `json:"for_ms,omitempty"`
	Script []SimLineStep `json:"script,omitempty"`
}

// SimLineStep is a step of a script in a request.
type SimLineStep struct {
	AfterMS int64    `json:"after_ms,omitempty"`
	Do      string   `json:"do"`
	Args    []string `json:"args,omitempty"`
	ForMS   int64    `json:"for_ms,omitempty"`
}

// SimReply is the line that answers: why the request was refused, or what is
// active now.
type SimReply struct {
	Error   string          `json:"error,omitempty"`
	Active  []SimLineActive `json:"active"`
	Waiting int             `json:"waiting"` // steps of a script
	Faults  []SimFault      `json:"faults,omitempty"`
}

// SimLineActive is a fault that is active in a reply.
type SimLineActive struct {
	Name   string `json:"name"`
	Lane   int    `json:"lane,omitempty"`
	LeftMS int64  `json:"left_ms,omitempty"`
}

func milliseconds(what string, n int64) (time.Duration, error) {
	if n < 0 || n > min(maxSimMS, math.MaxInt64/int64(time.Millisecond)) {
		return 0, fmt.Errorf("%s %d ms: want 0 to %d: %w", what, n, maxSimMS, ErrSim)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// Simulated is what has faults to provoke: a [Fabric] or a [Shell].
type Simulated interface {
	Sim(fault string, args []string, last time.Duration) error
	SimScript(steps []SimStep) error
	SimState() (list []SimActive, waiting int)
}

// answer carries out a request.
func answer(f Simulated, line []byte) (r SimReply) {
	if err := obey(f, line, &r); err != nil {
		r.Error = err.Error()
	}
	active, waiting := f.SimState()
	r.Active, r.Waiting = []SimLineActive{}, waiting
	for _, a := range active {
		r.Active = append(r.Active, SimLineActive{a.Name, a.Lane, a.Left.Milliseconds()})
	}
	return r
}

func obey(f Simulated, line []byte, r *SimReply) error {
	var q SimRequest
	if err := json.Unmarshal(line, &q); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	switch {
	case q.Do != "" && q.Script != nil:
		return fmt.Errorf("a fault and a script in one request: %w", ErrSim)
	case q.Do != "":
		last, err := milliseconds("for", q.ForMS)
		if err != nil {
			return err
		}
		return f.Sim(q.Do, q.Args, last)
	case q.Script != nil:
		var steps []SimStep
		for i, s := range q.Script {
			after, err := milliseconds("after", s.AfterMS)
			last, err2 := milliseconds("for", s.ForMS)
			if err := errors.Join(err, err2); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
			steps = append(steps, SimStep{after, s.Do, s.Args, last})
		}
		return f.SimScript(steps)
	}
	r.Faults = SimFaults()
	return nil
}

// SimServer takes requests on a unix socket that only its owner may use.
type SimServer struct {
	fabric Simulated
	listen net.Listener
	done   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: closed
}

// ServeSim begins to take requests at a path, in place of a socket that nobody
// serves any more.
func ServeSim(f Simulated, path string) (*SimServer, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("socket %s: %w", path, ErrServedSocket)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("socket left over: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
	}
	s := &SimServer{fabric: f, listen: l, conns: map[net.Conn]bool{}}
	s.done.Go(s.accept)
	return s, nil
}

// ErrServedSocket: another process answers at the path.
var ErrServedSocket = errors.New("is served by another process")

func (s *SimServer) accept() {
	for {
		c, err := s.listen.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.conns == nil {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = true
		s.mu.Unlock()
		s.done.Go(func() { s.serve(c) })
	}
}

func (s *SimServer) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in, out := bufio.NewScanner(c), json.NewEncoder(c)
	in.Buffer(nil, maxSimLine)
	for c.SetDeadline(time.Now().Add(simIdle)) == nil && in.Scan() {
		if out.Encode(answer(s.fabric, in.Bytes())) != nil {
			return
		}
	}
}

// Close takes no more requests and removes the socket. It comes before that of
// the fabric.
func (s *SimServer) Close() error {
	err := s.listen.Close() // which removes the socket
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.done.Wait()
	return err
}
