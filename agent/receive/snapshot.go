package receive

import (
	"sync/atomic"

	"rocelink"
)

// snapshot hands totals from the loop to any number of readers: the loop never
// waits, a reader that met a change reads again.
type snapshot struct {
	version atomic.Uint64 // odd while the values change
	values  [11]atomic.Uint64
}

func (s *snapshot) store(t *rocelink.Totals) {
	v := s.version.Load()
	s.version.Store(v + 1)
	for i, c := range [...]rocelink.Count{t.Messages, t.Bytes, t.Missing, t.Duplicate, t.Late, t.Overrun,
		t.Corrupt, t.Accepted, t.Verified, t.Errors, t.Flushed} {
		s.values[i].Store(uint64(c))
	}
	s.version.Store(v + 2)
}

func (s *snapshot) load() (t rocelink.Totals) {
	for {
		before := s.version.Load()
		for i, c := range [...]*rocelink.Count{&t.Messages, &t.Bytes, &t.Missing, &t.Duplicate, &t.Late, &t.Overrun,
			&t.Corrupt, &t.Accepted, &t.Verified, &t.Errors, &t.Flushed} {
			*c = rocelink.Count(s.values[i].Load())
		}
		if before%2 == 0 && s.version.Load() == before {
			return t
		}
	}
}
