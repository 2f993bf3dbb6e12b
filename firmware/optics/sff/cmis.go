package sff

import "fmt"

// CMIS 5.2: lower memory and page 00h, the
// latter counted from byte 128.
const (
	cmisRevision  = 1
	cmisStatus    = 2 // 7: flat memory
	cmisVendor    = 129 - 128
	cmisOUI       = 145 - 128
	cmisPart      = 148 - 128
	cmisPartRev   = 164 - 128
	cmisSerial    = 166 - 128
	cmisDate      = 182 - 128
	cmisPower     = 200 - 128 // [7:5] class
	cmisMaxPower  = 201 - 128 // 0.25 W
	cmisLength    = 202 - 128 // [7:6] multiplier, [5:0] base
	cmisConnector = 203 - 128
	cmisMedia     = 212 - 128
	cmisCheck     = 222 - 128
)

// cmisCopper are the media interface technologies of copper: 0x0A
// and 0x0B passive, 0x0C to 0x0F active.
const (
	cmisPassive   = 0x0A
	cmisActive    = 0x0C
	cmisActiveEnd = 0x0F
)

func (m *Module) decodeCMIS(low, up []byte) {
	m.Management = CMIS
	m.MapRevision = fmt.Sprintf("CMIS rev %d.%d", low[cmisRevision]>>4, low[cmisRevision]&0xF)
	m.FlatMemory = low[cmisStatus]&0x80 != 0
	m.Vendor = text(up[cmisVendor : cmisVendor+16])
	m.OUI = oui(up[cmisOUI:])
	m.Part = text(up[cmisPart : cmisPart+16])
	m.Revision = text(up[cmisPartRev : cmisPartRev+2])
	m.Serial = text(up[cmisSerial : cmisSerial+16])
	m.Date = date(up[cmisDate : cmisDate+8])
	m.Connector = connector(up[cmisConnector])
	m.PowerClass = int(up[cmisPower]>>5) + 1
	m.MaxPowerW = new(float64(up[cmisMaxPower]) / 4)
	if t := up[cmisMedia]; t >= cmisPassive && t <= cmisActiveEnd {
		m.Copper = true
		m.Active = t >= cmisActive
	}
	m.Length.Cable = float64(up[cmisLength]&0x3F) * [4]float64{0.1, 1, 10, 100}[up[cmisLength]>>6]
	m.checksum("128-221", up[:cmisCheck], up[cmisCheck])
	m.problem("CMIS module: shown as far as its identity, monitored values are not read")
}
