package rocecore

import (
	"fmt"

	"rocelink/fpga/regs"
)

const (
	headerBytes = 0x10 // Ident, Version, Length, Next
	maxBlocks   = 64   // a longer chain is a broken one
	identFamily = regs.IdentCore >> 16
)

// discover walks the chain of blocks from the start of the aperture and returns
// where the blocks of the register table are, and the version of the first.
func discover(bus regs.Bus, size uint64) (map[string]uint32, string, error) {
	known := map[uint32]string{regs.IdentCore: "Core", regs.IdentStream: "Stream"}
	places := map[string]uint32{}
	visited := map[uint32]bool{}
	version := ""
	for at := uint32(0); ; {
		if visited[at] || len(visited) == maxBlocks {
			return nil, "", fmt.Errorf("the chain of blocks comes back to %#x or is longer than %d: %w", at, maxBlocks, ErrIncompatible)
		}
		visited[at] = true
		if at%4 != 0 || uint64(at)+headerBytes > size {
			return nil, "", fmt.Errorf("the chain of blocks leads to %#x, the aperture has %#x bytes: %w", at, size, ErrIncompatible)
		}
		b := regs.At(bus, at)
		ident, err := regs.CoreIdent.Read(b)
		if err != nil {
			return nil, "", fmt.Errorf("read the identity at %#x: %w: %w", at, err, ErrNoFabric)
		}
		switch {
		case ident == 0 || ident == 0xFFFFFFFF:
			return nil, "", fmt.Errorf("the identity at %#x reads %#08x: is the bitstream loaded, or the software fabric running? %w", at, ident, ErrNoFabric)
		case at == 0 && ident != regs.IdentCore, ident>>16 != identFamily:
			return nil, "", fmt.Errorf("the identity at %#x reads %#08x, want %#08x: another design is loaded: %w", at, ident, uint32(regs.IdentCore), ErrIncompatible)
		}
		name, ours := known[ident]
		ver, err := regs.CoreVersion.Read(b)
		if err != nil {
			return nil, "", fmt.Errorf("read the version at %#x: %w", at, err)
		}
		major, minor := regs.CoreVersionMajor.Get(ver), regs.CoreVersionMinor.Get(ver)
		if ours && major != regs.VersionMajor {
			return nil, "", fmt.Errorf("%s block at %#x has register layout %d.%d, this program knows %d: update the bitstream or this program: %w",
				name, at, major, minor, regs.VersionMajor, ErrIncompatible)
		}
		length, err := regs.CoreLength.Read(b)
		if err != nil {
			return nil, "", fmt.Errorf("read the length at %#x: %w", at, err)
		}
		next, err := regs.CoreNext.Read(b)
		if err != nil {
			return nil, "", fmt.Errorf("read the next block at %#x: %w", at, err)
		}
		span := uint32(headerBytes)
		if ours {
			span = regs.CoreSpan // both of ours
		}
		if length < span || length%4 != 0 || uint64(at)+uint64(length) > size {
			return nil, "", fmt.Errorf("block %#08x at %#x says it has %#x bytes, want %#x or more within the aperture of %#x: %w", ident, at, length, span, size, ErrIncompatible)
		}
		if ours {
			if _, twice := places[name]; twice {
				return nil, "", fmt.Errorf("a second %s block at %#x: %w", name, at, ErrIncompatible)
			}
			places[name] = at
			if name == "Core" {
				version = fmt.Sprintf("%d.%d", major, minor)
			}
		}
		if next == 0 {
			return places, version, nil
		}
		if next > at && uint64(next) < uint64(at)+uint64(length) {
			return nil, "", fmt.Errorf("the block after %#x begins inside it, at %#x: %w", at, next, ErrIncompatible)
		}
		at = next
	}
}
