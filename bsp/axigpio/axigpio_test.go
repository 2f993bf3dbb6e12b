package axigpio

import (
	"errors"
	"testing"

	"periph.io/x/conn/v3/gpio"
)

// core plays PG144: lines that are outputs take what is written.
type core struct {
	out, tri, in [2]uint32
	fixed        uint32 // of channel 1: always inputs
	err          error
}

func (c *core) Read32(o uint32) (uint32, error) {
	ch := o / 8
	if o%8 == 4 {
		return c.tri[ch], c.err
	}
	return c.in[ch] & c.tri[ch], c.err
}

func (c *core) Write32(o, v uint32) error {
	if c.err != nil {
		return c.err
	}
	ch := o / 8
	if o%8 == 4 {
		c.tri[ch] = v
		if ch == 0 {
			c.tri[ch] |= c.fixed
		}
	} else {
		c.out[ch] = c.out[ch]&c.tri[ch] | v&^c.tri[ch]
	}
	return nil
}

func open(t *testing.T, c *Chip, n int) gpio.PinIO {
	t.Helper()
	p, err := c.Pin(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLines(t *testing.T) {
	k := &core{tri: [2]uint32{^uint32(0), ^uint32(0)}, in: [2]uint32{1 << 7, 1 << 1}, fixed: 1 << 7}
	c := New("cage", k)
	for _, n := range []int{-1, 64} {
		if _, err := c.Pin(n); !errors.Is(err, ErrLine) {
			t.Errorf("line %d: %v", n, err)
		}
	}
	a, b := open(t, c, 0), open(t, c, 31)
	if err := errors.Join(a.Out(gpio.High), b.Out(gpio.High), b.Out(gpio.Low)); err != nil {
		t.Fatal(err)
	}
	if k.out[0] != 1 || k.tri[0] != 0x7FFFFFFE || k.tri[1] != ^uint32(0) {
		t.Errorf("outputs %#x, directions %#x", k.out, k.tri)
	}
	if a.Read() != gpio.High || b.Read() != gpio.Low {
		t.Error("an output does not read as it is driven")
	}
	if in := open(t, c, 33); in.In(gpio.PullNoChange, gpio.NoEdge) != nil || in.Read() != gpio.High {
		t.Error("line 33 of channel 2 reads low")
	}
	if err := a.In(gpio.Float, gpio.NoEdge); err != nil || k.tri[0]&1 == 0 {
		t.Errorf("input again: %v, %#x", err, k.tri)
	}
	if err := open(t, c, 7).Out(gpio.Low); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a line that is only an input: %v", err)
	}
	if err := a.In(gpio.PullUp, gpio.NoEdge); !errors.Is(err, ErrUnsupported) {
		t.Errorf("pull: %v", err)
	}
}

func TestBusErrors(t *testing.T) {
	broken := errors.New("broken")
	p := open(t, New("cage", &core{err: broken}), 3)
	if err := p.Out(gpio.High); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := p.In(gpio.PullNoChange, gpio.NoEdge); !errors.Is(err, broken) {
		t.Error(err)
	}
	if p.Read() != gpio.Low {
		t.Error("reads high")
	}
}
