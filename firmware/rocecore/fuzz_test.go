package rocecore

import (
	"encoding/binary"
	"testing"

	"rocelink/fpga/regs"
)

// image is an aperture with any content.
type image []byte

func (m image) Read32(o uint32) (uint32, error) {
	if int(o)+4 > len(m) {
		return 0xFFFFFFFF, nil
	}
	return binary.LittleEndian.Uint32(m[o:]), nil
}

func (m image) Write32(uint32, uint32) error { return nil }

// Whatever stands at the address, looking for the fabric ends.
func FuzzOpen(f *testing.F) {
	b := make([]byte, 0x60)
	for i, v := range []uint32{regs.IdentCore, 1 << 16, 0x400, 0x20} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
	f.Add(b)
	binary.LittleEndian.PutUint32(b[0xC:], 0)
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := Open(image(data), 0x20000, Config{}); err == nil || c != nil {
			t.Fatal("memory that does not hold what is written passed for a fabric")
		}
	})
}
