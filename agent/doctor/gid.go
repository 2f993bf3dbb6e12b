package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// GID is an entry of a device's table that is not empty.
type GID struct {
	Index   int    `json:"index"`
	Address string `json:"address"`
	Type    string `json:"type"`
	Netdev  string `json:"netdev,omitempty"`
	// Unusable is why the entry is passed over; "" if it could be chosen.
	Unusable string `json:"unusable,omitempty"`

	address netip.Addr
}

// typeRoCEv2 is how sysfs calls RoCE v2 (Linux,
// drivers/infiniband/core/cache.c, gid_type_str).
const typeRoCEv2 = "RoCE v2"

// gids reads the table of port 1.
func (x *examination) gids(device string) []GID {
	port := port1(device)
	var table []GID
	for _, name := range x.list(port, "gids") {
		index, err := strconv.Atoi(name)
		if err != nil || index < 0 {
			continue
		}
		a, err := parseGID(x.text(port, "gids", name))
		// An empty entry is zero, or the link-local prefix alone.
		if err != nil || a.IsUnspecified() || a == netip.MustParseAddr("fe80::") {
			continue
		}
		g := GID{
			Index: index, Address: a.String(), address: a,
			Type: x.text(port, "gid_attrs", "types", name), Netdev: x.text(port, "gid_attrs", "ndevs", name),
		}
		if g.Netdev == "" {
			// Old kernels do not tell; the address does.
			for _, name := range slices.Sorted(maps.Keys(x.interfaces)) {
				if x.interfaces[name].has(a) {
					g.Netdev = clean(name)
					break
				}
			}
		}
		g.Unusable = x.unusable(g)
		table = append(table, g)
	}
	slices.SortFunc(table, func(a, b GID) int { return a.Index - b.Index })
	return table
}

// unusable says why an entry cannot carry a stream.
func (x *examination) unusable(g GID) string {
	switch {
	case g.Type != typeRoCEv2:
		return "not RoCE v2"
	case g.address.IsMulticast():
		return "a group address"
	case !plainName(g.Netdev) || !x.exists(classNet, g.Netdev):
		return "foreign: its interface is not in this network namespace"
	case x.blind || x.interfaces[g.Netdev].has(g.address):
		return ""
	}
	return "foreign: " + g.Netdev + " does not have this address"
}

// chooseGID returns the entry that will be used: RoCE v2 with an IPv4 address,
// then a global IPv6 one, then a link-local one, the lowest index of each. -1:
// there is none that fits.
func chooseGID(table []GID, want target) int {
	best, bestRank := -1, 0
	for i, g := range table {
		if g.Unusable != "" || !want.fits(g.address) {
			continue
		}
		rank := 1
		switch {
		case g.address.Is4():
			rank = 3
		case !g.address.IsLinkLocalUnicast():
			rank = 2
		}
		if rank > bestRank {
			best, bestRank = i, rank
		}
	}
	return best
}

// gidLines writes a table for people.
func gidLines(table []GID, chosen int) []string {
	const most = 32
	wide := [3]int{1, 7, 7}
	for _, g := range table {
		wide[0] = max(wide[0], len(strconv.Itoa(g.Index)))
		wide[1] = max(wide[1], len(g.Address))
		wide[2] = max(wide[2], min(len(g.Type), 16))
	}
	var lines []string
	for i, g := range table {
		if i == most {
			return append(lines, fmt.Sprintf("and %d more", len(table)-most))
		}
		note := g.Unusable
		switch {
		case i == chosen:
			note = "<- used"
		case note == "":
			note = "usable"
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%*d  %-*s  %-*s  %-15s  %s", wide[0], g.Index, wide[1], g.Address, wide[2], g.Type, g.Netdev, note), " "))
	}
	return lines
}

// plainName reports whether a name read from a file is one element of a path.
func plainName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

func (x *examination) checkGID(device string, table []GID, chosen int, want target, netdev string) {
	lines := gidLines(table, chosen)
	on := "the interface"
	if netdev != "" {
		on = netdev
	}
	if chosen < 0 {
		found := "the GID table is empty"
		if len(table) > 0 {
			found = fmt.Sprintf("none of %d GIDs is RoCE v2 on an address of this host", len(table))
		}
		if where := want.where(); where != "" {
			found = fmt.Sprintf("none of %d GIDs is RoCE v2 on %s", len(table), where)
		}
		remedy := "give it an address: ip address add ADDRESS/LENGTH dev " + on
		if v1 := slices.ContainsFunc(table, func(g GID) bool { return strings.Contains(g.Type, "RoCE v1") }); v1 &&
			!slices.ContainsFunc(table, func(g GID) bool { return g.Type == typeRoCEv2 }) {
			remedy = "the device offers RoCE v1 alone: enable RoCE v2 in its firmware or driver, or take another"
		} else if foreign := slices.ContainsFunc(table, func(g GID) bool { return strings.HasPrefix(g.Unusable, "foreign") }); foreign {
			remedy += ", or run where the interfaces of these GIDs are (ip netns exec)"
		}
		x.add(device, "gid", Fail, found, remedy, lines...)
		return
	}
	g := table[chosen]
	found := fmt.Sprintf("index %d: %s %s on %s", g.Index, g.Type, g.Address, g.Netdev)
	switch {
	case g.address.Is4():
		x.add(device, "gid", OK, found, "", lines...)
	case g.address.IsLinkLocalUnicast():
		x.add(device, "gid", Warn, found+", link-local", "no router passes it on and the board must do IPv6: ip address add ADDRESS/LENGTH dev "+g.Netdev, lines...)
	default:
		x.add(device, "gid", Warn, found, "the board must do IPv6; if it does not: ip address add IPV4-ADDRESS/LENGTH dev "+g.Netdev, lines...)
	}
}
