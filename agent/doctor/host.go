package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"rocelink/agent/report"
)

// rdmaModules are kernel modules that make or serve RDMA devices.
var rdmaModules = []string{
	"bnxt_re", "efa", "erdma", "hns_roce_hw_v2", "ib_core", "ib_uverbs", "ionic_rdma", "irdma", "mana_ib", "mlx4_ib",
	"mlx5_ib", "ocrdma", "qedr", "rdma_cm", "rdma_rxe", "siw",
}

// rdmaModuleOf is the module that makes an RDMA device of what an Ethernet
// driver drives.
var rdmaModuleOf = map[string]string{
	"bnxt_en": "bnxt_re", "hns3": "hns_roce_hw_v2", "i40e": "irdma", "ice": "irdma", "ionic": "ionic_rdma",
	"mlx4_core": "mlx4_ib", "mlx4_en": "mlx4_ib", "mlx5_core": "mlx5_ib", "qede": "qedr",
}

// noDevice says in a line that there is none, and why if that can be seen.
func (x *examination) noDevice() string {
	const found = "no RDMA device on this host: nothing in /sys/class/infiniband"
	for _, n := range x.list(classNet) {
		driver := x.target(classNet, n, "device", "driver")
		if m := rdmaModuleOf[driver]; m != "" {
			if x.exists("sys/module", m) {
				return fmt.Sprintf("%s, although %s (%s) could be one and %s is loaded", found, clean(n), driver, m)
			}
			return fmt.Sprintf("%s, but %s (%s) may be one: modprobe %s", found, clean(n), driver, m)
		}
	}
	return found
}

func (x *examination) modules() {
	text, err := x.read("proc/modules")
	loaded := parseModules(text)
	var have []string
	for _, m := range rdmaModules {
		if _, found := slices.BinarySearch(loaded, m); found || x.exists("sys/module", m) {
			have = append(have, m)
		}
	}
	found := strings.Join(have, ", ")
	// What is built into the kernel is in neither list.
	switch {
	case !slices.Contains(have, "ib_uverbs") && !x.exists(classVerbs):
		if found == "" {
			found = "none"
		}
		x.add(hostSubject, "modules", Fail, found+"; ib_uverbs is missing", "modprobe ib_uverbs; to have it after the next start: echo ib_uverbs >/etc/modules-load.d/rocelink.conf")
	case found == "" && err != nil:
		x.add(hostSubject, "modules", OK, "the list cannot be read, but verbs are there", "")
	case found == "":
		x.add(hostSubject, "modules", OK, "built into the kernel", "")
	default:
		x.add(hostSubject, "modules", OK, found, "")
	}
}

func (x *examination) memlock() {
	need := report.Bytes(x.region)
	fix := "in a shell ulimit -l unlimited (as root), or for a user the line \"USER - memlock unlimited\" in /etc/security/limits.d/rocelink.conf and a new login; in a unit LimitMEMLOCK=infinity"
	limit, err := x.system.LockLimit()
	status, _ := x.read("proc/self/status")
	switch {
	case err != nil:
		x.add(hostSubject, "memlock", Warn, "the limit cannot be read: "+clean(err.Error()), "a stream needs "+need+": "+fix)
	case limit == Unlimited:
		x.add(hostSubject, "memlock", OK, "unlimited", "")
	case parseCapability(status, capIPCLock):
		x.add(hostSubject, "memlock", OK, fmt.Sprintf("%s, which CAP_IPC_LOCK lifts for this user", report.Bytes(limit)), "")
	case limit < x.region:
		x.add(hostSubject, "memlock", Fail, fmt.Sprintf("limit %s, a stream needs %s", report.Bytes(limit), need), fix)
	case limit < 2*x.region:
		x.add(hostSubject, "memlock", Warn, fmt.Sprintf("limit %s: one stream of %s, no second", report.Bytes(limit), need), fix)
	default:
		x.add(hostSubject, "memlock", OK, fmt.Sprintf("limit %s, a stream needs %s", report.Bytes(limit), need), "")
	}
}

func (x *examination) hugePages() {
	text, _ := x.read("proc/meminfo")
	p, ok := parseHugePages(text)
	if !ok {
		x.add(hostSubject, "huge pages", Warn, "the kernel has none, or /proc/meminfo cannot be read", "regions will be on normal pages: more work for the NIC's address translation, nothing else")
		return
	}
	size := report.Bytes(p.pageBytes)
	pages := x.region / p.pageBytes
	if x.region%p.pageBytes > 0 {
		pages++
	}
	found := fmt.Sprintf("%d of %d pages of %s free, a stream of %s takes %d", p.free, p.total, size, report.Bytes(x.region), pages)
	if p.free >= pages {
		x.add(hostSubject, "huge pages", OK, found, "")
		return
	}
	more := p.total + pages - p.free
	x.add(hostSubject, "huge pages", Warn, found, fmt.Sprintf(
		"sysctl vm.nr_hugepages=%d, and the same in /etc/sysctl.d/rocelink.conf; without, regions are on normal pages: more work for the NIC's address translation, nothing else", more))
}

// socketBuffer is what the software provider asks for.
const socketBuffer = 16 << 20

func (x *examination) socketBuffers(subject string) {
	for _, name := range []string{"rmem_max", "wmem_max"} {
		v, ok := x.number(path.Join("proc/sys/net/core", name))
		switch {
		case !ok:
			x.add(subject, name, Warn, "not known", "look at it: sysctl net.core."+name)
		case v < socketBuffer:
			cost := "bursts are lost and sent again"
			if name == "wmem_max" {
				cost = "answers wait or are dropped under load"
			}
			x.add(subject, name, Warn, fmt.Sprintf("%s, the provider asks for %s", report.Bytes(uint64(max(v, 0))), report.Bytes(socketBuffer)),
				fmt.Sprintf("%s: sysctl net.core.%s=%d, and the same in /etc/sysctl.d/rocelink.conf", cost, name, socketBuffer))
		default:
			x.add(subject, name, OK, report.Bytes(uint64(v)), "")
		}
	}
}
