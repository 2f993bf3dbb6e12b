package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/path"
)

// traffic publishes a board and a host that carry one stream, four times a
// second, until the test ends.
func traffic(t *testing.T, change func(*rocelink.BoardStatus, *rocelink.HostStatus)) (url string) {
	t.Helper()
	url, nc := server(t, nil)
	board := rocelink.BoardStatus{
		Version: 1, Board: "demo", Epoch: 5, UptimeMS: 100_000, Fabric: rocelink.Fabric{Present: true}, Link: rocelink.Link{Up: true, State: "up"},
		Streams: []rocelink.StreamStatus{{Stream: "raw", Host: "h", Session: 7, Verb: rocelink.VerbSend, State: rocelink.StreamRunning}},
	}
	host := rocelink.HostStatus{
		Version: 1, Host: "h", Epoch: 6, UptimeMS: 50_000, Device: rocelink.Device{Active: true},
		Streams: []rocelink.HostStream{{Stream: "raw", Board: "demo", Session: 7, Verb: rocelink.VerbSend, State: "running", Opens: 1}},
	}
	ended := make(chan struct{})
	stopped := make(chan struct{})
	t.Cleanup(func() { close(ended); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			ms := time.Since(begin).Milliseconds()
			board.UptimeMS, board.SampledMS, host.UptimeMS = 100_000+ms, 100_000+ms, 50_000+ms
			n := rocelink.Count(ms)
			s, h := &board.Streams[0], &host.Streams[0]
			s.SourceFrames, s.FramesPosted, s.FramesDone, s.PacketsSent, s.PacketsAcked = n, n, n, n, n
			h.Total = rocelink.Totals{Messages: n, Accepted: n, Verified: n, Bytes: 1000 * n}
			if change != nil {
				change(&board, &host)
			}
			for subject, record := range map[string]any{rocelink.BoardStatusSubject("demo"): board, rocelink.HostStatusSubject("h"): host} {
				data, err := json.Marshal(record)
				if err != nil {
					t.Error(err)
				}
				_ = nc.Publish(subject, data)
			}
		}
	}()
	return url
}

func TestWhere(t *testing.T) {
	url := traffic(t, nil)
	out, code, err := run(t.Context(), "where", "--nats", url)
	if code != 0 || !strings.Contains(out, "stream raw: board demo → host h, send, running") || !strings.Contains(out, "ok healthy") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	out, code, err = run(t.Context(), "where", "raw", "--nats", url, "--json")
	var l located
	if jsonErr := json.Unmarshal([]byte(out), &l); code != 0 || jsonErr != nil || !l.InOrder || len(l.Paths) != 1 || len(l.Paths[0].Stages) != len(path.Names) {
		t.Errorf("exit %d, %v, %v\n%s", code, err, jsonErr, out)
	}
	if _, code, err := run(t.Context(), "where", "other", "--nats", url); code != exitFailed || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("no such stream: exit %d, %v", code, err)
	}
	if _, code, _ := run(t.Context(), "where", "--nats", "nats://127.0.0.1:1"); code != exitFailed {
		t.Errorf("no server: exit %d", code)
	}
}

func TestWhereNamesTheStage(t *testing.T) {
	url := traffic(t, func(b *rocelink.BoardStatus, h *rocelink.HostStatus) {
		s := &b.Streams[0]
		s.SourceFrames, s.FramesPosted, s.FramesDone, s.PacketsSent, s.PacketsAcked, s.Timeouts = 16, 16, 0, 256, 0, s.Timeouts+1
		h.Streams[0].Total = rocelink.Totals{}
	})
	out, code, err := run(t.Context(), "where", "--nats", url)
	if code != exitUnhealthy || !strings.Contains(out, "> acknowledged") || !strings.Contains(out, "CRITICAL wrong-psn: board sends, nothing acknowledged") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
}

func TestWhereWatches(t *testing.T) {
	broken := make(chan struct{})
	url := traffic(t, func(b *rocelink.BoardStatus, _ *rocelink.HostStatus) {
		select {
		case <-broken:
			b.Link = rocelink.Link{State: "align", Cause: rocelink.CauseNoSignal, Problem: "no light \x1b[31m"}
		default:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	c := command()
	c.SetOut(writer(func(p []byte) (int, error) {
		out.Write(p)
		switch text := out.String(); {
		case strings.Contains(text, "link-no-signal"):
			cancel()
		case strings.Contains(text, "ok healthy"):
			select {
			case <-broken:
			default:
				close(broken)
			}
		}
		return len(p), nil
	}))
	c.SetArgs([]string{"where", "--watch", "--nats", url})
	if err := c.ExecuteContext(ctx); err == nil || err.(exitError).code != exitUnhealthy {
		t.Errorf("%v", err)
	}
	if ctx.Err() == context.DeadlineExceeded {
		t.Error("the fault was not shown in time")
	}
	if text := out.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "link DOWN") || !strings.Contains(text, "[since ") {
		t.Error(text)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
