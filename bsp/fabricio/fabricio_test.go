package fabricio

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"periph.io/x/conn/v3/gpio"

	"rocelink/fpga/regs"
)

// block plays the block with a device of 256 bytes at 0x50.
type block struct {
	now    time.Time
	mem    map[uint32]uint32
	device [256]byte
	status uint32 // of every transfer, if it is not 0
	hang   bool
	after  time.Duration // a transfer takes
	done   time.Time
	fault  error
}

func newBlock() *block {
	return &block{mem: map[uint32]uint32{0: regs.IdentModules, uint32(regs.ModulesOut): 1, uint32(regs.ModulesIn): 0b10001}}
}

func (b *block) cfg() Config {
	return Config{Now: func() time.Time { return b.now }, Sleep: func(d time.Duration) { b.now = b.now.Add(d) }}
}

func (b *block) Read32(o uint32) (uint32, error) {
	control := uint32(regs.ModulesControl)
	if b.mem[control] != 0 && !b.hang && !b.now.Before(b.done) {
		b.run()
		b.mem[control] = 0
	}
	return b.mem[o], b.fault
}

func (b *block) Write32(o, v uint32) error {
	b.mem[o] = v
	if o == uint32(regs.ModulesControl) {
		b.done = b.now.Add(b.after)
	}
	return b.fault
}

func (b *block) run() {
	get := func(r regs.Reg) int { return int(b.mem[uint32(r)]) }
	b.mem[uint32(regs.ModulesStatus)] = b.status
	if b.status != 0 {
		return
	}
	if get(regs.ModulesAddress) != 0x50 {
		b.mem[uint32(regs.ModulesStatus)] = regs.ModulesStatusCodeNoAcknowledge
		return
	}
	at := func(i int) (uint32, int) { return uint32(regs.ModulesData) + uint32(i)&^3, i % 4 * 8 }
	reg := 0
	for i := range get(regs.ModulesWriteLength) {
		w, s := at(i)
		if v := byte(b.mem[w] >> s); i == 0 {
			reg = int(v)
		} else {
			b.device[(reg+i-1)%256] = v
		}
	}
	for i := range get(regs.ModulesReadLength) {
		w, s := at(i)
		b.mem[w] = b.mem[w]&^(0xFF<<s) | uint32(b.device[(reg+i)%256])<<s
	}
}

func TestTransfers(t *testing.T) {
	f := newBlock()
	f.after = time.Millisecond
	b := NewBus("modules", f, f.cfg())
	for _, n := range []int{1, 3, 4, 5, 127, 255} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i*7 + n)
		}
		if err := b.Tx(0x50, append([]byte{1}, data...), nil); err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		got := make([]byte, n)
		if err := b.Tx(0x50, []byte{1}, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("read %d: % x, %v", n, got, err)
		}
	}
}

// After every failure the next transfer works.
func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		addr uint16
		w, r int
		set  func(*block)
		want error
	}{
		{"nobody there", 0x51, 1, 1, func(*block) {}, ErrNoAnswer},
		{"byte refused", 0x50, 2, 0, func(b *block) { b.status = regs.ModulesStatusCodeNoAcknowledge | 2<<16 }, ErrNoAnswer},
		{"held", 0x50, 1, 1, func(b *block) { b.status = regs.ModulesStatusCodeStuck }, ErrStuck},
		{"refused", 0x50, 1, 1, func(b *block) { b.status = regs.ModulesStatusCodeBadTransfer }, ErrTransfer},
		{"unknown status", 0x50, 1, 1, func(b *block) { b.status = 0x77 }, ErrTransfer},
		{"never ends", 0x50, 1, 1, func(b *block) { b.hang = true }, ErrTimeout},
		{"no block", 0x50, 1, 1, func(b *block) { b.mem[0] = 0 }, ErrMissing},
		{"bus fault", 0x50, 1, 1, func(b *block) { b.fault = broken }, broken},
		{"address alone", 0x50, 0, 0, func(*block) {}, ErrTransfer},
		{"wide address", 0x80, 1, 0, func(*block) {}, ErrTransfer},
		{"too long", 0x50, 1, 257, func(*block) {}, ErrTransfer},
	} {
		f := newBlock()
		b := NewBus("modules", f, f.cfg())
		c.set(f)
		if err := b.Tx(c.addr, make([]byte, c.w), make([]byte, c.r)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if took := f.now.Sub(time.Time{}); took > 2*bound {
			t.Errorf("%s: took %v", c.name, took)
		}
		f.mem[0], f.status, f.hang, f.fault = regs.IdentModules, 0, false, nil
		if err := b.Tx(0x50, []byte{0}, make([]byte, 20)); err != nil {
			t.Errorf("after %s: %v", c.name, err)
		}
	}
}

func TestLines(t *testing.T) {
	f := newBlock()
	c := NewChip("cage", f)
	for n, want := range []gpio.Level{gpio.High, gpio.Low, gpio.Low, gpio.Low, gpio.High} {
		p, err := c.Pin(n)
		if err != nil {
			t.Fatal(err)
		}
		if p.Read() != want {
			t.Errorf("%v is %v", p, p.Read())
		}
		if err := p.Out(gpio.High); (err == nil) != (n < outputs) {
			t.Errorf("drive %v: %v", p, err)
		}
		if err := p.In(gpio.PullNoChange, gpio.NoEdge); (err == nil) != (n >= outputs) {
			t.Errorf("input %v: %v", p, err)
		}
	}
	if v := f.mem[uint32(regs.ModulesOut)]; v != 0b111 {
		t.Errorf("driven to %#b", v)
	}
	reset, _ := c.Pin(0)
	if err := reset.Out(gpio.Low); err != nil || f.mem[uint32(regs.ModulesOut)] != 0b110 {
		t.Errorf("%v, driven to %#b", err, f.mem[uint32(regs.ModulesOut)])
	}
	for _, n := range []int{-1, len(lines)} {
		if _, err := c.Pin(n); !errors.Is(err, ErrLine) {
			t.Errorf("line %d: %v", n, err)
		}
	}
	// Without a fabric nothing is driven, and no module is there.
	f.mem[0] = 0
	present, _ := c.Pin(3)
	if err := reset.Out(gpio.High); !errors.Is(err, ErrMissing) || present.Read() != gpio.High {
		t.Errorf("%v, present %v", err, present.Read())
	}
}

// noise answers anything but has the identity.
type noise struct{ next func() uint32 }

func (n noise) Read32(o uint32) (uint32, error) {
	if o == 0 {
		return regs.IdentModules, nil
	}
	return n.next(), nil
}
func (n noise) Write32(_, _ uint32) error { return nil }

func FuzzRegisters(f *testing.F) {
	f.Add(uint64(0), uint32(0), uint32(0))
	f.Add(uint64(0), ^uint32(0), ^uint32(0))
	f.Add(uint64(1), uint32(0), ^uint32(0))
	f.Fuzz(func(t *testing.T, seed uint64, or, and uint32) {
		r := rand.New(rand.NewPCG(seed, 1))
		var now time.Time
		b := NewBus("noise", noise{func() uint32 { return r.Uint32()&^and | or&and }}, Config{
			Now: func() time.Time { return now }, Sleep: func(d time.Duration) { now = now.Add(d) },
		})
		_ = b.Tx(0x50, []byte{1, 2}, make([]byte, 30))
		if d := now.Sub(time.Time{}); d > 3*bound {
			t.Errorf("took %v", d)
		}
	})
}
