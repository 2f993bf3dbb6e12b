package heard

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"rocelink"
)

// Subjects are those of the records a Store takes.
var Subjects = []string{rocelink.AnyBoardStatus, rocelink.AnyBoardEvent, rocelink.AnyHostStatus, rocelink.AnyHostEvent, rocelink.AnyWindow}

const (
	pendingMessages = 16 << 10
	pendingBytes    = 32 << 20
)

// Follow takes what is published into the store until stop is called. What
// comes faster than it is taken is dropped by the client: the next record says
// more. Log hears of the first record refused of each subject; nil is silent.
func (s *Store) Follow(nc *nats.Conn, log *slog.Logger) (stop func(), err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var subs []*nats.Subscription
	undo := func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe()
		}
	}
	for _, subject := range Subjects {
		complained := map[string]bool{} // one goroutine a subscription
		sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if err := s.Take(m.Subject, m.Data); err != nil && !complained[m.Subject] && len(complained) < 1000 {
				complained[m.Subject] = true
				log.Warn("record refused", "err", err)
			}
		})
		if err == nil {
			subs = append(subs, sub)
			err = sub.SetPendingLimits(pendingMessages, pendingBytes)
		}
		if err != nil {
			undo()
			return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
	}
	changes := nc.StatusChanged()
	s.SetConnected(nc.IsConnected())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range changes {
			s.SetConnected(nc.IsConnected())
		}
	}()
	return func() {
		nc.RemoveStatusListener(changes)
		<-done
		undo()
	}, nil
}
