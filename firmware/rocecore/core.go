// Package rocecore drives the RoCE core and its stream engine: it finds them,
// refuses what it does not know, and turns settings into registers only after
// every one of them was checked.
//
// A Core is not safe for concurrent use: commands of a block go through one
// window. No call waits without a bound.
package rocecore

import (
	"fmt"

	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// Config is how to drive a core. The zero value works.
type Config struct {
	// Poll bounds each command.
	Poll poll.Poll
}

// Info is what a fabric says about itself.
type Info struct {
	Version       string // register layout, "major.minor"
	Build         uint32
	Boot          uint32 // changes at each start; 0: cannot tell
	ClockKHz      uint32
	QueuePairs    int
	MaxMTU        roce.MTU
	MaxWindow     uint32
	MaxFrameBytes uint32
	IPv6          bool
	Read          bool
	External      bool
	Emulated      bool
	// Blocks is where the blocks of the chain are, by name of the register
	// table; blocks the table does not know are left out.
	Blocks map[string]uint32
}

// Core is the driver of one RoCE core and its stream engine.
type Core struct {
	cfg     Config
	core    regs.Bus
	stream  regs.Bus
	info    Info
	enabled bool
}

// Open finds the core at the start of bus, an aperture of size bytes, and tests
// that it answers. The error matches ErrNoFabric or ErrIncompatible when it
// must be left alone: the identity is read first, and nothing else is touched
// unless it is right.
func Open(bus regs.Bus, size uint64, cfg Config) (*Core, error) {
	places, version, err := discover(bus, size)
	if err != nil {
		return nil, err
	}
	at, ok := places["Stream"]
	if !ok {
		return nil, fmt.Errorf("the chain of blocks has no stream engine: %w", ErrIncompatible)
	}
	c := &Core{cfg: cfg, core: bus, stream: regs.At(bus, at)}
	c.info.Version = version
	c.info.Blocks = places
	if err := c.readInfo(); err != nil {
		return nil, err
	}
	// The scratch register holds what is written, or the bus does not work.
	for _, v := range []uint32{0x5AA5C33C, ^uint32(0x5AA5C33C)} {
		if err := store(c.core, "Core", regs.CoreScratch, v); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Info returns what the fabric said when it was opened.
func (c *Core) Info() Info { return c.info }

func (c *Core) readInfo() error {
	var caps, streams uint32
	for _, r := range []struct {
		bus regs.Bus
		reg regs.Reg
		to  *uint32
	}{
		{c.core, regs.CoreBuild, &c.info.Build},
		{c.core, regs.CoreBoot, &c.info.Boot},
		{c.core, regs.CoreClockKHz, &c.info.ClockKHz},
		{c.core, regs.CoreCaps, &caps},
		{c.core, regs.CoreMaxWindow, &c.info.MaxWindow},
		{c.stream, regs.StreamStreams, &streams},
		{c.stream, regs.StreamMaxFrameBytes, &c.info.MaxFrameBytes},
	} {
		v, err := r.reg.Read(r.bus)
		if err != nil {
			return fmt.Errorf("read the fabric's description: %w", err)
		}
		*r.to = v
	}
	mtu, err := roce.MTUFromCode(uint8(regs.CoreCapsMaxMTU.Get(caps)))
	if err != nil {
		return fmt.Errorf("Core.Caps %#x: %w: %w", caps, err, ErrIncompatible)
	}
	pairs := regs.CoreCapsQueuePairs.Get(caps)
	switch {
	case pairs == 0 || pairs > 16:
		return fmt.Errorf("Core.Caps %#x: %d queue pairs, want 1 to 16: %w", caps, pairs, ErrIncompatible)
	case streams < pairs:
		return fmt.Errorf("%d streams for %d queue pairs: %w", streams, pairs, ErrIncompatible)
	case c.info.MaxWindow == 0 || c.info.MaxWindow == 0xFFFFFFFF:
		return fmt.Errorf("Core.MaxWindow %#x: %w", c.info.MaxWindow, ErrIncompatible)
	case c.info.MaxFrameBytes == 0 || c.info.MaxFrameBytes == 0xFFFFFFFF:
		return fmt.Errorf("Stream.MaxFrameBytes %#x: %w", c.info.MaxFrameBytes, ErrIncompatible)
	}
	c.info.QueuePairs = int(pairs)
	c.info.MaxMTU = mtu
	c.info.IPv6 = regs.CoreCapsIPv6.Get(caps) != 0
	c.info.Read = regs.CoreCapsRead.Get(caps) != 0
	c.info.External = regs.CoreCapsExternal.Get(caps) != 0
	c.info.Emulated = regs.CoreCapsEmulated.Get(caps) != 0
	return nil
}

// Check looks whether the fabric is still the one that was opened. The error
// matches ErrNoFabric when nothing answers and ErrRestarted when it was started
// again.
func (c *Core) Check() error {
	ident, err := regs.CoreIdent.Read(c.core)
	if err != nil {
		return fmt.Errorf("read the fabric's identity: %w: %w", err, ErrNoFabric)
	}
	if ident != regs.IdentCore {
		return fmt.Errorf("the fabric's identity reads %#08x, it was %#08x: %w", ident, uint32(regs.IdentCore), ErrNoFabric)
	}
	boot, err := regs.CoreBoot.Read(c.core)
	if err != nil {
		return fmt.Errorf("read Core.Boot: %w: %w", err, ErrNoFabric)
	}
	if boot != c.info.Boot {
		return fmt.Errorf("Core.Boot reads %#08x, it was %#08x: %w", boot, c.info.Boot, ErrRestarted)
	}
	if !c.enabled {
		return nil
	}
	// A fabric that cannot tell its starts apart comes back disabled.
	control, err := regs.CoreControl.Read(c.core)
	if err != nil {
		return fmt.Errorf("read Core.Control: %w: %w", err, ErrNoFabric)
	}
	if regs.CoreControlEnable.Get(control) == 0 {
		return fmt.Errorf("Core.Control reads %#x although the core was enabled: %w", control, ErrRestarted)
	}
	return nil
}

// store writes a register and reads it back. The error matches ErrNoFabric when
// the register does not hold the value.
func store(bus regs.Bus, blockName string, r regs.Reg, v uint32) error {
	if err := r.Write(bus, v); err != nil {
		return fmt.Errorf("write %s: %w", registerName(blockName, uint32(r)), err)
	}
	got, err := r.Read(bus)
	if err != nil {
		return fmt.Errorf("read back %s: %w", registerName(blockName, uint32(r)), err)
	}
	if got != v {
		return fmt.Errorf("register %s: wrote %#x, it reads %#x: %w", registerName(blockName, uint32(r)), v, got, ErrNoFabric)
	}
	return nil
}

type value struct {
	reg regs.Reg
	v   uint32
}

func storeAll(bus regs.Bus, blockName string, values []value) error {
	for _, x := range values {
		if err := store(bus, blockName, x.reg, x.v); err != nil {
			return err
		}
	}
	return nil
}

func wide(r regs.Reg64, v uint64) []value {
	return []value{{regs.Reg(r), uint32(v)}, {regs.Reg(r) + 4, uint32(v >> 32)}}
}

type counter struct {
	reg regs.Reg64
	to  *uint64
}

func load(bus regs.Bus, blockName string, counters []counter) error {
	for _, x := range counters {
		v, err := x.reg.Read(bus)
		if err != nil {
			return fmt.Errorf("read %s: %w", registerName(blockName, uint32(x.reg)), err)
		}
		*x.to = v
	}
	return nil
}
