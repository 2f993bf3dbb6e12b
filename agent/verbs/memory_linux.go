package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

func allocMemory(size int, huge bool) (*Memory, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_ANONYMOUS | unix.MAP_PRIVATE | unix.MAP_POPULATE
	if huge {
		rounded := (size + hugePage - 1) &^ (hugePage - 1)
		if b, err := unix.Mmap(-1, 0, rounded, prot, flags|unix.MAP_HUGETLB); err == nil {
			return &Memory{bytes: b[:size:rounded], huge: true}, nil
		}
	}
	b, err := unix.Mmap(-1, 0, size, prot, flags)
	if err != nil {
		return nil, fmt.Errorf("allocate memory: map %d bytes: %w: ask for less or free memory", size, err)
	}
	return &Memory{bytes: b}, nil
}

// Free unmaps the memory. It is idempotent.
func (m *Memory) Free() error {
	if m.bytes == nil {
		return nil
	}
	b := m.bytes[:cap(m.bytes)]
	m.bytes = nil
	return unix.Munmap(b)
}
