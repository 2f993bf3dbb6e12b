//go:build unix

package model

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// allocate returns zeroed memory outside the Go heap; its pages exist once they
// are touched.
func allocate(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return b, nil
}

func release(b []byte) error { return unix.Munmap(b) }
