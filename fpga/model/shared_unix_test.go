//go:build unix

package model

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps a registers file as another process would.
func mapFile(t *testing.T, path string) []uint32 {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, ApertureBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4)
}
