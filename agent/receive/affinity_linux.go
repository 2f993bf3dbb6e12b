package receive

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pin binds the calling thread to one CPU and returns what undoes it.
func pin(cpu int) (undo func(), err error) {
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read CPU affinity: %w", err)
	}
	only.Set(cpu)
	if only.Count() == 0 {
		return nil, fmt.Errorf("pin to CPU %d: no such CPU", cpu)
	}
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return nil, fmt.Errorf("pin to CPU %d: %w: choose one this process may use", cpu, err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil
}
