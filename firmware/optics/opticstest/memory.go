// Package opticstest is cages without hardware: the memory of modules made from
// the fields the specifications document, an I2C bus with switches on it that
// refuses what real modules do not bear, and GPIO lines.
//
// No byte is taken from a real module: QSFP and SFP lay out SFF-8636 and
// SFF-8472 field by field, checksums included.
package opticstest

import (
	"encoding/binary"
	"math"
	"slices"
)

// QSFP is what a QSFP module holds. The zero value of a field is left empty.
type QSFP struct {
	Identifier uint8 // 0 is 0x11, QSFP28
	Revision   uint8 // 0 is 8, SFF-8636 rev 2.8
	Flat       bool  // no upper pages but 00h
	Vendor     string
	Part       string
	PartRev    string
	Serial     string
	Date       string
	Connector  uint8
	Technology uint8 // byte 147
	Ethernet   uint8 // byte 131
	Extended   uint8 // byte 192
	ExtID      uint8 // byte 129: power class, CDR
	Cable      uint8 // byte 146
	Diag       uint8 // byte 220
	Options3   uint8
	Options4   uint8

	Temperature float64 // °C
	Vcc         float64 // V
	Rx, Tx      [4]float64
	Bias        [4]float64 // mA
}

// SR4 is a 100GBASE-SR4 module in good health.
func SR4() QSFP {
	return QSFP{
		Vendor: "ROCELINK TEST", Part: "SR4-100G", PartRev: "1A", Serial: "T0001", Date: "240229",
		Connector: 0x0C, Ethernet: 0x80, Extended: 0x02, ExtID: 0xCC, Cable: 50, Diag: 0x3C,
		Options3: 0x30, Options4: 0x1A,
		Temperature: 35.5, Vcc: 3.3,
		Rx: [4]float64{0.5, 0.6, 0.7, 0.8}, Tx: [4]float64{1, 1.1, 1.2, 1.3}, Bias: [4]float64{6.5, 6.6, 6.7, 6.8},
	}
}

// CR4 is a passive copper cable: flat memory, nothing monitored.
func CR4() QSFP {
	return QSFP{
		Flat: true, Vendor: "ROCELINK TEST", Part: "CR4-3M", PartRev: "A", Serial: "C0001", Date: "230115",
		Connector: 0x23, Technology: 0xA0, Ethernet: 0x80, Extended: 0x0B, Cable: 3,
	}
}

func put16(b []byte, at int, v float64) {
	binary.BigEndian.PutUint16(b[at:], uint16(int(math.Round(v))))
}

func putText(b []byte, s string) {
	for i := range b {
		b[i] = ' '
	}
	copy(b, s)
}

// Pages returns the lower memory and the upper pages 00h, 01h, 02h and 03h.
func (q QSFP) Pages() [5][]byte {
	var p [5][]byte
	for i := range p {
		p[i] = make([]byte, 128)
	}
	low, up, lim := p[0], p[1], p[4]
	low[0], low[1] = q.Identifier, q.Revision
	if low[0] == 0 {
		low[0] = 0x11
	}
	if low[1] == 0 {
		low[1] = 8
	}
	if q.Flat {
		low[2] |= 1 << 2
	}
	put16(low, 22, q.Temperature*256)
	put16(low, 26, q.Vcc*1e4)
	for i := range 4 {
		put16(low, 34+2*i, q.Rx[i]*1e4)
		put16(low, 42+2*i, q.Bias[i]*500)
		put16(low, 50+2*i, q.Tx[i]*1e4)
	}
	low[98] = 0xFF
	up[0] = low[0]
	up[1], up[2], up[3] = q.ExtID, q.Connector, q.Ethernet
	up[140-128], up[222-128] = 0xFF, 103 // 25.75 GBd
	up[146-128], up[147-128] = q.Cable, q.Technology
	putText(up[148-128:164-128], q.Vendor)
	up[165-128], up[166-128], up[167-128] = 0x02, 0x00, 0x5E
	putText(up[168-128:184-128], q.Part)
	putText(up[184-128:186-128], q.PartRev)
	put16(up, 186-128, 850*20)
	up[192-128], up[194-128], up[195-128] = q.Extended, q.Options3, q.Options4
	putText(up[196-128:212-128], q.Serial)
	putText(up[212-128:220-128], q.Date)
	up[220-128] = q.Diag
	Sum(up)
	for i, v := range []float64{75, -5, 70, 0} {
		put16(lim, 2*i, v*256)
	}
	for i, v := range []float64{3.63, 2.97, 3.465, 3.135} {
		put16(lim, 16+2*i, v*1e4)
	}
	for i, v := range []float64{2.1878, 0.0501, 1.7378, 0.1} {
		put16(lim, 48+2*i, v*1e4)
	}
	for i, v := range []float64{10, 3, 9, 4} {
		put16(lim, 56+2*i, v*500)
	}
	for i, v := range []float64{3.4674, 0.1, 2.7542, 0.2} {
		put16(lim, 64+2*i, v*1e4)
	}
	return p
}

// Sum sets both checksums of an upper page 00h (SFF-8636 bytes 191 and 223).
func Sum(up []byte) {
	up[191-128] = sum(up[:191-128])
	up[223-128] = sum(up[192-128 : 223-128])
}

func sum(b []byte) (s uint8) {
	for _, v := range b {
		s += v
	}
	return s
}

// Dump is the module as a file: 256 bytes, or 640 with the pages 01h to 03h.
func (q QSFP) Dump(pages bool) []byte {
	p := q.Pages()
	if !pages {
		return slices.Concat(p[0], p[1])
	}
	return slices.Concat(p[0], p[1], p[2], p[3], p[4])
}

// SFP is an SFP28 module.
type SFP struct {
	Vendor, Part, PartRev, Serial string
	Copper                        bool // a passive cable
	// External: the values go through the constants, which double what is
	// measured and add what Offset says, in raw units.
	External    bool
	Offset      int16
	Temperature float64
	Vcc         float64
	Rx, Tx      float64
	Bias        float64
}

// SR is a 25GBASE-SR module in good health.
func SR() SFP {
	return SFP{
		Vendor: "ROCELINK TEST", Part: "SR-25G", PartRev: "1", Serial: "S0001",
		Temperature: 30.25, Vcc: 3.3, Rx: 0.4, Tx: 0.9, Bias: 7,
	}
}

// Dump is the module as a file: 256 bytes at A0h, then 256 at A2h unless it is
// a cable.
func (s SFP) Dump() []byte {
	a0, a2 := make([]byte, 256), make([]byte, 256)
	a0[0], a0[1], a0[2] = 0x03, 0x04, 0x07
	a0[12], a0[66] = 0xFF, 103
	putText(a0[20:36], s.Vendor)
	a0[36] = 0x02
	a0[37], a0[38], a0[39] = 0x02, 0x00, 0x5E
	putText(a0[40:56], s.Part)
	putText(a0[56:60], s.PartRev)
	put16(a0, 60, 850)
	a0[19] = 7
	a0[65] = 0x1A // Tx disable, Tx fault, Rx LOS
	putText(a0[68:84], s.Serial)
	putText(a0[84:92], "240229")
	a0[92], a0[93], a0[94] = 0x68, 0xF0, 8
	if s.Copper {
		a0[2], a0[8], a0[18], a0[36], a0[65], a0[92] = 0x23, 1<<2, 2, 0x0B, 0, 0
	}
	if s.External {
		a0[92] = 0x58
	}
	a0[63], a0[95] = sum(a0[:63]), sum(a0[64:95])
	if s.Copper {
		return a0
	}
	raw := func(at int, v float64) {
		if s.External {
			v = (v - float64(s.Offset)) / 2
		}
		put16(a2, at, v)
	}
	all := func(at int, scale float64, v ...float64) {
		for i, x := range v {
			raw(at+2*i, x*scale)
		}
	}
	all(0, 256, 75, -5, 70, 0)
	all(8, 1e4, 3.63, 2.97, 3.465, 3.135)
	all(16, 500, 10, 3, 9, 4)
	all(24, 1e4, 2, 0.1, 1.8, 0.2)
	all(32, 1e4, 2, 0.02, 1.8, 0.03)
	if s.External {
		// Rx: 2·raw + offset, the two lowest powers of the polynomial.
		binary.BigEndian.PutUint32(a2[68:], math.Float32bits(2))
		binary.BigEndian.PutUint32(a2[72:], math.Float32bits(float32(s.Offset)))
		for at := 76; at < 92; at += 4 {
			a2[at] = 2 // slope 2.0
			binary.BigEndian.PutUint16(a2[at+2:], uint16(s.Offset))
		}
	}
	a2[95] = sum(a2[:95])
	all(96, 256, s.Temperature)
	all(98, 1e4, s.Vcc)
	all(100, 500, s.Bias)
	all(102, 1e4, s.Tx)
	all(104, 1e4, s.Rx)
	return slices.Concat(a0, a2)
}
