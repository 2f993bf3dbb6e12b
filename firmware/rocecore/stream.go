package rocecore

import (
	"fmt"

	"rocelink/fpga/regs"
)

// Stream is how a stream is programmed. The values of Verb, Source and Pattern
// are those of the register table.
type Stream struct {
	Verb       uint32 // regs.StreamConfigVerb*
	External   bool   // frames come from the external source
	Pattern    uint32 // regs.StreamConfigPattern*
	CRC        bool
	Solicited  bool
	FrameBytes uint32
	Slots      uint32
	Stride     uint32
	Base       uint64
	RKey       uint32
	Credit     uint64
	RateKbps   uint32
	Burst      uint32
	Count      uint64
}

// Bytes that a frame cannot be without.
const (
	trailerBytes = 16 // behind a frame of verb Write (Stream, FrameBytes)
	crcBytes     = 4
	maxRing      = 1 << 32 // addresses within a region have 32 bits
)

// ring reports that the verb works on slots at fixed addresses.
func (s Stream) ring() bool {
	return s.Verb == regs.StreamConfigVerbWrite || s.Verb == regs.StreamConfigVerbWriteImm || s.Verb == regs.StreamConfigVerbRead
}

// CheckStream finds what the fabric would refuse, and rings that would write
// outside themselves. The error is a *SettingError or matches ErrUnsupported.
func (c *Core) CheckStream(s Stream) error {
	switch {
	case s.Verb > regs.StreamConfigVerbRead:
		return setting("verb", s.Verb, "0 to %d", regs.StreamConfigVerbRead)
	case s.Verb == regs.StreamConfigVerbRead && !c.info.Read:
		return fmt.Errorf("verb read: %w", ErrUnsupported)
	case s.Pattern > regs.StreamConfigPatternPRBS31:
		return setting("pattern", s.Pattern, "0 to %d", regs.StreamConfigPatternPRBS31)
	case s.External && s.Verb == regs.StreamConfigVerbRead:
		return setting("source", "external", "a pattern to compare with: verb read has no source")
	case s.External && !c.info.External:
		return fmt.Errorf("source external: none is connected: %w", ErrUnsupported)
	case s.FrameBytes > c.info.MaxFrameBytes:
		return setting("frame bytes", s.FrameBytes, "at most %d", c.info.MaxFrameBytes)
	case s.CRC && s.FrameBytes < crcBytes:
		return setting("frame bytes", s.FrameBytes, "at least %d, the CRC", crcBytes)
	case s.External && (s.FrameBytes == 0 || s.CRC && s.FrameBytes == crcBytes):
		return setting("frame bytes", s.FrameBytes, "more than the CRC: frames of the external source are not empty")
	case !s.ring():
		if s.Credit != 0 {
			return setting("credit", fmt.Sprintf("%#x", s.Credit), "0: only verb write has a credit word")
		}
		return nil
	}
	need := uint64(s.FrameBytes)
	if s.Verb == regs.StreamConfigVerbWrite {
		need += trailerBytes
	}
	size := uint64(s.Slots) * uint64(s.Stride)
	switch {
	case s.Slots == 0:
		return setting("slots", s.Slots, "1 or more")
	case s.Stride%8 != 0 || uint64(s.Stride) < need || s.Stride == 0:
		return setting("stride", s.Stride, "a multiple of 8, at least %d (frame bytes, and the trailer of verb write)", need)
	case size >= maxRing:
		return setting("slots", s.Slots, "slots × stride (%d) below 4 GiB: it is %d", s.Stride, size)
	case s.Base == 0 || s.Base+size < s.Base:
		return setting("address", fmt.Sprintf("%#x", s.Base), "not 0, and the %d bytes of the ring below 2^64", size)
	case s.Verb == regs.StreamConfigVerbWrite && s.Base%8 != 0:
		return setting("address", fmt.Sprintf("%#x", s.Base), "a multiple of 8: the host watches 64-bit words of the trailers")
	case s.Credit == 0:
		return nil
	case s.Verb != regs.StreamConfigVerbWrite:
		return setting("credit", fmt.Sprintf("%#x", s.Credit), "0: only verb write has a credit word")
	case !c.info.Read:
		return fmt.Errorf("credit word: the fabric must read it: %w", ErrUnsupported)
	case s.Credit%8 != 0 || s.Credit+8 < s.Credit:
		return setting("credit", fmt.Sprintf("%#x", s.Credit), "a multiple of 8 below 2^64")
	case s.Credit+8 > s.Base && s.Credit < s.Base+size:
		return setting("credit", fmt.Sprintf("%#x", s.Credit), "outside the slots %#x to %#x: frames would overwrite it", s.Base, s.Base+size)
	case s.Credit > s.Base && s.Credit-s.Base >= maxRing, s.Credit < s.Base && s.Base+size-s.Credit > maxRing:
		return setting("credit", fmt.Sprintf("%#x", s.Credit), "within 4 GiB of the slots at %#x", s.Base)
	}
	return nil
}

// ConfigureStream programs stream i, which must be in state Idle.
func (c *Core) ConfigureStream(i int, s Stream) error {
	if err := c.checkIndex(i); err != nil {
		return err
	}
	if err := c.CheckStream(s); err != nil {
		return err
	}
	config := regs.StreamConfigVerb.Of(s.Verb)
	config = regs.StreamConfigPattern.Put(config, s.Pattern)
	if s.External {
		config = regs.StreamConfigSource.Put(config, regs.StreamConfigSourceExternal)
	}
	if s.CRC {
		config = regs.StreamConfigCRC.Put(config, 1)
	}
	if s.Solicited {
		config = regs.StreamConfigSolicited.Put(config, 1)
	}
	fill := []value{
		{regs.StreamConfig, config},
		{regs.StreamFrameBytes, s.FrameBytes},
		{regs.StreamSlots, s.Slots},
		{regs.StreamStride, s.Stride},
		{regs.StreamRKey, s.RKey},
		{regs.StreamRateKbps, s.RateKbps},
		{regs.StreamBurst, s.Burst},
	}
	fill = append(fill, wide(regs.StreamBase, s.Base)...)
	fill = append(fill, wide(regs.StreamCredit, s.Credit)...)
	fill = append(fill, wide(regs.StreamCount, s.Count)...)
	return c.command(c.stream, "Stream", regs.StreamCommandOpCommit, i, fill...)
}

// Start lets stream i take frames and send them.
func (c *Core) Start(i int) error { return c.streamCommand(regs.StreamCommandOpStart, i) }

// Stop lets stream i take no more frames; what it took is still delivered.
func (c *Core) Stop(i int) error { return c.streamCommand(regs.StreamCommandOpStop, i) }

// ResetStream returns stream i to state Idle and drops what it took.
func (c *Core) ResetStream(i int) error { return c.streamCommand(regs.StreamCommandOpReset, i) }

func (c *Core) streamCommand(op uint32, i int) error {
	if err := c.checkIndex(i); err != nil {
		return err
	}
	return c.command(c.stream, "Stream", op, i)
}

// StreamStatus is the state and the counters of a stream at one instant, by
// register name.
type StreamStatus struct {
	State string // Idle, Configured, Running, Stopping, Stopped or Error
	Code  uint32 // the state's value in the register table
	Ended bool   // the source ended by itself

	SourceFrames, SourceBytes, SourceDropped uint64
	FramesPosted, FramesDone, BytesDone      uint64
	ReadGood, ReadBad                        uint64
	CreditStalls, CreditReads, Released      uint64
}

// LatchStream takes state and counters of stream i at one instant.
func (c *Core) LatchStream(i int) (StreamStatus, error) {
	if err := c.streamCommand(regs.StreamCommandOpLatch, i); err != nil {
		return StreamStatus{}, err
	}
	state, err := regs.StreamStatState.Read(c.stream)
	if err != nil {
		return StreamStatus{}, fmt.Errorf("read Stream.StatState: %w", err)
	}
	index, err := regs.StreamStatIndex.Read(c.stream)
	if err != nil {
		return StreamStatus{}, fmt.Errorf("read Stream.StatIndex: %w", err)
	}
	if index != uint32(i) {
		return StreamStatus{}, fmt.Errorf("latched stream %d, Stream.StatIndex reads %d: does another program use this fabric? %w", i, index, ErrNoFabric)
	}
	s := StreamStatus{Code: regs.StreamStatStateState.Get(state), Ended: regs.StreamStatStateEnded.Get(state) != 0}
	s.State = valueName("Stream", "StatState", "State", s.Code)
	err = load(c.stream, "Stream", []counter{
		{regs.StreamStatSourceFrames, &s.SourceFrames}, {regs.StreamStatSourceBytes, &s.SourceBytes},
		{regs.StreamStatSourceDropped, &s.SourceDropped}, {regs.StreamStatFramesPosted, &s.FramesPosted},
		{regs.StreamStatFramesDone, &s.FramesDone}, {regs.StreamStatBytesDone, &s.BytesDone},
		{regs.StreamStatReadGood, &s.ReadGood}, {regs.StreamStatReadBad, &s.ReadBad},
		{regs.StreamStatCreditStalls, &s.CreditStalls}, {regs.StreamStatCreditReads, &s.CreditReads},
		{regs.StreamStatReleased, &s.Released},
	})
	if err != nil {
		return StreamStatus{}, err
	}
	return s, nil
}
