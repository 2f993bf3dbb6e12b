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

func (g *guard) in() *uint32     { return (*uint32)(unsafe.Pointer(&g.c.in)) }
func (g *guard) closed() *uint32 { return (*uint32)(unsafe.Pointer(&g.c.closed)) }

// shut lets no call begin any more and waits until none is under way. If one
// does not end, the guard is open again.
func (g *guard) shut(wake func()) error {
	atomic.StoreUint32(g.closed(), 1)
	for end := time.Now().Add(patience); atomic.LoadUint32(g.in()) != 0; runtime.Gosched() {
		wake()
		if time.Now().After(end) {
			g.open()
			return fmt.Errorf("%w: a call on it has not ended within %v", verbs.ErrBusy, patience)
		}
	}
	return nil
}

func (g *guard) open() { atomic.StoreUint32(g.closed(), 0) }
