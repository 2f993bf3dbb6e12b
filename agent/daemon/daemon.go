// Package daemon is rocelinkd: the device, the NATS server inside, and the
// streams of a configuration, from start to an orderly end.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"rocelink"
	"rocelink/agent/broker"
	"rocelink/agent/notify"
	"rocelink/agent/stream"
	"rocelink/agent/verbs"
)

// ErrLost: a stream lost something, or could not run; the summary says what.
var ErrLost = errors.New("not every frame arrived once, in order, and right")

// Run runs an agent until ctx is cancelled or, with Once, until every stream
// has ended. It then stops the streams' sources and takes what is under way.
func Run(ctx context.Context, c Config) (err error) {
	if c, err = c.complete(); err != nil {
		return err
	}
	dev, err := openDevice(c.Device, c.Log)
	if err != nil {
		return err
	}
	// Changed by the agent, which ends before this.
	defer func() { err = errors.Join(err, dev.Close()) }()
	name := dev.Name()
	refusals := newRefusals(c.Name, c.Log)
	url := c.NATS.URL
	if url == "" {
		b, err := broker.Start(broker.Config{
			Listen: c.NATS.Listen, StoreDir: c.NATS.Store, ConfigFile: c.NATS.Server, Log: c.Log, Refused: refusals.server,
		})
		if err != nil {
			return err
		}
		defer b.Close()
		url = b.URL()
		if c.Reload != nil {
			stop := reloads(c.Reload, b, c.Log)
			defer stop()
		}
	}
	connected := make(chan struct{}, 1)
	nc, err := rocelink.Connect(c.NATS.access(url), rocelink.Client{
		Name: "rocelinkd " + c.Name, Log: c.Log, Retry: true, Inbox: rocelink.HostInbox(c.Name), Refused: refusals.client,
		Connected: func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	defer keepHistory(nc, connected, c.Log)()
	defer refusals.tell(nc)()
	if c.HTTP != "" {
		stop, err := serveWeb(c.HTTP, nc, c.Log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	var service notify.Service
	told := func(err error) {
		if err != nil {
			c.Log.Warn("service manager", "err", err)
		}
	}
	first := dev
	reopen := func() (verbs.Device, error) {
		again, err := openAgain(c.Device, first, c.Log)
		if err == nil {
			dev = again
		}
		return again, err
	}
	agent, err := stream.New(stream.Config{
		Host: c.Name, NATS: nc, Device: first, Reopen: reopen, Log: c.Log, Beat: func() { told(service.Beat()) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	c.Log.Info("ready", "name", c.Name, "device", name, "streams", len(c.Streams))
	told(service.Ready(fmt.Sprintf("%d streams on %s", len(c.Streams), name)))
	defer func() { told(service.Stopping()) }()

	streams := make([]*stream.Stream, 0, len(c.Streams))
	for _, spec := range c.Streams {
		s, err := agent.Open(ctx, spec, taker(spec, c.Log))
		if err != nil {
			return err // checked before: cannot fail
		}
		streams = append(streams, s)
	}
	if !c.Once {
		<-ctx.Done()
		told(service.Stopping())
	}
	results := make([]stream.Result, 0, len(streams))
	for _, s := range streams {
		results = append(results, s.Result())
	}
	if c.Summary != "" {
		if err := writeSummary(c.Summary, results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if r.Problem != "" {
			return fmt.Errorf("stream %s: %s: %w", r.Stream, r.Problem, ErrLost)
		}
	}
	return nil
}

// writeSummary writes the results so that the file is there whole or not at all.
func writeSummary(file string, results []stream.Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".summary-*")
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	_, err = tmp.Write(append(data, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write summary: %w", err), os.Remove(tmp.Name()))
	}
	return nil
}
