package report

import (
	"strings"
	"testing"
	"time"

	"rocelink"
)

func TestText(t *testing.T) {
	var s Snapshot
	if s.Healthy() {
		t.Error("nothing heard counts as healthy")
	}
	board := rocelink.BoardStatus{Board: "b\x1b[2J1", Model: "demo", Fabric: rocelink.Fabric{Present: true, Version: "1.0", Emulated: true},
		Link:    rocelink.Link{Driver: "cmac", Up: true, State: "up", Status: "0x3"},
		Streams: []rocelink.StreamStatus{{Stream: "send", Verb: rocelink.VerbSend, State: rocelink.StreamRunning, FramesDone: 1<<53 + 1}}}
	s.Add(board)
	board.UptimeMS = 5000
	s.Add(board)
	s.Add(rocelink.HostStatus{Host: "h", Device: rocelink.Device{Active: true}, Streams: []rocelink.HostStream{{Stream: "send", State: "running"}}})
	if len(s.Boards) != 1 || s.Boards[0].UptimeMS != 5000 {
		t.Errorf("a newer record did not replace the older: %+v", s.Boards)
	}
	if !s.Healthy() {
		t.Error("all is up, yet not healthy")
	}
	var b strings.Builder
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"board b?[2J1", "link cmac UP", "9007199254740993", "(software)", "host h"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.ContainsRune(b.String(), 0x1b) {
		t.Error("a control character reached the terminal")
	}
	s.Boards[0].Link.Up = false
	if s.Healthy() {
		t.Error("link down counts as healthy")
	}
}

func TestWindowLineFitsItsHeading(t *testing.T) {
	line := WindowLine(rocelink.Window{Host: "host", Stream: "write-imm", Verb: rocelink.VerbWriteImm, End: time.Unix(0, 0), Messages: 1234567, BitsPerSecond: 97.5e9, HeldSlots: 508})
	if len(line) != len(WindowHeader) {
		t.Errorf("line of %d, heading of %d characters:\n%s\n%s", len(line), len(WindowHeader), WindowHeader, line)
	}
	for _, column := range []string{"messages", "Gb/s", "missing", "late", "overrun", "corrupt", "errors", "held"} {
		end := strings.Index(WindowHeader, column) + len(column)
		if line[end-1] == ' ' {
			t.Errorf("column %s ends where the line has a space:\n%s\n%s", column, WindowHeader, line)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 30: "1.0 GiB", 1<<64 - 1: "16.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestHardware(t *testing.T) {
	yes, no := true, false
	var s Snapshot
	s.Add(rocelink.BoardStatus{Board: "b", Problem: "the card is broken",
		Link: rocelink.Link{FEC: "rs", Problem: "no light on lane 2", Remedy: "clean it\x1b", Cause: rocelink.CauseNoLight,
			Counters: map[string]rocelink.Count{"rsfec_corrected": 1<<53 + 1, "unknown": 3}},
		Modules: []rocelink.Module{
			{Cage: "q0", Phase: "ready", Identifier: "QSFP28", Vendor: "V\x07", Part: "P", Serial: "S", TemperatureC: new(35.5), VccV: new(3.3),
				Alarms: []string{"lane 2 rx_power low"}, Warnings: []string{"vcc low"},
				Lanes: []rocelink.ModuleLane{{Lane: 1, RxPowerMW: new(0.5), TxPowerMW: new(1.0), TxBiasMA: new(6.5)}, {Lane: 2, RxPowerMW: new(0.0), NoLight: true, TxDisabled: true, TxFault: true}}},
			{Cage: "q1", Phase: "ready", Copper: true, LowPower: true, Lanes: []rocelink.ModuleLane{{Lane: 1}}},
			{Cage: "q2", Phase: "failed", Problem: "no acknowledge"},
		},
		Clocks:  []rocelink.Clock{{Name: "ref", Hz: 156.25e6, Locked: &yes}, {Name: "other", Locked: &no}, {Name: "third", Problem: "mute"}},
		Sensors: []rocelink.Sensor{{Name: "ps", Unit: "C", Value: 51.26}, {Name: "vccint", Unit: "V", Value: 0.8512}},
	})
	var b strings.Builder
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the card is broken", "FEC rs", "remedy: clean it?", "rsfec_corrected 9007199254740993",
		"cage q0: ready, QSFP28 V? P, serial number S, 35.5 °C, 3.30 V", "-3.01 dBm", "0 mW", "6.5 mA", "NO LIGHT, Tx OFF, Tx FAULT", "alarm: lane 2 rx_power low", "warning: vcc low",
		"cage q1: ready, copper, LOW POWER", "cage q2: failed", "problem: no acknowledge",
		"clock ref: 156.250000 MHz, locked", "clock other, NOT LOCKED", "clock third, mute", "ps 51.3 °C, vccint 0.851 V",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.ContainsAny(b.String(), "\x1b\x07") || strings.Count(b.String(), "dBm") != 2 {
		t.Errorf("%s", b.String())
	}
}
