package model

import (
	"errors"
	"fmt"

	"rocelink/fpga/regs"
)

// ErrBus is what every refused access matches: the processor would take an
// external abort.
var ErrBus = errors.New("bus error")

// Bus is the fabric's register space as a processor sees it. An access that is
// not aligned, beyond the end, outside the blocks or to an undefined address of
// the CMAC fails with an error that matches [ErrBus]; undefined addresses of
// our own blocks read as 0. Writes to read-only registers are ignored. A write
// acts before it returns: a command is done then, and its word reads 0.
//
// Time does not pass by reading: what depends on it is as of the last call that
// told the fabric the time. A Bus may be used by several goroutines, beside
// whoever runs the fabric.
type Bus struct {
	fabric *Fabric
	access []uint8 // by word
}

// How a word answers.
const (
	wordFault   uint8 = iota // not at all
	wordHole                 // reads as 0
	wordFixed                // read-only
	wordPlain                // read and write
	wordTrigger              // write-only: reads as 0
	wordClears               // clear on read
)

// Bus returns the fabric's registers.
func (f *Fabric) Bus() *Bus {
	b := &Bus{fabric: f, access: make([]uint8, ApertureBytes/4)}
	for _, t := range append(regs.Blocks(), regs.ModulesBlock()) {
		base := map[string]uint32{"Core": CoreBase, "Stream": StreamBase, "CMAC": CMACBase, "Modules": ModulesBase}[t.Name]
		if t.Name != "CMAC" {
			for o := uint32(0); o < t.Length; o += 4 {
				b.access[(base+o)/4] = wordHole
			}
		}
		for _, r := range t.Regs {
			for w := range r.Words() {
				b.access[(base+r.Offset)/4+uint32(w)] = answers(r.Access)
			}
		}
	}
	for o := uint32(0); o < regs.ModulesDataBytes; o += 4 {
		b.access[(ModulesBase+uint32(regs.ModulesData)+o)/4] = wordPlain
	}
	return b
}

func answers(a regs.Access) uint8 {
	switch a {
	case regs.RW, regs.SC:
		return wordPlain
	case regs.WO:
		return wordTrigger
	case regs.COR:
		return wordClears
	}
	return wordFixed
}

// Read32 loads a register, with its side effects.
func (b *Bus) Read32(offset uint32) (uint32, error) {
	a, err := b.decode("read", offset)
	if err != nil {
		return 0, err
	}
	f := b.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	switch a {
	case wordHole, wordTrigger:
		return 0, nil
	case wordClears:
		if v, ok := f.mac.readClear(regs.Reg(offset - CMACBase)); ok {
			return v, nil
		}
	}
	return f.mem.load(offset), nil
}

// Write32 stores a register and acts on it.
func (b *Bus) Write32(offset uint32, value uint32) error {
	a, err := b.decode("write", offset)
	if err != nil {
		return err
	}
	if a != wordPlain && a != wordTrigger {
		return nil
	}
	f := b.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mem.store(offset, value)
	f.poll()
	return nil
}

func (b *Bus) decode(what string, offset uint32) (uint8, error) {
	switch {
	case offset%4 != 0:
		return 0, fmt.Errorf("%s register %#x: not a multiple of 4: %w", what, offset, ErrBus)
	case offset >= ApertureBytes:
		return 0, fmt.Errorf("%s register %#x: beyond the aperture of %#x bytes: %w", what, offset, ApertureBytes, ErrBus)
	case b.access[offset/4] == wordFault:
		return 0, fmt.Errorf("%s register %#x: nothing answers there: %w", what, offset, ErrBus)
	}
	return b.access[offset/4], nil
}
