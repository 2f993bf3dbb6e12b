package devicetree

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/u-root/u-root/pkg/dt"
)

// Range is a range of addresses.
type Range struct {
	Name       string
	Base, Size uint64
}

// End is the first address behind the range.
func (r Range) End() uint64 { return r.Base + r.Size }

func (r Range) String() string {
	return fmt.Sprintf("%s %#x..%#x", r.Name, r.Base, r.End()-1)
}

// Overlaps says whether two ranges share an address.
func (r Range) Overlaps(o Range) bool { return r.Base < o.End() && o.Base < r.End() }

// Memory returns the ranges of memory in a tree.
func Memory(t *dt.FDT) ([]Range, error) {
	a, s, err := cells(t.RootNode)
	if err != nil {
		return nil, err
	}
	var out []Range
	for _, n := range t.RootNode.Children {
		if p, ok := n.LookProperty("device_type"); ok && str(p.Value) == "memory" {
			r, err := ranges(n, a, s)
			if err != nil {
				return nil, err
			}
			out = append(out, r...)
		}
	}
	return out, nil
}

// Reserved returns the ranges that a tree keeps from the system: the nodes of
// /reserved-memory with a fixed place, and the reservations of the header.
func Reserved(t *dt.FDT) ([]Range, error) {
	var out []Range
	for _, e := range t.ReserveEntries {
		out = append(out, Range{"memreserve", e.Address, e.Size})
	}
	n, ok := t.RootNode.LookupChildByName("reserved-memory")
	if !ok {
		return out, nil
	}
	a, s, err := cells(n)
	if err != nil {
		return nil, err
	}
	for _, c := range n.Children {
		if _, ok := c.LookProperty("reg"); !ok {
			continue // the kernel chooses the place
		}
		r, err := ranges(c, a, s)
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
	}
	return out, nil
}

// cells are how many words an address and a size have in a node's children
// (2.3.5).
func cells(n *dt.Node) (address, size int, err error) {
	get := func(name string, missing uint32) int {
		if p, ok := n.LookProperty(name); ok && len(p.Value) == 4 {
			return int(binary.BigEndian.Uint32(p.Value))
		}
		return int(missing)
	}
	address, size = get("#address-cells", 2), get("#size-cells", 1)
	if address < 1 || address > 2 || size < 1 || size > 2 {
		return 0, 0, fmt.Errorf("device tree: node %q: %d address cells and %d size cells, want 1 or 2 of each", n.Name, address, size)
	}
	return address, size, nil
}

func ranges(n *dt.Node, address, size int) ([]Range, error) {
	p, ok := n.LookProperty("reg")
	if !ok {
		return nil, fmt.Errorf("device tree: node %q has no reg", n.Name)
	}
	entry := 4 * (address + size)
	if len(p.Value) == 0 || len(p.Value)%entry != 0 {
		return nil, fmt.Errorf("device tree: node %q: reg of %d bytes, want a multiple of %d", n.Name, len(p.Value), entry)
	}
	var out []Range
	for b := p.Value; len(b) > 0; b = b[entry:] {
		r := Range{n.Name, number(b, address), number(b[4*address:], size)}
		if r.Size == 0 || r.Base+r.Size < r.Base {
			return nil, fmt.Errorf("device tree: node %q: %#x bytes at %#x", n.Name, r.Size, r.Base)
		}
		out = append(out, r)
	}
	return out, nil
}

func number(b []byte, words int) uint64 {
	if words == 1 {
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

func str(b []byte) string { return strings.TrimSuffix(string(b), "\x00") }

// SetArguments sets the kernel's command line.
func SetArguments(t *dt.FDT, line string) { chosen(t).Update(dt.PropertyString("bootargs", line)) }

// SetSeed gives the kernel randomness to begin with; it erases it in the tree.
func SetSeed(t *dt.FDT, seed []byte) { chosen(t).Update(dt.Property{Name: "rng-seed", Value: seed}) }

// chosen is the node for what the boot loader chooses (3.6).
func chosen(t *dt.FDT) *dt.Node {
	n, ok := t.RootNode.LookupChildByName("chosen")
	if !ok {
		n = dt.NewNode("chosen")
		t.RootNode.Children = append(t.RootNode.Children, n)
	}
	return n
}

// Arguments returns the kernel's command line.
func Arguments(t *dt.FDT) string {
	if n, ok := t.RootNode.LookupChildByName("chosen"); ok {
		if p, ok := n.LookProperty("bootargs"); ok {
			return str(p.Value)
		}
	}
	return ""
}

// Model returns the tree's model.
func Model(t *dt.FDT) string {
	if p, ok := t.RootNode.LookProperty("model"); ok {
		return str(p.Value)
	}
	return ""
}
