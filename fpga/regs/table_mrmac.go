package regs

// Offsets and bits as in PG314 and, in agreement, in Linux's driver
// (drivers/net/ethernet/xilinx/xilinx_axienet.h) and an open design for QSFP28 on
// Versal; not yet seen on hardware.
const pg314 = "AMD PG314, register space of port 0"

// mrmacStatus is one of the two views of the receiver: live, or sticky until 1
// is written.
func mrmacStatus(offset uint32, name, doc string, access Access) Register {
	latch := NoLatch
	if access == W1C {
		latch = LatchHigh
	}
	return Register{Offset: offset, Name: name, Access: access, Doc: doc, Source: pg314, Fields: []FieldDef{
		{LSB: 0, Width: 1, Name: "Status", Latch: latch, Doc: "Aligned and no fault; sticky: it was so."},
		{LSB: 1, Width: 1, Name: "BlockLock", Latch: latch, Doc: "Every lane has block lock."},
		{LSB: 2, Width: 1, Name: "Aligned", Latch: latch, Doc: "All lanes aligned."},
		{LSB: 5, Width: 1, Name: "HiBER", Latch: latch, Doc: "High bit error rate."},
		{LSB: 6, Width: 1, Name: "RemoteFault", Latch: latch, Doc: "The peer does not see us."},
		{LSB: 7, Width: 1, Name: "LocalFault", Latch: latch, Doc: "No usable signal."},
	}}
}

var mrmacBlock = Block{
	Name: "MRMAC", Title: "Versal Multirate Ethernet MAC (MRMAC), port 0", Length: 0x1000,
	Doc: "The subset of the MRMAC's registers that rocelink uses for one port of 100 Gb/s. Unlike the CMAC's, sticky status is cleared by writing 1. " +
		"Counters hold the events since the tick before, in 48 bits; software accumulates. The AXI clock must never stop.",
	Source: pg314,
	Regs: words([]Register{
		{Offset: 0x000, Name: "Revision", Access: RO, Doc: "Revision of the core; the probe of the driver: not 0, not all ones, and the same twice.", Source: pg314},
		{Offset: 0x004, Name: "Reset", Access: RW, Doc: "Resets of the port.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 4, Name: "RxSerdes", Doc: "Receive SerDes lanes."},
			{LSB: 4, Width: 1, Name: "TxSerdes", Doc: "Transmit SerDes."},
			{LSB: 5, Width: 1, Name: "Rx", Doc: "Receiver."},
			{LSB: 6, Width: 1, Name: "Tx", Doc: "Transmitter."},
		}},
		{Offset: 0x008, Name: "Mode", Access: RW, Doc: "Rate and interfaces.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 3, Name: "Rate", Doc: "Rate of the port.", Values: []Value{{Value: 4, Name: "100G", Doc: "100 Gb/s."}}},
			{LSB: 4, Width: 3, Name: "SerdesWidth", Doc: "Width of the SerDes interface.", Values: []Value{{Value: 6, Name: "Wide", Doc: "Wide, for 100 Gb/s."}}},
			{LSB: 9, Width: 3, Name: "AXIS", Doc: "Stream interface.", Values: []Value{{Value: 5, Name: "Independent384", Doc: "Independent clock, 384 bits, not segmented."}}},
			{LSB: 30, Width: 1, Name: "TickRegister", Doc: "Counters tick by the register, not by the pin."},
		}},
		{Offset: 0x00C, Name: "ConfigTx", Access: RW, Doc: "Transmitter.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Enable", Doc: "Send packets."},
			{LSB: 1, Width: 1, Name: "InsertFCS", Doc: "Append the FCS."},
			{LSB: 8, Width: 4, Name: "IPG", Doc: "Inter-packet gap in bytes."},
		}},
		{Offset: 0x010, Name: "ConfigRx", Access: RW, Doc: "Receiver.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Enable", Doc: "Receive packets."},
			{LSB: 1, Width: 1, Name: "DeleteFCS", Doc: "Take the FCS off."},
			{LSB: 4, Width: 1, Name: "CheckSFD", Doc: "Check the start delimiter."},
			{LSB: 5, Width: 1, Name: "CheckPreamble", Doc: "Check the preamble."},
		}},
		{Offset: 0x014, Name: "RxMTU", Access: RW, Doc: "Lengths of packets that are accepted.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Min", Doc: "Shortest, bytes."},
			{LSB: 16, Width: 15, Name: "Max", Doc: "Longest, bytes."},
		}},
		{Offset: 0x02C, Name: "Tick", Access: WO, Doc: "Snapshot of all counters, which then restart from 0.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Snapshot", Doc: "Take it."},
		}},
		{Offset: 0x0D0, Name: "FEC", Access: RW, Doc: "Error correction; taken over at the next reset.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 4, Name: "Mode", Doc: "Code.", Values: []Value{{Value: 0, Name: "Off", Doc: "None."}, {Value: 8, Name: "RS528", Doc: "RS(528,514)."}}},
			{LSB: 4, Width: 1, Name: "BypassIndication", Doc: "Do not mark what cannot be corrected."},
			{LSB: 5, Width: 1, Name: "BypassCorrection", Doc: "Do not correct."},
			{LSB: 12, Width: 1, Name: "FourLanePMD", Doc: "Four lanes of 25 Gb/s (CAUI-4)."},
		}},
		mrmacStatus(0x744, "StatRx", "Receiver, sticky.", W1C),
		mrmacStatus(0x74C, "StatRxLive", "Receiver at present.", RO),
		{Offset: 0x754, Name: "StatBlockLock", Access: RO, Doc: "Block lock.", Source: pg314, Fields: []FieldDef{{LSB: 0, Width: 20, Name: "Lanes", Doc: "One bit a PCS lane."}}},
		{Offset: 0x788, Name: "StatRxFECLive", Access: RO, Doc: "RS-FEC of the receiver at present.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Aligned", Doc: "All lanes aligned."},
			{LSB: 1, Width: 1, Name: "HiSER", Doc: "High symbol error rate."},
			{LSB: 4, Width: 4, Name: "LaneLock", Doc: "Alignment marker lock, one bit a lane."},
		}},
		{Offset: 0x7D8, Name: "StatReady", Access: RO, Doc: "Transceivers that have ended their reset; 3 when both directions have.", Source: pg314, Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Tx", Doc: "Transmitter."},
			{LSB: 1, Width: 1, Name: "Rx", Doc: "Receiver."},
		}},
		mrmacCounter(0x818, "TxPackets", "Packets sent."),
		mrmacCounter(0x820, "TxGoodPackets", "Good packets sent."),
		mrmacCounter(0xD90, "RSFECCorrected", "Codewords corrected."),
		mrmacCounter(0xDB0, "RSFECUncorrected", "Codewords that could not be corrected."),
		mrmacCounter(0xE30, "RxPackets", "Packets received."),
		mrmacCounter(0xE38, "RxGoodPackets", "Good packets received."),
		mrmacCounter(0xEE8, "RxBadFCS", "Packets received with a wrong FCS."),
	}),
}

func mrmacCounter(offset uint32, name, doc string) Register {
	return Register{Offset: offset, Name: name, Access: TIK, Wide: true, Doc: doc, Source: pg314 + ", statistics counters"}
}
