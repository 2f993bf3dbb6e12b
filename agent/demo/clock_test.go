package demo

import (
	"strings"
	"testing"
)

func TestClockTellsRatioToRealTime(t *testing.T) {
	var b strings.Builder
	(&Clock{KHz: 250, Cycles: 500_000, Seconds: 4}).write(&b)
	for _, want := range []string{"500000 cycles at 250 kHz in 4.0 s", "1 s of the demo was 500 ms of it", "0.500 ms of a board's at 250 MHz"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %q", want, b.String())
		}
	}
	b.Reset()
	(&Clock{}).write(&b)
	if b.String() != "" {
		t.Errorf("without a sample: %q", b.String())
	}
}
