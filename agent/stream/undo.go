package stream

import (
	"errors"
	"fmt"
)

// undoing is what must be undone of a set-up, in the order it was done.
type undoing []step

type step struct {
	name string
	undo func() error
}

func (u *undoing) did(name string, undo func() error) { *u = append(*u, step{name, undo}) }

// unwind undoes the set-up in reverse; a step that fails does not keep the
// others from being undone.
func (u *undoing) unwind() error {
	var errs []error
	for i := len(*u) - 1; i >= 0; i-- {
		if err := (*u)[i].undo(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", (*u)[i].name, err))
		}
	}
	*u = nil
	return errors.Join(errs...)
}
