// Package stream opens streams from boards on an RDMA device and keeps them:
// it is the host's half of a stream's life.
//
// An Agent owns one device. For each stream it allocates the region, creates
// the queue pair, posts the receives, asks the board to open, brings the queue
// pair up, starts the receive loop and asks the board to start; then it renews
// the lease. When the board restarts, or a queue pair fails, it sets up again
// with fresh numbers. When the device is removed, it closes everything of it, in
// the same order as at an end, and sets up again when the device is back; what
// consumers still hold of a stream's memory stays readable. When it is told to
// end, it stops the source, waits for what is under way, compares both sides'
// counts and closes everything in reverse order.
package stream

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// Config shapes an Agent. Host, NATS and Device are needed.
type Config struct {
	// Host is the agent's name on NATS.
	Host   string
	NATS   *nats.Conn
	Device verbs.Device
	// Reopen opens the device again after it was removed and the agent has closed
	// it; it is asked again until it can. Nil: a removed device stays away, and
	// open.
	Reopen func() (verbs.Device, error)
	Log    *slog.Logger // nil: silent
	// Beat, if not nil, is called each time round of the agent's own loop, at
	// least once a second: a sign of life for a watchdog.
	Beat func()
}

// Agent opens streams on one device and publishes the host's status.
type Agent struct {
	host    string
	epoch   rocelink.Count
	started time.Time
	nc      *nats.Conn
	place   place
	reopen  func() (verbs.Device, error)
	log     *slog.Logger
	beat    func()
	boards  *nats.Subscription
	changed chan struct{}
	ended   chan struct{}
	serving sync.WaitGroup
	last    *rocelink.LastState

	noHugePages sync.Once // told once

	mu       sync.Mutex
	sequence rocelink.Count
	streams  map[string]*Stream
	shares   map[string]*share
	order    []string
	problem  string // of the device
}

// New starts an agent: it listens for boards and for events of the device, and
// publishes a status each second until Close.
func New(c Config) (*Agent, error) {
	if err := rocelink.CheckName("host", c.Host); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{
		host: c.Host, epoch: rocelink.Count(random64()), started: time.Now(), nc: c.NATS, reopen: c.Reopen, log: c.Log, beat: c.Beat,
		changed: make(chan struct{}, 1), ended: make(chan struct{}), streams: map[string]*Stream{}, shares: map[string]*share{},
	}
	a.place.dev = c.Device
	var err error
	if a.boards, err = c.NATS.Subscribe(rocelink.AnyBoardStatus, a.boardStatus); err != nil {
		return nil, fmt.Errorf("start agent: subscribe to board status: %w", err)
	}
	a.last = rocelink.KeepLastState(c.NATS, rocelink.HostKey(c.Host), c.Log)
	a.serving.Go(a.publish)
	a.serving.Go(a.follow)
	return a, nil
}

// Close ends the agent; its streams must have ended. The device stays open; one
// that was opened by Reopen is the last that it returned.
func (a *Agent) Close() error {
	a.mu.Lock()
	for name, s := range a.streams {
		if !s.done() {
			a.mu.Unlock()
			return fmt.Errorf("close agent: stream %s is still running: %w", name, verbs.ErrBusy)
		}
	}
	a.mu.Unlock()
	close(a.ended)
	_ = a.boards.Unsubscribe()
	a.serving.Wait()
	a.publishStatus()
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeLimit)
	defer cancel()
	if a.nc.IsConnected() {
		_ = a.nc.FlushWithContext(ctx)
	}
	a.last.Close(ctx)
	return nil
}

// boardStatus wakes the streams of a board that was heard.
func (a *Agent) boardStatus(m *nats.Msg) {
	var b rocelink.BoardStatus
	if err := rocelink.Decode(m.Data, &b); err != nil {
		a.log.Debug("board status", "subject", m.Subject, "err", err)
		return
	}
	if m.Subject != rocelink.BoardStatusSubject(b.Board) {
		return // a record of another's name says nothing of either
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams {
		if s.spec.Board == b.Board {
			s.heard(&b)
		}
	}
}

// deviceEvents takes the events of a device until it is removed, or the agent
// ends.
func (a *Agent) deviceEvents(dev verbs.Device) (cause string, removed bool) {
	events := dev.Events()
	for {
		select {
		case <-a.ended:
			return "", false
		case e, ok := <-events:
			if !ok {
				return "", false
			}
			level := slog.LevelWarn
			if e.Kind == verbs.EventLastWQE {
				level = slog.LevelDebug // at the end of each session of a share
			}
			a.log.Log(context.Background(), level, "device event", "event", e.Kind.String(), "qpn", e.QPN, "cause", e.Cause)
			a.mu.Lock()
			switch e.Kind {
			case verbs.EventPortDown:
				a.problem = e.Kind.String() + ": " + e.Cause
			case verbs.EventPortActive:
				a.problem = ""
			}
			a.mu.Unlock()
			if e.Kind == verbs.EventDeviceRemoved {
				return e.Cause, true
			}
			a.failStreams(e)
		}
	}
}

// failStreams tells the streams of an event of the device.
func (a *Agent) failStreams(e verbs.Event) {
	a.mu.Lock()
	for _, s := range a.streams {
		s.deviceEvent(e)
	}
	a.mu.Unlock()
	a.change()
}

// count is how many streams share the device.
func (a *Agent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(len(a.streams), 1)
}

// change asks for a status soon.
func (a *Agent) change() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

const (
	statusInterval = time.Second
	goodbyeLimit   = 2 * time.Second // a dead server delays the end no longer
)

func (a *Agent) publish() {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-a.ended:
			return
		case <-tick.C:
		case <-a.changed:
		}
		a.publishStatus()
		if a.beat != nil {
			a.beat()
		}
	}
}

func (a *Agent) publishStatus() {
	if data := a.send(rocelink.HostStatusSubject(a.host), a.Status()); data != nil {
		a.last.Put(data)
	}
}

// send publishes a record; without a server it is dropped, since the next one
// says more. It returns what it sent.
func (a *Agent) send(subject string, record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		a.log.Error("encode record", "subject", subject, "err", err)
		return nil
	}
	if err := a.nc.Publish(subject, data); err != nil {
		a.log.Debug("publish", "subject", subject, "err", err)
	}
	return data
}

func (a *Agent) event(kind, stream string, session rocelink.Count, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	a.log.Info(kind, "stream", stream, "text", text)
	a.send(rocelink.HostEventSubject(a.host), rocelink.Event{Version: rocelink.Version, From: a.host, Time: time.Now(), Kind: kind, Stream: stream, Session: session, Text: text})
	a.change()
}

// Status is the host's status now.
func (a *Agent) Status() rocelink.HostStatus {
	device := a.deviceStatus()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sequence++
	if device.Problem == "" {
		device.Problem = a.problem
	}
	h := rocelink.HostStatus{
		Version: rocelink.Version, Host: a.host, Epoch: a.epoch, Sequence: a.sequence, Time: time.Now(),
		UptimeMS: time.Since(a.started).Milliseconds(), Device: device, Streams: make([]rocelink.HostStream, 0, len(a.order)),
	}
	for _, name := range a.order {
		h.Streams = append(h.Streams, a.streams[name].status())
	}
	return h
}

// Open begins a stream; it lasts until ctx is cancelled or the source ends, and
// then Result tells how it went. A spec that can never work is refused here,
// by the name of the setting.
func (a *Agent) Open(ctx context.Context, spec Spec, take Taker) (*Stream, error) {
	spec, err := spec.Complete()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.streams[spec.Name]
	if old != nil && !old.done() {
		return nil, bad("name %s: this agent already has a stream of that name", spec.Name)
	}
	share, err := a.share(spec)
	if err != nil {
		return nil, err
	}
	if old == nil {
		a.order = append(a.order, spec.Name)
	}
	s := newStream(a, spec, share, take)
	a.streams[spec.Name] = s
	go s.run(ctx)
	return s, nil
}

func random64() (v uint64) {
	var b [8]byte
	for v == 0 {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		v = binary.LittleEndian.Uint64(b[:])
	}
	return v
}

func randomPSN() roce.PSN { return roce.PSN(random64() & 0xFFFFFF) }
