package gpiochip

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"periph.io/x/conn/v3/gpio"
)

var _ gpio.PinIO = (*Line)(nil)

// The numbers of the requests hold the size of what they pass (ioctl(2)), so that
// the layouts are those of linux/gpio.h.
func TestLayout(t *testing.T) {
	for request, size := range map[uint]uintptr{
		getChipInfo: unsafe.Sizeof(unix.GPIOChipInfo{}), unix.GPIO_V2_GET_LINE_IOCTL: unsafe.Sizeof(unix.GPIOV2LineRequest{}),
		unix.GPIO_V2_LINE_SET_VALUES_IOCTL: unsafe.Sizeof(unix.GPIOV2LineValues{}),
	} {
		if uintptr(request>>16&0x3FFF) != size {
			t.Errorf("request %#x passes %d bytes, the struct has %d", request, request>>16&0x3FFF, size)
		}
	}
}

// kernel plays a chip of four lines.
type kernel struct {
	t      *testing.T
	levels [4]bool
	taken  []unix.GPIOV2LineRequest
	sets   int
	fail   error
}

func (k *kernel) call(_ uintptr, request uint, arg unsafe.Pointer) error {
	if k.fail != nil {
		return k.fail
	}
	switch request {
	case getChipInfo:
		i := (*unix.GPIOChipInfo)(arg)
		copy(i.Label[:], "played")
		i.Lines = 4
	case unix.GPIO_V2_GET_LINE_IOCTL:
		r := (*unix.GPIOV2LineRequest)(arg)
		k.taken = append(k.taken, *r)
		if r.Config.Flags&flagOutput != 0 {
			k.levels[r.Offsets[0]] = r.Config.Attrs[0].Attr.Flags&1 != 0
		}
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
		fd, err := unix.Dup(int(f.Fd()))
		r.Fd = int32(fd)
		return err
	case unix.GPIO_V2_LINE_SET_VALUES_IOCTL:
		k.sets++
		k.levels[k.taken[len(k.taken)-1].Offsets[0]] = (*unix.GPIOV2LineValues)(arg).Bits&1 != 0
	case unix.GPIO_V2_LINE_GET_VALUES_IOCTL:
		v := (*unix.GPIOV2LineValues)(arg)
		v.Bits = 0
		if k.levels[k.taken[len(k.taken)-1].Offsets[0]] {
			v.Bits = 1
		}
	default:
		k.t.Errorf("request %#x", request)
	}
	return nil
}

func TestLines(t *testing.T) {
	k := &kernel{t: t}
	name := filepath.Join(t.TempDir(), "chip")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := open(name, k.call)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Line(4); !errors.Is(err, ErrMissing) {
		t.Errorf("line 4 of 4: %v", err)
	}
	l, err := c.Line(2)
	if err != nil {
		t.Fatal(err)
	}
	if len(k.taken) != 0 || l.Name() != "played.2" {
		t.Errorf("%s taken %d times before its direction was set", l.Name(), len(k.taken))
	}
	// An output is high at once, without a low before.
	if err := l.Out(gpio.High); err != nil || !k.levels[2] || k.sets != 0 || string(k.taken[0].Consumer[:8]) != consumer {
		t.Errorf("%v, %v", err, k.levels)
	}
	if err := l.Out(gpio.Low); err != nil || k.levels[2] || k.sets != 1 || len(k.taken) != 1 {
		t.Errorf("%v, %v", err, k.levels)
	}
	if err := l.In(gpio.PullNoChange, gpio.NoEdge); err != nil || k.taken[1].Config.Flags != flagInput {
		t.Errorf("%v", err)
	}
	k.levels[2] = true
	if !l.Read() {
		t.Error("reads low")
	}
	// What cannot be read is as it was.
	k.levels[2], k.fail = false, unix.EIO
	if !l.Read() {
		t.Error("a failed read changed the level")
	}
	if err := l.Out(gpio.Low); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	k.fail = nil
	if l.In(gpio.PullUp, gpio.NoEdge) == nil || l.PWM(0, 0) == nil {
		t.Error("a pull or PWM was accepted")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open("no such label"); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	if _, err := Open("/dev/null"); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
