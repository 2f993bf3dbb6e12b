package model

import (
	"testing"

	"rocelink/fpga/regs"
)

// A dark optical lane takes five lanes of the PCS and one of RS-FEC with it, and
// the alignment of all.
func TestDarkLane(t *testing.T) {
	f, err := New(Config{Link: Link{DarkLanes: 1 << 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bus := regs.At(f.Bus(), CMACBase)
	read := func(r regs.Reg) uint32 {
		r.Read(bus)
		v, err := r.Read(bus) // what is true now
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, w := range []struct {
		r regs.Reg
		v uint32
	}{
		{regs.CMACRSFECEnable, 3}, {regs.CMACReset, regs.CMACResetRx.Mask() | regs.CMACResetTx.Mask()}, {regs.CMACReset, 0},
		{regs.CMACConfigRx, 1}, {regs.CMACConfigTx, 1},
	} {
		if err := w.r.Write(bus, w.v); err != nil {
			t.Fatal(err)
		}
	}
	if lock, sync, fec := read(regs.CMACStatBlockLock), read(regs.CMACStatLaneSync), read(regs.CMACStatRSFEC); lock != 0xFFC1F || sync != lock || regs.CMACStatRSFECAMLock.Get(fec) != 0xD {
		t.Errorf("lock %#x, sync %#x, FEC %#x", lock, sync, fec)
	}
	if s := read(regs.CMACStatRx); regs.CMACStatRxAligned.Get(s) != 0 || regs.CMACStatRxLocalFault.Get(s) != 1 {
		t.Errorf("status %#x", s)
	}
	f.SetLink(Link{})
	if s := read(regs.CMACStatRx); s != 3 {
		t.Errorf("status %#x when the light is back", s)
	}
}

// Without a reference clock the reset of the transceivers does not end.
func TestNoReferenceClock(t *testing.T) {
	f, err := New(Config{Link: Link{NoClock: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bus := regs.At(f.Bus(), CMACBase)
	if err := regs.CMACGTReset.Write(bus, 1); err != nil {
		t.Fatal(err)
	}
	if v, err := regs.CMACGTReset.Read(bus); err != nil || v != 1 {
		t.Errorf("reset reads %d without a clock: %v", v, err)
	}
	f.SetLink(Link{})
	if v, err := regs.CMACGTReset.Read(bus); err != nil || v != 0 {
		t.Errorf("reset reads %d with the clock: %v", v, err)
	}
}
