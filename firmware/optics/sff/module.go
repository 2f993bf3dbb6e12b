// Package sff decodes the memory of pluggable modules: bytes in, values out. It
// touches no bus and never fails half-way: what a module does not monitor is
// nil, what looks wrong is shown and named in Problems.
//
// QSFP+ and QSFP28 (SFF-8636), SFP+ and SFP28 (SFF-8472) are decoded whole, a
// module with a CMIS memory map as far as its identity. Decode takes a Memory,
// which the driver in firmware/optics reads from a module and ParseDump from a
// file.
package sff

import (
	"errors"
	"fmt"
)

// Errors of Decode and ParseDump.
var (
	// ErrNoModule: the memory holds nothing but zeros or ones, which is what a
	// bus without a module reads.
	ErrNoModule = errors.New("no module")
	// ErrSize: the dump is no whole number of pages, or has too few or too many.
	ErrSize = errors.New("size is not that of a module's memory")
	// ErrText: a dump in text form has a line that cannot be understood.
	ErrText = errors.New("malformed text dump")
)

// PageSize is the size of the lower memory and of each upper page.
const PageSize = 128

// Memory is what was read of a module.
type Memory struct {
	// Lower is the lower memory; of an SFP bytes 0-127 at address A0h.
	Lower []byte
	// Upper has the upper pages that exist; of an SFP page 0 is bytes 128-255
	// at A0h.
	Upper map[uint8][]byte
	// Diagnostics is an SFP's memory at A2h: 128 or 256 bytes, or nil.
	Diagnostics []byte
}

// Management is the specification of a module's memory map.
type Management string

// The memory maps.
const (
	SFF8636 Management = "SFF-8636"
	SFF8472 Management = "SFF-8472"
	CMIS    Management = "CMIS"
)

// Module is a decoded module. A nil pointer means that the module does not
// monitor or state the value.
type Module struct {
	Present        bool       `json:"present"`
	Identifier     string     `json:"identifier"`
	IdentifierCode uint8      `json:"identifier_code"`
	Management     Management `json:"management,omitempty"`
	MapRevision    string     `json:"map_revision,omitempty"`

	Vendor       string   `json:"vendor"`
	OUI          string   `json:"oui,omitempty"`
	Part         string   `json:"part"`
	Revision     string   `json:"revision"`
	Serial       string   `json:"serial"`
	Date         string   `json:"date,omitempty"`
	Connector    string   `json:"connector,omitempty"`
	Technology   string   `json:"technology,omitempty"`
	Compliance   []string `json:"compliance,omitempty"`
	Copper       bool     `json:"copper"` // a copper cable, passive or active
	Active       bool     `json:"active"` // the copper cable has electronics
	RateMbps     int      `json:"rate_mbps,omitempty"`
	WavelengthNM *float64 `json:"wavelength_nm"`
	Length       Length   `json:"length_m"`

	PowerClass   int           `json:"power_class,omitempty"`
	MaxPowerW    *float64      `json:"max_power_w"`
	PowerControl *PowerControl `json:"power_control,omitempty"`
	Capabilities *Capabilities `json:"capabilities,omitempty"`

	// FlatMemory: the module has no page register; writing it is an error.
	FlatMemory bool `json:"flat_memory"`
	// NotReady: the module has not finished its start; monitored values are nil.
	NotReady   bool       `json:"not_ready"`
	ChecksumOK bool       `json:"checksum_ok"`
	Checksums  []Checksum `json:"checksums,omitempty"`

	TemperatureC *float64    `json:"temperature_c"`
	VccV         *float64    `json:"vcc_v"`
	Lanes        []Lane      `json:"lanes"`
	Thresholds   *Thresholds `json:"thresholds"`
	Alarms       []Alarm     `json:"alarms"`
	Warnings     []Alarm     `json:"warnings"`

	// Problems are marks on the values above, in words.
	Problems []string `json:"problems,omitempty"`
}

// Length is how far the module reaches on each kind of fibre, or how long the
// cable is, in metres.
type Length struct {
	SMF   float64 `json:"smf,omitempty"`
	OM1   float64 `json:"om1,omitempty"`
	OM2   float64 `json:"om2,omitempty"`
	OM3   float64 `json:"om3,omitempty"`
	OM4   float64 `json:"om4,omitempty"`
	Cable float64 `json:"cable,omitempty"`
}

// PowerControl is the state of the power control bits (SFF-8636 byte 93, SFF-8472
// A2h byte 118).
type PowerControl struct {
	Override   bool `json:"override"`    // software decides, not the LPMode pin
	LowPower   bool `json:"low_power"`   // asked for by software
	HighPower  bool `json:"high_power"`  // classes 5-7 enabled; SFP: level 2 and up
	Class8     bool `json:"class8"`      // class 8 enabled
	Controlled bool `json:"implemented"` // the bits have an effect
}

// Capabilities are what the module says it can do.
type Capabilities struct {
	TxDisable bool `json:"tx_disable"`
	TxFault   bool `json:"tx_fault"`
	TxLOS     bool `json:"tx_los"`
	RxLOS     bool `json:"rx_los"`
	TxCDR     bool `json:"tx_cdr"`
	RxCDR     bool `json:"rx_cdr"`
	TxLOL     bool `json:"tx_lol"`
	RxLOL     bool `json:"rx_lol"`
	RateSel   bool `json:"rate_select"`
	Page01    bool `json:"page_01"`
	Page02    bool `json:"page_02"`
	// RxAverage: the receive power is an average and not the OMA.
	RxAverage bool `json:"rx_average"`
	// ExternalCalibration: SFF-8472; already applied to the values.
	ExternalCalibration bool `json:"external_calibration,omitempty"`
}

// Checksum is one checksum of the memory.
type Checksum struct {
	Name     string `json:"name"` // the bytes it covers
	Stored   uint8  `json:"stored"`
	Computed uint8  `json:"computed"`
	OK       bool   `json:"ok"`
}

// Lane is one lane of a module.
type Lane struct {
	Lane int `json:"lane"` // from 1, as in the specifications
	// A power of 0 mW has no dBm: JSON knows no infinity.
	RxPowerMW  *float64 `json:"rx_power_mw"`
	RxPowerDBm *float64 `json:"rx_power_dbm"`
	NoLight    bool     `json:"no_light"` // measured, and nothing there
	TxPowerMW  *float64 `json:"tx_power_mw"`
	TxPowerDBm *float64 `json:"tx_power_dbm"`
	TxBiasMA   *float64 `json:"tx_bias_ma"`

	// Latched since the last read; nil where the module has no such flag.
	RxLOS   *bool `json:"rx_los"`
	TxLOS   *bool `json:"tx_los"`
	TxFault *bool `json:"tx_fault"`
	RxLOL   *bool `json:"rx_lol"`
	TxLOL   *bool `json:"tx_lol"`
	// Controls.
	TxDisabled *bool `json:"tx_disabled"`
	RxCDR      *bool `json:"rx_cdr"`
	TxCDR      *bool `json:"tx_cdr"`
}

// Thresholds are the limits the module holds; nil where it holds none.
type Thresholds struct {
	TemperatureC *Limits `json:"temperature_c"`
	VccV         *Limits `json:"vcc_v"`
	RxPowerMW    *Limits `json:"rx_power_mw"`
	TxPowerMW    *Limits `json:"tx_power_mw"`
	TxBiasMA     *Limits `json:"tx_bias_ma"`
}

// Limits are the bounds of one quantity.
type Limits struct {
	HighAlarm   float64 `json:"high_alarm"`
	LowAlarm    float64 `json:"low_alarm"`
	HighWarning float64 `json:"high_warning"`
	LowWarning  float64 `json:"low_warning"`
}

// Quantity is something a module monitors.
type Quantity string

// The quantities.
const (
	Temperature Quantity = "temperature"
	Vcc         Quantity = "vcc"
	RxPower     Quantity = "rx_power"
	TxPower     Quantity = "tx_power"
	TxBias      Quantity = "tx_bias"
)

// Alarm is a quantity beyond a bound.
type Alarm struct {
	Quantity Quantity `json:"quantity"`
	Lane     int      `json:"lane,omitempty"` // 0: the module
	Bound    string   `json:"bound"`          // high or low
	// Latched: the module's flag was set since it was last read. Now: the value
	// shown here is beyond the bound.
	Latched bool `json:"latched"`
	Now     bool `json:"now"`
}

func (a Alarm) String() string {
	s := fmt.Sprintf("%s %s", a.Quantity, a.Bound)
	if a.Lane > 0 {
		s = fmt.Sprintf("lane %d %s", a.Lane, s)
	}
	if !a.Now {
		s += " (latched)"
	}
	return s
}

// problem adds a mark.
func (m *Module) problem(format string, args ...any) {
	m.Problems = append(m.Problems, fmt.Sprintf(format, args...))
}

// Decode decodes the memory of a module. The error is ErrNoModule or ErrSize,
// and then the Module says only that nothing is present.
func Decode(mem Memory) (Module, error) {
	none := Module{Lanes: []Lane{}, Alarms: []Alarm{}, Warnings: []Alarm{}}
	if len(mem.Lower) != PageSize {
		return none, fmt.Errorf("decode module: lower memory of %d bytes, want %d: %w", len(mem.Lower), PageSize, ErrSize)
	}
	for n, p := range mem.Upper {
		if len(p) != PageSize {
			return none, fmt.Errorf("decode module: upper page %02Xh of %d bytes, want %d: %w", n, len(p), PageSize, ErrSize)
		}
	}
	if n := len(mem.Diagnostics); n != 0 && n != PageSize && n != 2*PageSize {
		return none, fmt.Errorf("decode module: %d bytes at A2h, want %d or %d: %w", n, PageSize, 2*PageSize, ErrSize)
	}
	upper, ok := mem.Upper[0]
	if !ok {
		return none, fmt.Errorf("decode module: upper page 00h is missing: %w", ErrSize)
	}
	if blank(mem.Lower) && blank(upper) {
		return none, fmt.Errorf("decode module: the memory is all %02X: %w", mem.Lower[0], ErrNoModule)
	}
	m := none
	m.Present = true
	id := mem.Lower[0]
	if kindOf(id) == unknownKind && kindOf(upper[0]) == qsfpKind {
		m.problem("identifier at byte 0 is 0x%02X, at byte 128 0x%02X: taken for a QSFP", id, upper[0])
		id = upper[0]
	}
	m.IdentifierCode = id
	m.Identifier = identifier(id)
	switch kindOf(id) {
	case qsfpKind:
		m.decodeQSFP(mem.Lower, upper, mem.Upper[3])
	case sfpKind:
		m.decodeSFP(mem.Lower, upper, mem.Diagnostics)
	case cmisKind:
		m.decodeCMIS(mem.Lower, upper)
	default:
		m.problem("identifier 0x%02X: this memory map is not known, nothing else is decoded", id)
	}
	m.ChecksumOK = len(m.Checksums) > 0
	for _, c := range m.Checksums {
		if !c.OK {
			m.ChecksumOK = false
			m.problem("checksum of bytes %s is 0x%02X, their sum 0x%02X: the values they hold may be wrong", c.Name, c.Stored, c.Computed)
		}
	}
	return m, nil
}

// blank reports whether the bytes are those of a bus without a module.
func blank(b []byte) bool {
	for _, v := range b {
		if v != b[0] {
			return false
		}
	}
	return b[0] == 0 || b[0] == 0xFF
}

// checksum notes one checksum: the low byte of the sum of the bytes.
func (m *Module) checksum(name string, covered []byte, stored uint8) {
	var sum uint8
	for _, v := range covered {
		sum += v
	}
	m.Checksums = append(m.Checksums, Checksum{Name: name, Stored: stored, Computed: sum, OK: sum == stored})
}
