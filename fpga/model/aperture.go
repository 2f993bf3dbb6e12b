package model

import (
	"sync/atomic"

	"rocelink/fpga/regs"
)

// ApertureBytes is the size of the register space: Core, Stream, CMAC and Modules.
const ApertureBytes = 0x20000

// Where the blocks are. The chain of Next registers leads from Core to Stream;
// the CMAC is AMD's and has no header, so that its place is agreed.
const (
	CoreBase   = 0x00000
	StreamBase = 0x01000
	CMACBase   = 0x10000
	// ModulesBase is where the bus and lines of the modules are.
	ModulesBase = 0x18000
)

// aperture is the memory of all registers, which another process may map. Each
// access is one 32-bit load or store.
type aperture []uint32

func (a aperture) load(offset uint32) uint32     { return atomic.LoadUint32(&a[offset/4]) }
func (a aperture) store(offset uint32, v uint32) { atomic.StoreUint32(&a[offset/4], v) }

// block is one block's registers in the aperture.
type block struct {
	mem  aperture
	base uint32
}

func (b block) get(r regs.Reg) uint32    { return b.mem.load(b.base + uint32(r)) }
func (b block) set(r regs.Reg, v uint32) { b.mem.store(b.base+uint32(r), v) }

func (b block) get64(r regs.Reg64) uint64 {
	return uint64(b.get(regs.Reg(r+4)))<<32 | uint64(b.get(regs.Reg(r)))
}

func (b block) set64(r regs.Reg64, v uint64) {
	b.set(regs.Reg(r), uint32(v))
	b.set(regs.Reg(r+4), uint32(v>>32))
}

// reset gives every register of the block its reset value but the first, which
// says that the block is there.
func (b block) reset(t regs.Block) {
	for _, r := range t.Regs {
		if r.Offset != 0 {
			b.set(regs.Reg(r.Offset), r.Reset)
		}
		if r.Wide {
			b.set(regs.Reg(r.Offset+4), 0)
		}
	}
}

// table returns the register table's block of a name.
func table(name string) regs.Block {
	for _, b := range append(regs.Blocks(), regs.ModulesBlock()) {
		if b.Name == name {
			return b
		}
	}
	panic("model: the register table has no block " + name)
}
