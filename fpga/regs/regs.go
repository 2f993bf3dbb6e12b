// Package regs is the fabric's register table: every block, register and
// field, with offset, width, access, reset value, meaning and source.
//
// The table (table_*.go) is written by hand and is the only place where a
// register is defined. From it `go generate` makes the Go constants of
// zz_generated.go, the Verilog header rocelink_regs.vh and REGISTERS.md.
//
// Offsets are in bytes from the start of a block. Access is 32-bit and
// aligned, always; a 64-bit register is two words, the low one first.
package regs

//go:generate go run ./gen

// Access says what reading and writing a register does.
type Access uint8

// The kinds of access.
const (
	RO  Access = iota // read-only
	RW                // read and write
	WO                // write-only; reads as 0
	SC                // write starts an action, the fabric clears it when done
	COR               // read-only, clear on read: latched until it is read
	TIK               // read-only counter, moves only at a tick or latch command
	W1C               // sticky: a bit is cleared by writing 1 to it
)

var accessNames = [...]string{"RO", "RW", "WO", "SC", "COR", "TIK", "W1C"}

// String returns the short name of the access used in REGISTERS.md.
func (a Access) String() string {
	if int(a) < len(accessNames) {
		return accessNames[a]
	}
	return "?"
}

// Latch says which way a clear-on-read field latches between two reads.
type Latch uint8

// The latching behaviours (PG203: LL, LH).
const (
	NoLatch   Latch = iota
	LatchLow        // holds 0 once the condition was 0
	LatchHigh       // holds 1 once the condition was 1
)

// Block is a set of registers of one piece of logic.
type Block struct {
	Name   string // Go and Verilog prefix
	Title  string
	Length uint32 // bytes the block decodes
	Doc    string
	Source string // manual and revision the table follows
	Regs   []Register
}

// Register is one 32-bit word, or two for Wide.
type Register struct {
	Offset uint32
	Name   string
	Access Access
	Wide   bool // 64 bits: low word at Offset, high word at Offset+4
	Reset  uint32
	Doc    string
	Source string
	Fields []FieldDef
}

// FieldDef is a run of bits of a register.
type FieldDef struct {
	LSB, Width uint8
	Name       string
	Latch      Latch
	Doc        string
	Values     []Value
}

// Value names one value of a field.
type Value struct {
	Value uint32
	Name  string
	Doc   string
}

// Words is how many 32-bit words the register takes.
func (r Register) Words() int {
	if r.Wide {
		return 2
	}
	return 1
}

// Blocks lists every block of the table.
func Blocks() []Block { return []Block{coreBlock, streamBlock, cmacBlock} }

// Lookup finds a register of the block by name.
func (b Block) Lookup(name string) (Register, bool) {
	for _, r := range b.Regs {
		if r.Name == name {
			return r, true
		}
	}
	return Register{}, false
}
