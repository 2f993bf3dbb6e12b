//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		name string
		want target
	}{
		{"", target{}},
		{"auto", target{}},
		{"mlx5_0", target{device: "mlx5_0"}},
		{"192.0.2.7", target{address: netip.MustParseAddr("192.0.2.7")}},
		{"::ffff:192.0.2.7", target{address: netip.MustParseAddr("192.0.2.7")}},
		{"fe80::1%eth0", target{address: netip.MustParseAddr("fe80::1%eth0")}},
		{"192.0.2.7/24", target{subnet: netip.MustParsePrefix("192.0.2.0/24")}},
		{"rxe0@2001:db8::7", target{device: "rxe0", address: netip.MustParseAddr("2001:db8::7")}},
		{"rxe0@2001:db8::/32", target{device: "rxe0", subnet: netip.MustParsePrefix("2001:db8::/32")}},
		{"auto@10.0.0.0/8", target{subnet: netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		if got, err := parseTarget(c.name); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	for _, name := range []string{"rxe0@", "rxe0@eth0", "rxe0@1.2.3.4@5", "@"} {
		_, err := parseTarget(name)
		wantError(t, err, verbs.ErrNoDevice, "neither an IP address nor a subnet")
	}
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"", "auto", "mlx5_0@10.0.0.1/8", "fe80::1%eth0", "@", "1/2@3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := parseTarget(s)
		if err != nil {
			return
		}
		if target.address.IsValid() && (!target.fits(target.address) || target.address.Is4In6()) {
			t.Errorf("%q: its own address does not fit: %+v", s, target)
		}
		if target.subnet.IsValid() && !target.fits(target.subnet.Addr()) {
			t.Errorf("%q: its own network does not fit: %+v", s, target)
		}
	})
}

// down is a device whose port is down.
func down(name string) double.Device {
	d := nic(name)
	d.Port.State = double.PortDown
	return d
}

func TestOpenChoosesDeviceAndGID(t *testing.T) {
	other := nic("mlx5_1")
	other.GIDs = []double.GID{{Index: 2, Port: 1, Type: double.TypeRoCEv2, Address: netip.MustParseAddr("203.0.113.7")}} // an old library: no netdev
	ib := nic("ib_0")
	ib.Port.LinkLayer = double.InfiniBand
	for _, c := range []struct {
		name    string
		open    string
		devices []double.Device
		device  string
		address string
		index   int
	}{
		{"by name, IPv4 first", "mlx5_0", []double.Device{nic("mlx5_0")}, "mlx5_0", "192.0.2.7", 7},
		{"by address", "203.0.113.7", []double.Device{nic("mlx5_0")}, "mlx5_0", "203.0.113.7", 8},
		{"by IPv6 address", "2001:db8::7", []double.Device{nic("mlx5_0")}, "mlx5_0", "2001:db8::7", 3},
		{"link-local on request", "mlx5_0@fe80::1", []double.Device{nic("mlx5_0")}, "mlx5_0", "fe80::1%eth9", 1},
		{"link-local with its zone", "fe80::1%eth9", []double.Device{nic("mlx5_0")}, "mlx5_0", "fe80::1%eth9", 1},
		{"by subnet", "203.0.113.0/24", []double.Device{nic("mlx5_0")}, "mlx5_0", "203.0.113.7", 8},
		{"by name and subnet", "mlx5_0@2001:db8::/64", []double.Device{nic("mlx5_0")}, "mlx5_0", "2001:db8::7", 3},
		{"auto skips what is not fit", "auto", []double.Device{down("mlx5_0"), ib, other}, "mlx5_1", "203.0.113.7", 2},
		{"empty name", "", []double.Device{nic("mlx5_0"), other}, "mlx5_0", "192.0.2.7", 7},
		{"by address on a port that is down", "192.0.2.7", []double.Device{other, down("mlx5_0")}, "mlx5_0", "192.0.2.7", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := world(t, c.devices...)
			d, err := p.Open(c.open)
			if err != nil {
				t.Fatal(err)
			}
			port, err := d.Port()
			if err != nil {
				t.Fatal(err)
			}
			if d.Name() != c.device || port.Address.String() != c.address || port.GIDIndex != c.index {
				t.Errorf("%s %v at %d, want %s %s at %d", d.Name(), port.Address, port.GIDIndex, c.device, c.address, c.index)
			}
			if port.MTU != 4096 || port.SpeedGbps != 100 || port.MAC != [6]byte{2, 0, 0, 0, 0, 7} {
				t.Errorf("port %+v", port)
			}
			if a := d.Attributes(); a.Provider != "ibverbs" || a.MaxQP != 1024 || a.MaxQPReceives != 1<<15 || a.MaxCQE != 1<<16 || a.MaxMR != 1024 || a.MaxCQ != 1024 || a.MaxMRBytes != 1<<40 {
				t.Errorf("attributes %+v", a)
			}
			for range 2 {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := d.Port(); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("Port after Close: %v", err)
			}
			if _, err := d.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("AllocPD after Close: %v", err)
			}
			if _, err := d.CreateCQ(1); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("CreateCQ after Close: %v", err)
			}
		})
	}
}

// TestOpenRefuses has all that keeps a device from being opened. Each error is
// one sentence, and nothing stays open (world checks that).
func TestOpenRefuses(t *testing.T) {
	change := func(f func(*double.Device)) []double.Device {
		d := nic("mlx5_0")
		f(&d)
		return []double.Device{d}
	}
	none := func(d *double.Device) { d.GIDs = nil }
	v1 := func(d *double.Device) { d.GIDs = d.GIDs[:1] }
	foreign := func(d *double.Device) { d.GIDs = d.GIDs[5:6] }
	stale := func(d *double.Device) {
		d.GIDs = []double.GID{{Index: 0, Port: 1, Type: double.TypeRoCEv2, Netdev: ethIndex, Address: netip.MustParseAddr("192.0.2.99")}}
	}
	fails := func(call string, err syscall.Errno) func() { return func() { double.Fail(call, err, 0, -1) } }
	for _, c := range []struct {
		name    string
		open    string
		devices []double.Device
		before  func()
		sysfs   []string
		is      error
		says    []string
	}{
		{name: "no device", open: "auto", is: verbs.ErrNoDevice, says: []string{"rdma link add", "soft provider"}},
		{name: "no RDMA in the kernel", open: "mlx5_0", before: fails("get_device_list", syscall.ENOSYS), is: verbs.ErrNoDevice, says: []string{"rdma link add"}},
		{name: "device without library driver", open: "rxe0", sysfs: []string{"rxe0"}, is: verbs.ErrNoDevice, says: []string{"rxe0", "ibverbs-providers", "modprobe ib_uverbs"}},
		{name: "list fails", open: "mlx5_0", before: fails("get_device_list", syscall.EMFILE), is: syscall.EMFILE, says: []string{"list devices"}},
		{name: "wrong name", open: "mlx5_9", devices: []double.Device{nic("mlx5_0"), nic("mlx5_1")}, is: verbs.ErrNoDevice, says: []string{"mlx5_9", "mlx5_0, mlx5_1"}},
		{name: "bad name", open: "mlx5_0@eth0", devices: []double.Device{nic("mlx5_0")}, is: verbs.ErrNoDevice, says: []string{`"eth0"`}},
		{name: "no permission", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("open_device", syscall.EACCES), is: syscall.EACCES, says: []string{"/dev/infiniband/uverbs-test0", "permission", "group"}},
		{name: "not permitted", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("open_device", syscall.EPERM), is: syscall.EPERM, says: []string{"/dev/infiniband/uverbs-test0", "permission"}},
		{name: "no device file", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("open_device", syscall.ENOENT), is: verbs.ErrNoDevice, says: []string{"/dev/infiniband/uverbs-test0 is missing", "modprobe ib_uverbs"}},
		{name: "too many files", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("open_device", syscall.EMFILE), is: syscall.EMFILE, says: []string{"LimitNOFILE"}},
		{name: "other trouble", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("open_device", syscall.EINVAL), is: syscall.EINVAL, says: []string{"open mlx5_0"}},
		{name: "query of the device fails", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("query_device", syscall.EIO), is: syscall.EIO, says: []string{"query device", "removed or has failed"}},
		{name: "query of the port fails", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("query_port", syscall.EINVAL), is: syscall.EINVAL, says: []string{"query port 1"}},
		{name: "GID table fails", open: "mlx5_0", devices: []double.Device{nic("mlx5_0")}, before: fails("query_gid_table", syscall.EPERM), is: syscall.EPERM, says: []string{"GID table"}},
		{name: "InfiniBand", open: "mlx5_0", devices: change(func(d *double.Device) { d.Port.LinkLayer = double.InfiniBand }), says: []string{"InfiniBand", "Ethernet", "LINK_TYPE"}},
		{name: "port down", open: "auto", devices: []double.Device{down("mlx5_0")}, says: []string{"port 1 of mlx5_0 is down", "ip link set"}},
		{name: "port armed", open: "auto", devices: change(func(d *double.Device) { d.Port.State = double.PortArmed }), says: []string{"armed"}},
		{name: "no GID", open: "mlx5_0", devices: change(none), is: verbs.ErrNoDevice, says: []string{"GID table is empty", "ip address add"}},
		{name: "RoCE v1 only", open: "mlx5_0", devices: change(v1), is: verbs.ErrNoDevice, says: []string{"no RoCE v2 GID", "entry 0", "is not RoCE v2"}},
		{name: "foreign GID", open: "mlx5_0", devices: change(foreign), is: verbs.ErrNoDevice, says: []string{"entry 5 (198.51.100.1) is of no network interface here"}},
		{name: "stale GID", open: "mlx5_0", devices: change(stale), is: verbs.ErrNoDevice, says: []string{"192.0.2.99", "is not an address of eth9"}},
		{name: "address elsewhere", open: "192.0.2.8", devices: []double.Device{nic("mlx5_0")}, is: verbs.ErrNoDevice, says: []string{"address 192.0.2.8", "it has 192.0.2.7 (eth9)", "203.0.113.7"}},
		{name: "link-local of another zone", open: "fe80::1%eth1", devices: []double.Device{nic("mlx5_0")}, is: verbs.ErrNoDevice},
		{name: "subnet elsewhere", open: "mlx5_0@10.0.0.0/8", devices: []double.Device{nic("mlx5_0")}, is: verbs.ErrNoDevice, says: []string{"subnet 10.0.0.0/8"}},
		{name: "placed on a port that is down", open: "mlx5_0@10.0.0.0/8", devices: []double.Device{down("mlx5_0")}, is: verbs.ErrNoDevice, says: []string{"subnet 10.0.0.0/8"}},
		{name: "none of several", open: "10.1.1.1", devices: []double.Device{nic("mlx5_0"), down("mlx5_1")}, is: verbs.ErrNoDevice, says: []string{"on mlx5_0", "on mlx5_1", "; "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := world(t, c.devices...)
			for _, name := range c.sysfs {
				if err := os.MkdirAll(filepath.Join(p.sysfs, "class/infiniband", name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.before != nil {
				c.before()
			}
			d, err := p.Open(c.open)
			if d != nil {
				t.Fatalf("opened %s", d.Name())
			}
			wantError(t, err, c.is, append(c.says, "open RDMA device")...)
		})
	}
}

// TestRealLibraryHere runs the real library. On a host without RDMA it says so;
// on one with, it opens something or says why not.
func TestRealLibraryHere(t *testing.T) {
	d, err := New(Config{}).Open("no-such-device")
	if d != nil {
		t.Fatal("opened a device that does not exist")
	}
	wantError(t, err, nil, "no-such-device")
	if _, statErr := os.Stat("/sys/class/infiniband"); statErr != nil {
		wantError(t, err, verbs.ErrNoDevice, "soft provider")
	}
}

func TestPortDownHasNoAddressYet(t *testing.T) {
	d := down("mlx5_0")
	d.GIDs = nil
	p := world(t, d)
	dev, err := p.Open("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	port, err := dev.Port()
	if err != nil || port.Active || port.Address.IsValid() {
		t.Errorf("port %+v, %v", port, err)
	}
	double.SetPort(0, defaultPort())
	_, err = dev.Port()
	wantError(t, err, verbs.ErrNoDevice, "GID table is empty")
	double.SetGIDs(0, defaultGIDs())
	if port, err = dev.Port(); err != nil || !port.Active || port.Address != hostAddress {
		t.Errorf("port %+v, %v", port, err)
	}
}

func TestPortMTUAndSpeed(t *testing.T) {
	p := world(t, nic("mlx5_0"))
	dev, err := p.Open("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, c := range []struct {
		port  double.Port
		mtu   int
		speed float64
	}{
		{double.Port{MTU: 1, Width: 1, Speed: 4}, 256, 10},
		{double.Port{MTU: 3, Width: 2, Speed: 4}, 1024, 40},
		{double.Port{MTU: 5, Width: 2, Speed: 64}, 4096, 200},
		{double.Port{MTU: 5, Width: 16, Speed: 64}, 4096, 100},
		{double.Port{MTU: 5, Width: 2, Speed: 7}, 4096, 0},
	} {
		c.port.State, c.port.LinkLayer = double.PortActive, double.Ethernet
		double.SetPort(0, c.port)
		if a, err := dev.Port(); err != nil || int(a.MTU) != c.mtu || a.SpeedGbps != c.speed {
			t.Errorf("%+v: %+v, %v", c.port, a, err)
		}
	}
	// The kernel's word goes before the product of lanes and their speed.
	file := filepath.Join(p.sysfs, "class/net", ethName, "speed")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("25000\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if a, err := dev.Port(); err != nil || a.SpeedGbps != 25 {
		t.Errorf("%+v, %v, want 25 Gb/s", a, err)
	}
	if err := os.WriteFile(file, []byte("-1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	double.SetPort(0, defaultPort())
	if a, err := dev.Port(); err != nil || a.SpeedGbps != 100 {
		t.Errorf("%+v, %v, want 100 Gb/s", a, err)
	}
	bad := defaultPort()
	bad.MTU = 0
	double.SetPort(0, bad)
	if _, err := dev.Port(); err == nil {
		t.Error("an MTU code of 0 is taken")
	}
}

func TestLargeGIDTable(t *testing.T) {
	d := nic("mlx5_0")
	p := world(t, d)
	dev, err := p.Open("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	double.Fail("query_gid_table", syscall.EINVAL, 0, 2) // as for a table that is too small
	if port, err := dev.Port(); err != nil || port.Address != hostAddress {
		t.Errorf("%+v, %v", port, err)
	}
}

func TestInterfaceWithoutMAC(t *testing.T) {
	p := world(t, nic("mlx5_0"))
	p.netdevs = func() ([]netdev, error) {
		n, err := testNetdevs()
		n[1].mac = [6]byte{}
		return n, err
	}
	dev, err := p.Open("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if port, err := dev.Port(); err != nil || port.MAC != [6]byte{2, 0, 192, 0, 2, 7} {
		t.Errorf("%+v, %v", port, err)
	}
}

func TestNetdevsHere(t *testing.T) {
	ns, err := netdevs()
	if err != nil {
		t.Fatal(err)
	}
	for i := range ns {
		if ns[i].has(netip.MustParseAddr("127.0.0.1")) {
			return
		}
	}
	t.Errorf("no interface has 127.0.0.1: %+v", ns)
}

func TestCounters(t *testing.T) {
	p := world(t, nic("mlx5_0"))
	dev, err := p.Open("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if m := dev.Counters(); len(m) != 0 {
		t.Errorf("counters of a device without any: %v", m)
	}
	port := filepath.Join(p.sysfs, "class/infiniband/mlx5_0/ports/1")
	for name, text := range map[string]string{
		"counters/port_rcv_data": "1000\n", "counters/port_xmit_data": "3\n", "counters/port_rcv_packets": "18446744073709551615\n",
		"counters/symbol_error": "N/A (no PMA)\n", "hw_counters/out_of_sequence": "7\n", "hw_counters/lifespan": "10\n", "hw_counters/broken": "\n",
		"hw_counters/negative": "-1",
	} {
		file := filepath.Join(port, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	got := dev.Counters()
	want := map[string]uint64{"port_rcv_bytes": 4000, "port_xmit_bytes": 12, "port_rcv_packets": 1<<64 - 1, "out_of_sequence": 7}
	if len(got) != len(want) {
		t.Errorf("counters %v, want %v", got, want)
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %d, want %d", name, got[name], v)
		}
	}
}

func TestMemlock(t *testing.T) {
	m := parseStatus("Name:\tx\nVmLck:\t       4 kB\nVmPin:\t    2048 kB\nCapEff:\t0000000000004000\n")
	if m.pinned != 2<<20 || !m.exempt {
		t.Errorf("%+v", m)
	}
	if m = parseStatus("VmPin:\t  0 kB\nCapEff:\t0000000000000001\n"); m.pinned != 0 || m.exempt {
		t.Errorf("%+v", m)
	}
	for _, c := range []struct {
		m    memlock
		need uint64
		want bool
	}{
		{memlock{limit: 100}, 100, false},
		{memlock{limit: 100}, 101, true},
		{memlock{limit: 100, pinned: 1}, 100, true},
		{memlock{limit: 100, pinned: 200}, 0, true},
		{memlock{limit: 100, exempt: true}, 101, false},
		{memlock{limit: 1<<64 - 1}, 1 << 63, false},
	} {
		if got := c.m.short(c.need); got != c.want {
			t.Errorf("%+v short of %d: %v", c.m, c.need, got)
		}
	}
	here, err := readMemlock()
	if err != nil {
		t.Fatal(err)
	}
	if s := here.remedy(7); !strings.Contains(s, "LimitMEMLOCK") || !strings.Contains(s, "7 more") {
		t.Error(s)
	}
}
