//go:build linux

package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 20 * time.Second

// pair is a server and a client over a pipe.
func pair(t *testing.T) (*Client, <-chan error) {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), theirs, "hello") }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := NewClient(ctx, ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if c.Hello() != "hello" {
		t.Errorf("greeting %q", c.Hello())
	}
	return c, served
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestRun(t *testing.T) {
	c, _ := pair(t)
	for _, x := range []struct {
		name   string
		cmd    Command
		out    string
		failed string // part of the error
	}{
		{"output", Command{Args: []string{"echo", "a b"}}, "a b\n", ""},
		{"environment", Command{Args: []string{"sh", "-c", "echo $LAB_X"}, Env: []string{"LAB_X=7"}}, "7\n", ""},
		{"code and standard error", Command{Args: []string{"sh", "-c", "echo out; echo why >&2; exit 3"}}, "out\n", "exit code 3: why"},
		{"no such program", Command{Args: []string{"/no/such"}}, "", "no such file"},
		{"nothing named", Command{}, "", "no program named"},
		{"signal", Command{Args: []string{"sh", "-c", "kill -9 $$"}}, "", "signal: killed"},
		{"limit", Command{Args: []string{"sleep", "1000"}, Limit: 50 * time.Millisecond}, "", "killed after its limit of 50ms"},
		// What it started holds its output open and must go as well.
		{"limit of a group", Command{Args: []string{"sh", "-c", "sleep 1000 & wait"}, Limit: 50 * time.Millisecond}, "", "killed after"},
		{"much", Command{Args: []string{"sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"}}, strings.Repeat("x", 300000), ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			out, err := c.Run(bounded(t), x.cmd)
			if out != x.out {
				t.Errorf("output of %d bytes %.80q, want %d", len(out), out, len(x.out))
			}
			if (err == nil) != (x.failed == "") || err != nil && !strings.Contains(err.Error(), x.failed) {
				t.Errorf("error %v, want %q", err, x.failed)
			}
		})
	}
}

func TestTimerSlack(t *testing.T) {
	c, _ := pair(t)
	show := []string{"cat", "/proc/self/timerslack_ns"}
	before, err := c.Run(bounded(t), Command{Args: show})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		slack time.Duration
		want  string
	}{{3 * time.Millisecond, "3000000\n"}, {0, before}} {
		if got, err := c.Run(bounded(t), Command{Args: show, TimerSlack: x.slack}); got != x.want || err != nil {
			t.Errorf("with %v: %q, %v, want %q", x.slack, got, err, x.want)
		}
	}
}

func TestSignal(t *testing.T) {
	c, _ := pair(t)
	p, err := c.Start(Command{Args: []string{"sh", "-c", "trap 'echo heard; exit 7' TERM; echo ready; while :; do sleep 0.01; done"}})
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(p)
	if !out.Scan() || out.Text() != "ready" {
		t.Fatalf("%q", out.Text())
	}
	if err := p.Signal(int(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if !out.Scan() || out.Text() != "heard" {
		t.Fatalf("%q", out.Text())
	}
	if e, _ := p.Wait(); e.Code != 7 {
		t.Errorf("%+v", e)
	}
	if err := p.Signal(int(syscall.SIGTERM)); err != nil {
		t.Errorf("a signal to one that has ended: %v", err)
	}
}

func TestInput(t *testing.T) {
	c, _ := pair(t)
	p, err := c.Start(Command{Args: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(p)
	for i := range 3 {
		want := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(p, want); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := p.CloseInput(); err != nil {
		t.Fatal(err)
	}
	// Input after the end, and to what has ended, is nothing to fall over.
	for range 2 {
		if _, err := io.WriteString(p, "late"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Finish(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that does not read its input must not hold up the others.
func TestStuckInput(t *testing.T) {
	c, _ := pair(t)
	p, err := c.Start(Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := p.Write(make([]byte, 10000)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.Run(bounded(t), Command{Args: []string{"echo", "on"}}); out != "on\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if e, err := p.Wait(); e.Code != -1 || err == nil {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestContextKills(t *testing.T) {
	c, _ := pair(t)
	ctx, cancel := context.WithCancel(context.Background())
	p, err := c.Start(Command{Args: []string{"sh", "-c", "echo up; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(p).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// When the client goes, so does what it started; when the server goes, the
// client is told.
func TestEnds(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		c, served := pair(t)
		p, err := c.Start(Command{Args: []string{"sh", "-c", "echo $$; sleep 1000"}})
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(p).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("the server goes on")
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d lives: %v", pid, err)
		}
		if _, err := p.Wait(); !errors.Is(err, ErrGone) {
			t.Error(err)
		}
		if _, err := c.Start(Command{Args: []string{"true"}}); !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	})
	t.Run("power off", func(t *testing.T) {
		c, served := pair(t)
		if err := c.PowerOff(); err != nil {
			t.Fatal(err)
		}
		if err := <-served; !errors.Is(err, ErrPowerOff) {
			t.Error(err)
		}
	})
	t.Run("rubbish", func(t *testing.T) {
		ours, theirs := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- Serve(context.Background(), theirs, "") }()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		if _, err := io.WriteString(ours, "{\"Run\": 7}\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err == nil {
			t.Error("rubbish was taken")
		}
		_ = ours.Close()
	})
	t.Run("no greeting", func(t *testing.T) {
		ours, _ := net.Pipe()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := NewClient(ctx, ours); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestDial(t *testing.T) {
	c, _ := pair(t)
	tcp := func() *net.TCPListener {
		ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		return ln
	}
	// The far program listens a while after it is dialled.
	late := tcp()
	address := late.Addr().String()
	_ = late.Close()
	echoed := make(chan error, 1)
	go func() {
		time.AfterFunc(100*time.Millisecond, func() {
			ln, err := net.Listen("tcp4", address)
			if err != nil {
				echoed <- err
				return
			}
			defer func() { _ = ln.Close() }()
			far, err := ln.Accept()
			if err == nil {
				_, err = io.Copy(far, far)
				_ = far.Close()
			}
			echoed <- err
		})
	}()
	via := tcp()
	conn, err := c.Dial(bounded(t), address, via, via.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "through"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); string(b) != "through" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-echoed; err != nil {
		t.Error(err)
	}
	_ = conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	via = tcp()
	if _, err := c.Dial(ctx, address, via, via.Addr().String()); err == nil {
		t.Error("nobody listens and the dial succeeded")
	}
}
