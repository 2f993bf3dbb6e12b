// Package doctor tells before the first packet whether this host can receive:
// it looks at RDMA devices, their interfaces and addresses, and at the limits
// of the system, changes nothing, and says for each thing that is not in order
// what to do.
//
// It reads sysfs, /proc and /dev and needs neither libibverbs nor root. What
// they hold is not trusted: a file may be missing, huge or full of anything.
package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Config says where to look and for what. The zero value examines every RDMA
// device of this host.
type Config struct {
	// Root is the folder that holds sys, proc and dev. Default: /.
	Root string
	// Device is what rocelinkd would be given: an RDMA device by its name
	// (mlx5_0), by an address or subnet it has, or by both (mlx5_0@192.0.2.0/24),
	// or soft:ADDRESS for the software provider. Default, and for auto: all RDMA
	// devices or, if there is none, the software provider on the likeliest
	// address.
	Device string
	// RegionBytes is how much memory a stream registers. Default: DefaultRegion.
	RegionBytes uint64
	// System is asked what files do not tell. Default: this host.
	System System
}

// DefaultRegion is the region of a stream that says nothing about slots.
const DefaultRegion = 16 << 20

// System answers what is not in a file.
type System interface {
	// Interfaces lists the network interfaces with their addresses.
	Interfaces() ([]Interface, error)
	// Access reports why this process may not open a device file for reading
	// and writing; nil: it may.
	Access(path string) error
	// LockLimit is RLIMIT_MEMLOCK of this process, Unlimited if there is none.
	LockLimit() (uint64, error)
	// BindUDP reports why this process may not bind a UDP port; nil: it may.
	BindUDP(netip.AddrPort) error
}

// Unlimited is a limit that does not limit.
const Unlimited = ^uint64(0)

// Interface is a network interface of the system.
type Interface struct {
	Name      string
	Up        bool // administratively and by its carrier
	Loopback  bool
	MTU       int
	Addresses []netip.Prefix
}

// has reports whether an address, without its zone, is one of the interface's.
func (i Interface) has(a netip.Addr) bool {
	return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr().Unmap().WithZone("") == a })
}

// State is how a check ended.
type State string

// States, from good to bad.
const (
	OK   State = "ok"
	Warn State = "warn" // works, but not as it could
	Fail State = "fail" // does not work
)

// Check is one thing that was looked at.
type Check struct {
	// Subject is the device's name, soft:ADDRESS, or "host".
	Subject string `json:"subject"`
	Name    string `json:"name"`
	State   State  `json:"state"`
	// Found is what is there.
	Found string `json:"found"`
	// Remedy is what to do; it is not empty unless State is OK.
	Remedy string `json:"remedy,omitempty"`
	// Details are further lines, such as those of a table.
	Details []string `json:"details,omitempty"`
}

// Device is what a device would be used as.
type Device struct {
	// Name is what rocelinkd's --device takes.
	Name string `json:"name"`
	// Ready: nothing of the device or the host failed.
	Ready    bool   `json:"ready"`
	Netdev   string `json:"netdev,omitempty"`
	Address  string `json:"address,omitempty"`
	MTU      int    `json:"mtu,omitempty"` // path MTU
	GIDIndex *int   `json:"gid_index,omitempty"`
	GIDs     []GID  `json:"gids,omitempty"`
	NUMANode *int   `json:"numa_node,omitempty"`
	CPUs     string `json:"cpus,omitempty"`
}

// Report is all that was found.
type Report struct {
	State   State    `json:"state"` // the worst of all checks
	Devices []Device `json:"devices"`
	Checks  []Check  `json:"checks"`
}

// Failed reports whether a check failed.
func (r Report) Failed() bool { return r.State == Fail }

// hostSubject is the subject of checks that belong to no device.
const hostSubject = "host"

// softPrefix begins the name of a device of the software provider.
const softPrefix = "soft:"

// examination is a report in the making.
type examination struct {
	tree
	system     System
	region     uint64
	interfaces map[string]Interface
	// blind: the interfaces could not be listed, and nothing is known of
	// addresses.
	blind bool

	report Report
}

// Examine looks at everything once. It fails only if it cannot look at all;
// what is wrong with the host is in the report.
func Examine(c Config) (Report, error) {
	if c.System == nil {
		var err error
		if c.System, err = thisHost(); err != nil {
			return Report{}, fmt.Errorf("examine host: %w", err)
		}
	}
	if c.RegionBytes == 0 {
		c.RegionBytes = DefaultRegion
	}
	t, err := openTree(c.Root)
	if err != nil {
		return Report{}, fmt.Errorf("examine host: %w", err)
	}
	defer t.close()
	x := &examination{
		tree: t, system: c.System, region: c.RegionBytes, interfaces: map[string]Interface{},
		report: Report{State: OK, Devices: []Device{}, Checks: []Check{}},
	}
	x.addresses()
	if err := x.examine(c.Device); err != nil {
		return Report{}, err
	}
	x.finish()
	return x.report, nil
}

func (x *examination) examine(device string) error {
	if address, soft := strings.CutPrefix(device, softPrefix); soft {
		if address == "" {
			address = "127.0.0.1"
		}
		a, err := netip.ParseAddr(address)
		if err != nil {
			return fmt.Errorf("device %q: %w: write soft:ADDRESS with the address of an interface", clean(device), err)
		}
		x.softDevice(a.Unmap())
		x.hugePages()
		return nil
	}
	names := x.list(classInfiniband)
	want, ok := parseTarget(device)
	if !ok {
		return fmt.Errorf("device %q: what is behind @ is neither an IP address nor a subnet", clean(device))
	}
	all := want == target{}
	switch {
	case all && len(names) == 0:
		a := x.likeliest()
		x.add(hostSubject, "rdma", Warn, x.noDevice(), "take the software provider: rocelinkd --device "+softPrefix+a.String())
		x.softDevice(a)
		x.hugePages()
		return nil
	case all:
		for _, n := range names {
			x.rdmaDevice(n, want)
		}
	case slices.Contains(names, want.device):
		x.rdmaDevice(want.device, want)
	default:
		if want.device == "" {
			fit := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return chooseGID(x.gids(n), want) < 0 })
			if len(fit) > 0 {
				x.rdmaDevice(fit[0], want)
				break
			}
		}
		found, remedy := "no RDMA device has this name or address; there are "+clean(strings.Join(names, ", ")), "give the name of one of them"
		if len(names) == 0 {
			found, remedy = x.noDevice(), "load the driver of the NIC, or take the software provider: rocelinkd --device "+softPrefix+x.likeliest().String()
		}
		x.add(clean(device), "device", Fail, found, remedy)
		return nil
	}
	x.modules()
	x.memlock()
	x.hugePages()
	return nil
}

func (x *examination) addresses() {
	list, err := x.system.Interfaces()
	if err != nil {
		x.blind = true
		x.add(hostSubject, "interfaces", Warn, "the network interfaces cannot be listed: "+clean(err.Error()),
			"what follows knows no addresses: run it where netlink is allowed")
	}
	for _, i := range list {
		x.interfaces[i.Name] = i
	}
}

func (x *examination) add(subject, name string, state State, found, remedy string, details ...string) {
	x.report.Checks = append(x.report.Checks, Check{subject, name, state, found, remedy, details})
}

// finish sums up.
func (x *examination) finish() {
	r := &x.report
	failed := map[string]bool{}
	for _, c := range r.Checks {
		if c.State == Fail {
			failed[c.Subject] = true
		}
		if c.State == Fail || c.State == Warn && r.State == OK {
			r.State = c.State
		}
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		d.Ready = !failed[d.Name] && !failed[hostSubject]
	}
}

// errLong: a file is longer than anything that was expected.
var errLong = errors.New("longer than expected")
