package receive

import (
	"errors"
	"fmt"

	"rocelink/agent/verbs"
)

// Why Run ends, besides *CompletionError and the errors of sink and device that
// it wraps. All are found by errors.Is.
var (
	// ErrOrder: Prepare or Run was called twice, or Run before Prepare.
	ErrOrder = errors.New("out of order: want New, Prepare, Run, each once")
	// ErrQueuePair: the queue pair is in error and no completion said why.
	ErrQueuePair = errors.New("queue pair in error")
	// ErrBadID: a good completion names a receive that is not posted.
	ErrBadID = errors.New("completion of a receive that is not posted")
	// ErrPool: the pool takes no more streams, since it was stopped or failed.
	ErrPool = errors.New("the pool takes no more streams")
	// ErrNotDrained: receives were still posted when DrainTime was over.
	ErrNotDrained = errors.New("receives still posted")
)

// CompletionError is the first completion that ended the loop. It is found by
// errors.As, and by errors.Is with a CompletionError of the same Status.
type CompletionError struct {
	Status      verbs.Status
	VendorError uint32
	// ID is the work request as the device named it, which may be rubbish.
	ID uint64
}

// Error names the status and what to do about it.
func (e *CompletionError) Error() string {
	s := fmt.Sprintf("completion: %v (vendor error %#x)", e.Status, e.VendorError)
	if r := e.Status.Remedy(); r != "" {
		s += ": " + r
	}
	return s
}

// Is reports whether target is a *CompletionError of the same status.
func (e *CompletionError) Is(target error) bool {
	t, ok := target.(*CompletionError)
	return ok && t.Status == e.Status
}
