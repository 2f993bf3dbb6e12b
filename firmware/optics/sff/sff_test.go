package sff_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"rocelink/firmware/optics/opticstest"
	"rocelink/firmware/optics/sff"
)

func decode(t *testing.T, dump []byte) sff.Module {
	t.Helper()
	mem, err := sff.ParseDump(dump)
	if err != nil {
		t.Fatal(err)
	}
	m, err := sff.Decode(mem)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func near(p *float64, want float64) bool { return p != nil && math.Abs(*p-want) < 1e-3 }

func show(p *float64) string {
	if p == nil {
		return "nil"
	}
	return fmt.Sprint(*p)
}

func TestQSFP(t *testing.T) {
	m := decode(t, opticstest.SR4().Dump(true))
	if !m.Present || m.Identifier != "QSFP28" || m.Management != sff.SFF8636 {
		t.Errorf("identity: %+v", m)
	}
	for _, c := range []struct{ what, got, want string }{
		{"vendor", m.Vendor, "ROCELINK TEST"}, {"part", m.Part, "SR4-100G"}, {"revision", m.Revision, "1A"},
		{"serial", m.Serial, "T0001"}, {"date", m.Date, "2024-02-29"}, {"OUI", m.OUI, "02:00:5e"},
		{"connector", m.Connector, "MPO 1x12"}, {"technology", m.Technology, "850 nm VCSEL"},
		{"compliance", strings.Join(m.Compliance, ";"), "100GBASE-SR4 or 25GBASE-SR"},
		{"map revision", m.MapRevision, "SFF-8636 rev 2.8 to 2.10"},
		{"length", m.Length.String(), "OM4 100 m"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.what, c.got, c.want)
		}
	}
	if !m.ChecksumOK || m.Copper || m.FlatMemory || m.PowerClass != 4 || m.RateMbps != 25750 || !near(m.WavelengthNM, 850) {
		t.Errorf("%+v", m)
	}
	if !near(m.TemperatureC, 35.5) || !near(m.VccV, 3.3) {
		t.Errorf("temperature %s, supply %s", show(m.TemperatureC), show(m.VccV))
	}
	if len(m.Lanes) != 4 {
		t.Fatalf("%d lanes", len(m.Lanes))
	}
	l := m.Lanes[2]
	if l.Lane != 3 || !near(l.RxPowerMW, 0.7) || !near(l.RxPowerDBm, -1.549) || !near(l.TxPowerMW, 1.2) ||
		!near(l.TxPowerDBm, 0.792) || !near(l.TxBiasMA, 6.7) || l.NoLight {
		t.Errorf("lane 3: %+v", l)
	}
	if th := m.Thresholds; th == nil || *th.TemperatureC != (sff.Limits{HighAlarm: 75, LowAlarm: -5, HighWarning: 70}) ||
		th.TxBiasMA.LowWarning != 4 || th.RxPowerMW.HighAlarm != 2.1878 || th.TxPowerMW.LowAlarm != 0.1 || th.VccV.HighAlarm != 3.63 {
		t.Errorf("thresholds: %+v", th)
	}
	if len(m.Alarms)+len(m.Warnings)+len(m.Problems) != 0 {
		t.Errorf("a healthy module has %v %v %v", m.Alarms, m.Warnings, m.Problems)
	}
}

// One field at a time, by its byte in the specification.
func TestQSFPBytes(t *testing.T) {
	low := func(at int, v ...byte) func([]byte) { return func(d []byte) { copy(d[at:], v) } }
	for _, c := range []struct {
		name string
		set  func(d []byte)
		ok   func(m sff.Module) bool
	}{
		{"0xFF80 is -0.5 °C", low(22, 0xFF, 0x80), func(m sff.Module) bool { return *m.TemperatureC == -0.5 }},
		{"0x8000 is -128 °C", low(22, 0x80, 0x00), func(m sff.Module) bool { return *m.TemperatureC == -128 }},
		{"no light", low(34, 0, 0), func(m sff.Module) bool {
			l := m.Lanes[0]
			return *l.RxPowerMW == 0 && l.RxPowerDBm == nil && l.NoLight && !m.Lanes[1].NoLight
		}},
		{"0.1 µW", low(40, 0, 1), func(m sff.Module) bool { return *m.Lanes[3].RxPowerDBm == -40 && !m.Lanes[3].NoLight }},
		{"dark transmitter", low(50, 0, 0), func(m sff.Module) bool { return *m.Lanes[0].TxPowerMW == 0 && m.Lanes[0].TxPowerDBm == nil }},
		{"not ready", low(2, 1), func(m sff.Module) bool {
			return m.NotReady && m.TemperatureC == nil && m.Lanes[0].RxPowerMW == nil && m.Lanes[0].RxLOS == nil && m.Vendor != ""
		}},
		{"Rx LOS of lane 2, Tx LOS of lane 4", low(3, 0x82), func(m sff.Module) bool {
			return *m.Lanes[1].RxLOS && !*m.Lanes[0].RxLOS && *m.Lanes[3].TxLOS && !*m.Lanes[1].TxLOS
		}},
		{"Tx fault of lane 1", low(4, 0x01), func(m sff.Module) bool { return *m.Lanes[0].TxFault && !*m.Lanes[1].TxFault }},
		{"CDR of Rx lane 3 and Tx lane 1 unlocked", low(5, 0x14), func(m sff.Module) bool { return *m.Lanes[2].RxLOL && *m.Lanes[0].TxLOL && !*m.Lanes[0].RxLOL }},
		{"latched temperature high alarm", low(6, 0x80), func(m sff.Module) bool {
			return slices.Equal(m.Alarms, []sff.Alarm{{Quantity: sff.Temperature, Bound: "high", Latched: true}}) && len(m.Warnings) == 0
		}},
		{"latched supply low warning", low(7, 0x10), func(m sff.Module) bool {
			return slices.Equal(m.Warnings, []sff.Alarm{{Quantity: sff.Vcc, Bound: "low", Latched: true}})
		}},
		{"Rx power low alarm of lane 1", low(9, 0x40), func(m sff.Module) bool {
			return slices.Equal(m.Alarms, []sff.Alarm{{Quantity: sff.RxPower, Lane: 1, Bound: "low", Latched: true}})
		}},
		{"bias high alarm of lane 4", low(12, 0x08), func(m sff.Module) bool {
			return slices.Equal(m.Alarms, []sff.Alarm{{Quantity: sff.TxBias, Lane: 4, Bound: "high", Latched: true}})
		}},
		{"Tx power high warning of lane 3", low(14, 0x20), func(m sff.Module) bool {
			return slices.Equal(m.Warnings, []sff.Alarm{{Quantity: sff.TxPower, Lane: 3, Bound: "high", Latched: true}})
		}},
		{"71 °C now", low(22, 71, 0), func(m sff.Module) bool {
			return slices.Equal(m.Warnings, []sff.Alarm{{Quantity: sff.Temperature, Bound: "high", Now: true}}) && len(m.Alarms) == 0
		}},
		{"76 °C now", low(22, 76, 0), func(m sff.Module) bool { return len(m.Warnings) == 1 && len(m.Alarms) == 1 && m.Alarms[0].Now }},
		{"Tx disabled on lanes 1 and 3", low(86, 0x05), func(m sff.Module) bool {
			return *m.Lanes[0].TxDisabled && !*m.Lanes[1].TxDisabled && *m.Lanes[2].TxDisabled
		}},
		{"low power by software", low(93, 0x03), func(m sff.Module) bool { return m.PowerControl.LowPower && m.PowerControl.Override }},
		{"low power bit without override", low(93, 0x02), func(m sff.Module) bool { return !m.PowerControl.LowPower }},
		{"CDR of Rx lane 4 on", low(98, 0x08), func(m sff.Module) bool { return *m.Lanes[3].RxCDR && !*m.Lanes[3].TxCDR }},
		{"power class 6", low(129, 0xC2), func(m sff.Module) bool { return m.PowerClass == 6 && *m.MaxPowerW == 4.5 && !m.Capabilities.RxCDR }},
		{"power class 2", low(129, 0x40), func(m sff.Module) bool { return m.PowerClass == 2 && *m.MaxPowerW == 2 }},
		{"power class 8", func(d []byte) { d[129], d[107] = 0x20, 102 }, func(m sff.Module) bool { return m.PowerClass == 8 && *m.MaxPowerW == 10.2 }},
		{"no transmit power", low(220, 0x38), func(m sff.Module) bool { return m.Lanes[0].TxPowerMW == nil && m.Lanes[0].RxPowerMW != nil }},
		{"nothing monitored", func(d []byte) { clear(d[22:58]); d[220] = 0 }, func(m sff.Module) bool {
			return m.TemperatureC == nil && m.VccV == nil && m.Lanes[0].RxPowerMW == nil && m.Lanes[0].TxBiasMA == nil && !m.Lanes[0].NoLight
		}},
		{"rev 2.7, 0 °C", func(d []byte) { d[1], d[220] = 7, 0x0C; clear(d[22:24]) }, func(m sff.Module) bool { return *m.TemperatureC == 0 && near(m.VccV, 3.3) }},
		{"vendor of 16 characters", func(d []byte) { copy(d[148:], "0123456789ABCDEF") }, func(m sff.Module) bool { return m.Vendor == "0123456789ABCDEF" && !m.ChecksumOK }},
		{"unprintable vendor", func(d []byte) { copy(d[148:], "A\x01\xffB\x00") }, func(m sff.Module) bool { return strings.HasPrefix(m.Vendor, "A??B ") }},
		{"1310 nm EML", low(147, 0x60), func(m sff.Module) bool { return m.Technology == "1310 nm EML" && !m.Copper }},
		{"active copper", low(147, 0xC0), func(m sff.Module) bool {
			return m.Copper && m.Active && m.TemperatureC != nil && m.Lanes[0].RxPowerMW == nil && m.WavelengthNM == nil
		}},
		{"flat memory with a page 03h in the file", low(2, 4), func(m sff.Module) bool { return m.FlatMemory && m.Thresholds == nil }},
		{"empty thresholds", func(d []byte) { clear(d[512:]) }, func(m sff.Module) bool { return m.Thresholds == nil }},
		{"wrong checksum", low(191, 0), func(m sff.Module) bool {
			return !m.ChecksumOK && !m.Checksums[0].OK && m.Checksums[1].OK && m.Vendor == "ROCELINK TEST" && len(m.Problems) == 1
		}},
		{"QSFP+", func(d []byte) { d[0], d[128] = 0x0D, 0x0D }, func(m sff.Module) bool { return m.Identifier == "QSFP+" }},
		{"identifier only at byte 128", low(0, 0), func(m sff.Module) bool { return m.Identifier == "QSFP28" && len(m.Problems) == 1 }},
		{"unknown identifier", func(d []byte) { d[0], d[128] = 0x77, 0x77 }, func(m sff.Module) bool {
			return m.Present && m.Identifier == "unknown (0x77)" && !m.ChecksumOK && len(m.Lanes) == 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := opticstest.SR4().Dump(true)
			c.set(d)
			m := decode(t, d)
			if !c.ok(m) {
				t.Errorf("%+v\nlanes %+v", m, m.Lanes)
			}
			encode(t, m)
		})
	}
}

// encode checks that a module is JSON without loss.
func encode(t *testing.T, m sff.Module) map[string]any {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCopperMonitorsNothing(t *testing.T) {
	v := encode(t, decode(t, opticstest.CR4().Dump(false)))
	if v["copper"] != true || v["active"] != false || v["checksum_ok"] != true || v["flat_memory"] != true {
		t.Errorf("%v", v)
	}
	for _, k := range []string{"temperature_c", "vcc_v", "thresholds", "wavelength_nm"} {
		if got, ok := v[k]; !ok || got != nil {
			t.Errorf("%s is %v, want null", k, got)
		}
	}
	lanes := v["lanes"].([]any)
	if len(lanes) != 4 {
		t.Fatalf("%d lanes", len(lanes))
	}
	for _, l := range lanes {
		for _, k := range []string{"rx_power_mw", "rx_power_dbm", "tx_power_mw", "tx_power_dbm", "tx_bias_ma"} {
			if got, ok := l.(map[string]any)[k]; !ok || got != nil {
				t.Errorf("%s is %v, want null", k, got)
			}
		}
	}
	if len(v["alarms"].([]any)) != 0 {
		t.Errorf("alarms %v", v["alarms"])
	}
}

func TestSFP(t *testing.T) {
	for _, c := range []struct {
		name     string
		external bool
		offset   int16
	}{{"internal calibration", false, 0}, {"external calibration", true, 0}, {"external calibration with offset", true, -100}} {
		t.Run(c.name, func(t *testing.T) {
			s := opticstest.SR()
			s.External, s.Offset = c.external, c.offset
			m := decode(t, s.Dump())
			if m.Management != sff.SFF8472 || m.Vendor != "ROCELINK TEST" || m.Part != "SR-25G" || m.Serial != "S0001" ||
				!m.ChecksumOK || m.Copper || m.RateMbps != 25750 || m.Length.OM3 != 70 || len(m.Checksums) != 3 {
				t.Errorf("%+v", m)
			}
			if m.Capabilities.ExternalCalibration != c.external {
				t.Errorf("external calibration: %v", m.Capabilities.ExternalCalibration)
			}
			l := m.Lanes[0]
			for _, v := range []struct {
				what string
				got  *float64
				want float64
			}{
				{"temperature", m.TemperatureC, 30.25}, {"supply", m.VccV, 3.3}, {"rx", l.RxPowerMW, 0.4},
				{"rx dBm", l.RxPowerDBm, -3.979}, {"tx", l.TxPowerMW, 0.9}, {"bias", l.TxBiasMA, 7},
				{"high alarm", &m.Thresholds.TemperatureC.HighAlarm, 75}, {"rx low alarm", &m.Thresholds.RxPowerMW.LowAlarm, 0.02},
			} {
				if v.got == nil || math.Abs(*v.got-v.want) > 0.01 {
					t.Errorf("%s is %s, want %v", v.what, show(v.got), v.want)
				}
			}
			if len(m.Alarms)+len(m.Warnings)+len(m.Problems) != 0 {
				t.Errorf("%v %v %v", m.Alarms, m.Warnings, m.Problems)
			}
		})
	}
}

func TestSFPBytes(t *testing.T) {
	const a2 = 256
	for _, c := range []struct {
		name string
		set  func(d []byte) []byte
		ok   func(m sff.Module) bool
	}{
		{"flags", func(d []byte) []byte { d[a2+112], d[a2+113], d[a2+117] = 0x80, 0x40, 0x80; return d }, func(m sff.Module) bool {
			return slices.Equal(m.Alarms, []sff.Alarm{{Quantity: sff.Temperature, Bound: "high", Latched: true}, {Quantity: sff.RxPower, Lane: 1, Bound: "low", Latched: true}}) &&
				slices.Equal(m.Warnings, []sff.Alarm{{Quantity: sff.RxPower, Lane: 1, Bound: "high", Latched: true}})
		}},
		{"status", func(d []byte) []byte { d[a2+110] = 0x86; return d }, func(m sff.Module) bool {
			l := m.Lanes[0]
			return *l.TxDisabled && *l.TxFault && *l.RxLOS
		}},
		{"not ready", func(d []byte) []byte { d[a2+110] = 1; return d }, func(m sff.Module) bool { return m.NotReady && m.TemperatureC == nil }},
		{"A2h missing", func(d []byte) []byte { return d[:256] }, func(m sff.Module) bool { return m.TemperatureC == nil && len(m.Problems) == 1 }},
		{"A2h erased", func(d []byte) []byte {
			for i := a2; i < len(d); i++ {
				d[i] = 0xFF
			}
			return d
		}, func(m sff.Module) bool { return m.TemperatureC == nil && m.Lanes[0].RxPowerMW == nil }},
		{"only the lower half of A2h", func(d []byte) []byte { return d[:384] }, func(m sff.Module) bool { return m.TemperatureC != nil }},
		{"calibration that is no number", func(d []byte) []byte {
			d[92] = 0x58
			copy(d[a2+56:], []byte{0x7F, 0xC0, 0, 0})
			return d
		}, func(m sff.Module) bool { return m.Lanes[0].RxPowerMW == nil && len(m.Problems) > 0 }},
		{"passive cable", func([]byte) []byte { return opticstest.SFP{Copper: true, Vendor: "V"}.Dump() }, func(m sff.Module) bool {
			return m.Copper && !m.Active && m.Length.Cable == 2 && m.TemperatureC == nil && m.Lanes[0].RxPowerMW == nil && m.ChecksumOK
		}},
		{"active optical cable", func(d []byte) []byte { d[8], d[36] = 1<<3, 0x18; return d }, func(m sff.Module) bool { return !m.Copper }},
		{"power level 2", func(d []byte) []byte { d[64] |= 2; return d }, func(m sff.Module) bool { return m.PowerClass == 2 && *m.MaxPowerW == 1.5 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := decode(t, c.set(opticstest.SR().Dump()))
			if !c.ok(m) {
				t.Errorf("%+v\nlanes %+v", m, m.Lanes)
			}
			encode(t, m)
		})
	}
}

func TestCMISIsShownAsFarAsItsIdentity(t *testing.T) {
	d := make([]byte, 256)
	d[0], d[1] = 0x18, 0x52
	copy(d[129:], "ROCELINK TEST   ")
	copy(d[148:], "DR4-400G        ")
	copy(d[166:], "D0001           ")
	d[200], d[201], d[203] = 3<<5, 40, 0x0C
	for _, v := range d[128:222] {
		d[222] += v
	}
	m := decode(t, d)
	if m.Management != sff.CMIS || m.Identifier != "QSFP-DD" || m.Vendor != "ROCELINK TEST" || m.Part != "DR4-400G" || m.Serial != "D0001" ||
		m.MapRevision != "CMIS rev 5.2" || m.PowerClass != 4 || *m.MaxPowerW != 10 || !m.ChecksumOK || m.TemperatureC != nil {
		t.Errorf("%+v", m)
	}
	if v := encode(t, m); v["lanes"] == nil {
		t.Error("lanes is null, want an empty list")
	}
}

func TestNoModule(t *testing.T) {
	for _, fill := range []byte{0, 0xFF} {
		mem, err := sff.ParseDump([]byte(strings.Repeat(string([]byte{fill}), 256)))
		if err != nil {
			t.Fatal(err)
		}
		m, err := sff.Decode(mem)
		if !errors.Is(err, sff.ErrNoModule) || m.Present {
			t.Errorf("all %02X: present %v, %v", fill, m.Present, err)
		}
	}
	for _, size := range []int{0, 1, 128, 255, 257, 300, sff.MaxDump + 1, 300 * 128} {
		if _, err := sff.ParseDump(make([]byte, size)); !errors.Is(err, sff.ErrSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := sff.Decode(sff.Memory{Lower: make([]byte, 128)}); !errors.Is(err, sff.ErrSize) {
		t.Errorf("no page 00h: %v", err)
	}
}

// The texts below have the form of the tools; their bytes are the fixture's.
func TestTextDumps(t *testing.T) {
	bin := opticstest.SR4().Dump(false)
	rows := func(head, format string, bytes func(b []byte) string) string {
		var s strings.Builder
		s.WriteString(head)
		for at := 0; at < len(bin); at += 16 {
			fmt.Fprintf(&s, format, at, bytes(bin[at:at+16]))
		}
		return s.String()
	}
	spaced := func(b []byte) string { return fmt.Sprintf("% x", b) }
	grouped := func(b []byte) string {
		var g []string
		for i := 0; i < len(b); i += 2 {
			g = append(g, hex.EncodeToString(b[i:i+2]))
		}
		return strings.Join(g, " ")
	}
	for name, s := range map[string]string{
		"ethtool": rows("Offset\t\tValues\n------\t\t------\n", "0x%04x:\t\t%s \n", spaced),
		"i2cdump": rows("     0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f    0123456789abcdef\n", "%02x: %s    12 34ab..cd\n", spaced),
		"xxd":     rows("", "%08x: %s  abcd1234........\n", grouped),
		"hexdump": rows("", "%08x  %s  |ab cd ef 01 23 45|\n", spaced) + "00000100\n",
		"plain":   fmt.Sprintf("% X\n", bin),
		"windows": rows("", "0x%04x: %s\r\n", spaced),
	} {
		t.Run(name, func(t *testing.T) {
			if m := decode(t, []byte(s)); m.Serial != "T0001" || !m.ChecksumOK || !near(m.TemperatureC, 35.5) {
				t.Errorf("%+v", m)
			}
		})
	}
	for name, s := range map[string]string{
		"prose":      "this is no dump\n",
		"gap":        "00: 11 00\n20: 00\n",
		"unreadable": "00: XX XX\n",
		"no bytes":   "0x0000: zz\n",
	} {
		if _, err := sff.ParseDump([]byte(s)); !errors.Is(err, sff.ErrText) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestText(t *testing.T) {
	q := opticstest.SR4()
	q.Rx[1] = 0
	q.Temperature = 72
	d := q.Dump(true)
	d[191]++
	var b strings.Builder
	if err := decode(t, d).Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"QSFP28 (0x11)", "72.00 °C !\n", "no light !!", "0.5000 mW -3.01 dBm ", "WRONG", "Alarm: lane 2 rx_power low", "Warning: temperature high"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(opticstest.SR4().Dump(true))
	f.Add(opticstest.CR4().Dump(false))
	f.Add(opticstest.SR().Dump())
	f.Add(opticstest.SFP{External: true, Offset: 3}.Dump())
	f.Add([]byte("0x0000: 11 00\n"))
	cmis := make([]byte, 256)
	cmis[0] = 0x18
	f.Add(cmis)
	f.Fuzz(func(t *testing.T, data []byte) {
		mem, err := sff.ParseDump(data)
		if err != nil {
			return
		}
		m, err := sff.Decode(mem)
		if m.Present != (err == nil) {
			t.Fatalf("present %v, error %v", m.Present, err)
		}
		encode(t, m)
		var b strings.Builder
		if err := m.Text(&b); err != nil {
			t.Fatal(err)
		}
	})
}
