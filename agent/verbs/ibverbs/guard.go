//go:build linux && cgo && ibverbs

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"rocelink/agent/verbs"
)

// patience bounds every wait of this package. What it waits for takes
// microseconds.
const patience = 2 * time.Second

// guard keeps C objects from being destroyed under a call. C enters and leaves.
type guard struct{ c C.struct_rl_guard }

func (g *guard) in() *uint32  { return (*uint32)(unsafe.Pointer(&g.c.in)) }
func (g *guard) why() *uint32 { return (*uint32)(unsafe.Pointer(&g.c.shut)) }

// shut lets no call begin any more, for the reason given, and waits until none
// is under way. reopen takes it back, which has happened if there is an error.
func (g *guard) shut(why uint32, wake func()) (reopen func(), err error) {
	before := atomic.SwapUint32(g.why(), why)
	reopen = func() { atomic.StoreUint32(g.why(), before) }
	for end := time.Now().Add(patience); atomic.LoadUint32(g.in()) != 0; runtime.Gosched() {
		wake()
		if time.Now().After(end) {
			reopen()
			return nil, fmt.Errorf("%w: a call on it has not ended within %v", verbs.ErrBusy, patience)
		}
	}
	return reopen, nil
}
