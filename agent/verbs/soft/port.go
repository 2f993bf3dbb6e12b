package soft

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// port looks at the interface that has the device's address.
func (d *device) port() verbs.PortAttributes {
	received, _ := d.link.conn.Buffers()
	a := verbs.PortAttributes{Address: d.address, MAC: localMAC(d.address), InFlight: received}
	i := interfaceOf(d.address)
	if i == nil {
		return a
	}
	a.Active = i.Flags&(net.FlagUp|net.FlagRunning) == net.FlagUp|net.FlagRunning
	a.MTU = roce.MTUForNetdev(i.MTU)
	if len(i.HardwareAddr) == len(a.MAC) && [6]byte(i.HardwareAddr) != [6]byte{} {
		a.MAC = [6]byte(i.HardwareAddr)
	}
	if b, err := os.ReadFile(filepath.Join("/sys/class/net", i.Name, "speed")); err == nil {
		if mbps, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && mbps > 0 {
			a.SpeedGbps = float64(mbps) / 1000
		}
	}
	return a
}

// interfaceOf returns the interface that has an address, or one of whose
// networks contains it: 127.0.0.0/8 is loopback's altogether.
func interfaceOf(a netip.Addr) *net.Interface {
	is, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var within *net.Interface
	for n := range is {
		addrs, err := is[n].Addrs()
		if err != nil {
			continue
		}
		for _, x := range addrs {
			p, err := netip.ParsePrefix(x.String())
			if err != nil {
				continue
			}
			if p.Addr().WithZone("") == a.WithZone("") && (a.Zone() == "" || a.Zone() == is[n].Name) {
				return &is[n]
			}
			if is[n].Flags&net.FlagLoopback != 0 && p.Contains(a) {
				within = &is[n]
			}
		}
	}
	return within
}

// localMAC returns a locally administered MAC made from an address, for
// interfaces that have none: boards refuse zero.
func localMAC(a netip.Addr) [6]byte {
	b := a.AsSlice()
	mac := [6]byte{0x02}
	copy(mac[2:], b[len(b)-4:])
	return mac
}
