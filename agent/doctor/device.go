package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"rocelink/fpga/roce"
)

// Numbers of sysfs: node types (enum rdma_node_type), port states (enum
// ib_port_state) and physical states (enum ib_port_phys_state) of
// include/rdma/ib_verbs.h.
const (
	nodeCA        = 1
	nodeRNIC      = 4
	portActive    = 4
	portDown      = 1
	physDisabled  = 3
	ethernetLayer = "Ethernet"
)

func port1(device string) string { return path.Join(classInfiniband, device, "ports", "1") }

// rdmaDevice examines one RDMA device for a target.
func (x *examination) rdmaDevice(name string, want target) {
	if clean(name) != name || !plainName(name) {
		x.add(clean(name), "device", Fail, "a device whose name cannot be printed", "rename it: rdma dev set DEVICE name NAME")
		return
	}
	table := x.gids(name)
	chosen := chooseGID(table, want)
	d := Device{Name: name, GIDs: table}
	if chosen >= 0 {
		d.GIDIndex, d.Address = &table[chosen].Index, table[chosen].Address
	}
	d.Netdev = x.netdevOf(name, table, chosen)

	x.checkDevice(name)
	x.checkPort(name)
	if !x.checkLinkLayer(name) {
		// The rest is about Ethernet.
		x.permission(name)
		x.report.Devices = append(x.report.Devices, d)
		return
	}
	x.checkNetdev(name, d.Netdev)
	x.checkGID(name, table, chosen, want, d.Netdev)
	d.MTU = x.checkMTU(name, d.Netdev)
	x.permission(name)
	x.limits(name, table)
	x.pcie(name)
	x.numa(name, &d)
	x.counters(name)
	x.congestion(name, d.Netdev)
	x.report.Devices = append(x.report.Devices, d)
}

// netdevOf finds a device's interface: that of the chosen GID, the one a
// software device was made on, the one of the same PCI function, or that of any
// GID.
func (x *examination) netdevOf(device string, table []GID, chosen int) string {
	if chosen >= 0 {
		return table[chosen].Netdev
	}
	if parent := x.text(classInfiniband, device, "parent"); plainName(parent) && x.exists(classNet, parent) {
		return parent
	}
	for _, n := range x.list(classInfiniband, device, "device", "net") {
		// Ports of one function differ in dev_port, from 0.
		if v, ok := x.number(classNet, n, "dev_port"); plainName(n) && (!ok || v == 0) {
			return clean(n)
		}
	}
	for _, g := range table {
		if plainName(g.Netdev) && x.exists(classNet, g.Netdev) {
			return g.Netdev
		}
	}
	return ""
}

// software reports whether the device is made by a kernel module on top of an
// interface (rdma_rxe, siw).
func (x *examination) software(device string) bool {
	return x.exists(classInfiniband, device, "parent")
}

func (x *examination) checkDevice(name string) {
	dir := path.Join(classInfiniband, name)
	var facts []string
	driver := x.target(dir, "device", "driver")
	switch {
	case driver != "":
		facts = append(facts, "driver "+driver)
	case x.software(name):
		facts = append(facts, "software, on "+x.text(dir, "parent"))
	}
	for _, f := range []struct{ file, what string }{{"hca_type", "type"}, {"board_id", "board"}, {"fw_ver", "firmware"}} {
		if v := x.text(dir, f.file); v != "" {
			facts = append(facts, f.what+" "+v)
		}
	}
	found := strings.Join(facts, ", ")
	if found == "" {
		found = "sysfs tells neither driver nor firmware"
	}
	node := x.text(dir, "node_type")
	switch number, _, ok := parseNumbered(node); {
	case !ok || number == nodeCA:
		x.add(name, "device", OK, found, "")
	case number == nodeRNIC:
		x.add(name, "device", Fail, "iWARP ("+node+"), not RoCE: "+found, "set the NIC to RoCE if it can be (irdma: devlink dev param enable_roce), or take another")
	default:
		x.add(name, "device", Fail, "node type "+node+": "+found, "a channel adapter (1: CA) is needed: take another device")
	}
}

func (x *examination) checkPort(name string) {
	port := port1(name)
	if !x.exists(port) {
		x.add(name, "port", Fail, "there is no port 1", "take another device; a driver that has just been loaded may not be ready yet")
		return
	}
	state, phys, rate := x.text(port, "state"), x.text(port, "phys_state"), x.text(port, "rate")
	number, stateName, ok := parseNumbered(state)
	physNumber, physName, physOK := parseNumbered(phys)
	if !ok {
		x.add(name, "port", Warn, fmt.Sprintf("state %q cannot be read", state), "ask the driver: rdma link show "+name+"/1")
		return
	}
	found := stateName
	if physOK {
		found += ", " + physName
	}
	if number == portActive {
		if rate != "" {
			found += ", " + rate
		}
		x.add(name, "port", OK, found, "")
		return
	}
	remedy := "wait for the link to come up, or look at it: rdma link show " + name + "/1"
	switch {
	case physNumber == physDisabled:
		remedy = "switch the interface on: ip link set dev NETDEV up"
	case number == portDown:
		remedy = "no signal from the other end: check cable and module, that the board sends, and that FEC is the same on both sides (ethtool --show-fec NETDEV)"
	}
	netdev := x.netdevOf(name, nil, -1)
	if netdev == "" {
		netdev = "DEVICE"
	}
	x.add(name, "port", Fail, found, strings.ReplaceAll(remedy, "NETDEV", netdev))
}

func (x *examination) checkLinkLayer(name string) (ethernet bool) {
	switch layer := x.text(port1(name), "link_layer"); layer {
	case ethernetLayer:
		x.add(name, "link layer", OK, layer, "")
	case "":
		x.add(name, "link layer", Warn, "not told by sysfs", "make sure that it is Ethernet: rdma link show "+name+"/1")
	default:
		x.add(name, "link layer", Fail, layer+", but RoCE needs Ethernet",
			"set the port to Ethernet (NVIDIA: mlxconfig -d PCI-ADDRESS set LINK_TYPE_P1=2, then restart), or take another device")
		return false
	}
	return true
}

func (x *examination) checkNetdev(name, netdev string) {
	if netdev == "" {
		x.add(name, "netdev", Fail, "no interface belongs to the device",
			"load the NIC's Ethernet driver, or run in the network namespace where its interface is (rdma system show netns)")
		return
	}
	dir := path.Join(classNet, netdev)
	operstate, mac := x.text(dir, "operstate"), x.text(dir, "address")
	facts := []string{netdev}
	if operstate != "" {
		facts = append(facts, operstate)
	}
	if v, ok := x.number(dir, "speed"); ok && v > 0 {
		facts = append(facts, strconv.FormatFloat(float64(v)/1000, 'f', -1, 64)+" Gb/s")
	}
	if mac != "" {
		facts = append(facts, mac)
	}
	for _, p := range x.interfaces[netdev].Addresses {
		facts = append(facts, p.String())
	}
	found := strings.Join(facts, ", ")
	i, known := x.interfaces[netdev]
	switch {
	case !x.exists(dir):
		x.add(name, "netdev", Fail, netdev+" is not in this network namespace", "run where it is: ip netns exec NAMESPACE rocectl doctor")
	case operstate == "down" || operstate == "lowerlayerdown" || known && !i.Up && operstate != "up":
		x.add(name, "netdev", Fail, found, "ip link set dev "+netdev+" up; if it stays down there is no carrier")
	default:
		x.add(name, "netdev", OK, found, "")
	}
}

// checkMTU returns the path MTU that the interface allows, 0 if that is not
// known.
func (x *examination) checkMTU(subject, netdev string) int {
	v, ok := x.number(classNet, netdev, "mtu")
	if i, known := x.interfaces[netdev]; !ok && known {
		v, ok = int64(i.MTU), true
	}
	if netdev == "" || !ok || v < 0 || v > 1<<30 {
		x.add(subject, "path MTU", Warn, "the interface's MTU is not known", "look at it: ip link show")
		return 0
	}
	m := roce.MTUForNetdev(int(v))
	found := fmt.Sprintf("%d (%s has MTU %d)", m, netdev, v)
	remedy := "ip link set dev " + netdev + " mtu 9000, and as much at the switch and the board"
	switch {
	case m == 0:
		x.add(subject, "path MTU", Fail, fmt.Sprintf("%s has MTU %d, too small for any", netdev, v), remedy)
	case m < roce.MaxMTU:
		x.add(subject, "path MTU", Warn, found, "4096 costs the fewest packets: "+remedy)
	default:
		x.add(subject, "path MTU", OK, found, "")
	}
	return int(m)
}

// verbsDevice finds the uverbs node of a device.
func (x *examination) verbsDevice(name string) string {
	for _, n := range x.list(classVerbs) {
		if number, ok := strings.CutPrefix(n, "uverbs"); ok && x.text(classVerbs, n, "ibdev") == name {
			if _, err := strconv.ParseUint(number, 10, 16); err == nil {
				return n
			}
		}
	}
	return ""
}

func (x *examination) permission(name string) {
	node := x.verbsDevice(name)
	if node == "" {
		x.add(name, "permission", Fail, "the device has no uverbs node", "modprobe ib_uverbs; to have it after the next start: echo ib_uverbs >/etc/modules-load.d/rocelink.conf")
		return
	}
	file := "/dev/infiniband/" + node
	i, err := x.root.Stat(file[1:])
	if err != nil {
		x.add(name, "permission", Fail, file+" does not exist", "have udev make it: udevadm trigger --subsystem-match=infiniband_verbs; in a container pass it in (--device="+file+")")
		return
	}
	found := fmt.Sprintf("%s %04o", file, i.Mode().Perm())
	if err := x.system.Access(file); err != nil {
		x.add(name, "permission", Fail, found+": "+clean(err.Error()),
			"let the user open it for reading and writing: a udev rule with MODE=\"0666\", or the group that owns it; in a unit DeviceAllow=char-infiniband_verbs rw")
		return
	}
	x.add(name, "permission", OK, found+", can be opened", "")
}

// limits says what sysfs tells of the device's limits; how many queue pairs and
// regions it has only the opened device can say.
func (x *examination) limits(name string, table []GID) {
	size := 0
	for _, n := range x.list(port1(name), "gids") {
		if _, err := strconv.ParseUint(n, 10, 16); err == nil {
			size++
		}
	}
	ports := len(x.list(classInfiniband, name, "ports"))
	found := fmt.Sprintf("port 1 of %d, %d of %d GIDs taken", ports, len(table), size)
	if abi := x.text(classVerbs, x.verbsDevice(name), "abi_version"); abi != "" {
		found += ", uverbs ABI " + abi
	}
	x.add(name, "limits", OK, found+"; queue pairs and regions are counted when it is opened", "")
}

// Encodings of PCI Express lanes: 8b/10b to 5 GT/s, 128b/130b above (PCI
// Express Base Specification 4.0, section 4.2).
func laneGbps(gtps float64) float64 {
	if gtps <= 5 {
		return gtps * 8 / 10
	}
	return gtps * 128 / 130
}

// pcie compares the slot with the port. Devices without a slot are left out.
func (x *examination) pcie(name string) {
	dir := path.Join(classInfiniband, name, "device")
	speed := parseLinkSpeed(x.text(dir, "current_link_speed"))
	width, ok := x.number(dir, "current_link_width")
	if speed == 0 || !ok || width < 1 || width > 64 {
		return
	}
	slot, port := laneGbps(speed)*float64(width), parseRate(x.text(port1(name), "rate"))
	found := fmt.Sprintf("%g GT/s x%d carries %.0f Gb/s", speed, width, slot)
	if port <= slot {
		x.add(name, "pcie", OK, found, "")
		return
	}
	remedy := "move the NIC to a slot with more lanes"
	best := parseLinkSpeed(x.text(dir, "max_link_speed"))
	if most, ok := x.number(dir, "max_link_width"); ok && (most > width || best > speed) {
		remedy += fmt.Sprintf(" (it can do %g GT/s x%d), or look in the firmware setup what limits this one", best, most)
	}
	x.add(name, "pcie", Warn, fmt.Sprintf("%s, the port %g", found, port), remedy)
}

// numa finds where receive threads belong.
func (x *examination) numa(name string, d *Device) {
	dir := path.Join(classInfiniband, name, "device")
	node, ok := x.number(dir, "numa_node")
	if !ok && plainName(d.Netdev) {
		dir = path.Join(classNet, d.Netdev, "device")
		node, ok = x.number(dir, "numa_node")
	}
	switch {
	case !ok:
		x.add(name, "numa", OK, "no node is told: no pinning", "")
	case node < 0 || node > 1<<16:
		x.add(name, "numa", OK, fmt.Sprintf("node %d: no pinning", node), "")
	default:
		list := x.text(dir, "local_cpulist")
		if list == "" {
			list = x.text("sys/devices/system/node", fmt.Sprintf("node%d", node), "cpulist")
		}
		n := int(node)
		d.NUMANode = &n
		count, first, err := parseCPUList(list)
		if err != nil {
			x.add(name, "numa", OK, fmt.Sprintf("node %d, its CPUs are not told", node), "")
			return
		}
		d.CPUs = list
		x.add(name, "numa", OK, fmt.Sprintf("node %d, %d CPUs: %s; pin receive threads there (stream setting cpu, from %d)", node, count, list, first), "")
	}
}

// lossCounters tell of trouble when they are not zero: names of rxe, mlx5 and
// bnxt_re.
var lossCounters = []string{
	"duplicate_request", "local_ack_timeout_err", "out_of_buffer", "out_of_seq_request", "out_of_sequence",
	"packet_seq_err", "port_rcv_errors", "port_xmit_discards", "rcvd_rnr_err", "req_cqe_error", "resp_cqe_error",
	"rnr_nak_retry_err", "rx_icrc_encapsulated", "symbol_error",
}

func (x *examination) counters(name string) {
	port := port1(name)
	dirs := []string{path.Join(port, "counters"), path.Join(port, "hw_counters"), path.Join(classInfiniband, name, "hw_counters")}
	var count [3]int
	var details []string
	for i, dir := range dirs {
		for _, n := range x.list(dir) {
			if n == "lifespan" {
				continue
			}
			count[i]++
			if v, ok := x.number(dir, n); ok && v > 0 && slices.Contains(lossCounters, n) {
				details = append(details, fmt.Sprintf("%s is %d since the driver was loaded", clean(n), v))
			}
		}
	}
	hw := count[1] + count[2]
	found := fmt.Sprintf("%d of the port, %d of the hardware", count[0], hw)
	for _, dir := range dirs[1:] {
		if ms, ok := x.number(dir, "lifespan"); ok && ms > 0 {
			found += fmt.Sprintf(" (read at most every %d ms)", ms)
			break
		}
	}
	if count[0]+hw == 0 {
		x.add(name, "counters", Warn, "the device has none", "windows come without the NIC's counts; a newer kernel or driver may have them")
		return
	}
	x.add(name, "counters", OK, found, "", details...)
}

// congestion says what can be read of PFC and ECN: drivers differ, and most of
// it is behind netlink.
func (x *examination) congestion(name, netdev string) {
	if x.software(name) || netdev == "" {
		return
	}
	var facts []string
	for _, side := range []struct{ dir, what string }{{"roce_np", "answers marks with CNP"}, {"roce_rp", "slows down on CNP"}} {
		dir := path.Join(classNet, netdev, "ecn", side.dir, "enable")
		var on []string
		priorities := x.list(dir)
		for _, p := range priorities {
			if v, ok := x.number(dir, p); ok && v != 0 {
				on = append(on, clean(p))
			}
		}
		switch {
		case len(on) > 0:
			facts = append(facts, side.what+" for priorities "+strings.Join(on, " "))
		case len(priorities) > 0:
			facts = append(facts, "never "+side.what)
		}
	}
	if tc := x.text(classInfiniband, name, "tc", "1", "traffic_class"); tc != "" {
		facts = append(facts, tc)
	}
	if len(facts) == 0 {
		facts = append(facts, "ECN and PFC are not told by sysfs; PFC: dcb pfc show dev "+netdev)
	}
	x.add(name, "congestion", OK, strings.Join(facts, "; "), "")
}
