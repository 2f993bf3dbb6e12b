package rocelink

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StatusTTL is how long a last state stays in StatusBucket. Everyone publishes
// once a second: who is not there any more has been silent for so long.
const StatusTTL = 15 * time.Second

// EventAge is how long Events stay in EventStream.
const EventAge = 30 * 24 * time.Hour

const (
	statusBytes = 64 << 20
	eventBytes  = 256 << 20
	// An event is told again when a connection broke before it was confirmed.
	eventWindow = 2 * time.Minute
)

// MakeHistory makes StatusBucket and EventStream, or brings them to the present
// settings, where the server has JetStream. Agents call it; boards are not
// permitted to.
func MakeHistory(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("make history: %w", err)
	}
	_, err = js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      StatusBucket,
		Description: "last state of each rocelink board and host",
		History:     1,
		TTL:         StatusTTL,
		MaxBytes:    statusBytes,
	})
	if err != nil {
		return fmt.Errorf("make the bucket %s: %w", StatusBucket, err)
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:        EventStream,
		Description: "events of rocelink boards and hosts",
		Subjects:    []string{AnyBoardEvent, AnyHostEvent},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		MaxAge:      EventAge,
		MaxBytes:    eventBytes,
		MaxMsgSize:  MaxRecord,
		Duplicates:  eventWindow,
		AllowDirect: true,
	})
	if err != nil {
		return fmt.Errorf("make the stream %s: %w", EventStream, err)
	}
	return nil
}

// Events calls take with each Event since a time, oldest first, and, if follow,
// with those to come until ctx ends. It outlives restarts of the server. An
// event that cannot be read is skipped. A server without history is an error.
func Events(ctx context.Context, nc *nats.Conn, since time.Time, follow bool, take func(Event) error) error {
	fail := func(err error) error { return fmt.Errorf("past events: %w", err) }
	js, err := jetstream.New(nc)
	if err != nil {
		return fail(err)
	}
	stream, err := js.Stream(ctx, EventStream)
	if err != nil {
		return fail(err)
	}
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since}
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err != nil {
		return fail(err)
	}
	// What is there now; a consumer that was made knows.
	left := consumer.CachedInfo().NumPending
	if !follow && left == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fail(err)
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			if follow {
				return nil
			}
			return fail(ctx.Err())
		}
		if err != nil {
			return fail(err)
		}
		var e Event
		if err := Decode(m.Data(), &e); err == nil {
			if err := take(e); err != nil {
				return err
			}
		}
		if left--; !follow && left == 0 {
			return nil
		}
	}
}
