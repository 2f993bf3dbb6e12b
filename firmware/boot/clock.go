package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// clockFile exists once the time is right. Before that no certificate can
	// be checked.
	clockFile = runFolder + "/clock"

	askTime     = 3 * time.Second  // bounds one question
	askAgain    = 10 * time.Minute // 50 ppm are 30 ms by then
	firstAsk    = 2 * time.Second
	lastAsk     = time.Minute
	clockStep   = 100 * time.Millisecond // less is left alone
	clockNotice = time.Second            // more is told
)

var errClockSet = errors.New("the clock is set already")

var errNoServers = errors.New("no NTP server is known: give ntp, or have DHCP name one")

// keepTime sets the clock as soon as there is a network, and keeps it right.
// Nothing waits for it.
func (i *Init) keepTime(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-i.network:
	}
	said, wait := "", firstAsk
	for {
		next := askAgain
		err := i.setClock(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			said, wait = "", firstAsk
		default:
			if said != err.Error() {
				said = err.Error()
				i.log.Warn("clock", "err", err)
			}
			next, wait = wait, min(2*wait, lastAsk)
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-i.network:
			wait = firstAsk
		case <-t.C:
		}
		t.Stop()
	}
}

// timeServers are those of the configuration, those DHCP told, or the hosts of
// the NATS servers, which often keep the time of an instrument.
func (i *Init) timeServers() []string {
	if i.set.ntp != nil {
		return i.set.ntp
	}
	i.mu.Lock()
	told := i.state.ntp
	i.mu.Unlock()
	if len(told) > 0 {
		return told
	}
	return i.set.natsHosts()
}

// setClock asks the servers in turn and follows the first that answers.
func (i *Init) setClock(ctx context.Context) error {
	servers := i.timeServers()
	if len(servers) == 0 {
		return errNoServers
	}
	var all error
	for _, server := range servers {
		ask, cancel := context.WithTimeout(ctx, askTime)
		behind, err := i.sys.AskTime(ask, server)
		cancel()
		if err == nil {
			err = i.follow(server, behind)
		}
		if err == nil {
			return nil
		}
		all = errors.Join(all, fmt.Errorf("%s: %w", server, err))
	}
	return all
}

// maxOffer is how long after the image's making an offered time can be.
const maxOffer = 20 * 365 * 24 * time.Hour

// takeOffer takes the time that boardd got from its NATS server, where no NTP
// server has answered yet. One that answers later is followed all the same.
func (i *Init) takeOffer(t time.Time) error {
	i.mu.Lock()
	set := i.state.clockSet
	i.mu.Unlock()
	switch {
	case set:
		return errClockSet
	case t.After(i.floor().Add(maxOffer)):
		return fmt.Errorf("says %v, more than %v after this image was made", t.UTC().Format(time.RFC3339), maxOffer)
	}
	return i.follow("the NATS server", time.Until(t))
}

func (i *Init) follow(server string, behind time.Duration) error {
	now := time.Now()
	right := now.Add(behind)
	if right.Before(i.floor()) {
		return fmt.Errorf("says %v, before this image was made", right.UTC().Format(time.RFC3339))
	}
	if behind.Abs() >= clockStep {
		if err := i.sys.SetTime(right); err != nil {
			return fmt.Errorf("set the clock: %w", err)
		}
	}
	i.mu.Lock()
	first := !i.state.clockSet
	i.state.clockSet = true
	i.mu.Unlock()
	if first || behind.Abs() >= clockNotice {
		i.log.Info("clock set", "server", server, "by", behind.Round(time.Millisecond))
	}
	if first {
		if err := os.WriteFile(i.path(clockFile), []byte(server+"\n"), 0o644); err != nil {
			i.fault("%v", err)
		}
	}
	return nil
}
