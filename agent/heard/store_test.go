package heard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/broker"
)

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func data(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func board(name string, epoch, sequence uint64) rocelink.BoardStatus {
	return rocelink.BoardStatus{Version: 1, Board: name, Epoch: rocelink.Count(epoch), Sequence: rocelink.Count(sequence),
		UptimeMS: int64(sequence) * 1000, SampledMS: int64(sequence)*1000 - 100, Fabric: rocelink.Fabric{Present: true}}
}

func take(t *testing.T, s *Store, b rocelink.BoardStatus) {
	t.Helper()
	if err := s.Take(rocelink.BoardStatusSubject(b.Board), data(t, b)); err != nil {
		t.Fatal(err)
	}
}

func TestRefusedRecordsChangeNothing(t *testing.T) {
	long := strings.Repeat("x", rocelink.MaxNameBytes+1)
	for _, tc := range []struct {
		name, subject string
		data          []byte
		want          Reason
	}{
		{"no JSON", rocelink.BoardStatusSubject("a"), []byte("{"), Malformed},
		{"a list", rocelink.HostStatusSubject("a"), []byte("[]"), Malformed},
		{"too long", rocelink.BoardStatusSubject("a"), make([]byte, rocelink.MaxRecord+1), Malformed},
		{"a counter that is none", rocelink.BoardStatusSubject("a"), []byte(`{"version":1,"board":"a","epoch":"-1"}`), Malformed},
		{"another version", rocelink.BoardStatusSubject("a"), []byte(`{"version":2,"board":"a"}`), Version},
		{"no name", rocelink.BoardStatusSubject(""), []byte(`{"version":1}`), Name},
		{"long name", rocelink.BoardStatusSubject(long), []byte(`{"version":1,"board":"` + long + `"}`), Name},
		{"control characters", rocelink.BoardStatusSubject("a\nb"), []byte(`{"version":1,"board":"a\nb"}`), Name},
		{"forged status", rocelink.BoardStatusSubject("a"), []byte(`{"version":1,"board":"b"}`), Subject},
		{"forged event", rocelink.HostEventSubject("a"), []byte(`{"version":1,"from":"b"}`), Subject},
		{"forged window", rocelink.WindowSubject("a", "s"), []byte(`{"version":1,"host":"a","stream":"other"}`), Subject},
		{"a request", rocelink.RequestSubject("a", "open"), []byte(`{"version":1}`), Subject},
		{"elsewhere", "somewhere", []byte(`{"version":1}`), Subject},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := New(Config{})
			changed, stop := s.Watch()
			defer stop()
			err := s.Take(tc.subject, tc.data)
			v := s.View()
			if !errors.Is(err, ErrRefused) || v.Refused[tc.want] != 1 || len(v.Refused) != 1 {
				t.Errorf("%v, counted %v, want %s", err, v.Refused, tc.want)
			}
			if len(v.Boards)+len(v.Hosts)+len(v.Events)+len(v.Windows) > 0 {
				t.Errorf("kept: %+v", v)
			}
			select {
			case <-changed:
				t.Error("signalled")
			default:
			}
		})
	}
}

func TestSamplesOfTheirOwnAreKeptApart(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	s := New(Config{Now: c.now})
	for i := range uint64(40) {
		// Four records a second, of which two carry counters taken anew.
		b := board("a", 1, i/2+1)
		take(t, s, b)
		c.t = c.t.Add(250 * time.Millisecond)
	}
	b := s.View().Boards[0]
	if len(b.Heard) != kept {
		t.Fatalf("%d records", len(b.Heard))
	}
	for i := 1; i < len(b.Heard); i++ {
		if b.Heard[i].SampledMS >= b.Heard[i-1].SampledMS {
			t.Errorf("record %d: sampled %d after %d", i, b.Heard[i].SampledMS, b.Heard[i-1].SampledMS)
		}
		if d := b.Heard[i-1].At.Sub(b.Heard[i].At); i > 1 && d < apart {
			t.Errorf("records %v apart", d)
		}
	}
	if b.Last().Sequence != 20 {
		t.Errorf("newest is %d", b.Last().Sequence)
	}
}

func TestRestart(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	s := New(Config{Now: c.now})
	for epoch := range uint64(5) {
		for i := range uint64(3) {
			take(t, s, board("a", 100+epoch, i+1))
			c.t = c.t.Add(time.Second)
		}
	}
	b, _ := s.View().Board("a")
	if b.Starts != 4 || b.StartsLately != 4 || b.Twice || b.FabricOnly || len(b.Heard) != 3 {
		t.Errorf("%+v", b)
	}
	c.t = c.t.Add(2 * StartsWithin)
	take(t, s, board("a", 104, 100))
	if b, _ = s.View().Board("a"); b.Starts != 4 || b.StartsLately != 0 {
		t.Errorf("%+v", b)
	}
}

// A program that starts and then finds its fabric starts once.
func TestAStartIsCountedOnce(t *testing.T) {
	s := New(Config{})
	missing := board("a", 1, 1)
	missing.Fabric.Present = false
	take(t, s, missing)
	take(t, s, board("a", 2, 2))
	if b, _ := s.View().Board("a"); b.Starts != 0 || len(b.Heard) != 1 {
		t.Errorf("%+v", b)
	}
	missing.Epoch = 3
	take(t, s, missing)
	take(t, s, board("a", 4, 2))
	if b, _ := s.View().Board("a"); b.Starts != 1 || b.FabricOnly {
		t.Errorf("%+v", b)
	}
	// The fabric was set up again while the program went on.
	take(t, s, board("a", 5, 9))
	if b, _ := s.View().Board("a"); b.Starts != 2 || !b.FabricOnly {
		t.Errorf("%+v", b)
	}
}

func TestTwoOfOneName(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	s := New(Config{Now: c.now})
	for i := range uint64(5) {
		take(t, s, board("a", 1, i+1))
		take(t, s, board("a", 2, i+1))
		c.t = c.t.Add(time.Second)
	}
	if b, _ := s.View().Board("a"); !b.Twice {
		t.Errorf("%+v", b)
	}
	// One of them ends.
	for i := range uint64(40) {
		take(t, s, board("a", 2, i+10))
		c.t = c.t.Add(time.Second)
	}
	if b, _ := s.View().Board("a"); b.Twice {
		t.Errorf("%+v", b)
	}
}

// A late record of the epoch before is no second board.
func TestALateRecord(t *testing.T) {
	s := New(Config{})
	for _, e := range []uint64{1, 1, 2, 1, 2, 2, 2} {
		take(t, s, board("a", e, 1))
	}
	if b, _ := s.View().Board("a"); b.Twice {
		t.Errorf("%+v", b)
	}
}

func TestNamesAreBounded(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	s := New(Config{Now: c.now, MaxBoards: 10, MaxHosts: 10, MaxStreams: 2, MaxEvents: 5})
	for i := range 100 {
		b := board(fmt.Sprintf("b%d", i), 1, 1)
		b.Streams = []rocelink.StreamStatus{{Host: "h"}, {Stream: "s"}, {Host: "h", Stream: "a\nb"}}
		for k := range 50 {
			b.Streams = append(b.Streams, rocelink.StreamStatus{Host: "h", Stream: fmt.Sprint(k)})
		}
		b.Fabric.Counters = map[string]rocelink.Count{}
		for k := range 3 * maxCounters {
			b.Fabric.Counters[fmt.Sprint(k)] = 1
		}
		err := s.Take(rocelink.BoardStatusSubject(b.Board), data(t, b))
		if (err == nil) != (i < 10) {
			t.Fatalf("board %d: %v", i, err)
		}
		name := fmt.Sprintf("h%d", i)
		_ = s.Take(rocelink.HostStatusSubject(name), data(t, rocelink.HostStatus{Version: 1, Host: name}))
		_ = s.Take(rocelink.WindowSubject(name, "s"), data(t, rocelink.Window{Version: 1, Host: name, Stream: "s"}))
		_ = s.Take(rocelink.HostEventSubject(name), data(t, rocelink.Event{Version: 1, From: name, Text: strings.Repeat("é", 1000)}))
	}
	v := s.View()
	if len(v.Boards) != 10 || len(v.Hosts) != 10 || len(v.Windows) != 20 || len(v.Events) != 5 || v.Refused[Full] != 90+90+80 {
		t.Errorf("%d boards, %d hosts, %d windows, %d events, refused %v", len(v.Boards), len(v.Hosts), len(v.Windows), len(v.Events), v.Refused)
	}
	if b := v.Boards[0].Last(); len(b.Streams) != 2 || b.Streams[0].Stream != "0" || len(b.Fabric.Counters) != maxCounters {
		t.Errorf("%d streams, %d counters", len(b.Streams), len(b.Fabric.Counters))
	}
	if e := v.Events[4]; len(e.Text) != maxText || e.From != "h99" || e.Number != 100 {
		t.Errorf("%d bytes, %+v", len(e.Text), e)
	}
	// Who is silent for long makes room.
	c.t = c.t.Add(time.Hour)
	take(t, s, board("new", 1, 1))
	if v := s.View(); len(v.Boards) != 1 || len(v.Hosts) != 0 {
		t.Errorf("%d boards, %d hosts", len(v.Boards), len(v.Hosts))
	}
}

func TestTheAgeOfCounters(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, tc := range []struct {
		uptime, sampled int64
		want            time.Duration
	}{{5000, 4700, 300 * time.Millisecond}, {5000, 5000, 0}, {5000, 9000, 0}, {1 << 60, 0, maxLate}} {
		h := BoardHeard{rocelink.BoardStatus{UptimeMS: tc.uptime, SampledMS: tc.sampled}, at}
		if got := at.Sub(h.Sampled()); got != tc.want {
			t.Errorf("%d, %d: %v, want %v", tc.uptime, tc.sampled, got, tc.want)
		}
	}
}

func TestFollow(t *testing.T) {
	b, err := broker.Start(broker.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	nc, err := nats.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s := New(Config{})
	changed, unwatch := s.Watch()
	defer unwatch()
	stop, err := s.Follow(nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, done func(View) bool) {
		t.Helper()
		limit := time.After(10 * time.Second)
		for !done(s.View()) {
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("%s: %+v", what, s.View())
			}
		}
	}
	publish := func(subject string, v any) {
		if err := nc.Publish(subject, data(t, v)); err != nil {
			t.Fatal(err)
		}
	}
	publish(rocelink.BoardStatusSubject("a b"), board("a b", 1, 1))
	publish(rocelink.HostStatusSubject("h"), rocelink.HostStatus{Version: 1, Host: "h"})
	publish(rocelink.WindowSubject("h", "s"), rocelink.Window{Version: 1, Host: "h", Stream: "s"})
	publish(rocelink.BoardEventSubject("a b"), rocelink.Event{Version: 1, From: "a b"})
	publish(rocelink.HostEventSubject("h"), rocelink.Event{Version: 1, From: "h"})
	await("records", func(v View) bool {
		return len(v.Boards) == 1 && len(v.Hosts) == 1 && len(v.Windows) == 1 && len(v.Events) == 2 && v.Connected
	})
	b.Close()
	await("the server's end", func(v View) bool { return !v.Connected })
	stop()
}

func FuzzTake(f *testing.F) {
	f.Add("board.a.status", []byte(`{"version":1,"board":"a","streams":[{"stream":"s","verb":"send"}]}`))
	f.Add("host.a.status", []byte(`{"version":1,"host":"a","device":{"counters":{"x":"1"}}}`))
	f.Add("host.a.stream.s", []byte(`{"version":1,"host":"a","stream":"s"}`))
	f.Add("host.a.event", []byte(`{"version":1,"from":"a","time":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		s := New(Config{})
		err := s.Take(rocelink.Root+"."+subject, data)
		v := s.View()
		if n := len(v.Boards) + len(v.Hosts) + len(v.Windows) + len(v.Events); (err == nil) != (n == 1) {
			t.Errorf("%v, kept %d", err, n)
		}
	})
}
