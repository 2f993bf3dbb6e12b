package regs

// IdentModules is the identity word of the block of the modules' bus and lines.
const IdentModules = 0x524C0010

// ModulesBlock is the block through which the software fabric gives access to its
// modules. A design for an FPGA has AXI IIC and AXI GPIO instead, whose FIFOs
// cannot be played in memory that two processes share.
func ModulesBlock() Block { return modulesBlock }

// ModulesDataBytes is how many bytes a transfer may write, or read.
const ModulesDataBytes = 256

var modulesBlock = Block{
	Name: "Modules", Title: "Bus and lines of pluggable modules (software fabric)", Length: 0x400,
	Doc: "An I2C master that carries out one whole transfer a command, and the lines of a QSFP28 cage. " +
		"Only the software fabric has it: at 0x18000 of its aperture, outside the chain of Next registers.",
	Source: "this project",
	Regs: []Register{
		{Offset: 0x000, Name: "Ident", Access: RO, Reset: IdentModules, Doc: "What this block is: 0x524C and the block's type. Anything else: no modules here."},
		{Offset: 0x080, Name: "Control", Access: SC, Doc: "Starts a transfer; the fabric clears the word when it is done. Write only when it reads 0.", Fields: []FieldDef{
			flag(0, "Go", "Write WriteLength bytes of Data to Address, then read ReadLength bytes of it into Data after a repeated start."),
		}},
		{Offset: 0x084, Name: "Status", Access: RO, Doc: "How the last transfer ended; valid when Control reads 0.", Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Code", Doc: "Result.", Values: []Value{
				{0, "OK", "done"},
				{1, "NoAcknowledge", "byte Byte was not acknowledged"},
				{2, "Stuck", "a device holds the bus"},
				{3, "BadTransfer", "an address of more than 7 bits, a length of more than 256, or nothing to write and to read"},
			}},
			{LSB: 16, Width: 16, Name: "Byte", Doc: "After NoAcknowledge: the byte, from 1; 0 is the address."},
		}},
		{Offset: 0x088, Name: "Count", Access: RO, Doc: "Transfers finished since reset, modulo 2^32."},
		{Offset: 0x090, Name: "Address", Access: RW, Doc: "Address of the device, without the bit for reading."},
		{Offset: 0x094, Name: "WriteLength", Access: RW, Doc: "Bytes to write, 0 to 256."},
		{Offset: 0x098, Name: "ReadLength", Access: RW, Doc: "Bytes to read, 0 to 256."},
		{Offset: 0x0A0, Name: "Out", Access: RW, Reset: 0x1, Doc: "Levels that the lines are driven to (SFF-8679). After reset the module runs and listens.", Fields: []FieldDef{
			flag(0, "ResetL", "0 holds the module in reset."),
			flag(1, "LPMode", "1 holds the module in low power."),
			flag(2, "ModSelL", "0 lets the module listen on the bus."),
		}},
		{Offset: 0x0A4, Name: "In", Access: RO, Doc: "Levels that the lines have.", Fields: []FieldDef{
			flag(0, "ResetL", "As Out."),
			flag(1, "LPMode", "As Out, or what holds it."),
			flag(2, "ModSelL", "As Out."),
			flag(3, "ModPrsL", "0: a module is plugged."),
			flag(4, "IntL", "0: the module has something to say."),
		}},
		{Offset: 0x200, Name: "Data", Access: RW, Doc: "Bytes to write, then those that were read: 64 words, four bytes in each, the first in bits 7:0."},
	},
}
