package boot

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

const (
	journalLines = 256
	// maxLine is below what the kernel takes as one record (Linux,
	// kernel/printk/printk.c: PRINTKRB_RECORD_MAX 1024 with its prefix).
	maxLine = 900
)

// Journal writes lines to the console and to the kernel's log without ever
// holding up who writes them: a serial line is slow and may be stopped. When it
// does not keep up, lines are lost and counted.
type Journal struct {
	console io.Writer
	lines   chan any // string, io.Writer or chan struct{}
	lost    atomic.Uint64
	quit    chan struct{}
	done    chan struct{}
}

// NewJournal returns a journal that writes to the console.
func NewJournal(console io.Writer) *Journal {
	j := &Journal{console: console, lines: make(chan any, journalLines), quit: make(chan struct{}), done: make(chan struct{})}
	go j.run()
	return j
}

func (j *Journal) run() {
	defer close(j.done)
	var kernel io.Writer
	put := func(line string) {
		// Neither may fail in a way that could be told to anybody.
		_, _ = io.WriteString(j.console, line+"\n")
		if kernel != nil {
			_, _ = io.WriteString(kernel, line)
		}
	}
	take := func(item any) {
		if n := j.lost.Swap(0); n > 0 {
			put(fmt.Sprintf("init: %d lines lost: the console is too slow", n))
		}
		switch x := item.(type) {
		case string:
			put(x)
		case io.Writer:
			kernel = x
		case chan struct{}:
			close(x)
		}
	}
	for {
		select {
		case item := <-j.lines:
			take(item)
			continue
		default:
		}
		select {
		case item := <-j.lines:
			take(item)
		case <-j.quit: // and nothing was left
			return
		}
	}
}

// attach adds the kernel's log.
func (j *Journal) attach(kernel io.Writer) { j.lines <- kernel }

// line adds a line.
func (j *Journal) line(text string) {
	select {
	case j.lines <- text:
	default:
		j.lost.Add(1)
	}
}

// flush waits until all lines before it are written, no longer than the bound.
func (j *Journal) flush(bound time.Duration) {
	t := time.NewTimer(bound)
	defer t.Stop()
	written := make(chan struct{})
	select {
	case j.lines <- written:
	case <-t.C:
		return
	}
	select {
	case <-written:
	case <-t.C:
	}
}

// Close writes what is left. What is written after it is lost.
func (j *Journal) Close() {
	close(j.quit)
	<-j.done
}

// Writer returns a writer whose lines carry the prefix.
func (j *Journal) Writer(prefix string) io.Writer { return &lineWriter{journal: j, prefix: prefix} }

// Logger returns a logger without times: the clock may be wrong, and the
// kernel's log has its own.
func (j *Journal) Logger(prefix string) *slog.Logger {
	return slog.New(slog.NewTextHandler(j.Writer(prefix), &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// lineWriter cuts what a program writes into lines.
type lineWriter struct {
	journal *Journal
	prefix  string
	mu      sync.Mutex
	rest    []byte
}

// Write takes any piece of text and never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range p {
		if c != '\n' {
			w.rest = append(w.rest, c)
		}
		if c == '\n' || len(w.rest) >= maxLine-len(w.prefix) {
			if len(w.rest) > 0 {
				w.journal.line(w.prefix + printable(string(w.rest)))
			}
			w.rest = w.rest[:0]
		}
	}
	return len(p), nil
}

// printable keeps what a program writes from steering the console's terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return -1
		case r == '\t' || !unicode.IsControl(r):
			return r
		}
		return '?'
	}, s)
}
