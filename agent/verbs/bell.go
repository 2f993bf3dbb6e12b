package verbs

import "time"

// Bell is how a completion queue without a file descriptor has its poller
// sleep: the notification that Arm asks for, and Wake. Arm and Wait are called
// by the poller, Ring and Wake from any goroutine. Providers embed one.
type Bell struct {
	notify, wake chan struct{}
	timer        *time.Timer
}

// NewBell makes a bell that has not rung.
func NewBell() Bell {
	return Bell{notify: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// Ring is the notification: it ends one Wait, the next if there is none.
func (b *Bell) Ring() { set(b.notify) }

// Wake ends a Wait without a notification. With nobody waiting, the next Wait
// returns at once.
func (b *Bell) Wake() { set(b.wake) }

// Hush forgets a notification that nobody waited for. Arm begins with it: such
// a notification is of a completion before it.
func (b *Bell) Hush() {
	select {
	case <-b.notify:
	default:
	}
}

// Await sleeps until the bell is rung (true), or until Wake or the end of the
// timeout (false). A negative timeout is for ever.
func (b *Bell) Await(timeout time.Duration) bool {
	var over <-chan time.Time
	if timeout >= 0 {
		if b.timer == nil {
			b.timer = time.NewTimer(timeout)
		} else {
			b.timer.Reset(timeout)
		}
		defer b.timer.Stop()
		over = b.timer.C
	}
	select {
	case <-b.notify:
		return true
	case <-b.wake:
	case <-over:
	}
	return false
}

func set(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
