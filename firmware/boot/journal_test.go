package boot

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a console that stopped.
type slow struct {
	text bytes.Buffer
	gate chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.gate
	return s.text.Write(p)
}

func TestStoppedConsoleHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		console := &slow{gate: make(chan struct{})}
		j := NewJournal(console)
		w := j.Writer("")
		begin := time.Now()
		for n := range 1000 {
			fmt.Fprintf(w, "line %d\n", n)
		}
		j.flush(2 * time.Second)
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("held up for %v", d)
		}
		close(console.gate)
		synctest.Wait()
		fmt.Fprintln(w, "after")
		j.Close()
		fmt.Fprintln(w, "lost, and no panic")
		text := console.text.String()
		if !strings.Contains(text, "line 0\n") || !strings.Contains(text, "lines lost") || !strings.HasSuffix(text, "after\n") {
			t.Errorf("%d bytes: %.300s", len(text), text)
		}
		if strings.Count(text, "\n") > journalLines+4 {
			t.Errorf("%d lines", strings.Count(text, "\n"))
		}
	})
}

func TestLines(t *testing.T) {
	var console, kernel bytes.Buffer
	j := NewJournal(&console)
	j.attach(&kernel)
	w := j.Writer("p: ")
	for _, s := range []string{"one", " line\ntwo\r\n\n", "a\x1b[31mred\n", "\xff\n", strings.Repeat("x", 2*maxLine) + "\n", "rest"} {
		if n, err := io.WriteString(w, s); n != len(s) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	j.Close()
	lines := strings.Split(strings.TrimSuffix(console.String(), "\n"), "\n")
	if len(lines) != 7 || lines[0] != "p: one line" || lines[1] != "p: two" || lines[2] != "p: a?[31mred" {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if len(l) > maxLine {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
	if strings.ReplaceAll(console.String(), "\n", "") != kernel.String() {
		t.Error("console and kernel log differ")
	}
}
