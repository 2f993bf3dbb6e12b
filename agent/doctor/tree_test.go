package doctor

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// files is a made-up tree: a path to its content, to a symbolic link's target
// ("-> TARGET"), or to a folder ("/").
type files map[string]string

// lay makes the tree in a folder of the test's own.
func lay(t testing.TB, parts ...files) string {
	t.Helper()
	root := t.TempDir()
	all := files{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	for name, content := range all {
		if content == "" {
			continue // taken away by a later part
		}
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case content == "/":
			err = os.MkdirAll(file, 0o755)
		case len(content) > 3 && content[:3] == "-> ":
			err = os.Symlink(content[3:], file)
		default:
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	mlx5Dir = "sys/devices/pci0000:00/0000:00:02.0/0000:3b:00.0"
	mlx5Net = mlx5Dir + "/net/ens3f0np0"
	mlx5IB  = mlx5Dir + "/infiniband/mlx5_0"
	rxeIB   = "sys/devices/virtual/infiniband/rxe0"
	rxeNet  = "sys/devices/virtual/net/eth0"
	zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000\n"
)

// baseHost has verbs, huge pages and room in the sockets.
func baseHost() files {
	return files{
		"proc/modules":                           "mlx5_ib 434176 0 - Live 0x0000000000000000\nib_uverbs 188416 1 mlx5_ib, Live 0x0\nib_core 487424 2 mlx5_ib,ib_uverbs, Live 0x0\nmlx5_core 1929216 1 mlx5_ib, Live 0x0\nxfs 1 0 - Live 0x0\n",
		"proc/meminfo":                           "MemTotal:       65536000 kB\nHugePages_Total:      64\nHugePages_Free:       64\nHugePages_Rsvd:        0\nHugepagesize:       2048 kB\n",
		"proc/self/status":                       "Name:\trocectl\nCapInh:\t0000000000000000\nCapEff:\t0000000000000000\n",
		"proc/sys/net/core/rmem_max":             "16777216\n",
		"proc/sys/net/core/wmem_max":             "16777216\n",
		"sys/devices/system/node/online":         "0-1\n",
		"sys/class/infiniband_verbs/abi_version": "6\n",
	}
}

// mlx5 is a 100G NIC with its tables as its driver fills them.
func mlx5() files {
	f := baseHost()
	maps.Copy(f, files{
		"sys/class/infiniband/mlx5_0":                     "-> ../../devices/pci0000:00/0000:00:02.0/0000:3b:00.0/infiniband/mlx5_0",
		"sys/class/net/ens3f0np0":                         "-> ../../devices/pci0000:00/0000:00:02.0/0000:3b:00.0/net/ens3f0np0",
		"sys/class/infiniband_verbs/uverbs0":              "-> ../../devices/pci0000:00/0000:00:02.0/0000:3b:00.0/infiniband_verbs/uverbs0",
		mlx5Dir + "/infiniband_verbs/uverbs0/ibdev":       "mlx5_0\n",
		mlx5Dir + "/infiniband_verbs/uverbs0/abi_version": "1\n",
		"dev/infiniband/uverbs0":                          "\n",
		"sys/bus/pci/drivers/mlx5_core/bind":              "\n",
		mlx5Dir + "/driver":                               "-> ../../../../bus/pci/drivers/mlx5_core",
		mlx5Dir + "/numa_node":                            "1\n",
		mlx5Dir + "/local_cpulist":                        "16-31,48-63\n",
		mlx5Dir + "/current_link_speed":                   "16.0 GT/s PCIe\n",
		mlx5Dir + "/current_link_width":                   "16\n",
		mlx5Dir + "/max_link_speed":                       "16.0 GT/s PCIe\n",
		mlx5Dir + "/max_link_width":                       "16\n",

		mlx5Net + "/device":               "-> ../..",
		mlx5Net + "/mtu":                  "9000\n",
		mlx5Net + "/operstate":            "up\n",
		mlx5Net + "/speed":                "100000\n",
		mlx5Net + "/address":              "02:00:5e:00:53:01\n",
		mlx5Net + "/dev_port":             "0\n",
		mlx5Net + "/ecn/roce_np/enable/3": "1\n",
		mlx5Net + "/ecn/roce_np/enable/0": "0\n",
		mlx5Net + "/ecn/roce_rp/enable/3": "0\n",

		mlx5IB + "/device":             "-> ../..",
		mlx5IB + "/node_type":          "1: CA\n",
		mlx5IB + "/fw_ver":             "22.39.1002\n",
		mlx5IB + "/hca_type":           "MT4125\n",
		mlx5IB + "/board_id":           "MT_0000000359\n",
		mlx5IB + "/ports/1/state":      "4: ACTIVE\n",
		mlx5IB + "/ports/1/phys_state": "5: LinkUp\n",
		mlx5IB + "/ports/1/rate":       "100 Gb/sec (4X EDR)\n",
		mlx5IB + "/ports/1/link_layer": "Ethernet\n",

		mlx5IB + "/ports/1/counters/port_rcv_data":        "123456789\n",
		mlx5IB + "/ports/1/counters/port_rcv_packets":     "98765\n",
		mlx5IB + "/ports/1/hw_counters/out_of_sequence":   "12\n",
		mlx5IB + "/ports/1/hw_counters/out_of_buffer":     "0\n",
		mlx5IB + "/ports/1/hw_counters/lifespan":          "10\n",
		mlx5IB + "/ports/1/hw_counters/duplicate_request": "0\n",
	})
	for i, g := range []struct{ gid, kind, dev string }{
		{"fe80:0000:0000:0000:0000:5eff:fe00:5301\n", "IB/RoCE v1\n", "ens3f0np0\n"},
		{"fe80:0000:0000:0000:0000:5eff:fe00:5301\n", "RoCE v2\n", "ens3f0np0\n"},
		{"0000:0000:0000:0000:0000:ffff:c000:020a\n", "IB/RoCE v1\n", "ens3f0np0\n"},
		{"0000:0000:0000:0000:0000:ffff:c000:020a\n", "RoCE v2\n", "ens3f0np0\n"},
		{zeroGID, "", ""},
		{zeroGID, "", ""},
	} {
		gid(f, mlx5IB, i, g.gid, g.kind, g.dev)
	}
	return f
}

// gid fills one row of a table.
func gid(f files, device string, index int, value, kind, netdev string) {
	n := string(rune('0' + index))
	f[device+"/ports/1/gids/"+n] = value
	f[device+"/ports/1/gid_attrs/types/"+n] = kind
	f[device+"/ports/1/gid_attrs/ndevs/"+n] = netdev
}

// rxe is soft RoCE on eth0, as Linux 6.1 shows it.
func rxe() files {
	f := baseHost()
	maps.Copy(f, files{
		"proc/modules":                                             "rdma_rxe 180224 0 - Live 0x0\nib_uverbs 188416 1 rdma_rxe, Live 0x0\nib_core 487424 2 rdma_rxe,ib_uverbs, Live 0x0\n",
		"sys/class/infiniband/rxe0":                                "-> ../../devices/virtual/infiniband/rxe0",
		"sys/class/infiniband_verbs/uverbs0":                       "-> ../../devices/virtual/infiniband_verbs/uverbs0",
		"sys/class/net/eth0":                                       "-> ../../devices/virtual/net/eth0",
		"sys/devices/virtual/infiniband_verbs/uverbs0/ibdev":       "rxe0\n",
		"sys/devices/virtual/infiniband_verbs/uverbs0/abi_version": "2\n",
		"dev/infiniband/uverbs0":                                   "\n",

		rxeNet + "/mtu":       "1500\n",
		rxeNet + "/operstate": "up\n",
		rxeNet + "/address":   "02:00:5e:00:53:02\n",

		rxeIB + "/node_type":          "1: CA\n",
		rxeIB + "/fw_ver":             "\n",
		rxeIB + "/parent":             "eth0\n",
		rxeIB + "/ports/1/state":      "4: ACTIVE\n",
		rxeIB + "/ports/1/phys_state": "5: LinkUp\n",
		rxeIB + "/ports/1/rate":       "2.5 Gb/sec (1X SDR)\n",
		rxeIB + "/ports/1/link_layer": "Ethernet\n",

		rxeIB + "/ports/1/hw_counters/rcvd_pkts":          "2000\n",
		rxeIB + "/ports/1/hw_counters/duplicate_request":  "0\n",
		rxeIB + "/ports/1/hw_counters/out_of_seq_request": "0\n",
		rxeIB + "/ports/1/hw_counters/lifespan":           "10\n",
	})
	gid(f, rxeIB, 0, "fe80:0000:0000:0000:0000:5eff:fe00:5302\n", "RoCE v2\n", "eth0\n")
	gid(f, rxeIB, 1, "0000:0000:0000:0000:0000:ffff:c633:6407\n", "RoCE v2\n", "eth0\n")
	gid(f, rxeIB, 2, zeroGID, "", "")
	return f
}

// fake is a system without surprises but those asked for.
type fake struct {
	interfaces    []Interface
	interfacesErr error
	access        map[string]error
	limit         uint64
	limitErr      error
	bind          error
}

func ordinary() *fake {
	prefixes := func(s ...string) (list []netip.Prefix) {
		for _, p := range s {
			list = append(list, netip.MustParsePrefix(p))
		}
		return list
	}
	return &fake{limit: Unlimited, interfaces: []Interface{
		{Name: "lo", Up: true, Loopback: true, MTU: 65536, Addresses: prefixes("127.0.0.1/8", "::1/128")},
		{Name: "ens3f0np0", Up: true, MTU: 9000, Addresses: prefixes("192.0.2.10/24", "fe80::5eff:fe00:5301/64")},
		{Name: "eth0", Up: true, MTU: 1500, Addresses: prefixes("198.51.100.7/24", "fe80::5eff:fe00:5302/64")},
	}}
}

func (f *fake) Interfaces() ([]Interface, error) { return f.interfaces, f.interfacesErr }
func (f *fake) Access(path string) error {
	if err, ok := f.access["*"]; ok {
		return err
	}
	return f.access[path]
}
func (f *fake) LockLimit() (uint64, error)   { return f.limit, f.limitErr }
func (f *fake) BindUDP(netip.AddrPort) error { return f.bind }

// find returns the check of a subject and name.
func find(r Report, subject, name string) (Check, error) {
	for _, c := range r.Checks {
		if c.Subject == subject && c.Name == name {
			return c, nil
		}
	}
	return Check{}, errors.New("no check " + subject + "/" + name)
}
