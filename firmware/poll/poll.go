// Package poll waits for a condition that only looking can tell, with a bound:
// no wait of the firmware is without one.
package poll

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// ErrTimeout: the condition did not come true in time.
var ErrTimeout = errors.New("timed out")

// Poll is how to wait. The zero value waits one second of the real clock.
type Poll struct {
	Timeout time.Duration       // 0 is DefaultTimeout
	Now     func() time.Time    // nil is time.Now
	Sleep   func(time.Duration) // nil is time.Sleep
}

// DefaultTimeout is long against anything logic does and short against a
// person's patience.
const DefaultTimeout = time.Second

const (
	spins    = 64                    // looks without sleep: logic answers within microseconds
	minSleep = 20 * time.Microsecond // then the time between looks grows
	maxSleep = time.Millisecond
)

// Until looks until done reports true or an error, at least twice, and returns
// how long it took. The error matches ErrTimeout when the bound passed.
func (p Poll) Until(done func() (bool, error)) (time.Duration, error) {
	timeout, now, sleep := p.Timeout, p.Now, p.Sleep
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if now == nil {
		now = time.Now
	}
	if sleep == nil {
		sleep = time.Sleep
	}
	start := now()
	pause := minSleep
	for n := 0; ; n++ {
		// The clock is read before the look: a process that was not scheduled
		// for a while looks once more before it gives up.
		took := now().Sub(start)
		ok, err := done()
		if ok || err != nil {
			return took, err
		}
		if took >= timeout && n > 0 {
			return took, fmt.Errorf("%w after %v", ErrTimeout, timeout)
		}
		if n < spins {
			runtime.Gosched()
			continue
		}
		sleep(pause)
		pause = min(2*pause, maxSleep)
	}
}
