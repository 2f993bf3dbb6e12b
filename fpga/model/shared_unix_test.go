//go:build unix

package model

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
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

// Registers within the memory of a virtual machine: nothing else of it changes,
// and it does not grow.
func TestSharedAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	const offset, size = 0x7000, 0x7000 + ApertureBytes + 0x1000
	memory := bytes.Repeat([]byte{0xa5}, size)
	if err := os.WriteFile(path, memory, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []int64{-0x1000, 4, math.MaxInt64 &^ 0xfff} {
		if _, err := OpenSharedAt(path, bad); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("offset %#x: %v", bad, err)
		}
	}
	s, err := OpenSharedAt(path, offset)
	if err != nil {
		t.Fatal(err)
	}
	clear(s.Registers())
	s.Registers()[0] = 0x11223344
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(memory[offset : offset+ApertureBytes])
	copy(memory[offset:], []byte{0x44, 0x33, 0x22, 0x11})
	if !bytes.Equal(got, memory) {
		t.Errorf("the memory of %d bytes is not what it should be", len(got))
	}
}
