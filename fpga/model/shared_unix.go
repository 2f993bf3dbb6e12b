//go:build unix

package model

import (
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrServed means that another process serves the registers file.
var ErrServed = errors.New("registers file is served by another process")

// Shared is a file of registers that this process and others map: the way to a
// fabric that runs in another process, or outside a virtual machine whose
// memory the file is. Memory has no read side effects and no events: the fabric
// polls the command, tick and reset words in [Fabric.Step], and clear-on-read
// status shows what is true now. Resets shorter than the time between two steps
// are not seen, except that of the transceivers, which clears itself.
//
// A fabric that starts on an existing file fills it in anew, in place, so that
// others keep their mapping.
type Shared struct {
	file   *os.File
	memory []byte
}

// OpenShared maps the registers file at path for a fabric and makes it if there
// is none. The error matches [ErrServed] if another fabric has it.
func OpenShared(path string) (*Shared, error) { return OpenSharedAt(path, 0) }

// OpenSharedAt is [OpenShared] for registers that begin at offset bytes into the
// file, a multiple of the page size: the memory of a virtual machine, where the
// offset is the registers' address.
func OpenSharedAt(path string, offset int64) (*Shared, error) {
	if page := int64(os.Getpagesize()); offset < 0 || offset%page != 0 || offset > math.MaxInt64-ApertureBytes {
		return nil, fmt.Errorf("registers file %s: offset %#x, want a multiple of %#x", path, offset, page)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("registers file: %w", err)
	}
	s, err := mapShared(f, offset)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("registers file %s: %w", path, err)
	}
	return s, nil
}

func mapShared(f *os.File, offset int64) (*Shared, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrServed
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Never shorter: somebody may have it mapped.
	if end := offset + ApertureBytes; info.Size() < end {
		if err := f.Truncate(end); err != nil {
			return nil, fmt.Errorf("extend to %d bytes: %w", end, err)
		}
	}
	m, err := unix.Mmap(int(f.Fd()), offset, ApertureBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", ApertureBytes, err)
	}
	return &Shared{file: f, memory: m}, nil
}

// Registers is the memory for [Config.Registers]. It must not be used after
// Close.
func (s *Shared) Registers() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(&s.memory[0])), ApertureBytes/4)
}

// Close unmaps the file, after the fabric was closed, and leaves it in place.
func (s *Shared) Close() error {
	if s.memory == nil {
		return nil
	}
	err := unix.Munmap(s.memory)
	s.memory = nil
	return errors.Join(err, s.file.Close())
}
