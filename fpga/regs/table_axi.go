package regs

const (
	pg090 = "AMD PG090 v2.1, register space"
	pg144 = "AMD PG144 v2.0, register space"
)

// AXIBlocks lists AMD's cores that a design may hold beside the fabric's own
// blocks. Where they are is for the board's description to say.
func AXIBlocks() []Block { return []Block{iicBlock, gpioBlock, mrmacBlock} }

func flag(bit uint8, name, doc string) FieldDef {
	return FieldDef{LSB: bit, Width: 1, Name: name, Doc: doc}
}

var iicBlock = Block{
	Name: "IIC", Title: "AXI IIC", Length: 0x200, Source: pg090,
	Doc: "The registers of the I2C master that rocelink uses. Both FIFOs hold 16 entries. " +
		"Reading RxFIFO takes a byte out: never dump the window.",
	Regs: []Register{
		{Offset: 0x01C, Name: "GIE", Access: RW, Doc: "Global interrupt enable.", Source: pg090, Fields: []FieldDef{flag(31, "Enable", "Let interrupts out.")}},
		{Offset: 0x020, Name: "ISR", Access: RW, Reset: 0xD0, Doc: "Interrupt status; a one that is written toggles the bit.", Source: pg090, Fields: []FieldDef{
			flag(0, "ArbitrationLost", "Another master has the bus."),
			flag(1, "TxError", "No acknowledge to what was sent; also set by the master's own at the end of a read."),
			flag(2, "TxEmpty", "The transmit FIFO ran empty."),
			flag(3, "RxFull", "The receive FIFO reached RxLimit."),
			flag(4, "NotBusy", "The bus became free."),
			flag(5, "Addressed", "Addressed as a slave."),
			flag(6, "NotAddressed", "No longer addressed as a slave."),
			flag(7, "TxHalf", "The transmit FIFO is half empty."),
		}},
		{Offset: 0x028, Name: "IER", Access: RW, Doc: "Interrupt enable, bits as ISR.", Source: pg090},
		{Offset: 0x040, Name: "SoftReset", Access: WO, Doc: "Writing 0xA resets the core.", Source: pg090, Fields: []FieldDef{
			{LSB: 0, Width: 4, Name: "Key", Doc: "What is written.", Values: []Value{{10, "Reset", "reset"}}},
		}},
		{Offset: 0x100, Name: "Control", Access: RW, Doc: "Control.", Source: pg090, Fields: []FieldDef{
			flag(0, "Enable", "Work."),
			flag(1, "TxReset", "Empty the transmit FIFO."),
			flag(2, "Master", "0 to 1 makes a start, 1 to 0 a stop; left to the core in dynamic mode."),
			flag(3, "Transmit", "Direction, as a master."),
			flag(4, "NoAck", "Do not acknowledge what is received."),
			flag(5, "RepeatedStart", "Make a repeated start."),
			flag(6, "GeneralCall", "Answer to the general call."),
		}},
		{Offset: 0x104, Name: "Status", Access: RO, Reset: 0xC0, Doc: "Status.", Source: pg090, Fields: []FieldDef{
			flag(0, "GeneralCall", "Addressed by the general call."),
			flag(1, "Addressed", "Addressed as a slave."),
			flag(2, "Busy", "The bus is in use."),
			flag(3, "SlaveRead", "Direction, as a slave."),
			flag(4, "TxFull", "The transmit FIFO is full."),
			flag(5, "RxFull", "The receive FIFO is full."),
			flag(6, "RxEmpty", "The receive FIFO is empty."),
			flag(7, "TxEmpty", "The transmit FIFO is empty."),
		}},
		{Offset: 0x108, Name: "TxFIFO", Access: WO, Doc: "Transmit FIFO.", Source: pg090, Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Data", Doc: "Address and direction, byte, or number of bytes to read."},
			flag(8, "Start", "Make a start before it (dynamic mode)."),
			flag(9, "Stop", "Make a stop after it (dynamic mode)."),
		}},
		{Offset: 0x10C, Name: "RxFIFO", Access: COR, Doc: "Receive FIFO; reading takes a byte out.", Source: pg090, Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Data", Doc: "The byte."},
		}},
		{Offset: 0x114, Name: "TxCount", Access: RO, Doc: "Entries in the transmit FIFO less one.", Source: pg090, Fields: []FieldDef{{LSB: 0, Width: 4, Name: "Less1", Doc: "Entries less one."}}},
		{Offset: 0x118, Name: "RxCount", Access: RO, Doc: "Bytes in the receive FIFO less one.", Source: pg090, Fields: []FieldDef{{LSB: 0, Width: 4, Name: "Less1", Doc: "Bytes less one."}}},
		{Offset: 0x120, Name: "RxLimit", Access: RW, Doc: "Bytes less one at which RxFull is set and the core holds the clock.", Source: pg090, Fields: []FieldDef{{LSB: 0, Width: 4, Name: "Less1", Doc: "Bytes less one."}}},
	},
}

var gpioBlock = Block{
	Name: "GPIO", Title: "AXI GPIO", Length: 0x200, Source: pg144,
	Doc: "Two channels of up to 32 lines. The second one is there if the core was built with it.",
	Regs: []Register{
		{Offset: 0x000, Name: "Data", Access: RW, Doc: "Lines of channel 1: writing drives outputs, reading tells inputs.", Source: pg144},
		{Offset: 0x004, Name: "Tri", Access: RW, Reset: 0xFFFFFFFF, Doc: "Direction of channel 1: 1 is an input.", Source: pg144},
		{Offset: 0x008, Name: "Data2", Access: RW, Doc: "Lines of channel 2.", Source: pg144},
		{Offset: 0x00C, Name: "Tri2", Access: RW, Reset: 0xFFFFFFFF, Doc: "Direction of channel 2: 1 is an input.", Source: pg144},
	},
}
