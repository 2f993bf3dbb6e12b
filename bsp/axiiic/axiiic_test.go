package axiiic

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"rocelink/fpga/regs"
)

// core plays PG090's dynamic mode with a device of 256 bytes at 0x50.
type core struct {
	now time.Time

	device  [256]byte
	reg     byte
	tx      []uint32
	rx      []byte
	isr     uint32
	stuck   bool
	lose    bool // arbitration
	refuse  int  // data byte of a write that is not acknowledged, from 1
	reading int
	stop    bool
	busy    bool
	halted  bool
	first   bool
	bytes   int
	starts  int
}

func (c *core) cfg() Config {
	return Config{Now: func() time.Time { return c.now }, Sleep: func(d time.Duration) { c.now = c.now.Add(d) }}
}

func (c *core) run() {
	for !c.stuck && !c.halted {
		if c.reading > 0 {
			if len(c.rx) == 16 {
				return
			}
			c.rx = append(c.rx, c.device[c.reg])
			c.reg++
			if c.reading--; c.reading == 0 {
				c.isr |= regs.IICISRTxError.Mask()
				c.busy = !c.stop
			}
			continue
		}
		if len(c.tx) == 0 {
			return
		}
		w := c.tx[0]
		c.tx = c.tx[1:]
		v := byte(w)
		stop := regs.IICTxFIFOStop.Get(w) != 0
		switch {
		case c.lose:
			c.isr |= regs.IICISRArbitrationLost.Mask()
			c.halted = true
		case regs.IICTxFIFOStart.Get(w) != 0:
			c.starts++
			c.busy, c.first, c.bytes = true, true, 0
			if v>>1 != 0x50 {
				c.isr |= regs.IICISRTxError.Mask()
				c.halted, c.busy = true, false
			}
			if v&1 != 0 {
				c.reading = -1
			}
		case c.reading < 0:
			c.reading, c.stop = int(v), stop
		default:
			if c.bytes++; c.bytes == c.refuse {
				c.isr |= regs.IICISRTxError.Mask()
				c.halted, c.busy = true, false
				break
			}
			if c.first {
				c.reg = v
			} else {
				c.device[c.reg] = v
				c.reg++
			}
			c.first = false
			c.busy = !stop
		}
	}
}

func (c *core) Read32(o uint32) (v uint32, err error) {
	switch regs.Reg(o) {
	case regs.IICISR:
		v = c.isr
	case regs.IICStatus:
		set := func(on bool, f regs.Field) {
			if on {
				v |= f.Mask()
			}
		}
		set(c.stuck || c.busy, regs.IICStatusBusy)
		set(len(c.tx) == 16, regs.IICStatusTxFull)
		set(len(c.rx) == 16, regs.IICStatusRxFull)
		set(len(c.tx) == 0, regs.IICStatusTxEmpty)
		set(len(c.rx) == 0, regs.IICStatusRxEmpty)
	case regs.IICRxFIFO:
		if len(c.rx) > 0 {
			v, c.rx = uint32(c.rx[0]), c.rx[1:]
			c.run()
		}
	}
	return v, nil
}

func (c *core) Write32(o, v uint32) error {
	switch regs.Reg(o) {
	case regs.IICSoftReset:
		if v == regs.IICSoftResetKeyReset {
			c.tx, c.rx, c.isr, c.reading, c.busy, c.halted = nil, nil, 0, 0, false, false
		}
	case regs.IICISR:
		c.isr ^= v
	case regs.IICTxFIFO:
		if len(c.tx) == 16 {
			return errors.New("transmit FIFO overflows")
		}
		c.tx = append(c.tx, v)
		c.run()
	}
	return nil
}

func TestTransfers(t *testing.T) {
	c := &core{}
	for i := range c.device {
		c.device[i] = byte(i * 7)
	}
	b := New("optics", c, c.cfg())
	for _, n := range []int{1, 15, 16, 17, 128, 255} {
		got := make([]byte, n)
		before := c.starts
		if err := b.Tx(0x50, []byte{3}, got); err != nil {
			t.Fatalf("read %d: %v", n, err)
		}
		for i, v := range got {
			if v != byte((3+i)%256*7) {
				t.Fatalf("read %d: byte %d is 0x%02X", n, i, v)
			}
		}
		if c.starts-before != 2 || c.busy || len(c.rx) > 0 {
			t.Errorf("read %d: %d starts, busy %v, %d bytes left", n, c.starts-before, c.busy, len(c.rx))
		}
	}
	data := bytes.Repeat([]byte{9}, 40)
	if err := b.Tx(0x50, append([]byte{100}, data...), nil); err != nil || !bytes.Equal(c.device[100:140], data) {
		t.Errorf("write: %v", err)
	}
}

// After every failure the next transfer works.
func TestFailures(t *testing.T) {
	for _, f := range []struct {
		name string
		addr uint16
		w, r int
		set  func(*core)
		want error
	}{
		{"nobody there, write", 0x51, 1, 0, func(*core) {}, ErrNoAnswer},
		{"nobody there, read", 0x51, 0, 4, func(*core) {}, ErrNoAnswer},
		{"byte refused", 0x50, 3, 0, func(c *core) { c.refuse = 2 }, ErrNoAnswer},
		{"last byte refused", 0x50, 3, 0, func(c *core) { c.refuse = 3 }, ErrNoAnswer},
		{"register refused", 0x50, 1, 8, func(c *core) { c.refuse = 1 }, ErrNoAnswer},
		{"arbitration", 0x50, 1, 1, func(c *core) { c.lose = true }, ErrArbitration},
		{"held", 0x50, 1, 1, func(c *core) { c.stuck = true }, ErrBusy},
		{"address alone", 0x50, 0, 0, func(*core) {}, ErrTransfer},
		{"too long", 0x50, 1, 256, func(*core) {}, ErrTransfer},
	} {
		c := &core{}
		b := New("optics", c, c.cfg())
		f.set(c)
		if err := b.Tx(f.addr, make([]byte, f.w), make([]byte, f.r)); !errors.Is(err, f.want) {
			t.Errorf("%s: %v, want %v", f.name, err, f.want)
		}
		c.stuck, c.lose, c.refuse = false, false, 0
		if err := b.Tx(0x50, []byte{0}, make([]byte, 20)); err != nil {
			t.Errorf("after %s: %v", f.name, err)
		}
	}
}

func TestRecover(t *testing.T) {
	c := &core{stuck: true}
	cfg := c.cfg()
	cfg.Recover = func() error { c.stuck = false; return nil }
	if err := New("optics", c, cfg).Tx(0x50, []byte{0}, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// noise answers anything; the driver ends within its bounds all the same.
type noise struct{ next func() uint32 }

func (n noise) Read32(uint32) (uint32, error) { return n.next(), nil }
func (n noise) Write32(_, _ uint32) error     { return nil }

func FuzzRegisters(f *testing.F) {
	f.Add(uint64(0), uint32(0), uint32(0))
	f.Add(uint64(0), ^uint32(0), ^uint32(0))
	f.Add(uint64(1), uint32(0), ^uint32(0))
	f.Fuzz(func(t *testing.T, seed uint64, and, or uint32) {
		r := rand.New(rand.NewPCG(seed, 1))
		var now time.Time
		b := New("noise", noise{func() uint32 { return r.Uint32()&^and | or&and }}, Config{
			Now: func() time.Time { return now }, Sleep: func(d time.Duration) { now = now.Add(d) },
		})
		b.Tx(0x50, []byte{1, 2}, make([]byte, 30))
		if d := now.Sub(time.Time{}); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}
