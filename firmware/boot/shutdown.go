package boot

import (
	"fmt"
	"time"
)

// Bounds of an orderly end. boardd closes its streams and tells NATS within
// two seconds.
const (
	daemonTime  = 5 * time.Second
	othersTime  = 2 * time.Second
	killTime    = time.Second
	keepersTime = time.Second
	syncTime    = 10 * time.Second
	flushTime   = 2 * time.Second
)

// shutdown ends everything in order and then the machine's run. The watchdog is
// fed until the last step, so that a step that hangs ends in a reset.
func (i *Init) shutdown(how How) {
	i.ending = true
	i.publish()
	i.log.Info("going down", "how", how)
	i.daemonAt.Stop()
	i.shellAt.Stop()
	if i.listener != nil {
		_ = i.listener.Close() // nobody asks any more
	}

	if pid := i.daemon.pid; pid != 0 {
		gone := func(bool) bool { return i.daemon.pid == 0 }
		i.try("end boardd", i.sys.Terminate(pid))
		if !i.await(daemonTime, gone) {
			i.log.Error("boardd does not end: killed", "after", daemonTime)
			i.try("kill boardd", i.sys.Kill(pid))
			i.await(killTime, gone)
		}
	}
	nobody := func(others bool) bool { return !others }
	if i.reap() {
		i.try("end all processes", i.sys.Terminate(0))
		if !i.await(othersTime, nobody) {
			i.try("kill all processes", i.sys.Kill(0))
			i.await(killTime, nobody)
		}
	}
	i.senderOff()
	i.bounded("network and clock", keepersTime, i.background.Wait)
	i.bounded("sync", syncTime, i.sys.Sync)
	i.unmountAll()
	i.log.Info("end", "how", how)
	i.journal.flush(flushTime)
	i.reset(how)
}

// reset disarms the watchdog and ends the run. When that fails the watchdog is
// armed again and left to starve.
func (i *Init) reset(how How) {
	if i.watchdog != nil {
		i.try("disarm the watchdog", i.watchdog.Disarm())
	}
	err := i.sys.Reset(how)
	if err == nil {
		return
	}
	i.log.Error("the machine does not "+how.String(), "err", err)
	if i.watchdog != nil {
		_, err := i.sys.Watchdog(i.set.watchdog)
		i.try("arm the watchdog", err)
	}
	i.journal.flush(flushTime)
}

func (i *Init) try(what string, err error) {
	if err != nil {
		i.log.Error(what, "err", err)
	}
}

// await keeps the loop alive until done says so after a child ended, or the
// bound is reached.
func (i *Init) await(bound time.Duration, done func(others bool) bool) bool {
	limit := time.NewTimer(bound)
	defer limit.Stop()
	tick := time.NewTicker(min(i.tick(), time.Second))
	defer tick.Stop()
	for {
		if done(i.reap()) {
			return true
		}
		select {
		case <-limit.C:
			return false
		case <-i.sys.Events(): // whatever else is asked, the end is under way
		case <-tick.C:
			i.feed()
		}
	}
}

// bounded runs a step that may hang, and goes on without it.
func (i *Init) bounded(what string, bound time.Duration, step func()) {
	done := make(chan struct{})
	go func() { defer close(done); step() }()
	limit := time.NewTimer(bound)
	defer limit.Stop()
	tick := time.NewTicker(min(i.tick(), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-limit.C:
			i.log.Error(what+": not done, going on", "after", bound)
			return
		case <-tick.C:
			i.feed()
		}
	}
}

// rescue is the end after a panic of the main loop, a fault of this program:
// sender off, and the machine starts again.
func (i *Init) rescue(p any) (how How) {
	defer func() {
		if again := recover(); again != nil {
			i.try("reboot", i.sys.Reset(Reboot))
		}
	}()
	i.log.Error("fault of this program", "panic", fmt.Sprint(p))
	if i.listener != nil {
		_ = i.listener.Close()
	}
	i.journal.flush(flushTime)
	i.senderOff()
	i.reset(Reboot)
	return Reboot
}
