package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// ErrGone means that the stream to the server has ended.
var ErrGone = errors.New("the remote machine is gone")

// Client runs programs at a Server.
type Client struct {
	conn  io.ReadWriteCloser
	hello string
	gone  chan struct{}

	mu        sync.Mutex
	enc       *json.Encoder
	next      uint64
	processes map[uint64]*Process
	err       error
}

// NewClient waits for the server's greeting on conn, until ctx ends. The client
// owns conn from then on.
func NewClient(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{conn: conn, enc: json.NewEncoder(conn), processes: map[uint64]*Process{}, gone: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	in := json.NewDecoder(bufio.NewReader(conn))
	var m message
	err := in.Decode(&m)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("wait for the remote machine's greeting: %w", err)
	}
	c.hello = m.Hello
	go c.receive(in)
	return c, nil
}

// Hello is what the server said first.
func (c *Client) Hello() string { return c.hello }

// Gone is closed when the stream has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// PowerOff asks the server to end its machine. It does not wait for that.
func (c *Client) PowerOff() error { return c.send(message{PowerOff: true}) }

// Close ends the stream, and with it every program at the server.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.gone
	return err
}

func (c *Client) send(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendLocked(m)
}

func (c *Client) sendLocked(m message) error {
	if c.err != nil {
		return c.err
	}
	if err := c.enc.Encode(m); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// receive hands out what the server sends until the stream ends.
func (c *Client) receive(in *json.Decoder) {
	defer close(c.gone)
	var err error
	for err == nil {
		var m message
		if err = in.Decode(&m); err != nil {
			break
		}
		c.mu.Lock()
		p := c.processes[m.ID]
		if m.Exit != nil {
			delete(c.processes, m.ID)
		}
		c.mu.Unlock()
		if p == nil {
			continue
		}
		p.stdout.add(m.Output, m.Exit != nil)
		if len(m.Stderr) > 0 {
			p.addStderr(m.Stderr)
		}
		if m.Exit != nil {
			p.finish(*m.Exit, nil)
		}
	}
	c.mu.Lock()
	c.err = fmt.Errorf("%w: %w", ErrGone, err)
	orphans := c.processes
	c.processes = map[uint64]*Process{}
	c.mu.Unlock()
	for _, p := range orphans {
		p.stdout.add(nil, true)
		p.finish(Exit{Code: -1}, c.err)
	}
}

// begin registers a process and sends what starts it.
func (c *Client) begin(what string, m message) (*Process, error) {
	p := &Process{client: c, what: what, stdout: newBacklog(), done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	p.id, m.ID = c.next, c.next
	if err := c.sendLocked(m); err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	c.processes[p.id] = p
	return p, nil
}

// Start starts a program.
func (c *Client) Start(cmd Command) (*Process, error) {
	return c.begin(strings.Join(cmd.Args, " "), message{Run: &cmd})
}

// Run runs a program to its end and returns its standard output. The error
// names the program, how it ended, and what it wrote to standard error.
func (c *Client) Run(ctx context.Context, cmd Command) (string, error) {
	p, err := c.Start(cmd)
	if err != nil {
		return "", err
	}
	return p.Finish(ctx)
}

// Dial connects to a TCP address that the server reaches. The server must be
// able to reach this process at via, an address that ln listens on.
func (c *Client) Dial(ctx context.Context, address string, ln *net.TCPListener, via string) (net.Conn, error) {
	patience := 30 * time.Second
	if d, ok := ctx.Deadline(); ok {
		patience = time.Until(d)
	}
	p, err := c.begin("relay to "+address, message{Relay: &relay{From: via, To: address, Patience: patience}})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = ln.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// A relay that failed will not connect.
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		select {
		case <-p.done:
			_ = ln.SetDeadline(time.Unix(1, 0))
		case <-ctx.Done():
		}
	}()
	conn, err := ln.Accept()
	if err != nil {
		select {
		case <-p.done:
			_, err = p.Wait()
		default:
		}
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return conn, nil
}

// Process is a program that runs at the server, or has.
type Process struct {
	client *Client
	id     uint64
	what   string
	stdout *backlog

	mu     sync.Mutex
	stderr bytes.Buffer

	done chan struct{} // closed after exit and err are set
	exit Exit
	err  error
}

func (p *Process) addStderr(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stderr.Write(b)
}

func (p *Process) finish(e Exit, err error) {
	p.exit, p.err = e, err
	close(p.done)
}

// Read reads from the program's standard output.
func (p *Process) Read(b []byte) (int, error) { return p.stdout.Read(b) }

// Write writes to the program's standard input.
func (p *Process) Write(b []byte) (int, error) {
	if err := p.client.send(message{ID: p.id, Input: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseInput ends the program's standard input.
func (p *Process) CloseInput() error { return p.client.send(message{ID: p.id, EndInput: true}) }

// Kill kills the program and what it started. One that has ended stays so.
func (p *Process) Kill() error { return p.client.send(message{ID: p.id, Kill: true}) }

// Signal sends the program a signal, by its number. One that has ended needs
// none.
func (p *Process) Signal(number int) error {
	return p.client.send(message{ID: p.id, Signal: number})
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stderr is what the program has written to standard error.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Wait waits for the program's end. The error tells a code other than 0.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	e := p.exit
	switch {
	case p.err != nil:
		return e, fmt.Errorf("%s: %w", p.what, p.err)
	case e.Code == 0:
		return e, nil
	case e.Reason != "":
		return e, fmt.Errorf("%s: %s%s", p.what, e.Reason, p.tail())
	}
	return e, fmt.Errorf("%s: exit code %d%s", p.what, e.Code, p.tail())
}

// tail is the end of standard error for an error.
func (p *Process) tail() string {
	const most = 2000
	s := strings.TrimSpace(p.Stderr())
	if s == "" {
		return ""
	}
	return ": " + s[max(0, len(s)-most):]
}

// Finish reads the program's standard output to its end and waits; when ctx
// ends first the program is killed.
func (p *Process) Finish(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	var out bytes.Buffer
	_, _ = io.Copy(&out, p)
	_, err := p.Wait()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if err != nil {
		if s := strings.TrimSpace(out.String()); s != "" {
			const most = 2000
			err = fmt.Errorf("%w; it said: %s", err, s[max(0, len(s)-most):])
		}
	}
	return out.String(), err
}
