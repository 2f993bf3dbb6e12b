package sff

import (
	"encoding/binary"
	"math"
	"strings"
)

func u16(b []byte, at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }

func s16(b []byte, at int) int16 { return int16(u16(b, at)) }

// The scales of SFF-8636 and SFF-8472, which agree.

func celsius(raw int16) float64       { return float64(raw) / 256 }
func volts(raw uint16) float64        { return float64(raw) / 1e4 }
func milliwatts(raw uint16) float64   { return float64(raw) / 1e4 }
func milliamperes(raw uint16) float64 { return float64(raw) * 2 / 1e3 }

// dbm is a power in dBm, or nil for no power at all.
func dbm(mw float64) *float64 {
	if mw <= 0 {
		return nil
	}
	return new(math.Round(10*math.Log10(mw)*1000) / 1000)
}

// finite is the value, or nil if it is none that JSON can hold.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// setRx sets the receive power of a lane.
func (l *Lane) setRx(mw float64) {
	l.RxPowerMW, l.RxPowerDBm, l.NoLight = &mw, dbm(mw), mw <= 0
}

// setTx sets the transmit power of a lane.
func (l *Lane) setTx(mw float64) {
	l.TxPowerMW, l.TxPowerDBm = &mw, dbm(mw)
}

// text is a field of ASCII as valid text: padding goes, and a byte that is not
// printable becomes a question mark.
func text(b []byte) string {
	s := make([]byte, len(b))
	for i, c := range b {
		if c < 0x20 || c > 0x7E {
			c = '?'
			if b[i] == 0 {
				c = ' '
			}
		}
		s[i] = c
	}
	return strings.TrimSpace(string(s))
}

// field is like text for a field a vendor may leave erased.
func field(b []byte) string {
	if blank(b) {
		return ""
	}
	return text(b)
}

// date is YYMMDD with a lot code, as YYYY-MM-DD or as it stands if that is no
// date.
func date(b []byte) string {
	s := field(b)
	if len(s) < 6 {
		return s
	}
	for _, c := range s[:6] {
		if c < '0' || c > '9' {
			return s
		}
	}
	d := "20" + s[0:2] + "-" + s[2:4] + "-" + s[4:6]
	if lot := strings.TrimSpace(s[6:]); lot != "" {
		d += " lot " + lot
	}
	return d
}

// limits are four thresholds in the order of the memory maps: high alarm, low
// alarm, high warning, low warning. Nil if the module left them empty.
func limits(b []byte, at int, value func(raw uint16) float64) *Limits {
	empty := true
	var v [4]float64
	for i := range v {
		raw := u16(b, at+2*i)
		empty = empty && (raw == 0 || raw == 0xFFFF)
		v[i] = value(raw)
		if math.IsNaN(v[i]) || math.IsInf(v[i], 0) {
			return nil
		}
	}
	if empty {
		return nil
	}
	return &Limits{HighAlarm: v[0], LowAlarm: v[1], HighWarning: v[2], LowWarning: v[3]}
}

// Bits of the flags of one quantity: high alarm, low alarm, high warning, low
// warning from the top (SFF-8636 bytes 6-14).
const (
	highAlarm   = 1 << 3
	lowAlarm    = 1 << 2
	highWarning = 1 << 1
	lowWarning  = 1 << 0
)

// judge adds the alarms and warnings of one value. flags are what the module
// latched; a quantity that is not monitored has none.
func (m *Module) judge(q Quantity, lane int, value *float64, flags uint8, l *Limits) {
	if value == nil {
		return
	}
	var now uint8
	if l != nil {
		for _, c := range []struct {
			bit    uint8
			beyond bool
		}{
			{highAlarm, *value > l.HighAlarm}, {lowAlarm, *value < l.LowAlarm},
			{highWarning, *value > l.HighWarning}, {lowWarning, *value < l.LowWarning},
		} {
			if c.beyond {
				now |= c.bit
			}
		}
	}
	add := func(list *[]Alarm, bit uint8, bound string) {
		if (flags|now)&bit != 0 {
			*list = append(*list, Alarm{q, lane, bound, flags&bit != 0, now&bit != 0})
		}
	}
	add(&m.Alarms, highAlarm, "high")
	add(&m.Alarms, lowAlarm, "low")
	add(&m.Warnings, highWarning, "high")
	add(&m.Warnings, lowWarning, "low")
}

// judgeAll judges every value; flags answers with what the module latched.
func (m *Module) judgeAll(flags func(q Quantity, lane int) uint8) {
	t := m.Thresholds
	if t == nil {
		t = &Thresholds{}
	}
	m.judge(Temperature, 0, m.TemperatureC, flags(Temperature, 0), t.TemperatureC)
	m.judge(Vcc, 0, m.VccV, flags(Vcc, 0), t.VccV)
	for _, l := range m.Lanes {
		m.judge(RxPower, l.Lane, l.RxPowerMW, flags(RxPower, l.Lane), t.RxPowerMW)
		m.judge(TxPower, l.Lane, l.TxPowerMW, flags(TxPower, l.Lane), t.TxPowerMW)
		m.judge(TxBias, l.Lane, l.TxBiasMA, flags(TxBias, l.Lane), t.TxBiasMA)
	}
}
