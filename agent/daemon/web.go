package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/nats-io/nats.go"

	"rocelink/agent/heard"
	"rocelink/agent/metrics"
	"rocelink/agent/page"
)

// serveWeb serves the live page and the metrics at an address until stop is
// called. It reads what everyone publishes, over NATS like any other reader,
// and touches no stream.
func serveWeb(address string, nc *nats.Conn, log *slog.Logger) (stop func() error, err error) {
	l, err := page.Listen(address)
	if err != nil {
		return nil, err
	}
	store := heard.New(heard.Config{})
	unfollow, err := store.Follow(nc, log)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p := page.New(store, page.Config{})
	m := metrics.New(store, metrics.Config{Process: true})
	mux := http.NewServeMux()
	mux.Handle("/", p)
	mux.Handle(metrics.Path, m)
	mux.Handle(metrics.Path+"/", m)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- page.Serve(ctx, l, mux) }()
	log.Info("page", "url", "http://"+l.Addr().String()+"/", "metrics", metrics.Path)
	return func() error {
		cancel()
		err := <-served
		p.Close()
		unfollow()
		return err
	}, nil
}
