//go:build verilator && realtime

package fabric

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

var (
	localIP  = netip.MustParseAddr("192.0.2.1")
	remoteIP = netip.MustParseAddr("198.51.100.7")
	localMAC = roce.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	peerMAC  = roce.MAC{0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee}
)

const (
	localQPN = roce.QPN(0x100)
	peerQPN  = roce.QPN(0xabc00)
	startPSN = roce.PSN(0xfffffe)
)

// host is the software of a fabric, in virtual time, and a peer on its wire.
type host struct {
	testing.TB
	*Fabric
	core, stream, cmac regs.Bus
	now                time.Duration
	frames             [][]byte
	refuse             bool // the port takes nothing
	peer               *responder.Peer
	answers            int // of the peer
}

func (h *host) Transmit(frames [][]byte) (taken, dropped int) {
	if h.refuse {
		return 0, 0
	}
	for _, f := range frames {
		h.frames = append(h.frames, slices.Clone(f))
		if h.peer != nil {
			h.peer.Send(uint64(h.now/4000), f) // cycles of 4 µs
		}
	}
	return len(frames), 0
}

// start returns software with a fabric whose link is up and whose core is
// enabled.
func start(t testing.TB, cfg Config) *host {
	t.Helper()
	h := &host{TB: t}
	cfg.Port = h
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	h.Fabric = f
	h.core = f.Shell()
	h.stream, h.cmac = regs.At(h.core, model.StreamBase), regs.At(h.core, model.CMACBase)
	h.put(h.cmac, regs.CMACConfigRx, regs.CMACConfigRxEnable.Of(1))
	h.put(h.cmac, regs.CMACConfigTx, regs.CMACConfigTxEnable.Of(1))
	h.put(h.core, regs.CoreLocalMACHigh, uint32(localMAC[0])<<8|uint32(localMAC[1]))
	h.put(h.core, regs.CoreLocalMACLow, binary.BigEndian.Uint32(localMAC[2:]))
	h.putIP(regs.CoreLocalIP0, localIP)
	h.put(h.core, regs.CoreControl, regs.CoreControlEnable.Of(1))
	h.step(time.Millisecond)
	return h
}

// step lets time pass, a millisecond at a time, as a driver with nothing else to
// do would.
func (h *host) step(d time.Duration) {
	for end := h.now + d; ; h.now = min(h.now+time.Millisecond, end) {
		for h.Step(h.now) <= h.now && !h.refuse {
		}
		if h.peer != nil {
			for _, a := range h.peer.Answers(uint64(h.now / 4000)) {
				h.answers++
				h.Receive(h.now, a)
			}
		}
		if h.now >= end {
			return
		}
	}
}

func (h *host) put(b regs.Bus, r regs.Reg, v uint32) { _ = r.Write(b, v) }

func (h *host) put64(b regs.Bus, r regs.Reg64, v uint64) { _ = r.Write(b, v) }

func (h *host) get(b regs.Bus, r regs.Reg) uint32 { v, _ := r.Read(b); return v }

func (h *host) get64(b regs.Bus, r regs.Reg64) uint64 { v, _ := r.Read(b); return v }

func (h *host) putIP(r regs.Reg, a netip.Addr) {
	b := a.As16()
	for i := range 4 {
		h.put(h.core, r+regs.Reg(4*i), binary.BigEndian.Uint32(b[4*i:]))
	}
}

// command writes a command's word, waits for its end and returns how it ended.
func (h *host) command(b regs.Bus, op, index uint32) (code, detail uint32) {
	h.Helper()
	count := h.get(b, regs.CoreCommandCount) // the same in both blocks
	h.put(b, regs.CoreCommand, regs.CoreCommandOp.Of(op)|regs.CoreCommandIndex.Of(index))
	for tries := 0; h.get(b, regs.CoreCommand) != 0; tries++ {
		if tries == 10 {
			h.Fatalf("command %d of %d did not end in %d steps", op, index, tries)
		}
		h.step(0)
	}
	if n := h.get(b, regs.CoreCommandCount); n != count+1 {
		h.Errorf("CommandCount %d after %d", n, count)
	}
	return h.get(b, regs.CoreCommandStatus), h.get(b, regs.CoreCommandDetail)
}

func (h *host) must(b regs.Bus, op, index uint32) {
	h.Helper()
	if code, detail := h.command(b, op, index); code != regs.CoreCommandStatusCodeOK {
		h.Fatalf("command %d of %d: status %d, detail %#x", op, index, code, detail)
	}
}

// connect programs queue pair 0 and puts its peer on the wire.
func (h *host) connect(faults responder.Faults) {
	h.Helper()
	h.put(h.core, regs.CoreQpConfig, regs.CoreQpConfigMTU.Of(uint32(roce.MTU(1024).Code()))|regs.CoreQpConfigTimeout.Of(12)|
		regs.CoreQpConfigRetryCount.Of(7)|regs.CoreQpConfigRNRRetry.Of(7))
	h.put(h.core, regs.CoreQpLocalQPN, uint32(localQPN))
	h.put(h.core, regs.CoreQpRemoteQPN, uint32(peerQPN))
	h.put(h.core, regs.CoreQpStartPSN, uint32(startPSN))
	h.put(h.core, regs.CoreQpWindow, 64)
	h.put(h.core, regs.CoreQpSourcePort, 0xc123)
	h.put(h.core, regs.CoreQpTraffic, regs.CoreQpTrafficHopLimit.Of(64))
	h.put(h.core, regs.CoreQpRemoteMACHigh, uint32(peerMAC[0])<<8|uint32(peerMAC[1]))
	h.put(h.core, regs.CoreQpRemoteMACLow, binary.BigEndian.Uint32(peerMAC[2:]))
	h.putIP(regs.CoreQpRemoteIP0, remoteIP)
	h.must(h.core, regs.CoreCommandOpCommit, 0)
	h.peer = responder.New(responder.Config{QPN: peerQPN, RemoteQPN: localQPN, StartPSN: startPSN, MTU: 1024, Delay: 10, Faults: faults}, 1)
}

// begin starts stream 0: SENDs of some bytes.
func (h *host) begin(bytes uint32, count uint64, kbps uint32) {
	h.Helper()
	h.put(h.stream, regs.StreamConfig, regs.StreamConfigVerb.Of(regs.StreamConfigVerbSend)|regs.StreamConfigPattern.Of(regs.StreamConfigPatternPRBS31))
	h.put(h.stream, regs.StreamFrameBytes, bytes)
	h.put(h.stream, regs.StreamRateKbps, kbps)
	h.put64(h.stream, regs.StreamCount, count)
	h.must(h.stream, regs.StreamCommandOpCommit, 0)
	h.must(h.stream, regs.StreamCommandOpStart, 0)
}

func (h *host) latch() {
	h.Helper()
	h.must(h.stream, regs.StreamCommandOpLatch, 0)
	h.must(h.core, regs.CoreCommandOpLatch, 0)
}

func (h *host) expect(what string, got, want uint64) {
	h.Helper()
	if got != want {
		h.Errorf("%s is %d, want %d", what, got, want)
	}
}
