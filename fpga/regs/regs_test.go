package regs

import (
	"os"
	"strings"
	"testing"
)

// The table must describe hardware that can exist: aligned registers that do
// not overlap, inside the block, with fields that do not overlap and values
// that fit.
func TestTableIsConsistent(t *testing.T) {
	for _, b := range append(Blocks(), ModulesBlock()) {
		at := map[uint32]string{}
		names := map[string]bool{}
		for _, r := range b.Regs {
			if r.Name == "" || r.Doc == "" {
				t.Errorf("%s %#x: a register needs a name and a meaning", b.Name, r.Offset)
			}
			if names[r.Name] {
				t.Errorf("%s.%s: two registers have this name", b.Name, r.Name)
			}
			names[r.Name] = true
			if r.Wide && r.Offset%8 != 0 {
				t.Errorf("%s.%s: 64-bit register at %#x", b.Name, r.Name, r.Offset)
			}
			for w := range r.Words() {
				o := r.Offset + 4*uint32(w)
				if o%4 != 0 || o+4 > b.Length {
					t.Errorf("%s.%s: offset %#x in a block of %#x bytes", b.Name, r.Name, o, b.Length)
				}
				if other, taken := at[o]; taken {
					t.Errorf("%s.%s: offset %#x belongs to %s", b.Name, r.Name, o, other)
				}
				at[o] = r.Name
			}
			var used uint64
			for _, f := range r.Fields {
				if f.Width == 0 || uint(f.LSB)+uint(f.Width) > 32*uint(r.Words()) {
					t.Errorf("%s.%s.%s: bits %d+%d", b.Name, r.Name, f.Name, f.LSB, f.Width)
				}
				mask := (uint64(1)<<f.Width - 1) << f.LSB
				if used&mask != 0 {
					t.Errorf("%s.%s.%s overlaps another field", b.Name, r.Name, f.Name)
				}
				used |= mask
				for _, v := range f.Values {
					if uint64(v.Value) >= 1<<f.Width {
						t.Errorf("%s.%s.%s: value %s = %d does not fit", b.Name, r.Name, f.Name, v.Name, v.Value)
					}
				}
			}
		}
	}
}

// AMD documents these addresses (PG203); a slip in the table would talk to
// another register.
func TestCMACAddresses(t *testing.T) {
	for name, want := range map[string]uint32{
		"Reset": 0x4, "ConfigTx": 0xC, "ConfigRx": 0x14, "CoreVersion": 0x24, "StatRx": 0x204,
		"Tick": 0x2B0, "TxPackets": 0x500, "RxPackets": 0x608, "RSFECConfig": 0x1000, "RSFECEnable": 0x107C,
	} {
		r, ok := cmacBlock.Lookup(name)
		if !ok || r.Offset != want {
			t.Errorf("%s: offset %#x, want %#x", name, r.Offset, want)
		}
	}
}

func TestGeneratedNamesMatchTheTable(t *testing.T) {
	src, err := os.ReadFile("zz_generated.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(Blocks(), ModulesBlock()) {
		for _, r := range b.Regs {
			if !strings.Contains(string(src), "\t"+b.Name+r.Name+" ") {
				t.Errorf("%s%s is missing: run go generate ./fpga/regs", b.Name, r.Name)
			}
		}
	}
}

type memory map[uint32]uint32

func (m memory) Read32(o uint32) (uint32, error)  { return m[o], nil }
func (m memory) Write32(o uint32, v uint32) error { m[o] = v; return nil }

func TestAccessors(t *testing.T) {
	m := memory{}
	bus := At(m, 0x400)
	// The address split of wire.md: low word first.
	if err := StreamBase.Write(bus, 0x00007F1280000000); err != nil {
		t.Fatal(err)
	}
	if m[0x510] != 0x80000000 || m[0x514] != 0x00007F12 {
		t.Errorf("low word %#x, high word %#x", m[0x510], m[0x514])
	}
	if v, _ := StreamBase.Read(bus); v != 0x00007F1280000000 {
		t.Errorf("read back %#x", v)
	}
	w := CoreQpConfigTimeout.Put(0xFFFFFFFF, 14)
	if CoreQpConfigTimeout.Get(w) != 14 || w|CoreQpConfigTimeout.Mask() != 0xFFFFFFFF {
		t.Errorf("Put touched other bits: %#x", w)
	}
	if got := CoreQpConfigMTU.Of(0xFF); got != 7 {
		t.Errorf("Of(0xFF) of a 3-bit field = %#x", got)
	}
}
