package i2cdev

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"periph.io/x/conn/v3/i2c"
)

var _ i2c.BusCloser = (*Bus)(nil)

// The layouts of linux/i2c.h and linux/i2c-dev.h on 64-bit systems.
func TestLayout(t *testing.T) {
	if unsafe.Sizeof(message{}) != 16 || unsafe.Offsetof(message{}.buf) != 8 || unsafe.Sizeof(transfer{}) != 16 {
		t.Errorf("message %d bytes, transfer %d", unsafe.Sizeof(message{}), unsafe.Sizeof(transfer{}))
	}
}

// adapter plays the kernel.
type adapter struct {
	funcs uint64
	set   map[uint]uintptr
	msgs  []message
	wrote []byte
	err   error
}

func (a *adapter) bus(t *testing.T) *Bus {
	f, err := os.Create(filepath.Join(t.TempDir(), "i2c"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	a.set = map[uint]uintptr{}
	return &Bus{
		file: f,
		set:  func(r uint, v uintptr) error { a.set[r] = v; return nil },
		pass: func(r uint, arg unsafe.Pointer) error {
			switch r {
			case i2cFuncs:
				*(*uint64)(arg) = a.funcs
			case i2cRdwr:
				x := (*transfer)(arg)
				a.msgs = slices.Clone(unsafe.Slice((*message)(x.msgs), x.n))
				for _, m := range a.msgs {
					b := unsafe.Slice((*byte)(m.buf), m.length)
					if m.flags&flagRd == 0 {
						a.wrote = append(a.wrote, b...)
						continue
					}
					for i := range b {
						b[i] = byte(i + 1)
					}
				}
			}
			return a.err
		},
	}
}

func TestTransfers(t *testing.T) {
	a := &adapter{funcs: 1}
	b := a.bus(t)
	if err := b.prepare(); err != nil || a.set[i2cTimeout] != 10 {
		t.Fatalf("%v, %v", err, a.set)
	}
	r := make([]byte, 3)
	if err := b.Tx(0x50, []byte{7}, r); err != nil || !slices.Equal(r, []byte{1, 2, 3}) || !slices.Equal(a.wrote, []byte{7}) || len(a.msgs) != 2 {
		t.Errorf("%v, read %v, wrote %v in %d messages", err, r, a.wrote, len(a.msgs))
	}
	for _, m := range a.msgs {
		if m.addr != 0x50 {
			t.Errorf("address %#x", m.addr)
		}
	}
	for _, c := range []struct {
		w, r []byte
		n    int
	}{{[]byte{1, 2}, nil, 1}, {nil, make([]byte, 1), 1}, {nil, nil, 1}} {
		if err := b.Tx(1, c.w, c.r); err != nil || len(a.msgs) != c.n {
			t.Errorf("%v: %v in %d messages", c, err, len(a.msgs))
		}
	}
}

func TestRefusals(t *testing.T) {
	a := &adapter{}
	if err := a.bus(t).prepare(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an SMBus adapter: %v", err)
	}
	a.err = unix.ENOTTY
	if err := a.bus(t).prepare(); !errors.Is(err, ErrUnsupported) || !errors.Is(err, unix.ENOTTY) {
		t.Errorf("no bus: %v", err)
	}
	for _, e := range []unix.Errno{unix.ENXIO, unix.EREMOTEIO} {
		a.err = e
		if err := a.bus(t).Tx(0x50, nil, nil); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, e) {
			t.Errorf("%v", err)
		}
	}
	a.err = unix.ETIMEDOUT
	if err := a.bus(t).Tx(0x50, []byte{1}, nil); errors.Is(err, ErrNoAnswer) || !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("%v", err)
	}
	a.msgs = nil
	if err := a.bus(t).Tx(0x80, nil, nil); err == nil || a.msgs != nil {
		t.Errorf("10-bit address: %v", err)
	}
	if err := a.bus(t).Tx(0x50, make([]byte, maxTransfer+1), nil); !errors.Is(err, ErrTransfer) {
		t.Errorf("long: %v", err)
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "none"), "/dev/null"} {
		if b, err := Open(name); err == nil || b != nil {
			t.Errorf("%s opened", name)
		}
	}
}
