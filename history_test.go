package rocelink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func publishEvent(t *testing.T, nc *nats.Conn, n int) {
	t.Helper()
	data, err := json.Marshal(Event{Version: Version, From: "b", Time: time.Now(), Kind: "test", Text: fmt.Sprint(n)})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish(BoardEventSubject("b"), data); err != nil {
		t.Fatal(err)
	}
}

func TestHistory(t *testing.T) {
	nc := natsServer(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// A bucket of an older release is brought to the present settings.
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: StatusBucket, History: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := MakeHistory(ctx, nc); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := js.KeyValue(ctx, StatusBucket)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := kv.Status(ctx); err != nil || s.TTL() != StatusTTL {
		t.Errorf("the bucket's entries live %v, want %v (%v)", s.TTL(), StatusTTL, err)
	}

	began := time.Now()
	none := func(Event) error { t.Error("an event from nowhere"); return nil }
	if err := Events(ctx, nc, began.Add(-time.Hour), false, none); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		publishEvent(t, nc, i)
	}
	// What is no event is kept by the server and skipped by readers.
	// Its acknowledgement says that it and what came before it are stored.
	if _, err := js.Publish(ctx, BoardEventSubject("b"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	var texts []string
	collect := func(e Event) error { texts = append(texts, e.Text); return nil }
	if err := Events(ctx, nc, began.Add(-time.Hour), false, collect); err != nil || fmt.Sprint(texts) != "[0 1 2]" {
		t.Errorf("%v, %v", texts, err)
	}
	if err := Events(ctx, nc, time.Now().Add(time.Hour), false, none); err != nil {
		t.Error(err)
	}
	// Following sees what comes, and what take says ends it.
	stop := errors.New("enough")
	texts = nil
	first := true
	err = Events(ctx, nc, began.Add(-time.Hour), true, func(e Event) error {
		if first {
			first = false
			publishEvent(t, nc, 3)
		}
		if collect(e); e.Text == "3" {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || fmt.Sprint(texts) != "[0 1 2 3]" {
		t.Errorf("%v, %v", texts, err)
	}
}

// A follower sees events from before and after a restart of the server, once.
func TestEventsOutliveTheServer(t *testing.T) {
	store := t.TempDir()
	start := func(port int) *server.Server {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: store})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("the server is not ready")
		}
		return s
	}
	s := start(-1)
	url := s.ClientURL()
	connected := make(chan struct{}, 8)
	nc, err := Connect(Access{URL: url}, Client{Name: "test", Retry: true, Connected: func() { connected <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := MakeHistory(ctx, nc); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- Events(ctx, nc, time.Now().Add(-time.Hour), true, func(e Event) error {
			seen <- e.Text
			if e.Text == "1" {
				return context.Canceled
			}
			return nil
		})
	}()
	publishEvent(t, nc, 0)
	if got := <-seen; got != "0" {
		t.Fatalf("event %s", got)
	}
	port := s.Addr().String()
	s.Shutdown()
	s.WaitForShutdown()
	var n int
	fmt.Sscanf(port[len("127.0.0.1:"):], "%d", &n)
	s = start(n)
	defer s.Shutdown()
	for range 2 { // at first, and again
		select {
		case <-connected:
		case <-ctx.Done():
			t.Fatal("not connected again")
		}
	}
	publishEvent(t, nc, 1)
	select {
	case got := <-seen:
		if got != "1" {
			t.Errorf("event %s after the restart", got)
		}
	case <-ctx.Done():
		t.Fatal("no event after the restart")
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestEventsWithoutJetStream(t *testing.T) {
	nc := natsServer(t, server.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := MakeHistory(ctx, nc); err == nil {
		t.Error("history without JetStream")
	}
	if err := Events(ctx, nc, time.Now(), false, nil); err == nil {
		t.Error("events without JetStream")
	}
}
