package bsp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Registers is a mapped range of registers. It is safe for concurrent use.
type Registers struct {
	file string
	base uint64
	size uint64

	mu  sync.RWMutex // held for writing by Close only
	mem []byte       // whole pages; nil once closed
	off uintptr      // of the first register in mem
}

// Map maps size bytes of registers that begin at base in file ("/dev/mem" or a
// file of shared memory). Exactly the pages that hold the range are mapped.
//
// A regular file must be at least as long as the range. One that shrinks later
// makes accesses fail with ErrFault, as does an address that nothing decodes:
// the fault is caught at the access (arm64 reports writes that nothing decodes
// late, as a system error that no program can catch, so never write to one).
func Map(file string, base, size uint64) (*Registers, error) {
	if err := checkRange(file, base, size); err != nil {
		return nil, err
	}
	// O_SYNC makes /dev/mem mappings uncached where the kernel has the choice
	// (mem(4)); for a file it changes nothing about the mapping.
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_SYNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, openError(file, base, size, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file, err)
	}
	switch mode := st.Mode(); {
	case mode.IsRegular():
		if uint64(st.Size()) < base+size {
			return nil, fmt.Errorf("map %s: %d bytes long, the registers %#x to %#x need %d: is the fabric running, and is this its file? %w",
				file, st.Size(), base, base+size-1, base+size, ErrShort)
		}
	case mode&fs.ModeCharDevice == 0:
		return nil, fmt.Errorf("map %s: %s is neither a file nor a character device: %w", file, mode.Type(), ErrMissing)
	}
	page := uint64(os.Getpagesize())
	start := base &^ (page - 1)
	length := (base + size - start + page - 1) &^ (page - 1)
	mem, err := unix.Mmap(int(f.Fd()), int64(start), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, openError(file, base, size, err)
	}
	return &Registers{file: file, base: base, size: size, mem: mem, off: uintptr(base - start)}, nil
}

// openError names the range and the remedy.
func openError(file string, base, size uint64, err error) error {
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return fmt.Errorf("map %s, registers %#x to %#x: %w: %w: run as root; "+
			"if root is refused the kernel guards the range (CONFIG_STRICT_DEVMEM, CONFIG_IO_STRICT_DEVMEM, lockdown): "+
			"boot with iomem=relaxed or unbind the driver that claims it",
			file, base, base+size-1, ErrPermission, err)
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV):
		return fmt.Errorf("map %s, registers %#x to %#x: %w: %w", file, base, base+size-1, ErrMissing, err)
	}
	return fmt.Errorf("map %s, registers %#x to %#x: %w", file, base, base+size-1, err)
}

// Size is the length of the range in bytes.
func (r *Registers) Size() uint64 { return r.size }

// Read32 loads the register at offset bytes from the base.
func (r *Registers) Read32(offset uint32) (v uint32, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, err := r.word("read", offset)
	if err != nil {
		return 0, err
	}
	defer r.catch("read", offset, debug.SetPanicOnFault(true), &err)
	return atomic.LoadUint32(p), nil
}

// Write32 stores value in the register at offset bytes from the base.
func (r *Registers) Write32(offset uint32, value uint32) (err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, err := r.word("write", offset)
	if err != nil {
		return err
	}
	defer r.catch("write", offset, debug.SetPanicOnFault(true), &err)
	atomic.StoreUint32(p, value)
	return nil
}

// word returns where the register is. The caller holds mu.
func (r *Registers) word(op string, offset uint32) (*uint32, error) {
	switch {
	case r.mem == nil:
		return nil, fmt.Errorf("%s %s register %#x: %w", op, r.file, r.base+uint64(offset), ErrClosed)
	case offset%4 != 0:
		return nil, fmt.Errorf("%s %s register offset %#x: %w", op, r.file, offset, ErrAlignment)
	case uint64(offset)+4 > r.size:
		return nil, fmt.Errorf("%s %s register offset %#x of %#x: %w", op, r.file, offset, r.size, ErrRange)
	}
	return (*uint32)(unsafe.Pointer(&r.mem[r.off+uintptr(offset)])), nil
}

// catch turns a fault of the access into an error and restores the goroutine's
// fault mode. Any other panic goes on.
func (r *Registers) catch(op string, offset uint32, before bool, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	if f, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		*err = fmt.Errorf("%s %s register %#x (fault at %#x): %w", op, r.file, r.base+uint64(offset), f.Addr(), ErrFault)
		return
	}
	panic(p)
}

// Close unmaps the registers. A second Close does nothing.
func (r *Registers) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	r.mem = nil
	if err := unix.Munmap(mem); err != nil {
		return fmt.Errorf("unmap %s: %w", r.file, err)
	}
	return nil
}
