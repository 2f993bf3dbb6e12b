package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/broker"
)

// refusals makes events of what the NATS server did not permit: of everyone, if
// the server runs inside, else of this agent. Who is refused again and again is
// told of once a minute.
type refusals struct {
	host   string
	log    *slog.Logger
	events chan rocelink.Event

	mu   sync.Mutex
	told map[string]time.Time
}

const (
	refusalKind  = "access-refused"
	refusalAgain = time.Minute
	maxRefusals  = 1024 // remembered
	refusalQueue = 64
)

func newRefusals(host string, log *slog.Logger) *refusals {
	return &refusals{host: host, log: log, events: make(chan rocelink.Event, refusalQueue), told: map[string]time.Time{}}
}

func (r *refusals) server(refusal broker.Refusal) {
	// The port differs each time.
	r.add(refusal.Name+refusal.Key+refusal.Action+refusal.Subject, refusal.String())
}

func (r *refusals) client(err error) {
	r.add(err.Error(), fmt.Sprintf("the NATS server refuses this agent: %v: look at its user with rocectl access list", err))
}

func (r *refusals) add(id, text string) {
	now := time.Now()
	r.mu.Lock()
	if len(r.told) >= maxRefusals {
		clear(r.told)
	}
	again := now.Sub(r.told[id]) < refusalAgain
	if !again {
		r.told[id] = now
	}
	r.mu.Unlock()
	if again {
		return
	}
	select {
	case r.events <- rocelink.Event{Version: rocelink.Version, From: r.host, Time: now.UTC(), Kind: refusalKind, Text: text}:
	default: // a flood; the log has it
	}
}

// tell publishes the events until the returned function is called.
func (r *refusals) tell(nc *nats.Conn) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case e := <-r.events:
				data, err := json.Marshal(e)
				if err == nil {
					err = nc.Publish(rocelink.HostEventSubject(r.host), data)
				}
				if err != nil {
					r.log.Debug("publish a refusal", "err", err)
				}
			}
		}
	}()
	return func() { close(end); <-done }
}

const historyLimit = 5 * time.Second

// keepHistory makes the bucket and the stream of history after each connection,
// where the server has JetStream.
func keepHistory(nc *nats.Conn, connected <-chan struct{}, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-connected:
			}
			limited, end := context.WithTimeout(ctx, historyLimit)
			if err := rocelink.MakeHistory(limited, nc); err != nil && ctx.Err() == nil {
				log.Info("the NATS server keeps no history", "err", err)
			}
			end()
		}
	}()
	return func() { cancel(); <-done }
}

// reloads makes the server inside read its configuration at each signal.
func reloads(signals <-chan os.Signal, b *broker.Broker, log *slog.Logger) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-signals:
				if err := b.Reload(); err != nil {
					log.Error("the NATS server inside goes on with the configuration it had", "err", err)
					continue
				}
				log.Info("the NATS server inside has read its configuration")
			}
		}
	}()
	return func() { close(end); <-done }
}
