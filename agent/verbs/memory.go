package verbs

import (
	"fmt"
	"unsafe"
)

// Memory is page-aligned memory outside the Go heap.
type Memory struct {
	bytes []byte
	huge  bool
}

// Bytes is the memory. It must not be used after Free.
func (m *Memory) Bytes() []byte { return m.bytes }

// Address is where the memory begins.
func (m *Memory) Address() uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))))
}

// Huge reports whether the memory is on huge pages.
func (m *Memory) Huge() bool { return m.huge }

// AllocMemory maps size bytes of zeroed memory. With huge set it tries huge
// pages and falls back to normal ones; Memory.Huge tells which it became.
func AllocMemory(size int, huge bool) (*Memory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("allocate memory: %d bytes: give a size above 0", size)
	}
	return allocMemory(size, huge)
}
