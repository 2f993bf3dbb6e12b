package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs"
	"rocelink/agent/verbs/soft"
)

const (
	softPrefix  = "soft:"
	ibverbsName = "ibverbs" // of the provider
)

// openDevice opens "soft:ADDRESS" by the software provider and every other name
// by libibverbs. No name at all is the first RDMA device there is, and where
// there is none the software provider on loopback.
func openDevice(name string, log *slog.Logger) (verbs.Device, error) {
	if address, ok := strings.CutPrefix(name, softPrefix); ok {
		return open(soft.New(), name, address)
	}
	dev, err := open(ibverbs.New(ibverbs.Config{}), name, name)
	none := errors.Is(err, verbs.ErrNoDevice) || errors.Is(err, ibverbs.ErrNotBuilt)
	switch {
	case err == nil:
		return dev, nil
	case !none:
		return nil, err
	case name != "":
		return nil, fmt.Errorf("%w; without RDMA hardware --device soft:ADDRESS receives by software on that local address", err)
	}
	log.Warn("no RDMA device: receiving by software, on loopback only; --device soft:ADDRESS takes another address", "reason", err)
	return open(soft.New(), softPrefix, "")
}

// openAgain opens the same device after it was removed: what was asked for might
// now be another one.
func openAgain(asked string, was verbs.Device, log *slog.Logger) (verbs.Device, error) {
	if was.Attributes().Provider != ibverbsName {
		return openDevice(asked, log)
	}
	return ibverbs.New(ibverbs.Config{}).Open(sameDevice(asked, was.Name()))
}

// sameDevice is the name that asks for one device, and for the addresses of it
// that were asked for.
func sameDevice(asked, device string) string {
	_, where, both := strings.Cut(asked, "@")
	if !both {
		_, address := netip.ParseAddr(asked)
		_, subnet := netip.ParsePrefix(asked)
		if address != nil && subnet != nil {
			return device
		}
		where = asked
	}
	return device + "@" + where
}

func open(p verbs.Provider, name, device string) (verbs.Device, error) {
	dev, err := p.Open(device)
	if err != nil {
		return nil, fmt.Errorf("open device %s: %w", name, err)
	}
	return dev, nil
}
