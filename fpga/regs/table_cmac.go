package regs

const pg203 = "AMD PG203 v3.1, register space"

func lanes(offset uint32, name, doc string, latch Latch) Register {
	return Register{Offset: offset, Name: name, Access: COR, Doc: doc, Source: pg203, Fields: []FieldDef{
		{LSB: 0, Width: 20, Name: "Lanes", Latch: latch, Doc: "One bit a PCS lane."},
	}}
}

// timers are two timers of pause frames, 16 bits each: of priorities 0 to 7 and of
// global pause.
func timers(offset uint32, name string) Register {
	return Register{Offset: offset, Name: name, Access: RW, Doc: "Timers of pause frames sent.", Source: pg203, Fields: []FieldDef{
		{LSB: 0, Width: 16, Name: "Even", Doc: "Of the even class."},
		{LSB: 16, Width: 16, Name: "Odd", Doc: "Of the odd class."},
	}}
}

// statistic is a PG203 statistics counter: 48 bits, events since the tick before.
func statistic(offset uint32, name, doc string) Register {
	return Register{Offset: offset, Name: name, Access: TIK, Wide: true, Doc: doc, Source: pg203 + ", statistics counters"}
}

var cmacBlock = Block{
	Name: "CMAC", Title: "UltraScale+ 100G Ethernet (CMAC)", Length: 0x2000,
	Doc: "The subset of the CMAC's registers that rocelink uses. Counters hold the events since the tick before, in 48 bits; " +
		"software accumulates. Latched status is read twice: the first read clears what was latched. " +
		"Addresses that are not listed answer with a bus error: never dump the window.",
	Source: pg203,
	Regs: words([]Register{
		{Offset: 0x0000, Name: "GTReset", Access: SC, Doc: "Transceiver reset.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "All", Doc: "Reset all transceivers; clears itself."},
		}},
		{Offset: 0x0004, Name: "Reset", Access: RW, Doc: "Core reset.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 10, Name: "RxSerdes", Doc: "Receive SerDes lanes."},
			{LSB: 30, Width: 1, Name: "Rx", Doc: "Receiver."},
			{LSB: 31, Width: 1, Name: "Tx", Doc: "Transmitter."},
		}},
		{Offset: 0x000C, Name: "ConfigTx", Access: RW, Doc: "Transmitter.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Enable", Doc: "Send packets."},
			{LSB: 3, Width: 1, Name: "SendLFI", Doc: "Send local fault."},
			{LSB: 4, Width: 1, Name: "SendRFI", Doc: "Send remote fault."},
			{LSB: 5, Width: 1, Name: "SendIdle", Doc: "Send idle."},
			{LSB: 16, Width: 1, Name: "TestPattern", Doc: "Send the scrambled idle test pattern."},
		}},
		{Offset: 0x0014, Name: "ConfigRx", Access: RW, Doc: "Receiver.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Enable", Doc: "Receive packets."},
			{LSB: 7, Width: 1, Name: "ForceResync", Doc: "Lose and regain alignment."},
			{LSB: 8, Width: 1, Name: "TestPattern", Doc: "Expect the scrambled idle test pattern."},
		}},
		{Offset: 0x0020, Name: "CoreMode", Access: RO, Reset: 1, Doc: "0 CAUI-10, 1 CAUI-4.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 2, Name: "Mode", Doc: "Lane mode."},
		}},
		{Offset: 0x0024, Name: "CoreVersion", Access: RO, Reset: 0x0301, Doc: "Version of the core; the probe of the driver.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Minor", Doc: "Minor version."},
			{LSB: 8, Width: 8, Name: "Major", Doc: "Major version."},
		}},
		{Offset: 0x0030, Name: "TxFCControl", Access: RW, Doc: "Pause frames sent.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 9, Name: "Enable", Doc: "Bit 8 global pause, bits 0 to 7 priorities."},
		}},
		timers(0x0034, "TxFCRefresh1"), timers(0x0038, "TxFCRefresh2"), timers(0x003C, "TxFCRefresh3"), timers(0x0040, "TxFCRefresh4"), timers(0x0044, "TxFCRefresh5"),
		timers(0x0048, "TxFCQuanta1"), timers(0x004C, "TxFCQuanta2"), timers(0x0050, "TxFCQuanta3"), timers(0x0054, "TxFCQuanta4"), timers(0x0058, "TxFCQuanta5"),
		{Offset: 0x0084, Name: "RxFCControl1", Access: RW, Doc: "Pause frames received.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 9, Name: "Enable", Doc: "Bit 8 global pause, bits 0 to 7 priorities."},
			{LSB: 10, Width: 1, Name: "GlobalControl", Doc: "Take global control packets."},
			{LSB: 11, Width: 1, Name: "PriorityControl", Doc: "Take priority control packets."},
			{LSB: 12, Width: 1, Name: "GlobalPause", Doc: "Take global pause packets."},
			{LSB: 13, Width: 1, Name: "PriorityPause", Doc: "Take priority pause packets."},
		}},
		{Offset: 0x0088, Name: "RxFCControl2", Access: RW, Doc: "What of a pause frame is checked, five bits a kind.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 20, Name: "Checks", Doc: "Addresses, type and opcode."},
		}},
		{Offset: 0x0090, Name: "GTLoopback", Access: RW, Doc: "Near-end PMA loopback.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Enable", Doc: "Loop."},
		}},
		{Offset: 0x00CC, Name: "UserReg0", Access: RW, Doc: "Scratch.", Source: pg203},
		{Offset: 0x0200, Name: "StatTx", Access: COR, Doc: "Transmitter status.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "LocalFault", Latch: LatchHigh, Doc: "Local fault."},
		}},
		{Offset: 0x0204, Name: "StatRx", Access: COR, Doc: "Receiver status; good is exactly 0x3.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Status", Latch: LatchLow, Doc: "Aligned and no fault."},
			{LSB: 1, Width: 1, Name: "Aligned", Latch: LatchLow, Doc: "All lanes aligned."},
			{LSB: 2, Width: 1, Name: "Misaligned", Latch: LatchHigh, Doc: "Alignment was lost."},
			{LSB: 3, Width: 1, Name: "AlignedErr", Latch: LatchHigh, Doc: "Alignment markers did not come."},
			{LSB: 4, Width: 1, Name: "HiBER", Latch: LatchHigh, Doc: "High bit error rate."},
			{LSB: 5, Width: 1, Name: "RemoteFault", Latch: LatchHigh, Doc: "The peer does not see us."},
			{LSB: 6, Width: 1, Name: "LocalFault", Latch: LatchHigh, Doc: "No usable signal."},
			{LSB: 7, Width: 1, Name: "InternalLocalFault", Latch: LatchHigh, Doc: "The receiver itself found the fault."},
			{LSB: 8, Width: 1, Name: "ReceivedLocalFault", Latch: LatchHigh, Doc: "The peer sends local fault."},
			{LSB: 12, Width: 1, Name: "BadPreamble", Latch: LatchHigh, Doc: "A frame without a right preamble."},
			{LSB: 13, Width: 1, Name: "BadSFD", Latch: LatchHigh, Doc: "A frame without a start delimiter."},
			{LSB: 14, Width: 1, Name: "GotSignalOS", Latch: LatchHigh, Doc: "A signal ordered set arrived."},
		}},
		lanes(0x020C, "StatBlockLock", "Block lock.", LatchLow),
		lanes(0x0210, "StatLaneSync", "Lane synchronisation.", LatchLow),
		lanes(0x0214, "StatSyncErr", "Synchronisation lost or never had.", LatchHigh),
		{Offset: 0x02B0, Name: "Tick", Access: SC, Doc: "Snapshot of all counters, which then restart from 0. WO in PG203; a fabric behind shared memory clears it when the snapshot is there.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Snapshot", Doc: "Take it."},
		}},
		statistic(0x02B8, "CycleCount", "Receive clock cycles."),
		statistic(0x0500, "TxPackets", "Packets sent."),
		statistic(0x0508, "TxGoodPackets", "Good packets sent."),
		statistic(0x0510, "TxBytes", "Bytes sent, FCS included."),
		statistic(0x0518, "TxGoodBytes", "Bytes of good packets sent."),
		statistic(0x05B8, "TxBadFCS", "Packets sent with a wrong FCS."),
		statistic(0x05F0, "TxPause", "Pause packets sent."),
		statistic(0x0608, "RxPackets", "Packets received."),
		statistic(0x0610, "RxGoodPackets", "Good packets received."),
		statistic(0x0618, "RxBytes", "Bytes received, FCS included."),
		statistic(0x0620, "RxGoodBytes", "Bytes of good packets received."),
		statistic(0x06A8, "RxOversize", "Packets longer than allowed."),
		statistic(0x06C0, "RxBadFCS", "Packets received with a wrong FCS."),
		statistic(0x06F8, "RxPause", "Pause packets received."),
		{Offset: 0x1000, Name: "RSFECConfig", Access: RW, Doc: "RS-FEC behaviour; only in cores built with RS-FEC.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Correction", Doc: "Correct errors."},
			{LSB: 1, Width: 1, Name: "Indication", Doc: "Mark what cannot be corrected."},
			{LSB: 2, Width: 1, Name: "IEEEErrorMode", Doc: "IEEE error indication."},
		}},
		{Offset: 0x1004, Name: "StatRSFEC", Access: COR, Doc: "RS-FEC status.", Source: pg203, Fields: []FieldDef{
			{LSB: 2, Width: 1, Name: "HiSER", Doc: "High symbol error rate now: more than 417 in 8192 codewords."},
			{LSB: 3, Width: 1, Name: "HiSERLatched", Latch: LatchHigh, Doc: "High symbol error rate since the last read."},
			{LSB: 8, Width: 4, Name: "AMLock", Doc: "Alignment marker lock, one bit a lane."},
			{LSB: 14, Width: 1, Name: "LaneAlignment", Doc: "All lanes aligned."},
		}},
		statistic(0x1008, "RSFECCorrected", "Codewords corrected."),
		statistic(0x1010, "RSFECUncorrected", "Codewords that could not be corrected."),
		{Offset: 0x107C, Name: "RSFECEnable", Access: RW, Doc: "RS-FEC switches; taken over at the next reset.", Source: pg203, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Rx", Doc: "Receive direction."},
			{LSB: 1, Width: 1, Name: "Tx", Doc: "Transmit direction."},
		}},
	}),
}
