package poll

import (
	"errors"
	"io"
	"testing"
	"time"
)

// clock is a clock that only sleeping moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time        { return c.t }
func (c *clock) sleep(d time.Duration) { c.t = c.t.Add(d) }

func TestUntil(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks int // at which look it is done; 0 never
		err   error
		want  error
	}{
		{"at once", 1, nil, nil},
		{"while spinning", 10, nil, nil},
		{"while sleeping", 500, nil, nil},
		{"never", 0, nil, ErrTimeout},
		{"error", 3, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
	} {
		ck := &clock{}
		n := 0
		took, err := Poll{Timeout: 2 * time.Second, Now: ck.now, Sleep: ck.sleep}.Until(func() (bool, error) {
			n++
			if n == c.looks {
				return c.err == nil, c.err
			}
			return false, nil
		})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if c.want == ErrTimeout && (took < 2*time.Second || took > 2100*time.Millisecond) {
			t.Errorf("%s: gave up after %v", c.name, took)
		}
		if c.looks > 0 && n != c.looks {
			t.Errorf("%s: looked %d times, want %d", c.name, n, c.looks)
		}
	}
}

// A process that slept through its bound must look again before it gives up.
func TestLateLook(t *testing.T) {
	ck := &clock{}
	n := 0
	_, err := Poll{Timeout: time.Second, Now: ck.now, Sleep: ck.sleep}.Until(func() (bool, error) {
		n++
		if n == 1 {
			ck.t = ck.t.Add(time.Hour)
		}
		return n == 2, nil
	})
	if err != nil {
		t.Error(err)
	}
}
