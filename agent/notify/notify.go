// Package notify tells the service manager how the program is doing: that it is
// ready, that it lives, that it ends (sd_notify(3)). Without a service manager
// everything does nothing.
package notify

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// patience is how long a message waits for room in the manager's socket: what
// the program does must not depend on the manager.
const patience = time.Second

// Service is the program as the service manager sees it. The zero value is
// ready for use; calls may come from any goroutine.
type Service struct {
	mu       sync.Mutex
	watched  bool          // the environment was looked at
	interval time.Duration // between two beats; 0: nobody watches
	last     time.Time
	stopping bool
}

// Ready says that the service is up, and what it does in a line of text.
func (s *Service) Ready(status string) error {
	return s.send(daemon.SdNotifyReady + "\nSTATUS=" + line(status))
}

// Status says in a line of text what the service does.
func (s *Service) Status(status string) error { return s.send("STATUS=" + line(status)) }

// Stopping says that the service ends. Only the first call does something.
func (s *Service) Stopping() error {
	s.mu.Lock()
	again := s.stopping
	s.stopping = true
	s.mu.Unlock()
	if again {
		return nil
	}
	return s.send(daemon.SdNotifyStopping)
}

// Beat says that the program lives. Whoever does the program's work calls it
// each time round: when that stops, so do the beats, and the manager restarts
// the service. Most calls only look at the clock.
func (s *Service) Beat() error {
	s.mu.Lock()
	if !s.watched {
		s.watched = true
		limit, err := daemon.SdWatchdogEnabled(false)
		if err != nil {
			s.mu.Unlock()
			return fmt.Errorf("notify service manager: %w: check WatchdogSec in the unit", err)
		}
		// Four a period: three may come late.
		s.interval = limit / 4
	}
	now := time.Now()
	due := s.interval > 0 && (s.last.IsZero() || now.Sub(s.last) >= s.interval)
	if due {
		s.last = now
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	return s.send(daemon.SdNotifyWatchdog)
}

// send sends one message. A manager that does not read costs patience, no more.
func (s *Service) send(state string) error {
	sent := make(chan error, 1)
	go func() {
		_, err := daemon.SdNotify(false, state)
		sent <- err
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	what, _, _ := strings.Cut(state, "\n")
	select {
	case err := <-sent:
		if err != nil {
			return fmt.Errorf("notify service manager of %s: %w", what, err)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("notify service manager of %s: it did not take the message within %v", what, patience)
	}
}

// line makes text fit for the value of one variable.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}
