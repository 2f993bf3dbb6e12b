package devicetree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/dt"
)

func example() *dt.FDT {
	words := func(name string, v ...uint32) dt.Property { return dt.PropertyU32Array(name, v) }
	return &dt.FDT{
		ReserveEntries: []dt.ReserveEntry{{Address: 0x1000, Size: 0x200}},
		RootNode: dt.NewNode("",
			dt.WithProperty(dt.PropertyString("model", "a board"), dt.PropertyU32("#address-cells", 2), dt.PropertyU32("#size-cells", 2)),
			dt.WithChildren(
				dt.NewNode("memory@0", dt.WithProperty(dt.PropertyString("device_type", "memory"),
					words("reg", 0, 0, 0, 0x80000000, 8, 0, 0, 0x40000000))),
				dt.NewNode("reserved-memory", dt.WithProperty(dt.PropertyU32("#address-cells", 1), dt.PropertyU32("#size-cells", 1)),
					dt.WithChildren(
						dt.NewNode("fabric@70000000", dt.WithProperty(words("reg", 0x70000000, 0x01000000), dt.Property{Name: "no-map"})),
						dt.NewNode("anywhere", dt.WithProperty(dt.PropertyU32("size", 4096))),
					)),
			)),
	}
}

func encoded(t testing.TB, tree *dt.FDT) []byte {
	t.Helper()
	b, err := Bytes(tree)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadBack(t *testing.T) {
	tree := example()
	data := encoded(t, tree)
	got, err := Parse(append(bytes.Clone(data), "what follows"...))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encoded(t, got), data) {
		t.Error("written again it is another tree")
	}
	want, err := dt.ReadFDT(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.ReserveEntries, want.ReserveEntries) || len(got.RootNode.Children) != len(want.RootNode.Children) {
		t.Error("the library reads another tree")
	}
}

func TestMemory(t *testing.T) {
	tree := example()
	memory, err := Memory(tree)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Range{{"memory@0", 0, 0x80000000}, {"memory@0", 0x8_0000_0000, 0x40000000}}; !reflect.DeepEqual(memory, want) {
		t.Errorf("memory %v, want %v", memory, want)
	}
	reserved, err := Reserved(tree)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Range{{"memreserve", 0x1000, 0x200}, {"fabric@70000000", 0x70000000, 0x01000000}}; !reflect.DeepEqual(reserved, want) {
		t.Errorf("reserved %v, want %v", reserved, want)
	}
	for name, change := range map[string]func(n *dt.Node){
		"reg of odd length": func(n *dt.Node) { n.Update(dt.PropertyU32("reg", 1)) },
		"empty reg":         func(n *dt.Node) { n.Update(dt.Property{Name: "reg"}) },
		"no reg":            func(n *dt.Node) { n.RemoveProperty("reg") },
		"wraps":             func(n *dt.Node) { n.Update(dt.PropertyRegion("reg", ^uint64(0), 2)) },
		"no size":           func(n *dt.Node) { n.Update(dt.PropertyRegion("reg", 1, 0)) },
	} {
		tree := example()
		change(tree.RootNode.Children[0])
		if m, err := Memory(tree); err == nil || !strings.Contains(err.Error(), "memory@0") {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	tree.RootNode.Update(dt.PropertyU32("#address-cells", 3))
	if _, err := Memory(tree); err == nil {
		t.Error("addresses of three words")
	}
}

func TestArguments(t *testing.T) {
	tree := example()
	if got := Arguments(tree); got != "" {
		t.Errorf("%q before", got)
	}
	for _, line := range []string{"console=ttyPS0", "quiet"} {
		SetArguments(tree, line)
		SetSeed(tree, []byte{1, 2, 3})
		got, err := Parse(encoded(t, tree))
		if err != nil || Arguments(got) != line || Model(got) != "a board" {
			t.Errorf("%q, %v, want %q", Arguments(got), err, line)
		}
	}
	n, _ := tree.RootNode.LookupChildByName("chosen")
	if p, ok := n.LookProperty("rng-seed"); !ok || len(p.Value) != 3 || len(n.Properties) != 2 {
		t.Errorf("chosen has %v", n.Properties)
	}
}

func TestDamaged(t *testing.T) {
	data := encoded(t, example())
	for n := range len(data) {
		if _, err := Parse(data[:n]); !errors.Is(err, ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	// Fields of the header (5.2) and of the structure block.
	structure := int(binary.BigEndian.Uint32(data[8:]))
	for _, c := range []struct {
		name string
		at   int
		v    uint32
	}{
		{"magic", 0, 1}, {"structure far away", 8, 1 << 30}, {"strings far away", 12, 1 << 30},
		{"reservations far away", 16, 1 << 30}, {"version", 20, 3}, {"compatible with", 24, 99},
		{"strings too long", 32, 1 << 31}, {"structure too long", 36, 1 << 31}, {"structure too short", 36, 8},
		{"unknown token", structure, 7}, {"ends at once", structure, 9}, {"closes what is not open", structure, 2},
		{"a property outside", structure, 3}, {"a property of 4 GiB", structure + 12, ^uint32(0)},
		{"a property's name far away", structure + 16, 1 << 20},
	} {
		bad := bytes.Clone(data)
		binary.BigEndian.PutUint32(bad[c.at:], c.v)
		if _, err := Parse(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	deep := dt.NewNode("x")
	for range 100 {
		deep = dt.NewNode("x", dt.WithChildren(deep))
	}
	if _, err := Parse(encoded(t, &dt.FDT{RootNode: deep})); !errors.Is(err, ErrFormat) {
		t.Errorf("100 levels: %v", err)
	}
}

func TestCompile(t *testing.T) {
	if _, err := exec.LookPath("dtc"); err != nil {
		if os.Getenv("ROCELINK_REQUIRE_IMAGE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs device-tree-compiler: %v", err)
	}
	ctx := context.Background()
	source := `/dts-v1/; / { model = "x"; node { value = <7>; }; };`
	one, err := Compile(ctx, "a.dts", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	two, err := Compile(ctx, "a.dts", []byte(source))
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the same source, other bytes, %v", err)
	}
	if tree, err := Parse(one); err != nil || Model(tree) != "x" {
		t.Errorf("%v", err)
	}
	for name, source := range map[string]string{
		"syntax":  "/dts-v1/; / { model };;",
		"warning": `/dts-v1/; / { node@1 { }; };`,
	} {
		if _, err := Compile(ctx, "bad.dts", []byte(source)); err == nil || !strings.Contains(err.Error(), "bad.dts") {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Compile(ctx, "a.dts", nil); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("without dtc: %v", err)
	}
}

// Whatever is parsed can be written and parsed again.
func FuzzParse(f *testing.F) {
	f.Add(encoded(f, example()))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := Parse(data)
		if err != nil {
			return
		}
		_, _ = Memory(tree)
		_, _ = Reserved(tree)
		if bytes.ContainsRune([]byte(tree.RootNode.Name), 0) {
			return
		}
		again, err := Parse(encoded(t, tree))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encoded(t, again), encoded(t, tree)) {
			t.Fatal("written twice it is another tree")
		}
	})
}
