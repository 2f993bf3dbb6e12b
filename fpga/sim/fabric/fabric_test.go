//go:build verilator && realtime

package fabric

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

// Software learns what the fabric has from the core's own registers.
func TestRegistersAreTheCores(t *testing.T) {
	h := start(t, Config{})
	caps := h.get(h.core, regs.CoreCaps)
	h.expect("Ident", uint64(h.get(h.core, regs.CoreIdent)), regs.IdentCore)
	h.expect("stream Ident", uint64(h.get(h.stream, regs.StreamIdent)), regs.IdentStream)
	h.expect("QueuePairs", uint64(regs.CoreCapsQueuePairs.Get(caps)), 8)
	h.expect("Read", uint64(regs.CoreCapsRead.Get(caps)), 1)
	h.expect("External", uint64(regs.CoreCapsExternal.Get(caps)), 0)
	h.expect("Emulated", uint64(regs.CoreCapsEmulated.Get(caps)), 0)
	h.expect("ClockKHz", uint64(h.get(h.core, regs.CoreClockKHz)), 250)
	h.expect("QpPKey after reset", uint64(h.get(h.core, regs.CoreQpPKey)), 0xffff)
	// No word differs from what the core reads.
	for _, v := range []uint32{0x12345678, ^uint32(0x12345678)} {
		for _, s := range h.mirror.settings {
			if s.offset != uint32(regs.CoreControl) {
				h.shell.Store(s.offset, v)
			}
		}
		h.step(0)
		for _, s := range h.mirror.settings {
			if got, want := h.mirror.read(s.offset), h.shell.Load(s.offset); got != want {
				t.Errorf("setting %#x: the core reads %#x, software wrote %#x", s.offset, got, want)
			}
		}
	}
	h.latch()
	for _, o := range h.mirror.shown {
		if got, want := h.shell.Load(o), h.mirror.read(o); got != want {
			t.Errorf("register %#x: software reads %#x, the core says %#x", o, got, want)
		}
	}
}

// A command that is refused says why, as the core does.
func TestRefusedCommandNamesRegister(t *testing.T) {
	h := start(t, Config{})
	if code, _ := h.command(h.core, 99, 0); code != regs.CoreCommandStatusCodeBadOp {
		t.Errorf("no such command: status %d", code)
	}
	if code, _ := h.command(h.core, regs.CoreCommandOpLatch, 8); code != regs.CoreCommandStatusCodeBadIndex {
		t.Errorf("no such queue pair: status %d", code)
	}
	h.put(h.stream, regs.StreamConfig, regs.StreamConfigCRC.Of(1))
	if code, detail := h.command(h.stream, regs.StreamCommandOpCommit, 0); code != regs.StreamCommandStatusCodeBadValue || detail != uint32(regs.StreamConfig) {
		t.Errorf("a CRC: status %d, detail %#x", code, detail)
	}
}

// The socket's port takes the place of one that is allowed, and of no other.
func TestSourcePortIsTheSockets(t *testing.T) {
	h := start(t, Config{SourcePort: roce.Port})
	h.put(h.core, regs.CoreQpSourcePort, 0xc123)
	h.step(0)
	h.expect("the core's", uint64(h.mirror.read(uint32(regs.CoreQpSourcePort))), roce.Port)
	h.expect("software's", uint64(h.get(h.core, regs.CoreQpSourcePort)), 0xc123)
	for _, bad := range []uint32{0, 0x10000} {
		h.put(h.core, regs.CoreQpSourcePort, bad)
		h.step(0)
		h.expect("one that is refused", uint64(h.mirror.read(uint32(regs.CoreQpSourcePort))), uint64(bad))
	}
}

// Every frame arrives once, in order and right, through loss in both directions,
// and core, MAC and wire agree on how many packets it took.
func TestFramesArriveThroughLoss(t *testing.T) {
	const size, count = 5000, 100
	h := start(t, Config{})
	h.connect(responder.Faults{Drop: 0.02, Duplicate: 0.02, Reorder: 0.02, Corrupt: 0.02})
	h.begin(size, count, 0)
	for limit := h.now + 60*time.Second; len(h.peer.Messages) < count && h.now < limit && h.peer.Err == nil; {
		h.step(10 * time.Millisecond)
	}
	h.peer.SetFaults(responder.Faults{})
	h.step(200 * time.Millisecond) // what is under way, and one timeout
	if h.peer.Err != nil {
		t.Fatal(h.peer.Err)
	}
	h.expect("messages", uint64(len(h.peer.Messages)), count)
	for i, m := range h.peer.Messages {
		if at := pattern.Check(m.Data, pattern.PRBS31, uint64(i)); len(m.Data) != size || at >= 0 {
			t.Fatalf("message %d: %d bytes, wrong from %d", i, len(m.Data), at)
		}
	}
	h.latch()
	h.expect("FramesDone", h.get64(h.stream, regs.StreamStatFramesDone), count)
	h.expect("MessagesAcked", h.get64(h.core, regs.CoreStatMessagesAcked), count)
	h.expect("PacketsSent", h.get64(h.core, regs.CoreStatPacketsSent), count*5)
	resent := h.get64(h.core, regs.CoreStatPacketsResent)
	if resent == 0 {
		t.Error("nothing was sent again")
	}
	h.expect("frames on the wire", uint64(len(h.frames)), count*5+resent)
	h.expect("TxPackets", h.get64(h.core, regs.CoreTxPackets), count*5+resent)
	h.put(h.cmac, regs.CMACTick, 1)
	h.step(0)
	h.expect("the MAC's TxGoodPackets", h.get64(h.cmac, regs.CMACTxGoodPackets), count*5+resent)
	h.expect("the MAC's RxGoodPackets", h.get64(h.cmac, regs.CMACRxGoodPackets), uint64(h.answers))
}

// The clock runs in real time while a stream is started, and stands still
// otherwise.
func TestClockRunsWhileStreamIsStarted(t *testing.T) {
	h := start(t, Config{})
	h.connect(responder.Faults{})
	h.step(100 * time.Millisecond)
	ran := func(d time.Duration) uint64 {
		before, kHz := h.Clock()
		h.step(d)
		after, _ := h.Clock()
		return (after - before) * 1000 / uint64(kHz) // µs
	}
	h.expect("before the start, µs", ran(10*time.Second), 0)
	h.begin(1000, 0, 100)
	if µs := ran(200 * time.Millisecond); µs < 195_000 || µs > 205_000 {
		t.Errorf("the clock ran for %d µs in 200 ms", µs)
	}
	if n := len(h.peer.Messages); n < 2 || n > 4 { // 100 kb/s in 200 ms, and the first
		t.Errorf("%d messages of 8 kb in 200 ms at 100 kb/s", n)
	}
	h.must(h.stream, regs.StreamCommandOpReset, 0)
	h.step(100 * time.Millisecond)
	h.expect("after the end, µs", ran(10*time.Second), 0)
}

// Time that is lost, on a machine that was busy, is not caught up with for long.
func TestLateClockCatchesUpLittle(t *testing.T) {
	h := start(t, Config{})
	h.connect(responder.Faults{})
	h.begin(1000, 0, 100)
	h.step(100 * time.Millisecond)
	before, kHz := h.Clock()
	h.now += time.Hour
	h.step(0)
	after, _ := h.Clock()
	if late := time.Duration(after-before) * time.Millisecond / time.Duration(kHz); late < maxLate-2*time.Millisecond || late > maxLate {
		t.Errorf("an hour late, the clock ran for %v, want %v", late, maxLate)
	}
}

// A port that takes nothing stops the clock, and nothing is lost.
func TestClockWaitsForPort(t *testing.T) {
	h := start(t, Config{})
	h.connect(responder.Faults{})
	h.refuse = true
	h.begin(4096, 20, 0)
	h.step(100 * time.Millisecond)
	before, _ := h.Clock()
	h.step(100 * time.Millisecond)
	if after, _ := h.Clock(); after != before {
		t.Errorf("the clock ran for %d cycles", after-before)
	}
	h.expect("frames taken", uint64(len(h.frames)), 0)
	h.refuse = false
	h.step(100 * time.Millisecond)
	h.expect("messages", uint64(len(h.peer.Messages)), 20)
	h.latch()
	h.expect("PacketsSent", h.get64(h.core, regs.CoreStatPacketsSent), 80)
	h.expect("PacketsResent", h.get64(h.core, regs.CoreStatPacketsResent), 0)
}

// Without light the MAC takes nothing: the core counts what it drops, and goes
// on when the light is back.
func TestCoreSeesLink(t *testing.T) {
	h := start(t, Config{})
	h.connect(responder.Faults{})
	h.shell.SetLink(model.Link{Dark: true})
	h.begin(1000, 1, 0)
	h.step(20 * time.Millisecond)
	h.expect("frames in the dark", uint64(len(h.frames)), 0)
	h.latch()
	if h.get64(h.core, regs.CoreTxDropped) == 0 {
		t.Error("no frame was dropped")
	}
	h.shell.SetLink(model.Link{})
	h.step(200 * time.Millisecond) // a timeout
	h.expect("messages in the light", uint64(len(h.peer.Messages)), 1)
}

// Frames that come faster than the clock takes them are lost, not kept for ever.
func TestFloodIsBounded(t *testing.T) {
	h := start(t, Config{})
	d := model.Datagram{Src: netip.AddrPortFrom(remoteIP, roce.Port), Dst: netip.AddrPortFrom(localIP, roce.Port), Payload: make([]byte, roce.MinPacket)}
	for range maxQueued + 100 {
		h.ReceiveDatagrams(h.now, []model.Datagram{d})
	}
	h.expect("frames that wait", uint64(h.Fabric.core.Queued()), maxQueued)
	h.step(time.Second)
	h.expect("frames that wait after a second", uint64(h.Fabric.core.Queued()), 0)
	h.latch()
	h.expect("RxBadICRC", h.get64(h.core, regs.CoreRxBadICRC), maxQueued)
}

// A fabric that starts on the memory of another is seen to be another.
func TestRestartIsSeen(t *testing.T) {
	memory := make([]uint32, model.ApertureBytes/4)
	boot := func() uint32 {
		f, err := New(Config{Registers: memory})
		if err != nil {
			t.Fatal(err)
		}
		boot := memory[regs.CoreBoot/4]
		memory[regs.CoreScratch/4] = 1
		f.Step(time.Millisecond)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if memory[regs.CoreIdent/4] != 0 {
			t.Error("closed, the fabric still says that it is there")
		}
		return boot
	}
	if a, b := boot(), boot(); a == b || a == 0 || b == 0 {
		t.Errorf("Boot %#x, then %#x", a, b)
	}
}

// A datagram becomes the frame that it came in.
func TestDatagramBecomesFrame(t *testing.T) {
	f := roce.Frame{Dst: localMAC, Src: peerMAC, Flow: roce.Flow{Src: remoteIP, Dst: localIP, SrcPort: 0xd00d}}
	f.Packet.BTH = roce.BTH{Opcode: roce.Acknowledge, DestQP: localQPN, PKey: roce.PKeyDefault}
	want := make([]byte, roce.MaxFrame)
	n, err := f.Put(want)
	if err != nil {
		t.Fatal(err)
	}
	want = want[:n]
	var d roce.Frame
	if err := d.Decode(want); err != nil {
		t.Fatal(err)
	}
	got := appendFrame([]byte{9}, localMAC, netip.AddrPortFrom(remoteIP, 0xd00d), localIP, d.Transport(want))[1:]
	copy(got[6:], peerMAC[:])
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	if !bytes.Equal(unpadded(append(got, 0, 0)), want) {
		t.Error("a pad stays")
	}
}
