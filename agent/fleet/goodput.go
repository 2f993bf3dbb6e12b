package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
)

// goodput follows the windows of the stream.
type goodput struct {
	nc      *nats.Conn
	windows chan rocelink.Window

	mu    sync.Mutex
	total rocelink.Totals
}

// newGoodput waits until the stream runs.
func newGoodput(ctx context.Context, url string, ended <-chan error) (*goodput, error) {
	g := &goodput{windows: make(chan rocelink.Window, 64)}
	nc, err := rocelink.Connect(rocelink.Access{URL: url}, rocelink.Client{Name: "fleet goodput", Retry: true})
	if err != nil {
		return nil, err
	}
	g.nc = nc
	if _, err = nc.Subscribe(rocelink.AnyWindow, g.take); err != nil {
		nc.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-g.windows:
		return g, nil
	case e := <-ended:
		if err = fmt.Errorf("the stream ended before it began: %w", e); e == nil {
			err = errors.New("the stream ended before it began: see the logs")
		}
	case <-limit.C:
		err = fmt.Errorf("the stream does not run after %v", startLimit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	nc.Close()
	return nil, err
}

func (g *goodput) take(m *nats.Msg) {
	var w rocelink.Window
	if rocelink.Decode(m.Data, &w) != nil {
		return
	}
	g.mu.Lock()
	g.total = w.Total
	g.mu.Unlock()
	select {
	case g.windows <- w:
	default: // nobody measures at present
	}
}

func (g *goodput) lost() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return uint64(g.total.Lost())
}

func (g *goodput) close() { g.nc.Close() }

// segmentSum is what a segment, or several, measured.
type segmentSum struct {
	bytes    rocelink.Count
	duration time.Duration // of the windows
	cpu      time.Duration
	wall     time.Duration
	memory   uint64 // largest
}

func (s *segmentSum) add(o segmentSum) {
	s.bytes += o.bytes
	s.duration += o.duration
	s.cpu += o.cpu
	s.wall += o.wall
	s.memory = max(s.memory, o.memory)
}

func (s segmentSum) bps() float64      { return 8 * float64(s.bytes) / s.duration.Seconds() }
func (s segmentSum) cpuShare() float64 { return s.cpu.Seconds() / s.wall.Seconds() }

// measure sums the windows that begin within a segment.
func measure(ctx context.Context, segment time.Duration, g *goodput, pid int) (s segmentSum, err error) {
	for len(g.windows) > 0 {
		<-g.windows
	}
	// The window that is under way belongs to what was before.
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	begun := false
	var began time.Time
	var cpu time.Duration
	for {
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-limit.C:
			return s, errors.New("the stream has stopped: see the logs")
		case w := <-g.windows:
			limit.Reset(startLimit)
			now, memory, err := usage(pid)
			if err != nil {
				return s, err
			}
			if !begun {
				begun, began, cpu = true, time.Now(), now
				continue
			}
			s.bytes += w.Bytes
			s.duration += time.Duration(w.DurationNS)
			s.memory = max(s.memory, memory)
			if s.duration >= segment {
				s.cpu, s.wall = now-cpu, time.Since(began)
				return s, nil
			}
		}
	}
}

// clockTick is that of /proc on every Linux that Go runs on (proc(5)).
const clockTick = 10 * time.Millisecond

// usage is what a process has used: CPU time, and resident memory.
func usage(pid int) (cpu time.Duration, memory uint64, err error) {
	fail := func(err error) (time.Duration, uint64, error) {
		return 0, 0, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return fail(err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 22 {
		return fail(errors.New("its stat is short"))
	}
	// utime and stime are fields 14 and 15, rss is field 24 of proc(5).
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return fail(err)
		}
		cpu += time.Duration(n) * clockTick
	}
	pages, err := strconv.ParseUint(fields[21], 10, 64)
	if err != nil {
		return fail(err)
	}
	return cpu, pages * uint64(os.Getpagesize()), nil
}
