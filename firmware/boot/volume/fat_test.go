package volume

import (
	"encoding/binary"
	"testing"
)

// volume makes the boot sector of a FAT volume.
func volume(fat32 bool, label string) []byte {
	b := make([]byte, bootSector)
	at, kind := 38, "FAT16   "
	if fat32 {
		at, kind = 66, "FAT32   "
	} else {
		binary.LittleEndian.PutUint16(b[22:], 32)
	}
	b[at] = 0x29
	copy(b[at+5:at+16], "           ")
	copy(b[at+5:at+16], label)
	copy(b[at+16:], kind)
	b[510], b[511] = 0x55, 0xAA
	return b
}

func TestFATLabel(t *testing.T) {
	for _, c := range []struct {
		name  string
		data  []byte
		label string
		ok    bool
	}{
		{"FAT32", volume(true, "ROCELINK"), "ROCELINK", true},
		{"FAT16", volume(false, "ROCELINK"), "ROCELINK", true},
		{"full width", volume(true, "ELEVENCHARS"), "ELEVENCHARS", true},
		{"no label", volume(true, ""), "", true},
		{"short", volume(true, "ROCELINK")[:511], "", false},
		{"nothing", nil, "", false},
		{"zeros", make([]byte, bootSector), "", false},
		{"partition table", append(make([]byte, 510), 0x55, 0xAA), "", false},
	} {
		if label, ok := fatLabel(c.data); label != c.label || ok != c.ok {
			t.Errorf("%s: %q, %t", c.name, label, ok)
		}
	}
}

func FuzzFATLabel(f *testing.F) {
	f.Add(volume(true, "ROCELINK"))
	f.Add(volume(false, "X"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if label, ok := fatLabel(b); len(label) > 11 || !ok && label != "" {
			t.Errorf("%q, %t", label, ok)
		}
	})
}
