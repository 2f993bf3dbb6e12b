package notify

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manager listens as a service manager does.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return c
}

func next(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// nothing checks that no message is waiting: sending is over when a call
// returns.
func nothing(t *testing.T, c *net.UnixConn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	if n, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v came", b[:n], err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestLife(t *testing.T) {
	for name, socket := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": "@rocelink-notify-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			c := manager(t, socket)
			t.Setenv("WATCHDOG_USEC", "3600000000")
			t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
			var s Service
			must(t, s.Ready("two streams\non mlx5_0"))
			if got := next(t, c); got != "READY=1\nSTATUS=two streams on mlx5_0" {
				t.Errorf("%q", got)
			}
			for range 3 {
				must(t, s.Beat())
			}
			if got := next(t, c); got != "WATCHDOG=1" {
				t.Errorf("%q", got)
			}
			nothing(t, c)
			must(t, s.Status("idle"))
			if got := next(t, c); got != "STATUS=idle" {
				t.Errorf("%q", got)
			}
			must(t, s.Stopping())
			must(t, s.Stopping())
			if got := next(t, c); got != "STOPPING=1" {
				t.Errorf("%q", got)
			}
			nothing(t, c)
		})
	}
}

func TestBeatsComeFourAPeriod(t *testing.T) {
	c := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "40000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	var s Service
	// The clock is moved by hand: the last beat is put into the past.
	for _, tc := range []struct {
		ago  time.Duration
		beat bool
	}{{0, true}, {9 * time.Second, false}, {10 * time.Second, true}, {time.Hour, true}} {
		if tc.ago > 0 {
			s.last = time.Now().Add(-tc.ago)
		}
		must(t, s.Beat())
		if tc.beat {
			if got := next(t, c); got != "WATCHDOG=1" {
				t.Errorf("after %v: %q", tc.ago, got)
			}
		} else {
			nothing(t, c)
		}
	}
}

func TestNobodyWatches(t *testing.T) {
	c := manager(t, filepath.Join(t.TempDir(), "notify"))
	for _, env := range []struct{ usec, pid string }{{"", ""}, {"1000000", "1"}} {
		t.Setenv("WATCHDOG_USEC", env.usec)
		t.Setenv("WATCHDOG_PID", env.pid)
		var s Service
		must(t, s.Beat())
		nothing(t, c)
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	var s Service
	if err := s.Beat(); err == nil || !strings.Contains(err.Error(), "WatchdogSec") {
		t.Errorf("rubbish in WATCHDOG_USEC: %v", err)
	}
	must(t, s.Beat()) // said once
}

func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var s Service
	must(t, s.Ready("x"))
	must(t, s.Beat())
	must(t, s.Stopping())

	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := new(Service).Ready("x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket that is not there: %v", err)
	}
}

// TestDeafManager fills the socket of a manager that never reads.
func TestDeafManager(t *testing.T) {
	manager(t, filepath.Join(t.TempDir(), "notify"))
	var s Service
	for i := range 10000 {
		start := time.Now()
		err := s.Status("x")
		if took := time.Since(start); took > 5*patience {
			t.Fatalf("message %d held the program up for %v", i, took)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "did not take") {
				t.Errorf("message %d: %v", i, err)
			}
			return
		}
	}
	t.Error("10000 messages found room in a socket that nobody reads")
}
