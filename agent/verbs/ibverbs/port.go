//go:build linux && cgo && ibverbs

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"syscall"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// port is what the library says of the port.
type port struct {
	state, mtu   int // enum ibv_port_state, enum ibv_mtu
	width, speed int // codes of active_width and active_speed
}

// queryPort asks for the port and refuses one that is not Ethernet.
func (d *device) queryPort() (port, error) {
	if d.gone.Load() {
		return port{}, d.failure("query port", syscall.ENODEV)
	}
	var a C.struct_ibv_port_attr
	if rc := C.rl_query_port(d.c, portNumber, &a); rc < 0 {
		return port{}, d.failure(fmt.Sprintf("query port %d", portNumber), errno(rc))
	}
	if a.link_layer == C.IBV_LINK_LAYER_INFINIBAND {
		return port{}, fmt.Errorf("port %d of %s is InfiniBand, RoCE needs Ethernet: choose another device or change the port's type "+
			"(mlxconfig set LINK_TYPE_P%d=2)", portNumber, d.name, portNumber)
	}
	return port{state: int(a.state), mtu: int(a.active_mtu), width: int(a.active_width), speed: int(a.active_speed)}, nil
}

func portState(s int) string {
	switch s {
	case C.IBV_PORT_DOWN:
		return "down"
	case C.IBV_PORT_INIT:
		return "initializing"
	case C.IBV_PORT_ARMED:
		return "armed"
	case C.IBV_PORT_ACTIVE:
		return "active"
	}
	return fmt.Sprintf("in state %d", s)
}

// laneGbps is the data rate of a lane (IBTA vol. 1, PortInfo
// LinkSpeedActive and LinkSpeedExtActive), lanes the number of them.
var (
	laneGbps = map[int]float64{1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14, 32: 25, 64: 50, 128: 100}
	lanes    = map[int]float64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
)

// Port implements verbs.Device. It chooses the address anew if the one before
// is gone. A port that is down need not have one.
func (d *device) Port() (verbs.PortAttributes, error) {
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.pds++ // keeps it open
		defer d.end(&d.pds)
	}
	d.mu.Unlock()
	if closed {
		return verbs.PortAttributes{}, fmt.Errorf("query port of %s: %w", d.name, verbs.ErrClosed)
	}
	p, err := d.queryPort()
	if err != nil {
		return verbs.PortAttributes{}, err
	}
	a := verbs.PortAttributes{Active: p.state == C.IBV_PORT_ACTIVE, SpeedGbps: laneGbps[p.speed] * lanes[p.width]}
	if a.MTU, err = roce.MTUFromCode(uint8(p.mtu)); err != nil {
		return verbs.PortAttributes{}, fmt.Errorf("port %d of %s: %w", portNumber, d.name, err)
	}
	g, err := d.reselect()
	if err != nil {
		if !a.Active {
			return a, nil
		}
		return verbs.PortAttributes{}, err
	}
	a.Address, a.GIDIndex, a.MAC = g.address, g.index, g.netdev.mac
	if a.MAC == [6]byte{} {
		a.MAC = standInMAC(g.address)
	}
	if s := speed(d.sysfs, g.netdev.name); s > 0 {
		a.SpeedGbps = s
	}
	return a, nil
}

// source is the address that the peer of a new queue pair is told.
func (d *device) source() netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.selected.address
}
