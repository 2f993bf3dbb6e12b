//go:build lab && verilator && realtime

package lab

import (
	"fmt"
	"testing"
	"time"

	"rocelink"
	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/fabric"
)

// newRTL starts a fabric whose core is the RTL, verilated; nil registers are
// allocated.
func newRTL(t *testing.T, s *segment, faults model.FaultConfig, memory []uint32) *board {
	t.Helper()
	return newMachine(t, s, faults, time.Millisecond, func(b *board) (machine, regs.Bus, error) {
		f, err := fabric.New(fabric.Config{Port: b, Registers: memory})
		if err != nil {
			return nil, nil, err
		}
		return f, f.Shell(), nil
	})
}

// lossy is what the wire does to the RTL's packets and to rxe's.
var lossy = model.FaultConfig{Drop: 1, Seed: 1}

// The RTL's requester against the kernel's responder, with loss in both
// directions: what arrives is right, and both ends agree on what it took.
func TestAgentOnRxeTakesFromRTL(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		for _, verb := range rocelink.Verbs {
			t.Run(fmt.Sprintf("%s/loss=%v%%", verb, lossy.Drop), func(t *testing.T) {
				if verb == rocelink.VerbRead {
					needsQEMU(t, "a user-mode port drops what the wire does not take at once")
				}
				report(t)
				ctx := bounded(t)
				b := newRTL(t, s, lossy, nil)
				b.enable()
				s.attach(t, b.Take)
				agent := s.startAgent(ctx, t)
				before := s.hardware(ctx, t)
				sum := counters{}
				for _, size := range []uint32{0, uint32(s.mtu) + 1, 8193} {
					takeFromFabric(ctx, t, s, b, agent, verb, size, quick, before)
					sum.add(b.counters())
				}
				rxe := b.settled(ctx, t, before)
				out, in := b.faults()
				if out.Dropped+in.Dropped == 0 {
					t.Error("nothing was lost")
				}
				if sum["packets resent"] == 0 {
					t.Error("nothing was sent again")
				}
				b.state() // latches
				equal(t, "packets that the queue pair sent, and frames for the wire", sum["packets sent"]+sum["packets resent"], out.Passed+out.Dropped)
				equal(t, "frames that the port sent", b.count(b.core, regs.CoreTxPackets), out.Passed+out.Dropped)
				equal(t, "frames that the port received", b.count(b.core, regs.CoreRxPackets), in.Passed)
				cycles, kHz := b.fabric.(*fabric.Fabric).Clock()
				t.Logf("to rxe %d frames, %d lost; from rxe %d, %d lost; %v of the core\nRTL %v\nrxe %v", out.Passed, out.Dropped, in.Passed, in.Dropped,
					time.Duration(cycles)*time.Millisecond/time.Duration(kHz), sum, rxe)
			})
		}
	})
}

// The whole path with the RTL for the fabric, every verb at once and with loss:
// boardd and rocelinkd notice no difference.
func TestWholePathOnRTL(t *testing.T) {
	report(t)
	s := segments[1]
	equal(t, "the path MTU", s.mtu, roce.MTU(4096))
	w := newWholeOn(bounded(t), t, s, func(memory []uint32) *board { return newRTL(t, s, lossy, memory) })
	resent := rocelink.Count(0)
	for _, r := range w.deliver(60, 8192, "2M", 15) {
		resent += r.Board.PacketsResent
	}
	if out, in := w.fabric.faults(); resent == 0 || out.Dropped+in.Dropped == 0 {
		t.Errorf("%d packets sent again, %d frames lost to rxe, %d from it", resent, out.Dropped, in.Dropped)
	}
}
