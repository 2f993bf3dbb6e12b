package cmac

import (
	"slices"
	"testing"

	"rocelink/firmware/fabrictest"
	"rocelink/fpga/regs"
)

const c = fabrictest.CMACBase

// Flow control is programmed before frames go out, as PG203 has it, and not
// touched where it is not wanted.
func TestFlowControl(t *testing.T) {
	for _, on := range []bool{false, true} {
		f := fabrictest.New()
		cfg := fast(RSFEC)
		cfg.FlowControl = on
		m, err := Open(regs.At(f, c), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []func() error{m.Reset, m.Listen, m.Transmit} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		wrote := map[uint32]uint32{}
		var order []uint32
		for _, w := range f.Writes() {
			wrote[w.Offset-c] = w.Value
			order = append(order, w.Offset-c)
		}
		for offset, want := range map[uint32]uint32{
			0x84: 0x3DFF, 0x88: 0x1C631, 0x48: ^uint32(0), 0x54: ^uint32(0), 0x58: 0xFFFF, 0x34: ^uint32(0), 0x40: ^uint32(0), 0x44: 0xFFFF, 0x30: 0x1FF,
		} {
			if v, touched := wrote[offset]; touched != on || on && v != want {
				t.Errorf("flow control %v: %#x holds %#x, touched %v", on, offset, v, touched)
			}
		}
		if on && slices.Index(order, 0x30) > len(order)-2 {
			t.Error("frames went out before flow control was set")
		}
	}
}

func TestLoopback(t *testing.T) {
	f := fabrictest.New()
	m := open(t, f, RSFEC)
	for _, on := range []bool{true, false} {
		if err := m.Loopback(on); err != nil {
			t.Fatal(err)
		}
		if v, err := regs.CMACGTLoopback.Read(regs.At(f, c)); err != nil || (v == 1) != on {
			t.Errorf("%v: %#x, %v", on, v, err)
		}
	}
}
