package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/broker"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// fakeBoard answers as a board does, without one: the frames are delivered by
// the test through the scripted device.
type fakeBoard struct {
	t     *testing.T
	nc    *nats.Conn
	name  string
	epoch rocelink.Count

	mu       sync.Mutex
	sessions rocelink.Count
	streams  map[rocelink.Count]*rocelink.StreamStatus
	opens    []rocelink.OpenRequest
	calls    []string
	refuse   map[string]*rocelink.Error // by endpoint
	reply    func(*rocelink.OpenReply)  // changes what open answers
	started  chan rocelink.Count        // a session was started
}

func newFakeBoard(t *testing.T, nc *nats.Conn) *fakeBoard {
	b := &fakeBoard{t: t, nc: nc, name: "demo", epoch: 7, streams: map[rocelink.Count]*rocelink.StreamStatus{}, refuse: map[string]*rocelink.Error{}, started: make(chan rocelink.Count, 16)}
	if _, err := nc.Subscribe(rocelink.RequestSubject(b.name, "*"), b.request); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *fakeBoard) request(m *nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	endpoint := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	b.calls = append(b.calls, endpoint)
	if e := b.refuse[endpoint]; e != nil {
		b.answerError(m, e)
		return
	}
	if endpoint == rocelink.EndpointOpen {
		var r rocelink.OpenRequest
		if err := rocelink.Decode(m.Data, &r); err != nil {
			b.t.Errorf("open: %v", err)
		}
		b.opens = append(b.opens, r)
		b.sessions++
		b.streams[b.sessions] = &rocelink.StreamStatus{Version: 1, Stream: r.Stream, Session: b.sessions, Verb: r.Verb, State: rocelink.StreamOpen}
		reply := rocelink.OpenReply{Version: 1, Session: b.sessions, Epoch: b.epoch, QPN: 0x22, PSN: 0x33, MTU: r.MTU, Address: "192.0.2.9", MAC: "02:00:00:00:00:09", LeaseMillis: 500}
		if b.reply != nil {
			b.reply(&reply)
		}
		b.answer(m, reply)
		return
	}
	var r rocelink.SessionRequest
	if err := rocelink.Decode(m.Data, &r); err != nil {
		b.t.Errorf("%s: %v", endpoint, err)
	}
	s := b.streams[r.Session]
	switch {
	case r.Epoch != b.epoch:
		b.answerError(m, rocelink.Refuse(rocelink.CodeOldEpoch, "the board restarted"))
		return
	case s == nil:
		b.answerError(m, rocelink.Refuse(rocelink.CodeUnknown, "no such session"))
		return
	}
	switch endpoint {
	case rocelink.EndpointStart:
		if !r.Ready {
			b.t.Error("start without ready")
		}
		s.State = rocelink.StreamRunning
		b.started <- r.Session
	case rocelink.EndpointStop:
		s.State = rocelink.StreamStopped
	case rocelink.EndpointClose:
		s.State = rocelink.StreamClosed
	}
	b.answer(m, *s)
}

func (b *fakeBoard) answer(m *nats.Msg, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		b.t.Error(err)
	}
	_ = m.Respond(data)
}

func (b *fakeBoard) answerError(m *nats.Msg, e *rocelink.Error) {
	_ = m.RespondMsg(&nats.Msg{Header: nats.Header{errorHeader: {string(e.Code)}, textHeader: {e.Text}}})
}

// update changes a stream's status and publishes it, as a board does on change.
func (b *fakeBoard) update(change func(*rocelink.BoardStatus), stream func(*rocelink.StreamStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	status := rocelink.BoardStatus{Version: 1, Board: b.name, Epoch: b.epoch}
	for _, s := range b.streams {
		if stream != nil {
			stream(s)
		}
		status.Streams = append(status.Streams, *s)
	}
	if change != nil {
		change(&status)
		b.epoch = status.Epoch
	}
	data, err := json.Marshal(status)
	if err != nil {
		b.t.Error(err)
	}
	_ = b.nc.Publish(rocelink.BoardStatusSubject(b.name), data)
	_ = b.nc.Flush()
}

func (b *fakeBoard) called(endpoint string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		if c == endpoint {
			n++
		}
	}
	return n
}

// bench is an agent on a scripted device with a fake board.
type bench struct {
	provider *scripted.Provider
	device   verbs.Device
	agent    *Agent
	board    *fakeBoard
	nc       *nats.Conn
}

func newBench(t *testing.T, changes ...func(*bench, *Config)) *bench {
	t.Helper()
	server, err := broker.Start(broker.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	connect := func(name string) *nats.Conn {
		nc, err := rocelink.Connect(rocelink.Access{URL: server.URL()}, rocelink.Client{Name: name, Retry: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	p := scripted.New(scripted.Config{})
	dev, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{provider: p, device: dev, nc: connect("agent"), board: newFakeBoard(t, connect("board"))}
	config := Config{Host: "host", NATS: b.nc, Device: dev}
	for _, change := range changes {
		change(b, &config)
	}
	if b.agent, err = New(config); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) close(t *testing.T) {
	t.Helper()
	if err := b.agent.Close(); err != nil {
		t.Error(err)
	}
	if err := b.device.Close(); err != nil {
		t.Error(err)
	}
	if err := b.provider.CheckUnwound(); err != nil {
		t.Error(err)
	}
}

func discard(int) (receive.Sink, error) { return sink.Discard{}, nil }

func await(t *testing.T, b *fakeBoard) rocelink.Count {
	t.Helper()
	select {
	case s := <-b.started:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("no session was started")
		return 0
	}
}

func result(t *testing.T, s *Stream) Result {
	t.Helper()
	select {
	case <-s.Done():
		return s.Result()
	case <-time.After(10 * time.Second):
		t.Fatal("the stream did not end")
		return Result{}
	}
}

func TestLifeOfAStream(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	windows, err := b.nc.SubscribeSync(rocelink.WindowSubject("host", "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, FrameBytes: SizeOf(8), Sink: SinkDiscard}, discard)
	if err != nil {
		t.Fatal(err)
	}
	session := await(t, b.board)
	if _, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo"}, discard); !errors.Is(err, ErrSpec) {
		t.Errorf("a second stream of the name: %v", err)
	}
	if err := b.agent.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing an agent with a running stream: %v", err)
	}
	qp := b.provider.QueuePairs()[0]
	for i := range 10 {
		for qp.Deliver(scripted.Message{Data: []byte("12345678")}) != nil {
			if i > 10 {
				t.Fatal("no receive posted")
			}
			time.Sleep(time.Millisecond) // the loop re-posts
		}
	}
	b.board.update(nil, func(s *rocelink.StreamStatus) { s.SourceFrames, s.FramesDone, s.BytesDone = 10, 10, 80 })
	cancel()
	r := result(t, s)
	if r.Problem != "" || r.Total.Messages != 10 || r.Sessions != 1 || r.Total.Bytes != 80 {
		t.Errorf("result %+v", r)
	}
	open := b.board.opens[0]
	region := b.provider.Regions()[0]
	if open.QPN != uint32(qp.QPN()) || uint64(open.Region.Address) != region.Address() || open.Region.RKey != region.RKey() || open.Region.RKey == region.LKey() {
		t.Errorf("asked to open %+v", open)
	}
	if peer := qp.Peer(); peer.QPN != 0x22 || peer.PSN != 0x33 || peer.MTU != 4096 {
		t.Errorf("peer %+v", peer)
	}
	m, err := windows.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal("no window was published")
	}
	var w rocelink.Window
	if err := rocelink.Decode(m.Data, &w); err != nil || w.Session != session || w.Board != "demo" {
		t.Errorf("window %+v, %v", w, err)
	}
	// Stop, then close at the board, and only then the queue pair goes.
	if got := strings.Join(b.board.calls, " "); !strings.HasPrefix(got, "open start") || !strings.HasSuffix(got, "close") || b.board.called("stop") != 1 {
		t.Errorf("calls at the board: %s", got)
	}
}

// If step k fails, exactly the earlier ones are undone, in reverse, the error
// names the step, and a second start succeeds.
func TestHalfDoneSetUpIsUndone(t *testing.T) {
	for _, tc := range []struct {
		step  scripted.Step
		want  string
		share string
	}{
		{scripted.StepAllocPD, "protection domain", ""},
		{scripted.StepRegister, "register", ""},
		{scripted.StepCreateCQ, "completion queue", ""},
		{scripted.StepCreateQP, "queue pair", ""},
		{scripted.StepInit, "INIT", ""},
		{scripted.StepPostReceive, "post receives", ""},
		{scripted.StepReadyToReceive, "RTR", ""},
		{scripted.StepReadyToSend, "RTS", ""},
		{scripted.StepAllocPD, "share x: protection domain", "x"},
		{scripted.StepRegister, "share x: register", "x"},
		{scripted.StepCreateCQ, "share x: completion queue", "x"},
		{scripted.StepCreateSRQ, "share x: create shared receive queue", "x"},
		{scripted.StepPostReceive, "share x: receive pool: post receive 1 of 4", "x"},
		{scripted.StepCreateQP, "queue pair", "x"},
		{scripted.StepReadyToReceive, "RTR", "x"},
		{scripted.StepReadyToSend, "RTS", "x"},
	} {
		t.Run(tc.share+tc.want, func(t *testing.T) {
			b := newBench(t)
			defer b.close(t)
			b.provider.Inject(scripted.Fault{Step: tc.step})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			problem := make(chan string, 1)
			sub, err := b.nc.Subscribe(rocelink.HostStatusSubject("host"), func(m *nats.Msg) {
				var h rocelink.HostStatus
				if rocelink.Decode(m.Data, &h) == nil && len(h.Streams) == 1 && h.Streams[0].Problem != "" {
					select {
					case problem <- h.Streams[0].Problem:
					default:
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, FrameBytes: SizeOf(8), Sink: SinkDiscard, Share: tc.share}, discard)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case text := <-problem:
				if !strings.Contains(text, tc.want) {
					t.Errorf("problem %q does not name %q", text, tc.want)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the failure was not published")
			}
			b.board.update(nil, nil) // the board is heard: try again
			await(t, b.board)
			cancel()
			if r := result(t, s); r.Problem != "" || r.Sessions != 1 {
				t.Errorf("after the second start: %+v", r)
			}
			if n := b.board.called(rocelink.EndpointOpen) - b.board.called(rocelink.EndpointClose); n != 0 {
				t.Errorf("%d sessions were left open at the board", n)
			}
		})
	}
}

// A device that can only hold so much asks the boards to keep to it, together.
func TestWindowFitsTheDevice(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	port, err := b.device.Port()
	if err != nil {
		t.Fatal(err)
	}
	port.InFlight = 212992
	b.provider.Devices()[0].SetPort(port)
	for i, spec := range []Spec{{Name: "a", MTU: 4096}, {Name: "b", MTU: 1024}, {Name: "c", Window: 99}, {Name: "d", MTU: 4096}} {
		spec.Board, spec.Slots, spec.Sink = "demo", 4, SinkDiscard
		ctx, cancel := context.WithCancel(context.Background())
		s, err := b.agent.Open(ctx, spec, discard)
		if err != nil {
			t.Fatal(err)
		}
		// Ended in reverse: the provider checks the order of closing.
		defer func() { cancel(); result(t, s) }()
		await(t, b.board)
		if got, want := b.board.opens[i].Window, []int{52, 104, 99, 13}[i]; got != want {
			t.Errorf("stream %s asked for a window of %d, want %d", spec.Name, got, want)
		}
	}
}

func TestBadReplyIsRefused(t *testing.T) {
	for name, change := range map[string]func(*rocelink.OpenReply){
		"address":  func(r *rocelink.OpenReply) { r.Address = "somewhere" },
		"MAC":      func(r *rocelink.OpenReply) { r.MAC = "02:00" },
		"path MTU": func(r *rocelink.OpenReply) { r.MTU = 9000 },
		"QPN":      func(r *rocelink.OpenReply) { r.QPN = 1 << 24 },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			defer b.close(t)
			b.board.reply = change
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s, err := b.agent.Open(ctx, Spec{Board: "demo", Slots: 4, Sink: SinkDiscard}, discard)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return b.board.called(rocelink.EndpointClose) > 0 })
			cancel()
			if r := result(t, s); !strings.Contains(r.Problem, name) {
				t.Errorf("problem %q does not name %q", r.Problem, name)
			}
		})
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 10 s")
		}
	}
}

// What the board refuses for good ends the stream; what may pass is tried
// again.
func TestRefusals(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	b.board.refuse[rocelink.EndpointOpen] = rocelink.Refuse(rocelink.CodeBadRequest, "frame bytes 7: too odd")
	s, err := b.agent.Open(context.Background(), Spec{Name: "bad", Board: "demo", Slots: 4, Sink: SinkDiscard}, discard)
	if err != nil {
		t.Fatal(err)
	}
	if r := result(t, s); !strings.Contains(r.Problem, "frame bytes 7: too odd") {
		t.Errorf("problem %q", r.Problem)
	}
	b.board.mu.Lock()
	b.board.refuse[rocelink.EndpointOpen] = rocelink.Refuse(rocelink.CodeLinkDown, "no light")
	b.board.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err = b.agent.Open(ctx, Spec{Name: "later", Board: "demo", Slots: 4, Sink: SinkDiscard}, discard)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(s.status().Problem, "no light") })
	b.board.mu.Lock()
	delete(b.board.refuse, rocelink.EndpointOpen)
	b.board.mu.Unlock()
	b.board.update(nil, nil)
	await(t, b.board)
	cancel()
	if r := result(t, s); r.Problem != "" {
		t.Errorf("problem %q", r.Problem)
	}
}

// A board that restarted is an interruption, and a session after it starts
// with fresh numbers; a queue pair in error is a fault.
func TestSessionsThatEnd(t *testing.T) {
	for _, tc := range []struct {
		name        string
		verb        rocelink.Verb
		break_      func(*bench)
		problem     string // "" for an interruption
		interrupted string
	}{
		{"board restarted", rocelink.VerbSend, func(b *bench) {
			b.board.update(func(s *rocelink.BoardStatus) { s.Epoch, s.Streams = 8, nil }, nil)
		}, "", "restarted"},
		{"board closed it", rocelink.VerbSend, func(b *bench) {
			b.board.update(nil, func(s *rocelink.StreamStatus) {
				s.State, s.Problem = rocelink.StreamClosed, "fabric restarted"
			})
		}, "", "fabric restarted"},
		{"board's queue pair failed", rocelink.VerbSend, func(b *bench) {
			b.board.update(nil, func(s *rocelink.StreamStatus) {
				s.State, s.Problem = rocelink.StreamError, "retry exceeded"
			})
		}, "retry exceeded", ""},
		{"completion with error", rocelink.VerbSend, func(b *bench) {
			b.provider.QueuePairs()[0].Fail(verbs.LocalLengthError, 5)
		}, "local length error", ""},
		{"flushed, and then the device says why", rocelink.VerbSend, func(b *bench) {
			qp := b.provider.QueuePairs()[0]
			qp.Fail(verbs.WorkRequestFlushed, 0)
			eventually(b.board.t, func() bool { return qp.Outstanding() == 0 })
			b.provider.Devices()[0].Emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: qp.QPN(), Cause: "memory outside the region"})
		}, "queue pair in error: memory outside the region", ""},
		{"the device says why, then it is flushed", rocelink.VerbSend, func(b *bench) {
			qp := b.provider.QueuePairs()[0]
			b.provider.Devices()[0].Emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: qp.QPN(), Cause: "memory outside the region"})
			qp.Fail(verbs.WorkRequestFlushed, 0)
		}, "queue pair in error: memory outside the region", ""},
		{"device says the queue pair is dead", rocelink.VerbRead, func(b *bench) {
			b.provider.Devices()[0].Emit(verbs.Event{Kind: verbs.EventQPFatal, QPN: b.provider.QueuePairs()[0].QPN(), Cause: "remote access error"})
		}, "remote access error", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			defer b.close(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s, err := b.agent.Open(ctx, Spec{Board: "demo", Verb: tc.verb, Slots: 4, FrameBytes: SizeOf(8), Sink: SinkDiscard}, discard)
			if err != nil {
				t.Fatal(err)
			}
			first := await(t, b.board)
			tc.break_(b)
			b.board.update(nil, nil)
			second := await(t, b.board)
			if first == second {
				t.Error("the session was not a new one")
			}
			qps := b.provider.QueuePairs()
			if len(qps) < 2 || qps[0].PostsInError() != 0 {
				t.Errorf("%d queue pairs, %d receives posted in error", len(qps), qps[0].PostsInError())
			}
			cancel()
			r := result(t, s)
			if r.Sessions != 2 {
				t.Errorf("%d sessions", r.Sessions)
			}
			if tc.problem == "" && (r.Problem != "" || len(r.Interruptions) != 1 || !strings.Contains(r.Interruptions[0], tc.interrupted)) {
				t.Errorf("result %+v", r)
			}
			if tc.problem != "" && !strings.Contains(r.Problem, tc.problem) {
				t.Errorf("problem %q does not name %q", r.Problem, tc.problem)
			}
		})
	}
}

// The two sides must agree at the end.
func TestVerdict(t *testing.T) {
	spec, err := (Spec{Board: "b"}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	read := spec
	read.Verb = rocelink.VerbRead
	board := rocelink.StreamStatus{SourceFrames: 5, FramesDone: 5, BytesDone: 50}
	total := rocelink.Totals{Messages: 5, Bytes: 50, Verified: 5}
	if v := verdict(spec, board, total); v != "" {
		t.Errorf("all equal: %s", v)
	}
	for name, change := range map[string]func(*Spec, *rocelink.StreamStatus, *rocelink.Totals){
		"acknowledged":       func(_ *Spec, b *rocelink.StreamStatus, _ *rocelink.Totals) { b.SourceFrames++ },
		"dropped":            func(_ *Spec, b *rocelink.StreamStatus, _ *rocelink.Totals) { b.SourceDropped++ },
		"arrived":            func(_ *Spec, _ *rocelink.StreamStatus, t *rocelink.Totals) { t.Messages-- },
		"bytes":              func(_ *Spec, _ *rocelink.StreamStatus, t *rocelink.Totals) { t.Bytes-- },
		"verified":           func(_ *Spec, _ *rocelink.StreamStatus, t *rocelink.Totals) { t.Verified-- },
		"4 were right":       func(s *Spec, b *rocelink.StreamStatus, _ *rocelink.Totals) { *s = read; b.ReadGood = 4 },
		"5 were right and 1": func(s *Spec, b *rocelink.StreamStatus, _ *rocelink.Totals) { *s = read; b.ReadGood, b.ReadBad = 5, 1 },
	} {
		s, b, tot := spec, board, total
		change(&s, &b, &tot)
		if v := verdict(s, b, tot); !strings.Contains(v, name) {
			t.Errorf("%s: verdict %q", name, v)
		}
	}
}

func TestMovedCounters(t *testing.T) {
	before := map[string]uint64{"same": 5, "up": 1, "restarted": 9, "gone": 3}
	now := map[string]uint64{"same": 5, "up": 1 << 60, "restarted": 2, "new": 4}
	want := map[string]rocelink.Count{"up": 1<<60 - 1, "restarted": 2, "new": 4}
	if got := moved(before, now); !maps.Equal(got, want) {
		t.Errorf("moved by %v, want %v", got, want)
	}
	if got := moved(now, now); got != nil {
		t.Errorf("nothing moved, yet %v", got)
	}
}

func TestRequestNamesTheBoard(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	err := Request(context.Background(), b.nc, "nobody", rocelink.EndpointStatus, nil, nil)
	if !errors.Is(err, ErrNoBoard) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("no board: %v", err)
	}
	if err := Request(context.Background(), b.nc, "demo", rocelink.EndpointRenew, rocelink.SessionRequest{Version: 1, Session: 99, Epoch: 7}, nil); rocelink.CodeOf(err) != rocelink.CodeUnknown {
		t.Errorf("unknown session: %v", err)
	}
}

// Sinks that cannot be made are an error of the set-up.
func TestSinkThatFails(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.agent.Open(ctx, Spec{Board: "demo", Slots: 4}, func(int) (receive.Sink, error) { return nil, fmt.Errorf("disk full") })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(s.status().Problem, "disk full") })
	cancel()
	if r := result(t, s); !strings.Contains(r.Problem, "disk full") {
		t.Errorf("problem %q", r.Problem)
	}
}
