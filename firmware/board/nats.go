package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
)

const (
	connectTimeout = 2 * time.Second
	goodbyeTime    = 2 * time.Second // a dead server delays the exit no longer
	nameWarning    = time.Minute
	refusalWarning = time.Minute
	eventQueue     = 64
	maxErrorText   = 1024
)

// uplink is the connection to the server. The board hands it records and never
// waits: only the last status counts, and events beyond the queue are dropped
// and counted.
type uplink struct {
	board *Board
	log   *slog.Logger

	events chan rocelink.Event
	latest chan []byte // the last status that is not published yet
	// reported holds something once a status was handed to the server.
	reported chan struct{}

	mu      sync.Mutex
	nc      *nats.Conn // nil before the first connection
	dropped uint64

	toldRefusal time.Time // of the client's callbacks

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (u *uplink) init(b *Board) {
	u.board, u.log = b, b.log
	u.events = make(chan rocelink.Event, eventQueue)
	u.latest = make(chan []byte, 1)
	u.reported = make(chan struct{}, 1)
}

// status takes the board's last status. Callers are serialised by the board.
func (u *uplink) status(s rocelink.BoardStatus) {
	if u.board.cfg.NATS == nil {
		return
	}
	data, err := json.Marshal(s)
	if err != nil {
		u.log.Error("encode the status", "err", err)
		return
	}
	replace(u.latest, data)
}

// replace puts v into a channel of one, in place of what is there.
func replace(c chan []byte, v []byte) {
	for {
		select {
		case c <- v:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

// event takes an event.
func (u *uplink) event(e rocelink.Event) {
	if u.board.cfg.NATS == nil {
		return
	}
	select {
	case u.events <- e:
	default:
		u.mu.Lock()
		u.dropped++
		u.mu.Unlock()
	}
}

// start connects in the background. An error on the channel means that the
// configuration cannot work; a server that is not there is no error.
func (u *uplink) start() <-chan error {
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	if u.board.cfg.NATS == nil {
		return failed
	}
	u.done.Go(func() {
		u.awaitClock(ctx)
		if ctx.Err() != nil {
			return
		}
		nc, svc, err := u.connect()
		if err != nil {
			failed <- err
			return
		}
		u.mu.Lock()
		u.nc = nc
		u.mu.Unlock()
		last := rocelink.KeepLastState(nc, rocelink.BoardKey(u.board.cfg.Name), u.log)
		u.done.Go(func() { u.keepSystem(ctx, nc) })
		u.done.Go(func() { u.keepClock(ctx, nc) })
		u.serve(ctx, nc, last)
		u.goodbye(nc, svc, last)
	})
	return failed
}

// cut reports whether hosts cannot reach the board: there is a server, and no
// connection to it.
func (u *uplink) cut() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.nc != nil && !u.nc.IsConnected()
}

// stop publishes what is queued and ends, within goodbyeTime even if the server
// is dead.
func (u *uplink) stop() {
	if u.cancel == nil {
		return
	}
	u.cancel()
	ended := make(chan struct{})
	go func() { u.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(goodbyeTime):
		u.log.Warn("the NATS server did not take the last messages", "waited", goodbyeTime)
	}
}

func (u *uplink) connect() (*nats.Conn, micro.Service, error) {
	nc, err := rocelink.Connect(*u.board.cfg.NATS, rocelink.Client{
		Name: "boardd " + u.board.cfg.Name, Log: u.log,
		// The board outlives any absence of the server.
		Retry: true,
		// The server learns the present state at once.
		Connected: func() { u.board.refresh.Store(true) },
		Inbox:     rocelink.BoardInbox(u.board.cfg.Name),
		Refused:   u.refused,
		Options: []nats.Option{
			nats.FlusherTimeout(connectTimeout),
			// What comes back on the board's own subject is another board.
			nats.NoEcho(),
		},
	})
	if err != nil {
		return nil, nil, err
	}
	svc, err := u.register(nc)
	if err == nil {
		err = u.watchName(nc)
	}
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("NATS service: %w", err)
	}
	return nc, svc, nil
}

// refused tells, once a minute, that the server does not permit what a board
// needs. The client calls it from one goroutine.
func (u *uplink) refused(err error) {
	if now := time.Now(); now.Sub(u.toldRefusal) >= refusalWarning {
		u.toldRefusal = now
		u.event(u.own("access-refused", "the NATS server refuses this board: %v: look at its user with rocectl access list", err))
	}
}

// own is an event of the uplink itself.
func (u *uplink) own(kind, format string, args ...any) rocelink.Event {
	return rocelink.Event{
		Version: rocelink.Version, From: u.board.cfg.Name, Time: time.Now().UTC(), Kind: kind, Text: fmt.Sprintf(format, args...),
	}
}

// register adds the micro service.
func (u *uplink) register(nc *nats.Conn) (micro.Service, error) {
	b := u.board
	svc, err := micro.AddService(nc, micro.Config{
		Name:        rocelink.ServiceName,
		Version:     fmt.Sprintf("%d.0.0", rocelink.Version),
		Description: "RoCE v2 streams of an FPGA board",
		Metadata: map[string]string{
			"board": b.cfg.Name, "model": b.cfg.Description.Model, "version": buildVersion(),
			"address": b.cfg.Address.String(), "mac": b.cfg.MAC.String(),
		},
		// Subjects carry the board's name: no other instance may answer.
		QueueGroupDisabled: true,
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			u.log.Warn("NATS service", "subject", err.Subject, "err", err.Description)
		},
	})
	if err != nil {
		return nil, err
	}
	names := slices.Concat(slices.Collect(maps.Keys(endpoints)), slices.Collect(maps.Keys(machineEndpoints)))
	for _, name := range names {
		err := svc.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) { u.answer(name, r) }),
			micro.WithEndpointSubject(rocelink.RequestSubject(b.cfg.Name, name)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("endpoint %s: %w", name, err), svc.Stop())
		}
	}
	return svc, nil
}

// watchName tells when another board has this one's name: both would answer the
// same requests.
func (u *uplink) watchName(nc *nats.Conn) error {
	var told time.Time // the callback runs in one goroutine
	_, err := nc.Subscribe(rocelink.BoardStatusSubject(u.board.cfg.Name), func(m *nats.Msg) {
		var s rocelink.BoardStatus
		if time.Since(told) < nameWarning || rocelink.Decode(m.Data, &s) != nil {
			return
		}
		told = time.Now()
		u.log.Error("another board has this one's name: give one of them another --name",
			"name", s.Board, "its model", s.Model, "its uptime", time.Duration(s.UptimeMS)*time.Millisecond)
		u.event(u.own("name-taken", "another board, model %q, has the name %q: give one of them another", s.Model, s.Board))
	})
	return err
}

func (u *uplink) answer(endpoint string, r micro.Request) {
	var out []byte
	var err error
	if machineEndpoints[endpoint] != nil {
		out, err = u.machine(endpoint, r)
	} else {
		out, err = u.board.Handle(endpoint, r.Data())
	}
	if err == nil {
		err = r.Respond(out)
	} else {
		code := rocelink.CodeOf(err)
		var e *rocelink.Error
		text := err.Error()
		if errors.As(err, &e) {
			text = e.Text
		}
		err = r.Error(string(code), headerText(text), nil)
	}
	if err != nil {
		u.log.Warn("answer", "endpoint", endpoint, "err", err)
	}
}

// headerText makes a text that a header can carry: one line of bounded length.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "") + " ..."
	}
	if s = strings.TrimSpace(s); s == "" {
		return "refused"
	}
	return s
}

// serve publishes until ctx ends.
func (u *uplink) serve(ctx context.Context, nc *nats.Conn, last *rocelink.LastState) {
	for {
		select {
		case <-ctx.Done():
			return
		case data := <-u.latest:
			u.send(nc, rocelink.BoardStatusSubject(u.board.cfg.Name), data)
			u.report(nc)
			last.Put(data)
		case e := <-u.events:
			u.sendEvent(nc, e)
		}
	}
}

func (u *uplink) sendEvent(nc *nats.Conn, e rocelink.Event) {
	data, err := json.Marshal(e)
	if err != nil {
		u.log.Error("encode an event", "err", err)
		return
	}
	u.send(nc, rocelink.BoardEventSubject(u.board.cfg.Name), data)
}

// send publishes if there is a server. There is none to tell if it fails.
func (u *uplink) send(nc *nats.Conn, subject string, data []byte) {
	if !nc.IsConnected() {
		return
	}
	if err := nc.Publish(subject, data); err != nil {
		u.log.Debug("publish", "subject", subject, "err", err)
	}
}

// goodbye sends what is queued, and the last status to the bucket too.
func (u *uplink) goodbye(nc *nats.Conn, svc micro.Service, last *rocelink.LastState) {
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime-200*time.Millisecond)
	defer cancel()
	defer last.Close(ctx)
	if !nc.IsConnected() {
		return
	}
	for {
		select {
		case e := <-u.events:
			u.sendEvent(nc, e)
			continue
		case data := <-u.latest:
			u.send(nc, rocelink.BoardStatusSubject(u.board.cfg.Name), data)
			last.Put(data)
			continue
		default:
		}
		break
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		u.log.Warn("flush the last messages", "err", err)
		return
	}
	if err := svc.Stop(); err != nil {
		u.log.Debug("stop the service", "err", err)
	}
}

// buildVersion is what the program was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			version = s.Value[:12]
		}
	}
	if version == "" {
		return "unknown"
	}
	return version
}
