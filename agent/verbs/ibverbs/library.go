//go:build linux && cgo && ibverbs

package ibverbs

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -libverbs
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// library is the table of control calls.
type library struct {
	c    *C.struct_rl_library
	fork sync.Once
}

// realLibrary is libibverbs itself; like the library it is never unloaded.
var realLibrary = sync.OnceValue(newLibrary)

func newLibrary() *library {
	l := &library{c: C.rl_library_new()}
	if l.c == nil {
		panic("ibverbs: out of memory")
	}
	return l
}

// replace puts another function in the place of one of the library; the name is
// without ibv_.
func (l *library) replace(name string, function unsafe.Pointer) error {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.rl_library_set(l.c, c, function) < 0 {
		return fmt.Errorf("no control call %q", name)
	}
	return nil
}

// forkSafe readies the library for forks, once. It fails where the kernel or
// another user of the library in this process does not let it; Go's own way of
// starting programs does not need it.
func (l *library) forkSafe() { l.fork.Do(func() { C.rl_fork_init(l.c) }) }

// most devices that are looked at.
const maxDevices = 64

// listed is a device as the library lists it.
type listed struct{ name, uverbs string }

func (l *library) list() ([]listed, error) {
	var names [maxDevices]C.struct_rl_name
	n := C.rl_list(l.c, &names[0], maxDevices)
	if n < 0 {
		return nil, errno(n)
	}
	out := make([]listed, min(int(n), maxDevices))
	for i := range out {
		out[i] = listed{C.GoString(&names[i].name[0]), C.GoString(&names[i].uverbs[0])}
	}
	return out, nil
}

// errno is the error of a negative result.
func errno[T ~int32 | ~int64](rc T) syscall.Errno { return syscall.Errno(-rc) }
