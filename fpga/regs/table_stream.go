package regs

var streamBlock = Block{
	Name: "Stream", Title: "Stream engine and traffic generator", Length: 0x400,
	Doc: "Stream i feeds queue pair i. It takes frames from the generator or from an external source and makes one " +
		"message of each. WRITE frames go to a ring of slots in host memory: frame s goes to Base + (s mod Slots)·Stride. " +
		"With Verb Write a trailer of 16 bytes follows each frame as a message of its own, in the last 16 bytes of the slot: " +
		"frame length (32 bits), 0 (32 bits), frame sequence + 1 (64 bits), little-endian; the sequence is written last. " +
		"With SendImm and WriteImm the immediate is the frame sequence modulo 2^32. With Read the engine reads slot after " +
		"slot and checks it against the generator's pattern of sequence s mod Slots.",
	Source: "this project",
	Regs: words(header(IdentStream, 0x400), []Register{
		{Offset: 0x010, Name: "Streams", Access: RO, Doc: "Streams in this build: one a queue pair."},
		{Offset: 0x014, Name: "MaxFrameBytes", Access: RO, Doc: "Largest frame in bytes."},
	}, command([]Value{
		{1, "Commit", "take the configuration registers into stream Index; only in state Idle. Refused with the register's offset: a value out of its range, Read from an external source, an external source that is not connected or has frames of 0 bytes"},
		{2, "Start", "take frames and send them; only in state Configured with its queue pair Ready"},
		{3, "Stop", "take no more frames; what was taken is still delivered, then state Stopped. In Running, Stopping or Stopped"},
		{4, "Reset", "return stream Index to Idle and clear its counters; if frames are taken and not acknowledged they are dropped and its queue pair returns to Reset as well"},
		{5, "Latch", "copy status and counters of stream Index into the Stat* registers"},
	}), []Register{
		{Offset: 0x100, Name: "Config", Access: RW, Doc: "What the stream does.", Fields: []FieldDef{
			{LSB: 0, Width: 4, Name: "Verb", Doc: "How frames travel.", Values: []Value{
				{0, "Send", "SEND"},
				{1, "SendImm", "SEND with immediate"},
				{2, "Write", "RDMA WRITE, then the slot's trailer"},
				{3, "WriteImm", "RDMA WRITE with immediate"},
				{4, "Read", "RDMA READ of the ring"},
			}},
			{LSB: 4, Width: 4, Name: "Source", Doc: "Where frames come from.", Values: []Value{
				{0, "Generator", "the traffic generator"},
				{1, "External", "the source connected to the fabric; it ends when that ends"},
			}},
			{LSB: 8, Width: 4, Name: "Pattern", Doc: "What the generator makes (and a READ expects).", Values: []Value{
				{0, "Counter", "64-bit words: sequence modulo 2^32 in the upper, word index in the lower half"},
				{1, "PRBS31", "x^31 + x^28 + 1, seeded by the sequence"},
			}},
			{LSB: 12, Width: 1, Name: "CRC", Doc: "The last 4 bytes of each frame are the CRC-32 of the bytes before."},
			{LSB: 16, Width: 1, Name: "Solicited", Doc: "Set the solicited event bit on the last packet of a message."},
		}},
		{Offset: 0x104, Name: "FrameBytes", Access: RW, Doc: "Bytes a frame, 0..MaxFrameBytes; an external source's last frame may be shorter."},
		{Offset: 0x108, Name: "Slots", Access: RW, Doc: "Slots of the ring, 1 or more; not used by SEND."},
		{Offset: 0x10C, Name: "Stride", Access: RW, Doc: "Bytes from slot to slot, a multiple of 8, at least FrameBytes (Write: FrameBytes + 16)."},
		{Offset: 0x110, Name: "Base", Access: RW, Wide: true, Doc: "Address of slot 0 in the peer's memory."},
		{Offset: 0x118, Name: "RKey", Access: RW, Doc: "Remote key of the ring."},
		{Offset: 0x120, Name: "Credit", Access: RW, Wide: true, Doc: "Verb Write: address, in the same region, of a 64-bit word where the host keeps the number of frames it has released. The engine READs it before it would overwrite a slot that is not released. 0: no such check, slots are overwritten."},
		{Offset: 0x128, Name: "RateKbps", Access: RW, Doc: "Payload rate in kb/s; 0: as fast as the path takes."},
		{Offset: 0x12C, Name: "Burst", Access: RW, Doc: "Frames sent back to back before the rate is applied; 0 counts as 1."},
		{Offset: 0x130, Name: "Count", Access: RW, Wide: true, Doc: "Frames after which the generator ends; 0: none."},

		{Offset: 0x180, Name: "StatState", Access: RO, Doc: "State of the latched stream.", Fields: []FieldDef{
			{LSB: 0, Width: 4, Name: "State", Doc: "State.", Values: []Value{
				{0, "Idle", "not configured"},
				{1, "Configured", "ready to start"},
				{2, "Running", "takes frames"},
				{3, "Stopping", "takes none, waits for acknowledgements; also when the source has ended"},
				{4, "Stopped", "all delivered"},
				{5, "Error", "its queue pair is in Error"},
			}},
			{LSB: 8, Width: 1, Name: "Ended", Doc: "The source ended by itself (Count reached, or end of the external source)."},
		}},
		{Offset: 0x184, Name: "StatIndex", Access: RO, Doc: "Stream of the latched values."},
		counter(0x190, "StatSourceFrames", "Frames taken from the source (READ: requested)."),
		counter(0x198, "StatSourceBytes", "Bytes of those frames."),
		counter(0x1A0, "StatFramesPosted", "Frames handed to the queue pair."),
		counter(0x1A8, "StatFramesDone", "Frames wholly acknowledged (READ: wholly received)."),
		counter(0x1B0, "StatBytesDone", "Bytes of those frames."),
		counter(0x1B8, "StatSourceDropped", "Frames an external source had to drop since the stream could not take them."),
		counter(0x1C0, "StatReadGood", "READ frames equal to the pattern."),
		counter(0x1C8, "StatReadBad", "READ frames that differ from the pattern."),
		counter(0x1D0, "StatCreditStalls", "Times the engine waited for the host to release a slot."),
		counter(0x1D8, "StatCreditReads", "READs of the Credit word."),
		counter(0x1E0, "StatReleased", "Frames released, as last read from the Credit word."),
	}),
}
