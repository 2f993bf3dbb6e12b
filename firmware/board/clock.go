package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
)

const (
	// offerTrip is the longest round trip that says what time it is: the error
	// is half of it.
	offerTrip  = time.Second
	offerRetry = 15 * time.Second
)

// keepClock offers the server's time to process 1 for as long as the clock is
// not set: where no NTP server answers, the NATS server's clock is the best there
// is. The server tells it with the state of its status bucket, which a board may
// ask for; one without JetStream does not.
func (u *uplink) keepClock(ctx context.Context, nc *nats.Conn) {
	y := &u.board.cfg.System
	if y.Machine == nil || y.ClockSet == nil {
		return
	}
	for !y.ClockSet() {
		t, err := serverTime(ctx, nc)
		if err == nil {
			err = y.Machine.OfferTime(ctx, t)
		}
		if err != nil && ctx.Err() == nil {
			u.log.Debug("time of the NATS server", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(offerRetry):
		}
	}
}

// serverTime asks the server what time it is.
func serverTime(ctx context.Context, nc *nats.Conn) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, offerTrip)
	defer cancel()
	begin := time.Now()
	m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO.KV_"+rocelink.StatusBucket, nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the NATS server: %w", err)
	}
	var r struct {
		Time time.Time `json:"ts"`
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return time.Time{}, fmt.Errorf("answer of the NATS server: %w", err)
	}
	if r.Time.IsZero() {
		return time.Time{}, errors.New("the NATS server does not tell its time: it keeps no status bucket")
	}
	return r.Time.Add(time.Since(begin) / 2), nil
}
