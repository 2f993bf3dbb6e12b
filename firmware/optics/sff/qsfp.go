package sff

import "fmt"

// The memory map of SFF-8636 rev 2.10a: lower memory.
const (
	qsfpRevision   = 1
	qsfpStatus     = 2 // 0 data not ready, 2 flat memory
	qsfpLOS        = 3 // [3:0] Rx, [7:4] Tx
	qsfpFault      = 4 // [3:0] Tx fault
	qsfpLOL        = 5 // [3:0] Rx CDR, [7:4] Tx CDR
	qsfpTempFlags  = 6
	qsfpVccFlags   = 7
	qsfpRxFlags    = 9 // two lanes a byte, the lower lane in the high nibble
	qsfpBiasFlags  = 11
	qsfpTxFlags    = 13
	qsfpTemp       = 22
	qsfpVcc        = 26
	qsfpRxPower    = 34
	qsfpBias       = 42
	qsfpTxPower    = 50
	qsfpMonitorEnd = 58
	qsfpTxDisable  = 86
	qsfpPower      = 93
	qsfpCDR        = 98
	qsfpMaxPower   = 107 // 0.1 W, class 8
)

// Upper page 00h, counted from byte 128.
const (
	qsfpUpper       = 128
	qsfpExtID       = 129 - qsfpUpper
	qsfpConnector   = 130 - qsfpUpper
	qsfpEthernet    = 131 - qsfpUpper
	qsfpRate        = 140 - qsfpUpper // 100 MBd; 255: see rateExt
	qsfpLengthSMF   = 142 - qsfpUpper // km
	qsfpLengthOM3   = 143 - qsfpUpper // 2 m
	qsfpLengthOM2   = 144 - qsfpUpper // m
	qsfpLengthOM1   = 145 - qsfpUpper // m
	qsfpLengthCable = 146 - qsfpUpper // m, or OM4 in 2 m
	qsfpTechnology  = 147 - qsfpUpper
	qsfpVendor      = 148 - qsfpUpper // 16 bytes
	qsfpOUI         = 165 - qsfpUpper
	qsfpPart        = 168 - qsfpUpper // 16 bytes
	qsfpPartRev     = 184 - qsfpUpper // 2 bytes
	qsfpWavelength  = 186 - qsfpUpper // 0.05 nm; of copper the attenuation
	qsfpCheckBase   = 191 - qsfpUpper
	qsfpExtCode     = 192 - qsfpUpper
	qsfpOptions3    = 194 - qsfpUpper
	qsfpOptions4    = 195 - qsfpUpper
	qsfpSerial      = 196 - qsfpUpper // 16 bytes
	qsfpDate        = 212 - qsfpUpper // 8 bytes
	qsfpDiagType    = 220 - qsfpUpper
	qsfpRateExt     = 222 - qsfpUpper // 250 MBd
	qsfpCheckExt    = 223 - qsfpUpper
)

// Upper page 03h: thresholds, counted from byte 128.
const (
	qsfpTempLimits = 128 - qsfpUpper
	qsfpVccLimits  = 144 - qsfpUpper
	qsfpRxLimits   = 176 - qsfpUpper
	qsfpBiasLimits = 184 - qsfpUpper
	qsfpTxLimits   = 192 - qsfpUpper
)

// Bits.
const (
	statusNotReady = 1 << 0
	statusFlat     = 1 << 2

	extIDRxCDR  = 1 << 2
	extIDTxCDR  = 1 << 3
	extIDClass8 = 1 << 5

	ethernetCR4      = 1 << 3
	ethernetExtended = 1 << 7

	option3RxLOL     = 1 << 4
	option3TxLOL     = 1 << 5
	option4TxLOS     = 1 << 1
	option4TxFault   = 1 << 3
	option4TxDisable = 1 << 4
	option4RateSel   = 1 << 5
	option4Page01    = 1 << 6
	option4Page02    = 1 << 7

	diagTxPower   = 1 << 2
	diagRxAverage = 1 << 3
	diagVcc       = 1 << 4 // since rev 2.8
	diagTemp      = 1 << 5 // since rev 2.8
	diagAny       = diagTxPower | diagRxAverage | diagVcc | diagTemp

	powerOverride = 1 << 0
	powerLow      = 1 << 1
	powerHigh     = 1 << 2
	powerClass8   = 1 << 3
)

// rev28 is the revision code from which on byte 220 tells whether temperature
// and supply voltage are monitored.
const rev28 = 0x08

var qsfpRevisions = map[uint8]string{
	0x01: "SFF-8436 rev 4.8", 0x02: "SFF-8436 rev 4.8", 0x03: "SFF-8636 rev 1.3", 0x04: "SFF-8636 rev 1.4",
	0x05: "SFF-8636 rev 1.5", 0x06: "SFF-8636 rev 2.0", 0x07: "SFF-8636 rev 2.5 to 2.7", 0x08: "SFF-8636 rev 2.8 to 2.10",
}

// technologies are the transmitter technologies of byte 147.
var technologies = [16]string{
	"850 nm VCSEL", "1310 nm VCSEL", "1550 nm VCSEL", "1310 nm FP", "1310 nm DFB", "1550 nm DFB", "1310 nm EML",
	"1550 nm EML", "other", "1490 nm DFB", "copper, unequalized", "copper, passive equalized",
	"copper, near and far end limiting active equalizers", "copper, far end limiting active equalizers",
	"copper, near end limiting active equalizers", "copper, linear active equalizers",
}

const (
	techPassiveCopper = 0xA // this and 0xB
	techActiveCopper  = 0xC // this and above
)

// ethernetCodes are the bits of byte 131.
var ethernetCodes = [7]string{
	"40G active cable (XLPPI)", "40GBASE-LR4", "40GBASE-SR4", "40GBASE-CR4", "10GBASE-SR", "10GBASE-LR", "10GBASE-LRM",
}

// classWatts is what the power classes 1 to 7 draw at most (byte 129).
var classWatts = [...]float64{1: 1.5, 2: 2.0, 3: 2.5, 4: 3.5, 5: 4.0, 6: 4.5, 7: 5.0}

// qsfpLanes is the number of lanes of a QSFP.
const qsfpLanes = 4

// monitored says what a QSFP measures.
type monitored struct{ temperature, vcc, light, txPower bool }

func (m *Module) decodeQSFP(low, up, page3 []byte) {
	m.Management = SFF8636
	m.MapRevision = qsfpRevisions[low[qsfpRevision]]
	m.FlatMemory = low[qsfpStatus]&statusFlat != 0
	m.NotReady = low[qsfpStatus]&statusNotReady != 0

	m.Vendor = text(up[qsfpVendor : qsfpVendor+16])
	m.OUI = oui(up[qsfpOUI:])
	m.Part = text(up[qsfpPart : qsfpPart+16])
	m.Revision = text(up[qsfpPartRev : qsfpPartRev+2])
	m.Serial = text(up[qsfpSerial : qsfpSerial+16])
	m.Date = date(up[qsfpDate : qsfpDate+8])
	m.Connector = connector(up[qsfpConnector])
	m.checksum("128-190", up[:qsfpCheckBase], up[qsfpCheckBase])
	m.checksum("192-222", up[qsfpExtCode:qsfpCheckExt], up[qsfpCheckExt])

	m.qsfpMedium(up)
	m.qsfpAbilities(low, up)
	m.qsfpValues(low, up)
	if page3 != nil && !m.FlatMemory {
		m.Thresholds = qsfpThresholds(page3)
	}
	m.judgeAll(func(q Quantity, lane int) uint8 { return qsfpFlags(low, q, lane) })
}

// qsfpMedium decodes what the module drives: fibre or copper.
func (m *Module) qsfpMedium(up []byte) {
	tech := up[qsfpTechnology] >> 4
	m.Technology = technologies[tech]
	ethernet := up[qsfpEthernet]
	for i, name := range ethernetCodes {
		if ethernet&(1<<i) != 0 {
			m.Compliance = append(m.Compliance, name)
		}
	}
	// Some cables name their extended code without bit 7 of byte 131.
	if code := up[qsfpExtCode]; code != 0 {
		m.Compliance = append(m.Compliance, extendedCode(code))
	}
	m.Copper = tech >= techPassiveCopper || ethernet&ethernetCR4 != 0
	m.Active = tech >= techActiveCopper
	if copper, active := copperCode(up[qsfpExtCode]); copper {
		m.Copper = true
		m.Active = m.Active || active
	}
	if r := up[qsfpRate]; r == 0xFF {
		m.RateMbps = int(up[qsfpRateExt]) * 250
	} else {
		m.RateMbps = int(r) * 100
	}
	m.Length = Length{
		SMF: float64(up[qsfpLengthSMF]) * 1000,
		OM3: float64(up[qsfpLengthOM3]) * 2,
		OM2: float64(up[qsfpLengthOM2]),
		OM1: float64(up[qsfpLengthOM1]),
	}
	cable := float64(up[qsfpLengthCable])
	if tech == 0 && !m.Copper && up[qsfpConnector] != noSeparableConnector {
		m.Length.OM4 = 2 * cable
	} else {
		m.Length.Cable = cable
	}
	if w := u16(up, qsfpWavelength); w != 0 && !m.Copper {
		m.WavelengthNM = new(float64(w) / 20)
	}
}

const noSeparableConnector = 0x23 // SFF-8024 table 4-3

// qsfpAbilities decodes power class, controls and options.
func (m *Module) qsfpAbilities(low, up []byte) {
	ext := up[qsfpExtID]
	m.PowerClass = int(ext>>6) + 1
	if high := int(ext & 3); high != 0 {
		m.PowerClass = 4 + high
	}
	if ext&extIDClass8 != 0 && low[qsfpRevision] >= rev28 {
		m.PowerClass = 8
		if w := low[qsfpMaxPower]; w != 0 {
			m.MaxPowerW = new(float64(w) / 10)
		}
	} else {
		m.MaxPowerW = new(classWatts[m.PowerClass])
	}
	p := low[qsfpPower]
	m.PowerControl = &PowerControl{
		Override:   p&powerOverride != 0,
		LowPower:   p&powerOverride != 0 && p&powerLow != 0,
		HighPower:  p&powerHigh != 0,
		Class8:     p&powerClass8 != 0,
		Controlled: true,
	}
	o3, o4, diag := up[qsfpOptions3], up[qsfpOptions4], up[qsfpDiagType]
	m.Capabilities = &Capabilities{
		TxDisable: o4&option4TxDisable != 0,
		TxFault:   o4&option4TxFault != 0,
		TxLOS:     o4&option4TxLOS != 0,
		RxLOS:     !m.Copper || m.Active,
		TxCDR:     ext&extIDTxCDR != 0,
		RxCDR:     ext&extIDRxCDR != 0,
		TxLOL:     o3&option3TxLOL != 0,
		RxLOL:     o3&option3RxLOL != 0,
		RateSel:   o4&option4RateSel != 0,
		Page01:    o4&option4Page01 != 0 && !m.FlatMemory,
		Page02:    o4&option4Page02 != 0 && !m.FlatMemory,
		RxAverage: diag&diagRxAverage != 0,
	}
}

// qsfpMonitors tells what a module measures. Byte 220 says so for the transmit
// power, and since rev 2.8 for temperature and supply; many optical modules
// leave the newer bits empty, so that a value that is there counts too. A
// passive cable measures only what it says it does, and no cable of copper has
// light.
func (m *Module) qsfpMonitors(low, up []byte) monitored {
	diag := up[qsfpDiagType]
	passive := m.Copper && !m.Active
	live := !blank(low[qsfpTemp:qsfpMonitorEnd])
	v := monitored{
		temperature: diag&diagTemp != 0,
		vcc:         diag&diagVcc != 0,
		light:       !m.Copper && (live || diag&diagAny != 0),
		txPower:     !m.Copper && diag&diagTxPower != 0,
	}
	if !passive {
		// A module that answers has a supply: its voltage is never 0.
		hasVcc := u16(low, qsfpVcc) != 0
		v.vcc = v.vcc || hasVcc
		v.temperature = v.temperature || u16(low, qsfpTemp) != 0 || hasVcc && low[qsfpRevision] < rev28
	}
	return v
}

func (m *Module) qsfpValues(low, up []byte) {
	v := m.qsfpMonitors(low, up)
	if m.NotReady {
		v = monitored{}
	}
	if v.temperature {
		m.TemperatureC = new(celsius(s16(low, qsfpTemp)))
	}
	if v.vcc {
		m.VccV = new(volts(u16(low, qsfpVcc)))
	}
	c := m.Capabilities
	for i := range qsfpLanes {
		l := Lane{Lane: i + 1}
		if v.light {
			l.setRx(milliwatts(u16(low, qsfpRxPower+2*i)))
			l.TxBiasMA = new(milliamperes(u16(low, qsfpBias+2*i)))
		}
		if v.txPower && v.light {
			l.setTx(milliwatts(u16(low, qsfpTxPower+2*i)))
		}
		flag := func(has bool, at, bit int) *bool {
			if !has {
				return nil
			}
			return new(low[at]&(1<<(bit+i)) != 0)
		}
		l.RxLOS = flag(c.RxLOS && !m.NotReady, qsfpLOS, 0)
		l.TxLOS = flag(c.TxLOS && !m.NotReady, qsfpLOS, 4)
		l.TxFault = flag(c.TxFault && !m.NotReady, qsfpFault, 0)
		l.RxLOL = flag(c.RxLOL && !m.NotReady, qsfpLOL, 0)
		l.TxLOL = flag(c.TxLOL && !m.NotReady, qsfpLOL, 4)
		l.TxDisabled = flag(c.TxDisable, qsfpTxDisable, 0)
		l.RxCDR = flag(c.RxCDR, qsfpCDR, 0)
		l.TxCDR = flag(c.TxCDR, qsfpCDR, 4)
		m.Lanes = append(m.Lanes, l)
	}
}

func qsfpThresholds(p []byte) *Thresholds {
	t := Thresholds{
		TemperatureC: limits(p, qsfpTempLimits, func(raw uint16) float64 { return celsius(int16(raw)) }),
		VccV:         limits(p, qsfpVccLimits, volts),
		RxPowerMW:    limits(p, qsfpRxLimits, milliwatts),
		TxPowerMW:    limits(p, qsfpTxLimits, milliwatts),
		TxBiasMA:     limits(p, qsfpBiasLimits, milliamperes),
	}
	if t == (Thresholds{}) {
		return nil
	}
	return &t
}

// qsfpFlags is what the module latched of a quantity.
func qsfpFlags(low []byte, q Quantity, lane int) uint8 {
	at := 0
	switch q {
	case Temperature:
		return low[qsfpTempFlags] >> 4
	case Vcc:
		return low[qsfpVccFlags] >> 4
	case RxPower:
		at = qsfpRxFlags
	case TxBias:
		at = qsfpBiasFlags
	case TxPower:
		at = qsfpTxFlags
	}
	f := low[at+(lane-1)/2]
	if lane%2 == 1 {
		return f >> 4
	}
	return f & 0xF
}

func oui(b []byte) string {
	if b[0] == 0 && b[1] == 0 && b[2] == 0 {
		return ""
	}
	return fmt.Sprintf("%02x:%02x:%02x", b[0], b[1], b[2])
}
