package verbs

import (
	"runtime"
	"strings"
	"testing"
)

func TestAllocMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		if _, err := AllocMemory(4096, false); err == nil {
			t.Error("no error on a system without support")
		}
		return
	}
	for _, huge := range []bool{false, true} {
		for _, size := range []int{1, 4096, 4097, 3 << 20} {
			m, err := AllocMemory(size, huge)
			if err != nil {
				t.Fatalf("%d bytes, huge %v: %v", size, huge, err)
			}
			b := m.Bytes()
			if len(b) != size || m.Address()&4095 != 0 || m.Address() == 0 {
				t.Errorf("%d bytes, huge %v: %d bytes at %#x", size, huge, len(b), m.Address())
			}
			b[0], b[size-1] = 1, 2
			for range 2 {
				if err := m.Free(); err != nil {
					t.Errorf("free %d bytes, huge %v (%v): %v", size, huge, m.Huge(), err)
				}
			}
			if m.Bytes() != nil {
				t.Error("bytes after Free")
			}
		}
	}
	for _, size := range []int{0, -1} {
		if _, err := AllocMemory(size, false); err == nil || !strings.Contains(err.Error(), "above 0") {
			t.Errorf("%d bytes: error %v", size, err)
		}
	}
}
