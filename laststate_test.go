package rocelink

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func natsServer(t *testing.T, o server.Options) *nats.Conn {
	t.Helper()
	o.Host, o.Port, o.NoSigs = "127.0.0.1", -1, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestLastStateStandsInTheBucket(t *testing.T) {
	nc := natsServer(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := MakeHistory(ctx, nc); err != nil {
		t.Fatal(err)
	}
	board, host := KeepLastState(nc, BoardKey("a.b"), nil), KeepLastState(nc, HostKey("a.b"), nil)
	for i := range 100 {
		board.Put(fmt.Appendf(nil, "board %d", i))
		host.Put(fmt.Appendf(nil, "host %d", i))
	}
	board.Close(ctx)
	host.Close(ctx)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, StatusBucket)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"board.a_2Eb": "board 99", "host.a_2Eb": "host 99"} {
		if e, err := kv.Get(ctx, key); err != nil || string(e.Value()) != want {
			t.Errorf("%s: %v, %v, want the last record", key, e, err)
		}
	}
}

func TestLastStateWithoutJetStream(t *testing.T) {
	nc := natsServer(t, server.Options{})
	l := KeepLastState(nc, BoardKey("b"), nil)
	for range 1000 {
		l.Put([]byte("x")) // must not block
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	l.Close(ctx)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("closing took %v", d)
	}
}
