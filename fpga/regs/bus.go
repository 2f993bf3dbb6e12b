package regs

// Bus is aligned 32-bit access to a register space. Offsets are in bytes.
// An implementation refuses, with an error, an offset that is not a
// multiple of four or lies outside its range.
type Bus interface {
	Read32(offset uint32) (uint32, error)
	Write32(offset uint32, value uint32) error
}

// At returns the part of bus that begins at base: the bus a block's driver is
// given, so that it needs to know no address.
func At(bus Bus, base uint32) Bus {
	if base == 0 {
		return bus
	}
	return window{bus, base}
}

type window struct {
	bus  Bus
	base uint32
}

func (w window) Read32(o uint32) (uint32, error)  { return w.bus.Read32(w.base + o) }
func (w window) Write32(o uint32, v uint32) error { return w.bus.Write32(w.base+o, v) }

// Reg is the offset of a 32-bit register in its block.
type Reg uint32

// Read loads the register.
func (r Reg) Read(b Bus) (uint32, error) { return b.Read32(uint32(r)) }

// Write stores the register.
func (r Reg) Write(b Bus, v uint32) error { return b.Write32(uint32(r), v) }

// Reg64 is the offset of the low word of a 64-bit register.
type Reg64 uint32

// Read loads the register, the low word first.
func (r Reg64) Read(b Bus) (uint64, error) {
	lo, err := b.Read32(uint32(r))
	if err != nil {
		return 0, err
	}
	hi, err := b.Read32(uint32(r) + 4)
	return uint64(hi)<<32 | uint64(lo), err
}

// Write stores the register, the low word first.
func (r Reg64) Write(b Bus, v uint64) error {
	if err := b.Write32(uint32(r), uint32(v)); err != nil {
		return err
	}
	return b.Write32(uint32(r)+4, uint32(v>>32))
}

// Field is a run of bits in a word: the least significant bit and the width.
type Field struct{ LSB, Width uint8 }

// Max is the largest value the field holds.
func (f Field) Max() uint32 { return uint32(1<<f.Width - 1) }

// Mask has a one in each bit of the field.
func (f Field) Mask() uint32 { return f.Max() << f.LSB }

// Get extracts the field from a word.
func (f Field) Get(word uint32) uint32 { return word >> f.LSB & f.Max() }

// Put returns word with the field set to v; bits of v that do not fit are cut.
func (f Field) Put(word, v uint32) uint32 { return word&^f.Mask() | v<<f.LSB&f.Mask() }

// Of is Put into a word of zeros.
func (f Field) Of(v uint32) uint32 { return f.Put(0, v) }
