package verbs

import (
	"testing"
	"time"
)

// A long wait is one that a test would notice.
const longWait = time.Minute

func TestBell(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  func(*Bell)
		timeout time.Duration
		want    bool
	}{
		{"rung before", (*Bell).Ring, longWait, true},
		{"rung twice is once", func(b *Bell) { b.Ring(); b.Ring() }, -1, true},
		{"woken before", (*Bell).Wake, longWait, false},
		{"woken before, for ever", (*Bell).Wake, -1, false},
		{"hushed", func(b *Bell) { b.Ring(); b.Hush() }, 0, false},
		{"hushing leaves the waking", func(b *Bell) { b.Wake(); b.Hush() }, -1, false},
		{"hushing nothing", (*Bell).Hush, time.Millisecond, false},
		{"nothing", func(*Bell) {}, 0, false},
	} {
		b := NewBell()
		c.before(&b)
		if got := b.Await(c.timeout); got != c.want {
			t.Errorf("%s: Await: %v, want %v", c.name, got, c.want)
		}
		if b.Await(0) { // the notification was one
			t.Errorf("%s: a second notification", c.name)
		}
	}
}

func TestBellFromElsewhere(t *testing.T) {
	b := NewBell()
	for i := range 1000 {
		rings := i%2 == 0
		go func() {
			if rings {
				b.Ring()
			} else {
				b.Wake()
			}
		}()
		if got := b.Await(longWait); got != rings {
			t.Fatalf("turn %d: %v, want %v", i, got, rings)
		}
	}
}

func TestBellAllocatesNothing(t *testing.T) {
	b := NewBell()
	b.Await(0)
	if n := testing.AllocsPerRun(100, func() {
		b.Ring()
		b.Await(longWait)
		b.Await(0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
