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
