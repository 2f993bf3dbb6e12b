package gpiochip

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/physic"
)

// The requests and flags of linux/gpio.h that x/sys does not name.
const (
	getChipInfo = 0x8044B401

	flagInput  = 1 << 2
	flagOutput = 1 << 3
)

// Chip is an open GPIO chip. It is safe for concurrent use.
type Chip struct {
	file  *os.File
	label string
	count int
	// call is the ioctl; tests put their own.
	call func(fd uintptr, request uint, arg unsafe.Pointer) error

	mu    sync.Mutex
	lines []*Line
}

// Open opens a chip by its file or by its label.
func Open(name string) (*Chip, error) {
	if filepath.IsAbs(name) {
		return open(name, ioctl)
	}
	files, err := filepath.Glob("/dev/gpiochip*")
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, f := range files {
		c, err := open(f, ioctl)
		if err != nil {
			continue // the one that is looked for may be another
		}
		if c.label == name || filepath.Base(f) == name {
			return c, nil
		}
		c.Close()
	}
	return nil, fmt.Errorf("GPIO chip %q among %d: %w", name, len(files), ErrMissing)
}

func open(name string, call func(uintptr, uint, unsafe.Pointer) error) (*Chip, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open GPIO chip: %w", err)
	}
	c := &Chip{file: f, call: call}
	var info unix.GPIOChipInfo
	if err := c.ioctl(f, getChipInfo, unsafe.Pointer(&info)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is no GPIO chip: %w: %w", name, ErrUnsupported, err), f.Close())
	}
	c.label, c.count = unix.ByteSliceToString(info.Label[:]), int(info.Lines)
	return c, nil
}

// Close gives all lines back.
func (c *Chip) Close() error {
	c.mu.Lock()
	lines := c.lines
	c.lines = nil
	c.mu.Unlock()
	var errs []error
	for _, l := range lines {
		errs = append(errs, l.Halt())
	}
	return errors.Join(append(errs, c.file.Close())...)
}

// Line returns a line, which is not taken yet.
func (c *Chip) Line(n int) (*Line, error) {
	if n < 0 || n >= c.count {
		return nil, fmt.Errorf("line %d of GPIO chip %s, which has %d: %w", n, c.label, c.count, ErrMissing)
	}
	l := &Line{chip: c, number: n}
	c.mu.Lock()
	c.lines = append(c.lines, l)
	c.mu.Unlock()
	return l, nil
}

// Line is one line: a gpio.PinIO.
type Line struct {
	chip   *Chip
	number int

	mu     sync.Mutex
	file   *os.File // nil until it is taken
	output bool
	last   gpio.Level
}

func (l *Line) String() string   { return l.Name() }
func (l *Line) Name() string     { return fmt.Sprintf("%s.%d", strings.TrimSpace(l.chip.label), l.number) }
func (l *Line) Number() int      { return l.number }
func (l *Line) Function() string { return "GPIO" }

// Halt gives the line back.
func (l *Line) Halt() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.release()
}

func (l *Line) release() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

// take takes the line as an input, or as an output at a level.
func (l *Line) take(output bool, level gpio.Level) error {
	if err := l.release(); err != nil {
		return err
	}
	r := unix.GPIOV2LineRequest{Num_lines: 1}
	r.Offsets[0] = uint32(l.number)
	copy(r.Consumer[:], consumer)
	r.Config.Flags = flagInput
	if output {
		r.Config.Flags = flagOutput
		r.Config.Num_attrs = 1
		r.Config.Attrs[0].Attr.Id = unix.GPIO_V2_LINE_ATTR_ID_OUTPUT_VALUES
		r.Config.Attrs[0].Mask = 1
		if level {
			r.Config.Attrs[0].Attr.Flags = 1 // a union with the values
		}
	}
	if err := l.chip.ioctl(l.chip.file, unix.GPIO_V2_GET_LINE_IOCTL, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("take GPIO line %s: %w", l.Name(), err)
	}
	l.file, l.output = os.NewFile(uintptr(r.Fd), l.Name()), output
	return nil
}

// In makes it an input. The bias stays as it is.
func (l *Line) In(pull gpio.Pull, edge gpio.Edge) error {
	if pull != gpio.PullNoChange && pull != gpio.Float || edge != gpio.NoEdge {
		return fmt.Errorf("GPIO line %s: pull %v, edge %v: %w", l.Name(), pull, edge, ErrUnsupported)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && !l.output {
		return nil
	}
	return l.take(false, gpio.Low)
}

// Out drives a level.
func (l *Line) Out(level gpio.Level) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || !l.output {
		return l.take(true, level)
	}
	v := unix.GPIOV2LineValues{Mask: 1}
	if level {
		v.Bits = 1
	}
	if err := l.chip.ioctl(l.file, unix.GPIO_V2_LINE_SET_VALUES_IOCTL, unsafe.Pointer(&v)); err != nil {
		return fmt.Errorf("set GPIO line %s: %w", l.Name(), err)
	}
	return nil
}

// Read is the level, or the last one known if it cannot be read.
func (l *Line) Read() gpio.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return l.last
	}
	v := unix.GPIOV2LineValues{Mask: 1}
	if err := l.chip.ioctl(l.file, unix.GPIO_V2_LINE_GET_VALUES_IOCTL, unsafe.Pointer(&v)); err == nil {
		l.last = v.Bits&1 == 1
	}
	return l.last
}

// WaitForEdge waits for nothing: no edges were asked for.
func (l *Line) WaitForEdge(time.Duration) bool { return false }

// Pull is not known.
func (l *Line) Pull() gpio.Pull { return gpio.PullNoChange }

// DefaultPull is not known.
func (l *Line) DefaultPull() gpio.Pull { return gpio.PullNoChange }

// PWM refuses.
func (l *Line) PWM(gpio.Duty, physic.Frequency) error {
	return fmt.Errorf("GPIO line %s: PWM: %w", l.Name(), ErrUnsupported)
}

func (c *Chip) ioctl(f *os.File, request uint, arg unsafe.Pointer) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = c.call(fd, request, arg) }); err != nil {
		return err
	}
	return failed
}

func ioctl(fd uintptr, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
