package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// examine lays a tree, examines it and checks what must hold for any report.
func examine(t testing.TB, c Config, parts ...files) Report {
	t.Helper()
	if c.Root == "" {
		c.Root = lay(t, parts...)
	}
	if c.System == nil {
		c.System = ordinary()
	}
	r, err := Examine(c)
	if err != nil {
		t.Fatal(err)
	}
	sound(t, r)
	return r
}

// sound checks that a report agrees with itself and can be shown.
func sound(t testing.TB, r Report) {
	t.Helper()
	worst := OK
	for _, c := range r.Checks {
		if c.Subject == "" || c.Name == "" || c.Found == "" {
			t.Errorf("incomplete: %+v", c)
		}
		if (c.State == OK) != (c.Remedy == "") {
			t.Errorf("%s/%s is %s with remedy %q", c.Subject, c.Name, c.State, c.Remedy)
		}
		for _, s := range append([]string{c.Subject, c.Name, c.Found, c.Remedy}, c.Details...) {
			if len(s) > 4096 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '\uFFFD' }) {
				t.Errorf("%s/%s is not fit for output: %.200q", c.Subject, c.Name, s)
			}
		}
		if c.State == Fail || c.State == Warn && worst == OK {
			worst = c.State
		}
	}
	if r.State != worst {
		t.Errorf("state %s, the worst check is %s", r.State, worst)
	}
	var text bytes.Buffer
	if err := r.Text(&text, false); err != nil {
		t.Error(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil || len(back.Checks) != len(r.Checks) {
		t.Errorf("JSON does not come back: %v", err)
	}
}

// TestExamples compares whole outputs with those in README.md.
func TestExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		command string
		tree    files
		c       Config
	}{
		{"rocectl doctor --device mlx5_0", mlx5(), Config{Device: "mlx5_0"}},
		{"rocectl doctor --device rxe0", rxe(), Config{Device: "rxe0", System: func() System { f := ordinary(); f.limit = 8 << 20; return f }()}},
		{"rocectl doctor", baseHost(), Config{System: func() System {
			f := ordinary()
			f.interfaces = append(f.interfaces[:1], f.interfaces[2])
			return f
		}()}},
	} {
		r := examine(t, tc.c, tc.tree)
		var b strings.Builder
		b.WriteString("$ " + tc.command + "\n")
		if err := r.Text(&b, false); err != nil {
			t.Fatal(err)
		}
		block := ""
		for line := range strings.Lines(b.String()) {
			block += "    " + line
		}
		if !strings.Contains(string(readme), block) {
			t.Errorf("README.md does not show what is printed:\n%s", block)
		}
	}
}

func TestMlx5IsReady(t *testing.T) {
	r := examine(t, Config{}, mlx5())
	if r.State != OK {
		t.Errorf("state %s: %+v", r.State, r.Checks)
	}
	d := r.Devices[0]
	if len(r.Devices) != 1 || !d.Ready || d.Name != "mlx5_0" || d.Netdev != "ens3f0np0" || d.Address != "192.0.2.10" || d.MTU != 4096 ||
		*d.GIDIndex != 3 || *d.NUMANode != 1 || d.CPUs != "16-31,48-63" || len(d.GIDs) != 4 {
		t.Errorf("%+v", d)
	}
}

func TestChecks(t *testing.T) {
	with := func(change func(*fake)) *fake { f := ordinary(); change(f); return f }
	oneTable := func(device string, rows ...[3]string) files {
		f := files{}
		for i := range 6 {
			gid(f, device, i, "", "", "")
		}
		for i, r := range rows {
			gid(f, device, i, r[0], r[1], r[2])
		}
		return f
	}
	const v4 = "0000:0000:0000:0000:0000:ffff:c000:020a\n"
	for _, tc := range []struct {
		name           string
		tree, change   files
		system         *fake
		device         string
		region         uint64
		subject, check string
		state          State
		found, remedy  string
		failing        []string // all checks that fail, if not only this one
		nothing        bool     // the check must not be there
	}{
		{name: "InfiniBand link layer", tree: mlx5(), change: files{mlx5IB + "/ports/1/link_layer": "InfiniBand\n"},
			check: "link layer", state: Fail, found: "InfiniBand", remedy: "LINK_TYPE_P1=2"},
		{name: "link layer not told", tree: mlx5(), change: files{mlx5IB + "/ports/1/link_layer": ""},
			check: "link layer", state: Warn, found: "not told", remedy: "rdma link show mlx5_0/1"},
		{name: "no RoCE v2", tree: mlx5(), change: oneTable(mlx5IB, [3]string{v4, "IB/RoCE v1\n", "ens3f0np0\n"}),
			check: "gid", state: Fail, found: "none of 1 GIDs", remedy: "RoCE v1 alone"},
		{name: "empty table", tree: mlx5(), change: oneTable(mlx5IB, [3]string{zeroGID, "", ""}),
			check: "gid", state: Fail, found: "table is empty", remedy: "ip address add ADDRESS/LENGTH dev ens3f0np0"},
		{name: "interface not told", tree: mlx5(), change: oneTable(mlx5IB, [3]string{v4, "RoCE v2\n", ""}),
			check: "gid", state: OK, found: "index 0: RoCE v2 192.0.2.10 on ens3f0np0"},
		{name: "foreign namespace", tree: mlx5(), change: oneTable(mlx5IB, [3]string{"0000:0000:0000:0000:0000:ffff:cb00:7101\n", "RoCE v2\n", ""}),
			check: "gid", state: Fail, found: "none of 1 GIDs", remedy: "ip netns exec"},
		{name: "foreign netdev is not here", tree: mlx5(), change: oneTable(mlx5IB, [3]string{v4, "RoCE v2\n", "veth9\n"}),
			check: "gid", state: Fail, found: "none of 1 GIDs", remedy: "ip netns exec"},
		{name: "address of another", tree: mlx5(), change: oneTable(mlx5IB, [3]string{"0000:0000:0000:0000:0000:ffff:cb00:7101\n", "RoCE v2\n", "ens3f0np0\n"}),
			check: "gid", state: Fail, found: "none of 1 GIDs"},
		{name: "foreign ones are passed over", tree: mlx5(), change: oneTable(mlx5IB,
			[3]string{"0000:0000:0000:0000:0000:ffff:cb00:7101\n", "RoCE v2\n", "ens3f0np0\n"}, [3]string{v4, "RoCE v2\n", "veth9\n"}, [3]string{v4, "RoCE v2\n", "ens3f0np0\n"}),
			check: "gid", state: OK, found: "index 2: RoCE v2 192.0.2.10"},
		{name: "link-local alone", tree: mlx5(), change: oneTable(mlx5IB, [3]string{"fe80:0000:0000:0000:0000:5eff:fe00:5301\n", "RoCE v2\n", "ens3f0np0\n"}),
			check: "gid", state: Warn, found: "link-local", remedy: "IPv6"},
		{name: "IPv6 before link-local", tree: mlx5(), change: oneTable(mlx5IB,
			[3]string{"fe80:0000:0000:0000:0000:5eff:fe00:5301\n", "RoCE v2\n", "ens3f0np0\n"}, [3]string{"2001:0db8:0000:0000:0000:0000:0000:0001\n", "RoCE v2\n", "ens3f0np0\n"}),
			system: with(func(f *fake) {
				f.interfaces[1].Addresses = append(f.interfaces[1].Addresses, netip.MustParsePrefix("2001:db8::1/64"))
			}),
			check: "gid", state: Warn, found: "index 1: RoCE v2 2001:db8::1", remedy: "the board must do IPv6"},
		{name: "by address", tree: mlx5(), device: "192.0.2.10", subject: "mlx5_0", check: "gid", state: OK, found: "index 3"},
		{name: "by subnet", tree: mlx5(), device: "192.0.2.0/24", subject: "mlx5_0", check: "gid", state: OK, found: "index 3"},
		{name: "by name and subnet", tree: mlx5(), device: "ibverbs:mlx5_0@fe80::/10", check: "gid", state: Warn, found: "index 1: RoCE v2 fe80::"},
		{name: "name and another subnet", tree: mlx5(), device: "mlx5_0@203.0.113.0/24", check: "gid", state: Fail, found: "an address in 203.0.113.0/24"},
		{name: "auto", tree: mlx5(), device: "auto", check: "gid", state: OK, found: "index 3"},
		{name: "auto without a device", tree: baseHost(), device: "auto", subject: "host", check: "rdma", state: Warn, found: "no RDMA device"},
		{name: "by another address", tree: mlx5(), device: "192.0.2.99", subject: "192.0.2.99", check: "device", state: Fail, found: "mlx5_0"},
		{name: "wrong name", tree: mlx5(), device: "mlx5_7", subject: "mlx5_7", check: "device", state: Fail, found: "there are mlx5_0", remedy: "name"},
		{name: "a path as name", tree: mlx5(), device: "../net/ens3f0np0", subject: "../net/ens3f0np0", check: "device", state: Fail, found: "there are mlx5_0"},

		{name: "port down", tree: mlx5(), change: files{mlx5IB + "/ports/1/state": "1: DOWN\n", mlx5IB + "/ports/1/phys_state": "2: Polling\n"},
			check: "port", state: Fail, found: "DOWN, Polling", remedy: "FEC"},
		{name: "port disabled", tree: mlx5(), change: files{mlx5IB + "/ports/1/state": "1: DOWN\n", mlx5IB + "/ports/1/phys_state": "3: Disabled\n", mlx5Net + "/operstate": "down\n"},
			check: "port", state: Fail, found: "DOWN, Disabled", remedy: "ip link set dev ens3f0np0 up", failing: []string{"port", "netdev"}},
		{name: "port initialising", tree: mlx5(), change: files{mlx5IB + "/ports/1/state": "2: INIT\n"},
			check: "port", state: Fail, found: "INIT", remedy: "wait"},
		{name: "port state unreadable", tree: mlx5(), change: files{mlx5IB + "/ports/1/state": "\x00\xff\n"},
			check: "port", state: Warn, found: "cannot be read", remedy: "rdma link show mlx5_0/1"},
		{name: "iWARP", tree: mlx5(), change: files{mlx5IB + "/node_type": "4: RNIC\n"}, check: "device", state: Fail, found: "iWARP", remedy: "RoCE"},
		{name: "switch", tree: mlx5(), change: files{mlx5IB + "/node_type": "2: switch\n"}, check: "device", state: Fail, found: "2: switch"},

		{name: "MTU 1500", tree: mlx5(), change: files{mlx5Net + "/mtu": "1500\n"}, check: "path MTU", state: Warn, found: "1024 (", remedy: "mtu 9000"},
		{name: "MTU 2200", tree: mlx5(), change: files{mlx5Net + "/mtu": "2200\n"}, check: "path MTU", state: Warn, found: "2048 ("},
		{name: "MTU 4200", tree: mlx5(), change: files{mlx5Net + "/mtu": "4200\n"}, check: "path MTU", state: OK, found: "4096 ("},
		{name: "MTU 9000", tree: mlx5(), check: "path MTU", state: OK, found: "4096 ("},
		{name: "MTU 68", tree: mlx5(), change: files{mlx5Net + "/mtu": "68\n"}, check: "path MTU", state: Fail, found: "too small"},
		{name: "MTU rubbish", tree: mlx5(), change: files{mlx5Net + "/mtu": "many\n"},
			system: with(func(f *fake) { f.interfaces = f.interfaces[:1]; f.interfacesErr = errors.New("no netlink") }), check: "path MTU", state: Warn, found: "not known"},

		{name: "no permission", tree: mlx5(), system: with(func(f *fake) { f.access = map[string]error{"/dev/infiniband/uverbs0": syscall.EACCES} }),
			check: "permission", state: Fail, found: "/dev/infiniband/uverbs0 0644: permission denied", remedy: "udev"},
		{name: "device cgroup", tree: mlx5(), system: with(func(f *fake) { f.access = map[string]error{"*": syscall.EPERM} }),
			check: "permission", state: Fail, found: "operation not permitted", remedy: "DeviceAllow"},
		{name: "no node in /dev", tree: mlx5(), change: files{"dev/infiniband/uverbs0": ""}, check: "permission", state: Fail, found: "does not exist", remedy: "udevadm"},
		{name: "no uverbs", tree: mlx5(), change: files{"sys/class/infiniband_verbs/uverbs0": ""}, check: "permission", state: Fail, found: "no uverbs node", remedy: "modprobe ib_uverbs"},
		{name: "the node of another device", tree: mlx5(), change: files{mlx5Dir + "/infiniband_verbs/uverbs0/ibdev": "mlx5_1\n"}, check: "permission", state: Fail, found: "no uverbs node"},

		{name: "slot too narrow", tree: mlx5(), change: files{mlx5Dir + "/current_link_speed": "8.0 GT/s PCIe\n", mlx5Dir + "/current_link_width": "8\n"},
			check: "pcie", state: Warn, found: "8 GT/s x8 carries 63 Gb/s, the port 100", remedy: "16 GT/s x16"},
		{name: "slot unknown", tree: mlx5(), change: files{mlx5Dir + "/current_link_speed": "Unknown\n"}, check: "pcie", nothing: true},
		{name: "no slot", tree: rxe(), subject: "rxe0", check: "pcie", nothing: true},

		{name: "NUMA", tree: mlx5(), check: "numa", state: OK, found: "node 1, 32 CPUs: 16-31,48-63"},
		{name: "NUMA -1", tree: mlx5(), change: files{mlx5Dir + "/numa_node": "-1\n"}, check: "numa", state: OK, found: "node -1: no pinning"},
		{name: "NUMA node's own list", tree: mlx5(), change: files{mlx5Dir + "/local_cpulist": "", "sys/devices/system/node/node1/cpulist": "4-7\n"}, check: "numa", state: OK, found: "node 1, 4 CPUs: 4-7"},
		{name: "NUMA list rubbish", tree: mlx5(), change: files{mlx5Dir + "/local_cpulist": "all of them\n"}, check: "numa", state: OK, found: "not told"},

		{name: "no counters", tree: mlx5(), change: files{
			mlx5IB + "/ports/1/counters/port_rcv_data": "", mlx5IB + "/ports/1/counters/port_rcv_packets": "", mlx5IB + "/ports/1/hw_counters/out_of_sequence": "",
			mlx5IB + "/ports/1/hw_counters/out_of_buffer": "", mlx5IB + "/ports/1/hw_counters/duplicate_request": ""}, check: "counters", state: Warn, found: "none"},
		{name: "counters", tree: mlx5(), check: "counters", state: OK, found: "2 of the port, 3 of the hardware (read at most every 10 ms)"},
		{name: "hardware counters alone", tree: rxe(), subject: "rxe0", check: "counters", state: OK, found: "0 of the port, 3 of the hardware"},
		{name: "ECN", tree: mlx5(), check: "congestion", state: OK, found: "answers marks with CNP for priorities 3; never slows down on CNP"},
		{name: "ECN not told", tree: mlx5(), change: files{mlx5Net + "/ecn/roce_np/enable/3": "", mlx5Net + "/ecn/roce_np/enable/0": "", mlx5Net + "/ecn/roce_rp/enable/3": ""},
			check: "congestion", state: OK, found: "dcb pfc show dev ens3f0np0"},
		{name: "no ECN on software", tree: rxe(), subject: "rxe0", check: "congestion", nothing: true},

		{name: "memlock small", tree: mlx5(), system: with(func(f *fake) { f.limit = 8 << 20 }), subject: "host", check: "memlock", state: Fail,
			found: "limit 8.0 MiB, a stream needs 16.0 MiB", remedy: "LimitMEMLOCK=infinity"},
		{name: "memlock for a shell", tree: mlx5(), system: with(func(f *fake) { f.limit = 8 << 20 }), subject: "host", check: "memlock", state: Fail, remedy: "ulimit -l unlimited"},
		{name: "memlock small, small region", tree: mlx5(), system: with(func(f *fake) { f.limit = 8 << 20 }), region: 1 << 20, subject: "host", check: "memlock", state: OK, found: "needs 1.0 MiB"},
		{name: "memlock for one", tree: mlx5(), system: with(func(f *fake) { f.limit = 16 << 20 }), subject: "host", check: "memlock", state: Warn, found: "no second"},
		{name: "memlock lifted", tree: mlx5(), change: files{"proc/self/status": "CapEff:\t0000000000004000\n"}, system: with(func(f *fake) { f.limit = 0 }), subject: "host", check: "memlock", state: OK, found: "CAP_IPC_LOCK"},
		{name: "memlock not read", tree: mlx5(), system: with(func(f *fake) { f.limitErr = syscall.ENOSYS }), subject: "host", check: "memlock", state: Warn, found: "cannot be read"},

		{name: "huge pages taken", tree: mlx5(), change: files{"proc/meminfo": "HugePages_Total: 64\nHugePages_Free: 3\nHugepagesize: 2048 kB\n"}, subject: "host", check: "huge pages", state: Warn,
			found: "3 of 64", remedy: "vm.nr_hugepages=69"},
		{name: "huge pages of 1 GiB", tree: mlx5(), change: files{"proc/meminfo": "HugePages_Total: 1\nHugePages_Free: 1\nHugepagesize: 1048576 kB\n"}, subject: "host", check: "huge pages", state: OK, found: "takes 1"},
		{name: "no huge pages", tree: mlx5(), change: files{"proc/meminfo": "MemTotal: 1 kB\n"}, subject: "host", check: "huge pages", state: Warn, found: "none"},

		{name: "modules", tree: mlx5(), subject: "host", check: "modules", state: OK, found: "ib_core, ib_uverbs, mlx5_ib"},
		{name: "built into the kernel", tree: mlx5(), change: files{"proc/modules": ""}, subject: "host", check: "modules", state: OK},

		{name: "interface in another namespace", tree: mlx5(), change: files{"sys/class/net/ens3f0np0": "", mlx5Net + "/mtu": ""},
			check: "gid", state: Fail, found: "none of 4", failing: []string{"gid", "netdev"}},
		{name: "interfaces cannot be listed", tree: mlx5(), system: with(func(f *fake) { f.interfaces = nil; f.interfacesErr = errors.New("no netlink") }),
			check: "gid", state: OK, found: "index 3"},
		{name: "no interface at all", tree: rxe(), change: files{rxeIB + "/parent": "\n", "sys/class/net/eth0": ""}, subject: "rxe0", check: "netdev", state: Fail, found: "no interface", failing: []string{"netdev", "gid"}},

		{name: "no device", tree: baseHost(), subject: "host", check: "rdma", state: Warn, found: "no RDMA device on this host", remedy: "rocelinkd --device soft:192.0.2.10"},
		{name: "no device, but a NIC that could be", tree: baseHost(), change: files{"sys/class/net/ens3/device/driver": "-> ../../../../bus/pci/drivers/mlx5_core"},
			subject: "host", check: "rdma", state: Warn, found: "modprobe mlx5_ib"},
		{name: "no device, module loaded", tree: baseHost(), change: files{"sys/class/net/ens3/device/driver": "-> ../../x/ice", "sys/module/irdma": "/"},
			subject: "host", check: "rdma", state: Warn, found: "irdma is loaded"},
		{name: "no device of that name", tree: baseHost(), device: "mlx5_0", subject: "mlx5_0", check: "device", state: Fail, found: "no RDMA device on this host", remedy: "soft:192.0.2.10"},

		{name: "soft", tree: baseHost(), device: "soft:198.51.100.7", subject: "soft:198.51.100.7", check: "udp port", state: OK, found: "4791 is free"},
		{name: "soft, port taken", tree: baseHost(), device: "soft:198.51.100.7", system: with(func(f *fake) { f.bind = fmt.Errorf("listen udp: %w", syscall.EADDRINUSE) }),
			subject: "soft:198.51.100.7", check: "udp port", state: Fail, found: "taken", remedy: "ss -ulnp"},
		{name: "soft, may not bind", tree: baseHost(), device: "soft:198.51.100.7", system: with(func(f *fake) { f.bind = syscall.EACCES }),
			subject: "soft:198.51.100.7", check: "udp port", state: Fail, found: "permission denied"},
		{name: "soft, no such address", tree: baseHost(), device: "soft:203.0.113.1", subject: "soft:203.0.113.1", check: "address", state: Fail, remedy: "198.51.100.7"},
		{name: "soft, loopback", tree: baseHost(), device: "soft:127.40.1.2", subject: "soft:127.40.1.2", check: "address", state: OK, found: "loopback"},
		{name: "soft, default", tree: baseHost(), device: "soft:", subject: "soft:127.0.0.1", check: "address", state: OK, found: "loopback"},
		{name: "soft, any address", tree: baseHost(), device: "soft:0.0.0.0", subject: "soft:0.0.0.0", check: "address", state: Fail, remedy: "invariant CRC"},
		{name: "soft, interface down", tree: baseHost(), device: "soft:198.51.100.7", system: with(func(f *fake) { f.interfaces[2].Up = false }),
			subject: "soft:198.51.100.7", check: "address", state: Fail, found: "eth0 is down", remedy: "ip link set dev eth0 up"},
		{name: "soft, small buffers", tree: baseHost(), change: files{"proc/sys/net/core/rmem_max": "212992\n"}, device: "soft:198.51.100.7",
			subject: "soft:198.51.100.7", check: "rmem_max", state: Warn, found: "208.0 KiB", remedy: "sysctl net.core.rmem_max=16777216"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{Device: tc.device, RegionBytes: tc.region}
			if tc.system != nil {
				c.System = tc.system
			}
			if tc.subject == "" {
				tc.subject = "mlx5_0"
			}
			r := examine(t, c, tc.tree, tc.change)
			got, err := find(r, tc.subject, tc.check)
			if tc.nothing {
				if err == nil {
					t.Errorf("%+v should not be there", got)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v in %+v", err, r.Checks)
			}
			if got.State != tc.state || !strings.Contains(got.Found, tc.found) || !strings.Contains(got.Remedy, tc.remedy) {
				t.Errorf("got %+v", got)
			}
			if tc.failing == nil && tc.state == Fail {
				tc.failing = []string{tc.check}
			}
			for _, k := range r.Checks {
				if k.State == Fail && !slices.Contains(tc.failing, k.Name) {
					t.Errorf("this fails as well: %+v", k)
				}
			}
			for _, d := range r.Devices {
				if d.Ready != (len(tc.failing) == 0) {
					t.Errorf("%s ready is %v, failing are %v", d.Name, d.Ready, tc.failing)
				}
			}
		})
	}
}

func TestSeveralDevices(t *testing.T) {
	second := files{"sys/class/infiniband/rxe0": "-> ../../devices/virtual/infiniband/rxe0"}
	for name, content := range rxe() {
		if strings.HasPrefix(name, rxeIB) || strings.HasPrefix(name, rxeNet) || strings.HasPrefix(name, "sys/class/net") {
			second[name] = content
		}
	}
	r := examine(t, Config{}, mlx5(), second)
	// rxe0 has no uverbs node here; that is none of mlx5_0's business.
	if len(r.Devices) != 2 || !r.Devices[0].Ready || r.Devices[1].Ready || !r.Failed() {
		t.Errorf("%+v", r.Devices)
	}
	var b strings.Builder
	if err := r.Text(&b, true); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, red+"FAIL"+plain) || !strings.Contains(s, "ready for rocelinkd --device mlx5_0 (192.0.2.10, GID index 3, path MTU 4096)\n") {
		t.Error(s)
	}
}

// TestMissingFiles takes one file of each tree away at a time, then everything.
func TestMissingFiles(t *testing.T) {
	for _, whole := range []files{mlx5(), rxe()} {
		root := lay(t, whole)
		for name := range whole {
			file := filepath.Join(root, name)
			away := file + ".away"
			if os.Rename(file, away) != nil {
				continue // empty rows of the table
			}
			examine(t, Config{Root: root})
			if err := os.Rename(away, file); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := examine(t, Config{Root: t.TempDir()})
	if r.Failed() {
		t.Errorf("an empty tree: %+v", r.Checks)
	}
	if _, err := Examine(Config{Root: filepath.Join(t.TempDir(), "none"), System: ordinary()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no root: %v", err)
	}
	if _, err := Examine(Config{Device: "mlx5_0@nowhere", Root: t.TempDir(), System: ordinary()}); err == nil || !strings.Contains(err.Error(), "subnet") {
		t.Errorf("bad place: %v", err)
	}
	if _, err := Examine(Config{Device: "soft:nowhere", Root: t.TempDir(), System: ordinary()}); err == nil || !strings.Contains(err.Error(), "soft:ADDRESS") {
		t.Errorf("bad address: %v", err)
	}
}

// TestHostileFiles puts each kind of rubbish in the place of each file.
func TestHostileFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("4: SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func(file string) error{
		"huge":       func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte("9"), maxFile+10), 0o644) },
		"one line":   func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte("é"), 5000), 0o644) },
		"binary":     func(file string) error { return os.WriteFile(file, []byte("\x00\x1b[31m\xff\xfe:\r9\t\x7f"), 0o644) },
		"empty":      func(file string) error { return os.WriteFile(file, nil, 0o644) },
		"overflow":   func(file string) error { return os.WriteFile(file, []byte("99999999999999999999: -1 Gb/sec"), 0o644) },
		"negative":   func(file string) error { return os.WriteFile(file, []byte("-9223372036854775808"), 0o644) },
		"a name":     func(file string) error { return os.WriteFile(file, []byte("../../../.."), 0o644) },
		"loop":       func(file string) error { return os.Symlink(filepath.Base(file), file) },
		"to outside": func(file string) error { return os.Symlink(outside, file) },
		"fifo":       func(file string) error { return syscall.Mkfifo(file, 0o644) },
		"folder":     func(file string) error { return os.Mkdir(file, 0o755) },
		"no reading": func(file string) error { return os.WriteFile(file, []byte("1"), 0) },
	}
	for _, whole := range []files{mlx5(), rxe()} {
		root := lay(t, whole)
		for name := range whole {
			file := filepath.Join(root, name)
			away := filepath.Join(root, "away")
			if os.Rename(file, away) != nil {
				continue
			}
			for kind, put := range kinds {
				if err := put(file); err != nil {
					t.Fatal(kind, err)
				}
				r := examine(t, Config{Root: root})
				for _, c := range r.Checks {
					if strings.Contains(c.Found, "SECRET") {
						t.Errorf("%s left the root: %+v", name, c)
					}
				}
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(away, file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestHostileNames(t *testing.T) {
	r := examine(t, Config{}, baseHost(), files{
		"sys/class/infiniband/\x1b[2Jmlx5":          "/",
		"sys/class/infiniband/plain/ports/1/gids/-": "x\n",
		"sys/class/infiniband_verbs/uverbsX/ibdev":  "plain\n",
	})
	if !r.Failed() {
		t.Error("a device without anything does not fail")
	}
}

// TestThisHost asks the system itself.
func TestThisHost(t *testing.T) {
	s, err := thisHost()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("not on this system: Linux only")
	}
	if err != nil {
		t.Fatal(err)
	}
	r := examine(t, Config{Root: t.TempDir(), System: s, Device: "soft:127.40.0.1"})
	if c, err := find(r, "soft:127.40.0.1", "address"); err != nil || c.State != OK || r.Devices[0].Netdev == "" {
		t.Errorf("loopback: %+v, %v", c, err)
	}
	a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 40, byte(os.Getpid() >> 8), byte(os.Getpid())}), 4791)
	if err := s.BindUDP(a); err != nil {
		t.Errorf("bind %v: %v", a, err)
	}
	if err := s.BindUDP(netip.MustParseAddrPort("203.0.113.77:4791")); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("bind an address of nobody: %v", err)
	}
	if _, err := s.LockLimit(); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := s.Access(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := s.Access("/dev/null"); err != nil {
		t.Errorf("/dev/null: %v", err)
	}
	if _, err := Examine(Config{}); err != nil {
		t.Errorf("this host: %v", err)
	}
}
