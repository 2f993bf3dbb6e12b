package rocelink

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LastState keeps the newest status of one board or host in StatusBucket, where
// the server has JetStream. Without it, nothing else is the worse for it.
type LastState struct {
	nc     *nats.Conn
	key    string
	log    *slog.Logger
	newest chan []byte // at most one, not stored yet
	cancel context.CancelFunc
	done   sync.WaitGroup
	kv     jetstream.KeyValue // nil while there is no bucket
}

const (
	bucketLimit = 2 * time.Second
	bucketRetry = 5 * time.Second // where there is no bucket
)

// BoardKey is the key of a board in StatusBucket, HostKey that of a host.
func BoardKey(board string) string { return "board." + Token(board) }

// HostKey is the key of a host in StatusBucket.
func HostKey(host string) string { return "host." + Token(host) }

// KeepLastState begins to keep records under key, in the background.
func KeepLastState(nc *nats.Conn, key string, log *slog.Logger) *LastState {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &LastState{nc: nc, key: key, log: log, newest: make(chan []byte, 1), cancel: cancel}
	l.done.Go(func() { l.run(ctx) })
	return l
}

// Put takes a record in place of one that is not stored yet. It never blocks.
// One goroutine calls it at a time.
func (l *LastState) Put(record []byte) {
	select {
	case <-l.newest:
	default:
	}
	select {
	case l.newest <- record:
	default:
	}
}

// Close stores what is left, as long as ctx lasts.
func (l *LastState) Close(ctx context.Context) {
	l.cancel()
	l.done.Wait()
	select {
	case record := <-l.newest:
		if l.nc.IsConnected() {
			if err := l.store(ctx, record); err != nil {
				l.log.Debug("store the last status", "err", err)
			}
		}
	default:
	}
}

func (l *LastState) run(ctx context.Context) {
	var retryAt time.Time
	for {
		var record []byte
		select {
		case <-ctx.Done():
			return
		case record = <-l.newest:
		}
		if !l.nc.IsConnected() || time.Now().Before(retryAt) {
			continue
		}
		err := l.store(ctx, record)
		switch {
		case err == nil:
			retryAt = time.Time{}
		case ctx.Err() != nil:
			l.giveBack(record)
			return
		default:
			if retryAt.IsZero() {
				l.log.Info("the NATS server keeps no last state", "err", err)
			}
			l.kv, retryAt = nil, time.Now().Add(bucketRetry)
		}
	}
}

// giveBack leaves a record for Close, unless there is a newer one.
func (l *LastState) giveBack(record []byte) {
	select {
	case l.newest <- record:
	default:
	}
}

func (l *LastState) store(ctx context.Context, record []byte) error {
	ctx, cancel := context.WithTimeout(ctx, bucketLimit)
	defer cancel()
	if l.kv == nil {
		kv, err := openBucket(ctx, l.nc)
		if err != nil {
			return err
		}
		l.kv = kv
	}
	_, err := l.kv.Put(ctx, l.key, record)
	return err
}

// openBucket uses the bucket as it is; MakeHistory makes it.
func openBucket(ctx context.Context, nc *nats.Conn) (jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return js.KeyValue(ctx, StatusBucket)
}
