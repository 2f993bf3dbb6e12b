package regs

import (
	"os"
	"strings"
	"testing"
)

// AMD documents these addresses (PG090, PG144).
func TestAXIAddresses(t *testing.T) {
	want := map[string]uint32{
		"IIC.ISR": 0x20, "IIC.SoftReset": 0x40, "IIC.Control": 0x100, "IIC.Status": 0x104, "IIC.TxFIFO": 0x108,
		"IIC.RxFIFO": 0x10C, "IIC.RxLimit": 0x120, "GPIO.Data": 0, "GPIO.Tri": 4, "GPIO.Data2": 8, "GPIO.Tri2": 12,
	}
	src, err := os.ReadFile("zz_generated.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]string{}
	found := 0
	for _, b := range AXIBlocks() {
		clear(seen)
		for _, r := range b.Regs {
			if r.Offset%4 != 0 || r.Offset >= b.Length || seen[r.Offset] != "" {
				t.Errorf("%s.%s at %#x: outside, not aligned, or taken by %q", b.Name, r.Name, r.Offset, seen[r.Offset])
			}
			seen[r.Offset] = r.Name
			if o, ok := want[b.Name+"."+r.Name]; ok {
				found++
				if o != r.Offset {
					t.Errorf("%s.%s at %#x, want %#x", b.Name, r.Name, r.Offset, o)
				}
			}
			if !strings.Contains(string(src), "\t"+b.Name+r.Name+" ") {
				t.Errorf("%s%s is missing: run go generate ./fpga/regs", b.Name, r.Name)
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d registers are in the table", found, len(want))
	}
}
