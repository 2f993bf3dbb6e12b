package board

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/fabrictest"
)

// bound is how long a test waits for something that must happen.
const bound = 20 * time.Second

// natsServer starts a server. Port -1 chooses one; store is the folder of
// JetStream, "" runs without.
func natsServer(t *testing.T, port int, store string) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.44.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: store != "", StoreDir: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(bound) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func client(t *testing.T, s *server.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// runBoard runs a board until the returned function is called, which gives the
// time and result of ending it.
func runBoard(t *testing.T, f *fabrictest.Fabric, cfg Config) (*Board, func() (time.Duration, error)) {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "board one"
	}
	cfg.Description = description(t)
	cfg.MAC, cfg.Address = boards.NameMAC("b1"), netip.MustParseAddr("10.0.0.1")
	cfg.Open = func(boards.Aperture) (Registers, error) { return registers{f}, nil }
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- b.Run(ctx) }()
	stop := sync.OnceValues(func() (time.Duration, error) {
		start := time.Now()
		cancel()
		select {
		case err := <-result:
			return time.Since(start), err
		case <-time.After(bound):
			return bound, fmt.Errorf("the board does not end")
		}
	})
	t.Cleanup(func() { stop() })
	return b, stop
}

// next waits for a status that fits.
func next(t *testing.T, sub *nats.Subscription, what string, fits func(rocelink.BoardStatus) bool) rocelink.BoardStatus {
	t.Helper()
	var last rocelink.BoardStatus
	for end := time.Now().Add(bound); time.Now().Before(end); {
		m, err := sub.NextMsg(time.Until(end))
		if err != nil {
			break
		}
		if err := rocelink.Decode(m.Data, &last); err != nil {
			t.Fatal(err)
		}
		if fits(last) {
			return last
		}
	}
	t.Fatalf("no status with %s; last %+v", what, last)
	return last
}

func isUp(s rocelink.BoardStatus) bool { return s.Link.Up }

func subscribe(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

func TestService(t *testing.T) {
	s := natsServer(t, -1, t.TempDir())
	nc := client(t, s)
	if err := rocelink.MakeHistory(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	statuses := subscribe(t, nc, rocelink.AnyBoardStatus)
	events := subscribe(t, nc, rocelink.AnyBoardEvent)
	_, stop := runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}})
	first := next(t, statuses, "link up", isUp)
	if first.Board != "board one" {
		t.Errorf("%+v", first)
	}

	// Every board shows up in service discovery.
	m, err := nc.Request("$SRV.INFO."+rocelink.ServiceName, nil, bound)
	if err != nil {
		t.Fatal(err)
	}
	var info micro.Info
	if err := json.Unmarshal(m.Data, &info); err != nil {
		t.Fatal(err)
	}
	if info.Metadata["board"] != "board one" || info.Metadata["model"] != "demo" || info.Metadata["version"] == "" || len(info.Endpoints) != len(endpoints)+len(machineEndpoints) {
		t.Errorf("%+v", info)
	}

	ask := func(endpoint string, data []byte) *nats.Msg {
		t.Helper()
		m, err := nc.Request(rocelink.RequestSubject("board one", endpoint), data, bound)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	data, _ := json.Marshal(openRequest("s"))
	m = ask(rocelink.EndpointOpen, data)
	var r rocelink.OpenReply
	if err := rocelink.Decode(m.Data, &r); err != nil {
		t.Fatalf("%v: %s %v", err, m.Data, m.Header)
	}
	data, _ = json.Marshal(rocelink.SessionRequest{Version: 1, Session: r.Session, Epoch: r.Epoch, Ready: true})
	ask(rocelink.EndpointStart, data)
	next(t, statuses, "a running stream", func(s rocelink.BoardStatus) bool {
		return len(s.Streams) == 1 && s.Streams[0].State == rocelink.StreamRunning
	})

	// Refusals carry code and text in the header, whatever was sent.
	for data, want := range map[string]rocelink.Code{
		"":              rocelink.CodeBadRequest,
		`{"version":9}`: rocelink.CodeBadRequest,
		strings.Repeat("x", rocelink.MaxRecord+1): rocelink.CodeBadRequest,
		`{"version":1,"session":"1","epoch":"1"}`: rocelink.CodeOldEpoch,
	} {
		m := ask(rocelink.EndpointRenew, []byte(data))
		if got := m.Header.Get(micro.ErrorCodeHeader); got != string(want) || m.Header.Get(micro.ErrorHeader) == "" {
			t.Errorf("%.30q: %v, want %s", data, m.Header, want)
		}
	}

	// The last state stands in the bucket, once an agent has made it.
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	kv, err := js.KeyValue(ctx, rocelink.StatusBucket)
	if err != nil {
		t.Fatal(err)
	}
	stored := func() (s rocelink.BoardStatus) {
		e, err := kv.Get(ctx, "board."+rocelink.Token("board one"))
		if err != nil {
			t.Fatal(err)
		}
		if err := rocelink.Decode(e.Value(), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := stored(); s.Board != "board one" {
		t.Errorf("%+v", s)
	}

	// The end: streams closed, said so, quickly.
	took, err := stop()
	if err != nil || took > 2*time.Second {
		t.Errorf("ended after %v: %v", took, err)
	}
	last := next(t, statuses, "the end", func(s rocelink.BoardStatus) bool { return s.Fabric.Problem != "" })
	if len(last.Streams) != 1 || last.Streams[0].State != rocelink.StreamClosed || last.Streams[0].Problem != "boardd stops" {
		t.Errorf("%+v", last.Streams)
	}
	if s := stored(); s.Sequence != last.Sequence {
		t.Errorf("the bucket holds record %d, the last was %d", s.Sequence, last.Sequence)
	}
	kinds := map[string]int{}
	for {
		m, err := events.NextMsg(50 * time.Millisecond)
		if err != nil {
			break
		}
		var e rocelink.Event
		if err := rocelink.Decode(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		if e.From != "board one" || e.Time.IsZero() || e.Text == "" {
			t.Errorf("%+v", e)
		}
		kinds[e.Kind]++
	}
	for _, k := range []string{"fabric-ready", "link-up", "stream-open", "stream-start", "stream-close", "board-stopped"} {
		if kinds[k] != 1 {
			t.Errorf("event %s %d times: %v", k, kinds[k], kinds)
		}
	}
}

// The server is not there at boot, comes, goes, and comes back: the board works
// all the time and tells it the present state, not the past.
func TestServerAbsentAndRestarted(t *testing.T) {
	probe := natsServer(t, -1, "")
	port := probe.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort().Port()
	probe.Shutdown()
	probe.WaitForShutdown()
	url := fmt.Sprintf("nats://127.44.0.1:%d", port)

	b, stop := runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: url}})
	wait(t, "the link without a server", func() bool { return isUp(b.Status()) })

	sequence := rocelink.Count(0)
	for round := range 3 {
		before := b.Status()
		s := natsServer(t, int(port), "")
		nc := client(t, s)
		sub := subscribe(t, nc, rocelink.BoardStatusSubject("board one"))
		got := next(t, sub, "anything", func(rocelink.BoardStatus) bool { return true })
		if got.Sequence < before.Sequence || got.Sequence <= sequence || got.Epoch != before.Epoch {
			t.Errorf("round %d: record %d is older than %d", round, got.Sequence, before.Sequence)
		}
		sequence = got.Sequence
		m, err := nc.Request(rocelink.RequestSubject("board one", rocelink.EndpointStatus), nil, bound)
		if err != nil || m.Header.Get(micro.ErrorCodeHeader) != "" {
			t.Fatalf("round %d: %v", round, err)
		}
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
		if !isUp(b.Status()) {
			t.Error("the server's end took the link down")
		}
	}
	// A dead server does not hold up the end.
	if took, err := stop(); err != nil || took > goodbyeTime+time.Second {
		t.Errorf("ended after %v: %v", took, err)
	}
}

// wait polls for something that has no event.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(bound); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// A configuration that cannot work ends the program instead of trying for ever.
func TestBadNATSConfiguration(t *testing.T) {
	b, err := New(Config{
		Name: "b", Description: description(t), MAC: boards.NameMAC("b"), Address: netip.MustParseAddr("10.0.0.1"),
		Open: func(boards.Aperture) (Registers, error) { return registers{fabrictest.New()}, nil },
		NATS: &rocelink.Access{URL: "nats://127.44.0.1:1", CA: "/nonexistent/ca.pem"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := b.Run(ctx); err == nil || !strings.Contains(err.Error(), "NATS") || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

// A board that nobody listens to does not block: only the last status is kept,
// and events beyond the queue are dropped.
func TestUplinkNeverBlocks(t *testing.T) {
	b, err := New(Config{
		Name: "b", Description: description(t), MAC: boards.NameMAC("b"), Address: netip.MustParseAddr("10.0.0.1"),
		NATS: &rocelink.Access{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 * eventQueue {
		b.emit("test", "x")
		b.tick()
	}
	if b.up.dropped == 0 || len(b.up.events) != eventQueue || len(b.up.latest) != 1 {
		t.Errorf("dropped %d, queued %d, statuses %d", b.up.dropped, len(b.up.events), len(b.up.latest))
	}
	var s rocelink.BoardStatus
	if err := rocelink.Decode(<-b.up.latest, &s); err != nil || uint64(s.Sequence) != b.sequence {
		t.Errorf("record %d of %d, %v", s.Sequence, b.sequence, err)
	}
}

// Two boards of one name are told.
func TestSameName(t *testing.T) {
	s := natsServer(t, -1, "")
	nc := client(t, s)
	statuses := subscribe(t, nc, rocelink.AnyBoardStatus)
	var logs [2]lines
	for i := range logs {
		runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}, Log: slog.New(slog.NewTextHandler(&logs[i], nil))})
		if i == 0 {
			next(t, statuses, "link up", isUp)
			if logs[0].contains("another board") {
				t.Error("a board took itself for another")
			}
		}
	}
	for i := range logs {
		wait(t, "the warning", func() bool { return logs[i].contains("another board") })
	}
}

// lines is a log that can be looked at while it is written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}

func TestHeaderText(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nNats-Fake: 1": "a  Nats-Fake: 1", "": "refused", "\n": "refused", "größer": "größer",
	} {
		if got := headerText(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := headerText(strings.Repeat("ä", 5000)); len(got) > maxErrorText+4 || strings.ContainsRune(got, '�') {
		t.Errorf("%d bytes", len(got))
	}
}
