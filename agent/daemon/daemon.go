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
	"strings"

	"rocelink"
	"rocelink/agent/broker"
	"rocelink/agent/stream"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/soft"
)

// ErrLost: a stream lost something, or could not run; the summary says what.
var ErrLost = errors.New("not every frame arrived once, in order, and right")

// providers are the ways to a device, by the name before the colon.
var providers = map[string]verbs.Provider{"soft": soft.New()}

// Run runs an agent until ctx is cancelled or, with Once, until every stream
// has ended. It then stops the streams' sources and takes what is under way.
func Run(ctx context.Context, c Config) (err error) {
	if c, err = c.complete(); err != nil {
		return err
	}
	dev, err := openDevice(c.Device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	url := c.NATS.URL
	if url == "" {
		b, err := broker.Start(broker.Config{Listen: c.NATS.Listen, StoreDir: c.NATS.Store, ConfigFile: c.NATS.Server, Log: c.Log})
		if err != nil {
			return err
		}
		defer b.Close()
		url = b.URL()
	}
	nc, err := rocelink.Connect(c.NATS.access(url), rocelink.Client{Name: "rocelinkd " + c.Name, Log: c.Log, Retry: true})
	if err != nil {
		return err
	}
	defer nc.Close()
	agent, err := stream.New(stream.Config{Host: c.Name, NATS: nc, Device: dev, Log: c.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	c.Log.Info("ready", "name", c.Name, "device", dev.Name(), "streams", len(c.Streams))

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

func openDevice(name string) (verbs.Device, error) {
	if name == "" {
		name = "soft:"
	}
	provider, device, found := strings.Cut(name, ":")
	p := providers[provider]
	if !found || p == nil {
		return nil, fmt.Errorf("%w: device %q: write soft:ADDRESS, the software provider on that local address", ErrConfig, name)
	}
	dev, err := p.Open(device)
	if err != nil {
		return nil, fmt.Errorf("open device %s: %w", name, err)
	}
	return dev, nil
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
