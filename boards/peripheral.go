package boards

// I2C is a bus.
type I2C struct {
	Name string `yaml:"name"`
	// Driver is "linux" (Device is its file), "axi" (an AXI IIC core in the fabric,
	// AMD PG090, at Aperture and Offset) or "fabric" (the software fabric's block
	// Modules, there too).
	Driver   string `yaml:"driver"`
	Device   string `yaml:"device"`
	Aperture string `yaml:"aperture"`
	Offset   uint32 `yaml:"offset"`
	// Hz is the bus clock; 0 is 400 kHz.
	Hz int64 `yaml:"hz"`
	// Switches on the bus that the kernel does not drive.
	Switches []Switch `yaml:"switches"`
}

// Switch is an I2C switch (PCA954x, TCA954x).
type Switch struct {
	Part    string `yaml:"part"`
	Address uint16 `yaml:"address"`
	// Nested: it sits behind a channel of another one.
	Nested bool `yaml:"nested"`
}

// GPIO is a group of lines.
type GPIO struct {
	Name string `yaml:"name"`
	// Driver is "linux" (Device is the chip's file or label), "axi" (an AXI GPIO
	// core in the fabric, AMD PG144, at Aperture and Offset), "tca6416" (an
	// expander at Address of the bus I2C) or "fabric" (the software fabric's block
	// Modules: lines 0 ResetL, 1 LPMode, 2 ModSelL, 3 ModPrsL, 4 IntL).
	Driver   string `yaml:"driver"`
	Device   string `yaml:"device"`
	Aperture string `yaml:"aperture"`
	Offset   uint32 `yaml:"offset"`
	I2C      string `yaml:"i2c"`
	Address  uint16 `yaml:"address"`
}

// Cage is a cage for a pluggable module.
type Cage struct {
	Name string `yaml:"name"`
	Form string `yaml:"form"` // qsfp28, sfp28 or qsfp-dd
	I2C  string `yaml:"i2c"`  // the bus its module is on
	// Route leads from the bus to the cage through switches.
	Route []Hop `yaml:"route"`
	// Lanes of the port that the cage carries, from 1.
	Lanes []int `yaml:"lanes"`
	// MaxClass is the power class the cage can supply and cool; 0 is 4.
	MaxClass int `yaml:"max_class"`

	// Lines. One that is not given is not wired to the processor.
	Present   *Line `yaml:"present"`
	ModSel    *Line `yaml:"modsel"`
	Reset     *Line `yaml:"reset"`
	LPMode    *Line `yaml:"lpmode"`
	Interrupt *Line `yaml:"interrupt"`
	TxDisable *Line `yaml:"tx_disable"`
}

// Hop is one channel of a switch.
type Hop struct {
	Switch  uint16 `yaml:"switch"` // address
	Channel int    `yaml:"channel"`
}

// Line is one GPIO line. What level makes it active depends on the board.
type Line struct {
	GPIO      string `yaml:"gpio"`
	Number    int    `yaml:"line"`
	ActiveLow bool   `yaml:"active_low"`
}

// Clock is a programmable clock.
type Clock struct {
	Name string `yaml:"name"`
	// Driver is "si570" (Hz is set; Factory is the frequency it starts with), or
	// "script" (Script is a register export of the vendor's tool for Part).
	Driver string `yaml:"driver"`
	Part   string `yaml:"part"`
	I2C    string `yaml:"i2c"`
	Route  []Hop  `yaml:"route"`
	// Address on the bus. Bridge is that of an SC18IS602 or SC18IS603 for parts
	// behind SPI, whose select lines are the bits of Select.
	Address uint16  `yaml:"address"`
	Bridge  uint16  `yaml:"bridge"`
	Select  uint8   `yaml:"select"`
	Hz      float64 `yaml:"hz"`
	Factory float64 `yaml:"factory"`
	Script  string  `yaml:"script"`
	// Lock is a line that tells the lock, where the part has no register for it.
	Lock *Line `yaml:"lock"`
}

// Bitstream is what is loaded into the logic.
type Bitstream struct {
	// File on the board, as "/boot/rocelink.bit".
	File string `yaml:"file"`
	// Overlay is the device tree overlay that mainline kernels load it by;
	// empty where the vendor's kernel takes the file itself.
	Overlay string `yaml:"overlay"`
	// Build the fabric must then say it is; 0 is any.
	Build uint32 `yaml:"build"`
}
