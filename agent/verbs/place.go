package verbs

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

const word = 8

// Place copies src to the beginning of dst as a device places the end of a
// message: the last aligned 8-byte word of it is stored last, in one piece. Who
// watches that word with an atomic load, and sees it change, sees all the rest.
// If src holds no whole aligned word, it is copied like any bytes. Place
// panics if dst is shorter than src.
func Place(dst, src []byte) {
	n := len(src)
	dst = dst[:n]
	if n < word {
		copy(dst, src)
		return
	}
	end := int(uintptr(unsafe.Pointer(unsafe.SliceData(dst)))+uintptr(n)) & (word - 1)
	at := n - end - word
	if at < 0 {
		copy(dst, src)
		return
	}
	copy(dst[:at], src)
	copy(dst[at+word:], src[at+word:])
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&dst[at])), binary.NativeEndian.Uint64(src[at:]))
}
