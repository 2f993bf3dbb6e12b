package board

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rocelink/firmware/cmac"
	"rocelink/firmware/link"
	"rocelink/firmware/mrmac"
	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
)

// mac is what the board needs of a MAC driver.
type mac interface {
	link.MAC
	// Sample takes all counters at one instant.
	Sample() error
	// Each gives the counters of the last Sample. Those of errors have the same
	// names in every driver (countCorrected and the others).
	Each(func(name string, value uint64))
	// Readable reports whether a register may be read on this core.
	Readable(offset uint32) bool
}

// opener probes a MAC and returns its driver and its block in the register
// table.
type opener func(bus regs.Bus, c macConfig) (mac, string, error)

// macConfig is what a board says of its MAC.
type macConfig struct {
	FEC         string
	FlowControl bool
	Poll        poll.Poll
}

// macDrivers are the drivers by the name a board's description gives.
var macDrivers = map[string]opener{
	"cmac":  openCMAC,
	"mrmac": openMRMAC,
}

func macDriver(name string) (opener, error) {
	if open := macDrivers[name]; open != nil {
		return open, nil
	}
	return nil, fmt.Errorf("MAC driver %q: unknown, there is %s", name, strings.Join(slices.Sorted(maps.Keys(macDrivers)), " and "))
}

type cmacMAC struct{ *cmac.MAC }

func (m cmacMAC) Sample() error {
	_, err := m.MAC.Sample()
	return err
}

func openCMAC(bus regs.Bus, c macConfig) (mac, string, error) {
	m, err := cmac.Open(bus, cmac.Config{FEC: cmac.FEC(c.FEC), FlowControl: c.FlowControl, Poll: c.Poll})
	if err != nil {
		return nil, "", err
	}
	return cmacMAC{m}, "CMAC", nil
}

func openMRMAC(bus regs.Bus, c macConfig) (mac, string, error) {
	if c.FlowControl {
		return nil, "", errors.New("MRMAC: flow control is not supported by this driver: leave mac.flow_control out")
	}
	m, err := mrmac.Open(bus, mrmac.Config{FEC: mrmac.FEC(c.FEC), Poll: c.Poll})
	if err != nil {
		return nil, "", err
	}
	return m, "MRMAC", nil
}
