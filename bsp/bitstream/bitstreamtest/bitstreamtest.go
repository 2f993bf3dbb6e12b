// Package bitstreamtest lays out configuration files field by field as UG570 and
// bootgen's headers describe them. No byte is taken from a tool's output, and no
// device could be configured with the result.
package bitstreamtest

import (
	"encoding/binary"
	"slices"
)

// Config describes configuration data.
type Config struct {
	IDCode     uint32
	Frames     []uint32 // written to FDRI; nil is eight words
	Compressed bool
	Encrypted  bool
	NoDesync   bool
}

// Padding is what comes before the sync word: padding and the pattern that
// detects the bus width.
const Padding = 20 * 4

// Words are the words of the data.
func (c Config) Words() []uint32 {
	w := slices.Repeat([]uint32{0xFFFFFFFF}, 16)
	w = append(w, 0x000000BB, 0x11220044, 0xFFFFFFFF, 0xFFFFFFFF)
	w = append(w, 0xAA995566, 0x20000000)
	write := func(reg uint32, v ...uint32) {
		w = append(w, 1<<29|2<<27|reg<<13|uint32(len(v)))
		w = append(w, v...)
	}
	if c.Encrypted {
		write(6, 1<<6) // MASK
		write(5, 1<<6) // CTL0: decryptor
		write(11, 1, 2, 3, 4)
		return append(w, 0xDEADBEEF, 0x01234567)
	}
	write(4, 7) // CMD: RCRC
	write(13, 0x20240229)
	write(12, c.IDCode)
	frames := c.Frames
	if frames == nil {
		frames = []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	}
	w = append(w, 1<<29|2<<27|2<<13) // FDRI, the length follows
	w = append(w, 2<<29|2<<27|uint32(len(frames)))
	w = append(w, frames...)
	if c.Compressed {
		write(10, 0, 0)
	}
	write(0, 0xC0FFEE00)
	if !c.NoDesync {
		write(4, 13)
	}
	return append(w, 0x20000000, 0x20000000)
}

// Data is the data with AA 99 55 66 in the file, or swapped.
func (c Config) Data(swapped bool) []byte {
	var b []byte
	for _, v := range c.Words() {
		if swapped {
			b = binary.LittleEndian.AppendUint32(b, v)
		} else {
			b = binary.BigEndian.AppendUint32(b, v)
		}
	}
	return b
}

// Bit is a .bit file.
func Bit(design, part string, data []byte) []byte {
	b := []byte{0x00, 0x09, 0x0F, 0xF0, 0x0F, 0xF0, 0x0F, 0xF0, 0x0F, 0xF0, 0x00, 0x00, 0x01}
	field := func(key byte, s string) {
		b = append(b, key)
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)+1))
		b = append(append(b, s...), 0)
	}
	field('a', design)
	field('b', part)
	field('c', "2024/02/29")
	field('d', "12:34:56")
	b = append(b, 'e')
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// PDI is a Versal image with two images and two partitions.
type PDI struct {
	IDCode    uint32
	Partial   bool
	Encrypted bool
}

func put(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

func sum(b []byte) uint32 {
	var s uint32
	for ; len(b) >= 4; b = b[4:] {
		s += binary.LittleEndian.Uint32(b)
	}
	return ^s
}

// TableAt is where the image header table of a full PDI lies: behind the boot
// header and a loader of 128 bytes.
const TableAt = 0x1000

// Bytes is the file.
func (p PDI) Bytes() []byte {
	at := TableAt
	if p.Partial {
		at = 16
	}
	const meta = 0x80 + 2*0x40 + 2*0x80
	b := make([]byte, at+meta+256)
	table := b[at : at+0x80]
	put(table, 0x00, 0x00040000)
	put(table, 0x04, 2)
	put(table, 0x08, uint32(at+0x80)/4)
	put(table, 0x0C, 2)
	put(table, 0x10, uint32(at+0x80+2*0x40)/4)
	put(table, 0x18, p.IDCode)
	put(table, 0x20, 2)
	put(table, 0x24, 1)
	put(table, 0x28, 0x46504449)
	put(table, 0x44, 1)
	if p.Partial {
		put(table, 0x28, 0x50504449)
	}
	if p.Encrypted {
		put(table, 0x40, 0xA5C3C5A3)
	}
	put(table, 0x7C, sum(table[:0x7C]))
	for n, name := range []string{"pmc_subsys", "pl_cfi"} {
		h := b[at+0x80+n*0x40:][:0x40]
		copy(h[0x10:], name)
		put(h, 0x20, 0x1C000001+uint32(n))
		put(h, 0x24, 0xABCD0000)
		put(h, 0x28, 0x00001234)
		put(h, 0x3C, sum(h[:0x3C]))
		q := b[at+0x100+n*0x80:][:0x80]
		put(q, 0x08, 32)
		put(q, 0x20, uint32(at+meta)/4+32*uint32(n))
		put(q, 0x7C, sum(q[:0x7C]))
	}
	if !p.Partial {
		put(b, 0x10, 0xAA995566)
		copy(b[0x14:], "XNLX")
		put(b, 0xC4, TableAt)
		put(b, 0xF30, sum(b[0x10:0x10+3872]))
	}
	return b
}
