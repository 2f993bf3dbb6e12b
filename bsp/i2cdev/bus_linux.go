package i2cdev

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"periph.io/x/conn/v3/physic"
)

// The requests of linux/i2c-dev.h and the flags of linux/i2c.h.
const (
	i2cRetries = 0x0701
	i2cTimeout = 0x0702 // in 10 ms
	i2cFuncs   = 0x0705
	i2cRdwr    = 0x0707

	funcI2C = 1 << 0
	flagRd  = 1 << 0
)

// message is struct i2c_msg.
type message struct {
	addr, flags, length uint16
	buf                 unsafe.Pointer
}

// transfer is struct i2c_rdwr_ioctl_data.
type transfer struct {
	msgs unsafe.Pointer
	n    uint32
}

// Bus is an open bus. It is safe for concurrent use: the kernel takes one
// transfer at a time.
type Bus struct {
	file *os.File
	// pass is the ioctl with a pointer, set that with a number; tests put their
	// own.
	pass func(request uint, arg unsafe.Pointer) error
	set  func(request uint, arg uintptr) error
}

// Open opens a bus by its file.
func Open(name string) (*Bus, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open I2C bus: %w", err)
	}
	b := &Bus{file: f}
	b.pass = func(request uint, arg unsafe.Pointer) error {
		return control(f, func(fd uintptr) unix.Errno {
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(arg))
			return errno
		})
	}
	b.set = func(request uint, arg uintptr) error {
		return control(f, func(fd uintptr) unix.Errno {
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), arg)
			return errno
		})
	}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return b, nil
}

func (b *Bus) prepare() error {
	var funcs uint64 // unsigned long; zero above what a 32-bit kernel writes
	if err := b.pass(i2cFuncs, unsafe.Pointer(&funcs)); err != nil {
		return fmt.Errorf("%s is no I2C bus: %w: %w", b, ErrUnsupported, err)
	}
	if funcs&funcI2C == 0 {
		return fmt.Errorf("%s: the adapter does only SMBus: %w", b, ErrUnsupported)
	}
	if err := b.set(i2cTimeout, uintptr(Timeout/(10*time.Millisecond))); err != nil {
		return fmt.Errorf("%s: set the time-out: %w", b, err)
	}
	// What is to be tried again is for the driver above to say.
	if err := b.set(i2cRetries, 0); err != nil {
		return fmt.Errorf("%s: set the retries: %w", b, err)
	}
	return nil
}

func (b *Bus) String() string { return b.file.Name() }

// SetSpeed refuses: the device tree sets the clock.
func (b *Bus) SetSpeed(physic.Frequency) error {
	return fmt.Errorf("%s: the kernel sets the clock of its buses: %w", b, ErrUnsupported)
}

// Tx writes w, then reads r.
func (b *Bus) Tx(addr uint16, w, r []byte) error {
	if err := check(b.String(), addr, w, r); err != nil {
		return err
	}
	var msgs [2]message
	n := 0
	if len(w) > 0 || len(r) == 0 {
		// A write of nothing still asks for an acknowledge.
		msgs[n] = message{addr: addr, length: uint16(len(w)), buf: unsafe.Pointer(unsafe.SliceData(w))}
		n++
	}
	if len(r) > 0 {
		msgs[n] = message{addr: addr, flags: flagRd, length: uint16(len(r)), buf: unsafe.Pointer(unsafe.SliceData(r))}
		n++
	}
	t := transfer{msgs: unsafe.Pointer(&msgs), n: uint32(n)}
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&msgs)
	for _, s := range [][]byte{w, r} {
		if len(s) > 0 {
			pins.Pin(&s[0])
		}
	}
	err := b.pass(i2cRdwr, unsafe.Pointer(&t))
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.EREMOTEIO):
		return fmt.Errorf("%s: 0x%02X: %w: %w", b, addr, ErrNoAnswer, err)
	case err != nil:
		return fmt.Errorf("%s: transfer of %d and %d bytes with 0x%02X: %w", b, len(w), len(r), addr, err)
	}
	return nil
}

// Close closes the bus. A transfer under way ends first.
func (b *Bus) Close() error { return b.file.Close() }

// control runs a system call on the file, which is not closed before it ends.
func control(f *os.File, call func(fd uintptr) unix.Errno) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	if err := conn.Control(func(fd uintptr) { errno = call(fd) }); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
