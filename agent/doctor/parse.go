package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// parseGID parses a GID as sysfs writes it: eight groups of four hexadecimal
// digits. An IPv4-mapped GID becomes the IPv4 address.
func parseGID(s string) (netip.Addr, error) {
	if len(s) != 39 {
		return netip.Addr{}, fmt.Errorf("GID %q: want eight groups of four digits", clean(s))
	}
	for i := range len(s) {
		if colon := i%5 == 4; colon != (s[i] == ':') {
			return netip.Addr{}, fmt.Errorf("GID %q: want eight groups of four digits", clean(s))
		}
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("GID %q: %w", clean(s), err)
	}
	return a.Unmap(), nil
}

// parseNumbered parses "4: ACTIVE", as sysfs writes states and node types.
func parseNumbered(s string) (number int, name string, ok bool) {
	n, name, found := strings.Cut(s, ":")
	number, err := strconv.Atoi(strings.TrimSpace(n))
	return number, strings.TrimSpace(name), found && err == nil
}

// parseRate parses "100 Gb/sec (4X EDR)"; 0: not known.
func parseRate(s string) (gbps float64) {
	number, unit, _ := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(v > 0 && v < 1e6) {
		return 0
	}
	return v
}

// parseLinkSpeed parses "16.0 GT/s PCIe"; 0: not known.
func parseLinkSpeed(s string) (gtps float64) {
	number, unit, _ := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "GT/s") || !(v > 0 && v < 1e4) {
		return 0
	}
	return v
}

// maxCPU bounds the numbers of a CPU list (CONFIG_NR_CPUS is at most 8192).
const maxCPU = 1 << 16

// parseCPUList parses "0-3,8,10-11" and returns how many CPUs there are and
// the first of them.
func parseCPUList(s string) (count, first int, err error) {
	first = -1
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		a, err1 := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || a < 0 || b < a || b >= maxCPU {
			return 0, -1, fmt.Errorf("CPU list %q: want numbers and ranges, as 0-3,8", clean(s))
		}
		count += b - a + 1
		if first < 0 || a < first {
			first = a
		}
	}
	return count, first, nil
}

// parseModules returns the names of /proc/modules, sorted.
func parseModules(s string) []string {
	var names []string
	for line := range strings.Lines(s) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "" {
			names = append(names, clean(name))
		}
	}
	slices.Sort(names)
	return names
}

// parseField finds "Name: value" in a file of such lines.
func parseField(s, name string) (value string, ok bool) {
	for line := range strings.Lines(s) {
		if n, v, found := strings.Cut(line, ":"); found && n == name {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// capIPCLock is CAP_IPC_LOCK (linux/capability.h): no limit on locked memory.
const capIPCLock = 14

// parseCapability reports whether /proc/self/status grants a capability.
func parseCapability(status string, bit uint) bool {
	v, _ := parseField(status, "CapEff")
	caps, err := strconv.ParseUint(v, 16, 64)
	return err == nil && caps>>bit&1 != 0
}

// hugePool is the pool of huge pages of the default size.
type hugePool struct{ total, free, pageBytes uint64 }

// parseHugePages reads the pool from /proc/meminfo.
func parseHugePages(meminfo string) (p hugePool, ok bool) {
	get := func(name, unit string) (uint64, bool) {
		v, _ := parseField(meminfo, name)
		if unit != "" {
			number, found := strings.CutSuffix(v, unit)
			if !found {
				return 0, false
			}
			v = strings.TrimSpace(number)
		}
		n, err := strconv.ParseUint(v, 10, 64)
		return n, err == nil && n < 1<<40
	}
	var ok1, ok2, ok3 bool
	p.total, ok1 = get("HugePages_Total", "")
	p.free, ok2 = get("HugePages_Free", "")
	p.pageBytes, ok3 = get("Hugepagesize", "kB")
	p.pageBytes <<= 10
	return p, ok1 && ok2 && ok3 && p.pageBytes > 0
}
