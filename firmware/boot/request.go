package boot

import (
	"errors"
	"time"

	"rocelink/firmware/boot/control"
)

// listen opens the socket on which boardd asks for a restart or for the state.
func (i *Init) listen() {
	l, err := i.sys.Listen(i.path(socketPath))
	if err != nil {
		i.fault("open %s: %v", socketPath, err)
		return
	}
	i.listener = l
	i.background.Go(func() { control.Serve(l, i) })
}

var errEnding = errors.New("already going down")

// Reset asks for the end of the machine's run; part of control.Handler.
func (i *Init) Reset(request string) error {
	for _, how := range []How{Reboot, PowerOff, Halt} {
		if request != how.String() {
			continue
		}
		i.mu.Lock()
		ending := i.state.ending
		i.mu.Unlock()
		if ending {
			return errEnding
		}
		select {
		case i.requests <- how:
			return nil
		default:
			return errEnding
		}
	}
	return control.ErrUnknown
}

// Confirmed takes note that the new image works; part of control.Handler.
func (i *Init) Confirmed() {
	select {
	case i.confirmed <- struct{}{}:
	default:
	}
}

// OfferTime takes a time for want of a better one; part of control.Handler.
func (i *Init) OfferTime(t time.Time) error { return i.takeOffer(t) }

// Status tells the state; part of control.Handler.
func (i *Init) Status() control.Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return control.Status{
		Name: i.set.name, Version: i.build.Version,
		Problems: append([]string(nil), i.problems...), Faults: append([]string(nil), i.faults...),
		Safe: i.state.safe, Restarts: i.state.restarts, ClockSet: i.state.clockSet,
		Interface: i.state.netdev, Address: i.state.prefix,
	}
}
