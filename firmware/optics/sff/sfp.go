package sff

import (
	"encoding/binary"
	"math"
)

// The memory map of SFF-8472 rev 12.4 at A0h.
const (
	sfpConnector   = 2
	sfpEthernet    = 3
	sfpCable       = 8
	sfpRate        = 12 // 100 MBd; 255: see rateMax
	sfpLengthKM    = 14
	sfpLengthSMF   = 15 // 100 m
	sfpLengthOM2   = 16 // 10 m
	sfpLengthOM1   = 17 // 10 m
	sfpLengthCable = 18 // m, or OM4 in 10 m
	sfpLengthOM3   = 19 // 10 m
	sfpVendor      = 20 // 16 bytes
	sfpExtCode     = 36
	sfpOUI         = 37
	sfpPart        = 40 // 16 bytes
	sfpPartRev     = 56 // 4 bytes
	sfpWavelength  = 60 // nm; of copper the cable's compliance
	sfpCheckBase   = 63
	sfpOptions0    = 64
	sfpOptions1    = 65
	sfpRateMax     = 66 // 250 MBd where sfpRate is 255
	sfpSerial      = 68 // 16 bytes
	sfpDate        = 84 // 8 bytes
	sfpDiagType    = 92
	sfpEnhanced    = 93
	sfpRevision    = 94
	sfpCheckExt    = 95
)

// At A2h.
const (
	diagTempLimits = 0
	diagVccLimits  = 8
	diagBiasLimits = 16
	diagTxLimits   = 24
	diagRxLimits   = 32
	diagRxPoly     = 56 // five IEEE 754 numbers, the highest power first
	diagBiasSlope  = 76 // then the offset; so for the next three
	diagTxSlope    = 80
	diagTempSlope  = 84
	diagVccSlope   = 88
	diagCheck      = 95
	diagTempAt     = 96
	diagVccAt      = 98
	diagBiasAt     = 100
	diagTxAt       = 102
	diagRxAt       = 104
	diagStatus     = 110
	diagAlarms     = 112
	diagWarnings   = 116
	diagControl    = 118
)

// Bits.
const (
	cablePassive = 1 << 2
	cableActive  = 1 << 3

	diagImplemented = 1 << 6
	diagExternal    = 1 << 4
	diagSFPAverage  = 1 << 3

	enhancedTxDisable = 1 << 6

	option1TxDisable = 1 << 4
	option1TxFault   = 1 << 3
	option1RxLOS     = 1 << 1
	option1RateSel   = 1 << 5
	option0CDR       = 1 << 3 // retimer or CDR
	option0Level2    = 1 << 1
	option0Level3    = 1 << 5
	option0Level4    = 1 << 6

	statusTxDisabled  = 1<<7 | 1<<6 // by pin, by software
	statusTxFault     = 1 << 2
	statusRxLOS       = 1 << 1
	statusSFPNotReady = 1 << 0
)

var sfpRevisions = map[uint8]string{
	0x01: "SFF-8472 rev 9.3", 0x02: "SFF-8472 rev 9.5", 0x03: "SFF-8472 rev 10.2", 0x04: "SFF-8472 rev 10.4",
	0x05: "SFF-8472 rev 11.0", 0x06: "SFF-8472 rev 11.3", 0x07: "SFF-8472 rev 11.4", 0x08: "SFF-8472 rev 12.3",
	0x09: "SFF-8472 rev 12.4",
}

// sfpEthernetCodes are bits 4 to 7 of byte 3.
var sfpEthernetCodes = [4]string{"10GBASE-SR", "10GBASE-LR", "10GBASE-LRM", "10GBASE-ER"}

func (m *Module) decodeSFP(low, up, diag []byte) {
	m.Management = SFF8472
	m.MapRevision = sfpRevisions[low[sfpRevision]]
	m.FlatMemory = true // A0h has no page register
	m.Vendor = text(low[sfpVendor : sfpVendor+16])
	m.OUI = oui(low[sfpOUI:])
	m.Part = text(low[sfpPart : sfpPart+16])
	m.Revision = text(low[sfpPartRev : sfpPartRev+4])
	m.Serial = text(low[sfpSerial : sfpSerial+16])
	m.Date = date(low[sfpDate : sfpDate+8])
	m.Connector = connector(low[sfpConnector])
	m.checksum("A0h 0-62", low[:sfpCheckBase], low[sfpCheckBase])
	m.checksum("A0h 64-94", low[sfpOptions0:sfpCheckExt], low[sfpCheckExt])
	m.sfpMedium(low)
	m.sfpPower(low)

	kind := low[sfpDiagType]
	o1 := low[sfpOptions1]
	m.Capabilities = &Capabilities{
		TxDisable:           o1&option1TxDisable != 0 || low[sfpEnhanced]&enhancedTxDisable != 0,
		TxFault:             o1&option1TxFault != 0,
		RxLOS:               o1&option1RxLOS != 0,
		TxCDR:               low[sfpOptions0]&option0CDR != 0,
		RxCDR:               low[sfpOptions0]&option0CDR != 0,
		RateSel:             o1&option1RateSel != 0,
		RxAverage:           kind&diagSFPAverage != 0,
		ExternalCalibration: kind&diagImplemented != 0 && kind&diagExternal != 0,
	}
	lane := Lane{Lane: 1}
	switch {
	case kind&diagImplemented == 0:
	case len(diag) == 0:
		m.problem("the module monitors itself, but its memory at A2h was not read")
	case blank(diag):
		m.problem("the memory at A2h is all %02X: no monitored values", diag[0])
	default:
		m.sfpMonitor(&lane, diag)
	}
	m.Lanes = append(m.Lanes, lane)
	m.judgeAll(func(q Quantity, _ int) uint8 {
		if len(diag) == 0 {
			return 0
		}
		return sfpFlags(diag, q)
	})
}

func (m *Module) sfpMedium(low []byte) {
	for i, name := range sfpEthernetCodes {
		if low[sfpEthernet]&(1<<(4+i)) != 0 {
			m.Compliance = append(m.Compliance, name)
		}
	}
	if c := low[sfpExtCode]; c != 0 {
		m.Compliance = append(m.Compliance, extendedCode(c))
	}
	m.Active = low[sfpCable]&cableActive != 0
	m.Copper = m.Active || low[sfpCable]&cablePassive != 0
	// An active optical cable sets the bit of an active cable too.
	if c := low[sfpExtCode]; m.Active && (c == 0x01 || c == 0x18) {
		m.Copper, m.Active = false, false
	}
	if copper, active := copperCode(low[sfpExtCode]); copper {
		m.Copper, m.Active = true, m.Active || active
	}
	switch {
	case m.Copper && m.Active:
		m.Technology = "copper, active"
	case m.Copper:
		m.Technology = "copper, passive"
	}
	if r := low[sfpRate]; r == 0xFF {
		m.RateMbps = int(low[sfpRateMax]) * 250
	} else {
		m.RateMbps = int(r) * 100
	}
	m.Length = Length{
		SMF: float64(low[sfpLengthKM]) * 1000,
		OM2: float64(low[sfpLengthOM2]) * 10,
		OM1: float64(low[sfpLengthOM1]) * 10,
		OM3: float64(low[sfpLengthOM3]) * 10,
	}
	if m.Length.SMF == 0 {
		m.Length.SMF = float64(low[sfpLengthSMF]) * 100
	}
	if m.Copper {
		m.Length.Cable = float64(low[sfpLengthCable])
		return
	}
	m.Length.OM4 = float64(low[sfpLengthCable]) * 10
	if w := u16(low, sfpWavelength); w != 0 {
		m.WavelengthNM = new(float64(w))
	}
}

// sfpPower decodes the power level (byte 64). What level 4 draws is stated
// elsewhere and left open.
func (m *Module) sfpPower(low []byte) {
	o := low[sfpOptions0]
	switch {
	case o&option0Level4 != 0:
		m.PowerClass = 4
	case o&option0Level3 != 0:
		m.PowerClass, m.MaxPowerW = 3, new(2.0)
	case o&option0Level2 != 0:
		m.PowerClass, m.MaxPowerW = 2, new(1.5)
	default:
		m.PowerClass, m.MaxPowerW = 1, new(1.0)
	}
}

// sfpMonitor decodes the memory at A2h. Measured values and thresholds of a
// module that is calibrated externally are raw and go through the constants at
// bytes 56 to 91.
func (m *Module) sfpMonitor(lane *Lane, d []byte) {
	m.checksum("A2h 0-94", d[:diagCheck], d[diagCheck])
	cal := calibration{external: m.Capabilities.ExternalCalibration, d: d}
	m.NotReady = d[diagStatus]&statusSFPNotReady != 0
	if m.PowerClass >= 2 {
		m.PowerControl = &PowerControl{Override: true, HighPower: d[diagControl]&1 != 0, LowPower: d[diagControl]&1 == 0, Controlled: true}
	}
	m.Thresholds = &Thresholds{
		TemperatureC: limits(d, diagTempLimits, cal.temperature),
		VccV:         limits(d, diagVccLimits, cal.vcc),
		RxPowerMW:    limits(d, diagRxLimits, cal.rx),
		TxPowerMW:    limits(d, diagTxLimits, cal.tx),
		TxBiasMA:     limits(d, diagBiasLimits, cal.bias),
	}
	if *m.Thresholds == (Thresholds{}) {
		m.Thresholds = nil
	}
	lane.TxDisabled = new(d[diagStatus]&statusTxDisabled != 0)
	if m.NotReady {
		return
	}
	if m.Capabilities.TxFault {
		lane.TxFault = new(d[diagStatus]&statusTxFault != 0)
	}
	if m.Capabilities.RxLOS {
		lane.RxLOS = new(d[diagStatus]&statusRxLOS != 0)
	}
	value := func(q Quantity, of func(uint16) float64, at int) *float64 {
		v := finite(of(u16(d, at)))
		if v == nil {
			m.problem("the calibration constants of %s make no number", q)
		}
		return v
	}
	m.TemperatureC = value(Temperature, cal.temperature, diagTempAt)
	m.VccV = value(Vcc, cal.vcc, diagVccAt)
	if m.Copper {
		return
	}
	lane.TxBiasMA = value(TxBias, cal.bias, diagBiasAt)
	if v := value(TxPower, cal.tx, diagTxAt); v != nil {
		lane.setTx(max(*v, 0))
	}
	if v := value(RxPower, cal.rx, diagRxAt); v != nil {
		lane.setRx(max(*v, 0))
	}
}

// calibration turns what an SFP holds into units.
type calibration struct {
	external bool
	d        []byte
}

// linear is raw·slope + offset; the slope is unsigned 8.8.
func (c calibration) linear(raw float64, at int) float64 {
	if !c.external {
		return raw
	}
	return raw*float64(u16(c.d, at))/256 + float64(s16(c.d, at+2))
}

// digits rounds what a calibration computes to far below its resolution.
func digits(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func (c calibration) temperature(raw uint16) float64 {
	return digits(c.linear(float64(int16(raw)), diagTempSlope) / 256)
}

func (c calibration) vcc(raw uint16) float64 {
	return digits(c.linear(float64(raw), diagVccSlope) / 1e4)
}

func (c calibration) bias(raw uint16) float64 {
	return digits(c.linear(float64(raw), diagBiasSlope) * 2 / 1e3)
}

func (c calibration) tx(raw uint16) float64 {
	return digits(c.linear(float64(raw), diagTxSlope) / 1e4)
}

// rx is a polynomial of the fourth degree in 0.1 µW.
func (c calibration) rx(raw uint16) float64 {
	v := float64(raw)
	if c.external {
		sum := 0.0
		for i := range 5 {
			k := math.Float32frombits(binary.BigEndian.Uint32(c.d[diagRxPoly+4*i:]))
			sum = sum*v + float64(k)
		}
		v = sum
	}
	return digits(v / 1e4)
}

// sfpFlags is what the module latched of a quantity, in the order of judge.
func sfpFlags(d []byte, q Quantity) uint8 {
	shift := map[Quantity]int{Temperature: 14, Vcc: 12, TxBias: 10, TxPower: 8, RxPower: 6}[q]
	pair := func(at int) uint8 { return uint8(u16(d, at)>>shift) & 3 }
	return pair(diagAlarms)<<2 | pair(diagWarnings)
}
