package boot

import (
	"errors"
	"time"
)

// openWatchdog arms the watchdog. From here on only the main loop keeps the
// machine from being reset.
func (i *Init) openWatchdog() {
	if i.set.noWatchdog {
		i.log.Info("no watchdog, as configured")
		return
	}
	w, err := i.sys.Watchdog(i.set.watchdog)
	switch {
	case errors.Is(err, ErrNoWatchdog):
		i.log.Info("no watchdog on this machine")
	case err != nil:
		i.fault("watchdog: %v", err)
	default:
		i.watchdog = w
		i.log.Info("watchdog armed", "timeout", w.Timeout())
	}
}

// tick is how often the main loop looks around: three times within the
// watchdog's time, so that one late turn does no harm.
func (i *Init) tick() time.Duration {
	if i.watchdog == nil {
		return tickWithout
	}
	return i.watchdog.Timeout() / 3
}

// feed keeps the watchdog from resetting the machine. A failure is told once.
func (i *Init) feed() {
	if i.watchdog == nil {
		return
	}
	err := i.watchdog.Feed()
	if err != nil && i.fed == nil {
		i.fault("feed the watchdog: %v", err)
	}
	i.fed = err
}
