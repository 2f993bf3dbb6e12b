package model

import (
	"testing"
	"time"

	"rocelink/fpga/regs"
)

// down undoes bringUp.
func (w *world) down() {
	w.write(w.cmac, regs.CMACConfigTx, 0)
	w.write(w.cmac, regs.CMACConfigRx, 0)
	w.status()
	w.status()
}

// status reads the receive status once.
func (w *world) status() uint32 { return w.read(w.cmac, regs.CMACStatRx) }

// live reads it twice: what is true now.
func (w *world) liveStatus() uint32 { w.status(); return w.status() }

func TestBringUp(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1, Link: Link{AlignTime: 30 * time.Millisecond}}, FaultConfig{})
	w.down()
	if v := w.liveStatus(); v != 0xC0 {
		t.Errorf("without receiver: %#x", v)
	}
	w.write(w.cmac, regs.CMACConfigTx, regs.CMACConfigTxSendRFI.Of(1))
	w.write(w.cmac, regs.CMACConfigRx, regs.CMACConfigRxEnable.Of(1))
	w.run(29 * time.Millisecond)
	if v := w.liveStatus(); v != 0xC0 {
		t.Errorf("before alignment: %#x", v)
	}
	w.run(2 * time.Millisecond)
	// The first read shows what was: not aligned at some time, faults.
	if v := w.status(); v != 0xC0 {
		t.Errorf("first read after alignment: %#x, want 0xc0", v)
	}
	if v := w.status(); v != 3 {
		t.Errorf("second read after alignment: %#x, want 3", v)
	}
	for _, r := range []regs.Reg{regs.CMACStatBlockLock, regs.CMACStatLaneSync} {
		w.read(w.cmac, r)
		if v := w.read(w.cmac, r); v != allLanes {
			t.Errorf("%#x reads %#x", r, v)
		}
	}
	// Remote fault is sent still: no frame leaves.
	w.session(defaults(), streamSettings{size: 100, count: 1})
	w.run(time.Millisecond)
	if sent, dropped := w.stat(0, regs.CoreTxPackets), w.stat(0, regs.CoreTxDropped); sent != 0 || dropped != 1 {
		t.Errorf("%d frames sent, %d dropped while remote fault is sent", sent, dropped)
	}
	w.write(w.cmac, regs.CMACConfigTx, regs.CMACConfigTxEnable.Of(1))
	w.delivered(0, streamSettings{size: 100, count: 1})
}

// What can be wrong with a link shows as PG203 says, and nothing passes.
func TestLinkFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		link   Link
		set    func(w *world)
		status uint32
		errors uint32 // StatSyncErr
		tx     bool   // frames leave
	}{
		{"good", Link{}, nil, 0x3, 0, true},
		{"dark", Link{Dark: true}, nil, 0xC0, allLanes, false},
		{"dark in loopback", Link{Dark: true}, func(w *world) { w.write(w.cmac, regs.CMACGTLoopback, 1) }, 0x3, 0, true},
		{"FEC differs", Link{FEC: FECOn}, nil, 0xC8, allLanes, false},
		{"FEC set but not taken over", Link{FEC: FECOn}, func(w *world) { w.write(w.cmac, regs.CMACRSFECEnable, 3) }, 0xC8, allLanes, false},
		{"FEC agrees", Link{FEC: FECOn}, func(w *world) {
			w.write(w.cmac, regs.CMACRSFECEnable, 3)
			w.write(w.cmac, regs.CMACReset, 0xC0000000)
			w.write(w.cmac, regs.CMACReset, 0)
		}, 0x3, 0, true},
		{"FEC taken over by the transceiver reset", Link{FEC: FECOn}, func(w *world) {
			w.write(w.cmac, regs.CMACRSFECEnable, 3)
			w.write(w.cmac, regs.CMACGTReset, 1)
		}, 0x3, 0, true},
		{"FEC agrees in one direction", Link{FEC: FECOn}, func(w *world) {
			w.write(w.cmac, regs.CMACRSFECEnable, 1)
			w.write(w.cmac, regs.CMACReset, 0xC0000000)
			w.write(w.cmac, regs.CMACReset, 0)
		}, 0x4023, 0, false},
		{"remote fault", Link{RemoteFault: true}, nil, 0x4023, 0, false},
		{"local fault of the peer", Link{LocalFault: true}, nil, 0x4143, 0, false},
		{"high BER", Link{HighBER: true}, nil, 0x13, 0, true},
		{"receiver in reset", Link{}, func(w *world) { w.write(w.cmac, regs.CMACReset, 1<<30) }, 0xC0, 0, false},
		{"transmitter in reset", Link{}, func(w *world) { w.write(w.cmac, regs.CMACReset, 1<<31) }, 0x4023, 0, false},
		{"transmitter off", Link{}, func(w *world) { w.write(w.cmac, regs.CMACConfigTx, 0) }, 0x4023, 0, false},
		{"receiver off", Link{}, func(w *world) { w.write(w.cmac, regs.CMACConfigRx, 0) }, 0xC0, 0, false},
		{"peer waits", Link{Waits: true}, nil, 0x3, 0, true},
		{"both wait", Link{Waits: true}, func(w *world) { w.write(w.cmac, regs.CMACConfigTx, 0) }, 0xC0, allLanes, false},
		{"test pattern", Link{}, func(w *world) { w.write(w.cmac, regs.CMACConfigTx, 1|1<<16) }, 0x3, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{QueuePairs: 1, Link: c.link}, FaultConfig{})
			if c.set != nil {
				c.set(w)
			}
			w.run(time.Millisecond)
			if v := w.liveStatus(); v != c.status {
				t.Errorf("receive status %#x, want %#x", v, c.status)
			}
			w.read(w.cmac, regs.CMACStatSyncErr)
			if v := w.read(w.cmac, regs.CMACStatSyncErr); v != c.errors {
				t.Errorf("SyncErr %#x, want %#x", v, c.errors)
			}
			if v := w.read(w.cmac, regs.CMACGTReset); v != 0 {
				t.Errorf("GTReset reads %#x", v)
			}
			w.session(defaults(), streamSettings{size: 100, count: 1})
			w.run(time.Millisecond)
			if sent, dropped := w.stat(0, regs.CoreTxPackets), w.stat(0, regs.CoreTxDropped); (sent == 1) != c.tx || (dropped == 1) == c.tx {
				t.Errorf("%d frames sent, %d dropped", sent, dropped)
			}
			if got := w.stat(0, regs.CoreRxPackets); (got == 1) != (c.status == 3 && c.tx) {
				t.Errorf("%d frames received", got)
			}
			// And once all is well it works, without another set-up.
			if c.link != (Link{}) && c.set == nil {
				w.f.SetLink(Link{})
				w.delivered(0, streamSettings{size: 100, count: 1})
			}
		})
	}
}

// A fault that is over is still seen, once.
func TestLatches(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	w.liveStatus()
	w.f.SetLink(Link{Dark: true})
	w.f.SetLink(Link{HighBER: true})
	w.f.SetLink(Link{})
	if v := w.status(); v != 0xD4 {
		t.Errorf("after the fault: %#x, want 0xd4: not aligned, misaligned, high BER, local faults", v)
	}
	if v := w.status(); v != 3 {
		t.Errorf("read again: %#x, want 3", v)
	}
	w.f.SetLink(Link{Dark: true})
	w.status()
	if v := w.status(); v != 0xC0 {
		t.Errorf("while dark: %#x, want 0xc0", v)
	}
}

// Counters move by ticks only, count since the tick before, and go on.
func TestTick(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
	s := streamSettings{size: 5000, count: 10}
	w.session(defaults(), s)
	w.write(w.cmac, regs.CMACTick, 1)
	w.delivered(0, s)
	if n := w.read64(w.cmac, regs.CMACTxPackets); n != 0 {
		t.Errorf("%d frames before the tick", n)
	}
	from := w.now
	w.run(100 * time.Millisecond)
	w.tick(w.now)
	w.write(w.cmac, regs.CMACTick, 1)
	if v := w.read(w.cmac, regs.CMACTick); v != 0 {
		t.Errorf("Tick reads %#x", v)
	}
	w.must(w.core, regs.CoreCommandOpLatch, 0)
	for _, c := range []struct {
		mac, macBytes, core, coreBytes regs.Reg64
	}{
		{regs.CMACTxPackets, regs.CMACTxBytes, regs.CoreTxPackets, regs.CoreTxBytes},
		{regs.CMACRxPackets, regs.CMACRxBytes, regs.CoreRxPackets, regs.CoreRxBytes},
		{regs.CMACTxGoodPackets, regs.CMACTxGoodBytes, regs.CoreTxPackets, regs.CoreTxBytes},
		{regs.CMACRxGoodPackets, regs.CMACRxGoodBytes, regs.CoreRxPackets, regs.CoreRxBytes},
	} {
		n := w.read64(w.core, c.core)
		if n == 0 || w.read64(w.cmac, c.mac) != n {
			t.Errorf("%#x: the MAC counts %d, the core %d", c.mac, w.read64(w.cmac, c.mac), n)
		}
		if got, want := w.read64(w.cmac, c.macBytes), w.read64(w.core, c.coreBytes)+4*n; got != want {
			t.Errorf("%#x: the MAC counts %d bytes, want %d with the FCS", c.macBytes, got, want)
		}
	}
	if got, want := w.read64(w.cmac, regs.CMACCycleCount), ratio(w.now-0, cmacClockHz); got == 0 || got > want || w.now == from {
		t.Errorf("%d cycles, at most %d", got, want)
	}
	w.write(w.cmac, regs.CMACTick, 1)
	if n := w.read64(w.cmac, regs.CMACTxPackets); n != 0 {
		t.Errorf("%d frames since the last tick", n)
	}
}

// Bit errors are seen in FCS and FEC counters.
func TestErrorCounters(t *testing.T) {
	w := newWorld(t, Config{QueuePairs: 1, Link: Link{HighBER: true, CorrectedPerSecond: 1000}}, FaultConfig{})
	w.write(w.cmac, regs.CMACRSFECEnable, 3)
	w.write(w.cmac, regs.CMACReset, 0xC0000000)
	w.write(w.cmac, regs.CMACReset, 0)
	w.write(w.cmac, regs.CMACTick, 1)
	w.session(defaults(), streamSettings{size: 100, count: 1})
	w.run(10 * time.Second)
	w.tick(w.now)
	w.write(w.cmac, regs.CMACTick, 1)
	bad, all := w.read64(w.cmac, regs.CMACRxBadFCS), w.read64(w.cmac, regs.CMACRxPackets)
	if bad == 0 || bad != all || w.read64(w.cmac, regs.CMACRxGoodPackets) != 0 {
		t.Errorf("%d frames with a wrong FCS of %d", bad, all)
	}
	if n := w.read64(w.cmac, regs.CMACRSFECUncorrected); n != bad {
		t.Errorf("%d codewords uncorrected, want %d", n, bad)
	}
	if n := w.read64(w.cmac, regs.CMACRSFECCorrected); n != 10_000 {
		t.Errorf("%d codewords corrected, want 10000", n)
	}
	if v := w.read(w.cmac, regs.CMACStatRSFEC); v != 0x4F0C {
		t.Errorf("RS-FEC status %#x, want 0x4f0c", v)
	}
}
