package stream

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
)

// ErrAway: the device was removed and is not back yet.
var ErrAway = errors.New("device removed")

// reopenDelay is how often an agent looks whether a removed device is back:
// what tells of devices (uevents) does not get into every network namespace.
const reopenDelay = time.Second

// place holds the agent's device, which may be away. Who uses the device says
// so: it is closed when nobody does.
type place struct {
	mu      sync.Mutex
	dev     verbs.Device
	users   int
	away    error         // why it cannot be used; nil: it can
	idle    chan struct{} // closed when it is away and nobody uses it
	address netip.Addr    // the last one it had
}

// device is the device as it is, in use or away.
func (a *Agent) device() verbs.Device {
	a.place.mu.Lock()
	defer a.place.mu.Unlock()
	return a.place.dev
}

// acquire keeps the device from being closed until release, if it is there.
func (a *Agent) acquire() (verbs.Device, error) {
	p := &a.place
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return p.dev, p.away
	}
	p.users++
	return p.dev, nil
}

func (a *Agent) release() {
	p := &a.place
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
	if p.users == 0 && p.away != nil {
		close(p.idle)
	}
}

// away is why the device cannot be used; nil: it can.
func (a *Agent) away() error {
	a.place.mu.Lock()
	defer a.place.mu.Unlock()
	return a.place.away
}

// setAway keeps new users from the device. The channel is closed when the last
// one has let go.
func (a *Agent) setAway(cause string) (idle <-chan struct{}) {
	p := &a.place
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.idle = fmt.Errorf("%w: %s", ErrAway, cause), make(chan struct{})
	if p.users == 0 {
		close(p.idle)
	}
	return p.idle
}

// follow takes the device's events; when it is removed it is closed as soon as
// no stream has anything of it, and opened again when it is back.
func (a *Agent) follow() {
	for {
		cause, removed := a.deviceEvents(a.device())
		if !removed || !a.replace(cause) {
			return
		}
	}
}

// replace closes the removed device and waits for it to come back. It reports
// whether it has.
//
// What consumers still hold of a stream's memory stays valid: that memory is the
// process's, and the device lets go of it as the region is deregistered. See
// session.free.
func (a *Agent) replace(cause string) bool {
	idle := a.setAway(cause)
	a.failStreams(verbs.Event{Kind: verbs.EventDeviceRemoved, Cause: cause})
	if !a.awaitIdle(idle) {
		return false
	}
	if a.reopen == nil {
		return false // who opened it closes it
	}
	old, closed := a.device(), false
	tick := time.NewTicker(reopenDelay)
	defer tick.Stop()
	for {
		var err error
		if !closed {
			if err = old.Close(); err == nil {
				closed = true
				a.log.Info("device closed; waiting for it to come back", "device", old.Name())
			}
		}
		if closed {
			var next verbs.Device
			if next, err = a.back(); err == nil {
				a.restore(next)
				return true
			}
		}
		a.notBack(cause, err)
		select {
		case <-tick.C:
		case <-a.ended:
			return false
		}
	}
}

// awaitIdle waits until nobody uses the removed device, false if the agent ends. A
// device that still works for those who have it says when their queue pairs are
// done with a shared queue.
func (a *Agent) awaitIdle(idle <-chan struct{}) bool {
	events := a.device().Events()
	for {
		select {
		case <-idle:
			return true
		case <-a.ended:
			return false
		case e, ok := <-events:
			switch {
			case !ok:
				events = nil
			case e.Kind == verbs.EventLastWQE:
				a.failStreams(e)
			}
		}
	}
}

// back opens the device again. With an address of another family or scope than
// boards were told before it is not back yet: interfaces have a link-local one
// before they are given theirs.
func (a *Agent) back() (verbs.Device, error) {
	next, err := a.reopen()
	if err != nil {
		return nil, err
	}
	port, err := next.Port()
	a.place.mu.Lock()
	was := a.place.address
	a.place.mu.Unlock()
	is := port.Address
	if err == nil && was.IsValid() && (!is.IsValid() || is.Is4() != was.Is4() || is.IsLinkLocalUnicast() != was.IsLinkLocalUnicast()) {
		err = fmt.Errorf("%s had address %v and has %s now", next.Name(), was, orNone(is))
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// notBack notes why the device is not back.
func (a *Agent) notBack(cause string, err error) {
	p := &a.place
	p.mu.Lock()
	p.away = fmt.Errorf("%w: %s; not back yet: %w", ErrAway, cause, err)
	p.mu.Unlock()
	a.change()
}

// restore takes a device into use and has the streams open.
func (a *Agent) restore(next verbs.Device) {
	p := &a.place
	p.mu.Lock()
	p.dev, p.away = next, nil
	p.mu.Unlock()
	a.event("device-back", "", 0, "%s is back", next.Name())
	a.mu.Lock()
	a.problem = ""
	for _, s := range a.streams {
		signal(s.wake)
	}
	a.mu.Unlock()
	a.change()
}

// deviceStatus is what the host's status says of the device.
func (a *Agent) deviceStatus() rocelink.Device {
	dev, err := a.acquire()
	d := rocelink.Device{Provider: dev.Attributes().Provider, Name: dev.Name(), Counters: map[string]rocelink.Count{}}
	if err != nil {
		d.Problem = err.Error()
		return d
	}
	defer a.release()
	port, err := dev.Port()
	if err != nil {
		d.Problem = err.Error()
	}
	d.MTU, d.Active = int(port.MTU), port.Active
	if port.Address.IsValid() {
		d.Address = port.Address.String()
		a.place.mu.Lock()
		a.place.address = port.Address
		a.place.mu.Unlock()
	}
	for name, v := range dev.Counters() {
		d.Counters[name] = rocelink.Count(v)
	}
	return d
}

func orNone(a netip.Addr) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}
