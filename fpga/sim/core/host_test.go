//go:build verilator

package core

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

const streamBase = 0x1000

var (
	localIP  = netip.MustParseAddr("192.0.2.1")
	remoteIP = netip.MustParseAddr("198.51.100.7")
	localMAC = roce.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	peerMAC  = roce.MAC{0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee}
)

// bench is a core under test with its blocks and what checks it.
type bench struct {
	testing.TB
	*Core
	stream regs.Bus
	core   regs.Bus // instead of the RTL
	frames []Frame
}

// open returns an enabled core. At the end the outputs must have been those of
// an AXI4-Stream source.
func open(t testing.TB, seed uint32) *bench {
	t.Helper()
	b := &bench{TB: t, Core: New(seed)}
	b.stream = regs.At(b.Core, streamBase)
	t.Cleanup(func() {
		if gaps, unstable, keep := b.Faults(); gaps+unstable+keep != 0 {
			t.Errorf("the MAC saw %d gaps inside frames, %d beats that changed, %d wrong byte enables", gaps, unstable, keep)
		}
		b.Close()
	})
	b.Run(400)
	b.enable()
	return b
}

func (b *bench) enable() {
	b.put(b.bus(), regs.CoreLocalMACHigh, uint32(localMAC[0])<<8|uint32(localMAC[1]))
	b.put(b.bus(), regs.CoreLocalMACLow, binary.BigEndian.Uint32(localMAC[2:]))
	b.putIP(regs.CoreLocalIP0, localIP)
	b.put(b.bus(), regs.CoreControl, 1)
}

func (b *bench) put(bus regs.Bus, r regs.Reg, v uint32) {
	b.Helper()
	if err := r.Write(bus, v); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) put64(bus regs.Bus, r regs.Reg64, v uint64) {
	b.Helper()
	if err := r.Write(bus, v); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) get(bus regs.Bus, r regs.Reg) uint32 {
	b.Helper()
	v, err := r.Read(bus)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func (b *bench) get64(bus regs.Bus, r regs.Reg64) uint64 {
	b.Helper()
	v, err := r.Read(bus)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func (b *bench) putIP(r regs.Reg, a netip.Addr) {
	b.Helper()
	bytes := a.As16()
	for i := range 4 {
		b.put(b.bus(), r+regs.Reg(4*i), binary.BigEndian.Uint32(bytes[4*i:]))
	}
}

// command carries a command out and returns how it ended. It must end within
// limit cycles.
func (b *bench) command(bus regs.Bus, op, index uint32) (code, detail uint32) {
	b.Helper()
	const limit = 20000
	// Both blocks have the same words here.
	count := b.get(bus, regs.CoreCommandCount)
	b.put(bus, regs.CoreCommand, op|index<<8)
	for polls := 0; b.get(bus, regs.CoreCommand) != 0; polls++ {
		if polls > limit/2 { // a read takes two cycles
			b.Fatalf("command %d of %d did not end in %d cycles", op, index, limit)
		}
	}
	if n := b.get(bus, regs.CoreCommandCount); n != count+1 {
		b.Errorf("CommandCount %d after %d", n, count)
	}
	return b.get(bus, regs.CoreCommandStatus), b.get(bus, regs.CoreCommandDetail)
}

func (b *bench) must(bus regs.Bus, op, index uint32) {
	b.Helper()
	if code, detail := b.command(bus, op, index); code != 0 {
		b.Fatalf("command %d of %d: status %d, detail %#x", op, index, code, detail)
	}
}

// qpConfig is what a queue pair is programmed with.
type qpConfig struct {
	mtu               roce.MTU
	timeout           uint32
	retry, rnrRetry   uint32
	localQPN, peerQPN roce.QPN
	psn               roce.PSN
	window            uint32
}

func qp(index int) qpConfig {
	return qpConfig{mtu: 1024, timeout: 3, retry: 7, rnrRetry: 7, localQPN: roce.QPN(0x100 + index),
		peerQPN: roce.QPN(0xabc00 + index), psn: roce.PSN(0xfffffe - 1000*index), window: 128}
}

func (b *bench) program(q qpConfig) {
	b.put(b.bus(), regs.CoreQpConfig, regs.CoreQpConfigMTU.Of(uint32(q.mtu.Code()))|regs.CoreQpConfigTimeout.Of(q.timeout)|
		regs.CoreQpConfigRetryCount.Of(q.retry)|regs.CoreQpConfigRNRRetry.Of(q.rnrRetry))
	b.put(b.bus(), regs.CoreQpLocalQPN, uint32(q.localQPN))
	b.put(b.bus(), regs.CoreQpRemoteQPN, uint32(q.peerQPN))
	b.put(b.bus(), regs.CoreQpStartPSN, uint32(q.psn))
	b.put(b.bus(), regs.CoreQpWindow, q.window)
	b.put(b.bus(), regs.CoreQpSourcePort, 0xc123)
	b.put(b.bus(), regs.CoreQpTraffic, regs.CoreQpTrafficClass.Of(0x68)|regs.CoreQpTrafficHopLimit.Of(64))
	b.put(b.bus(), regs.CoreQpPKey, 0xffff)
	b.put(b.bus(), regs.CoreQpRemoteMACHigh, uint32(peerMAC[0])<<8|uint32(peerMAC[1]))
	b.put(b.bus(), regs.CoreQpRemoteMACLow, binary.BigEndian.Uint32(peerMAC[2:]))
	b.putIP(regs.CoreQpRemoteIP0, remoteIP)
}

func (b *bench) connect(index uint32, q qpConfig) {
	b.Helper()
	b.program(q)
	b.must(b.Core, regs.CoreCommandOpCommit, index)
}

// streamConfig is what a stream is programmed with.
type streamConfig struct {
	verb      uint32
	kind      pattern.Kind
	solicited bool
	external  bool
	bytes     uint32
	slots     uint32
	stride    uint32
	base      uint64
	rkey      uint32
	credit    uint64
	kbps      uint32
	burst     uint32
	count     uint64
}

func (b *bench) describe(s streamConfig) {
	word := regs.StreamConfigVerb.Of(s.verb) | regs.StreamConfigPattern.Of(uint32(s.kind))
	if s.solicited {
		word |= regs.StreamConfigSolicited.Of(1)
	}
	if s.external {
		word |= regs.StreamConfigSource.Of(regs.StreamConfigSourceExternal)
	}
	b.put(b.stream, regs.StreamConfig, word)
	b.put(b.stream, regs.StreamFrameBytes, s.bytes)
	b.put(b.stream, regs.StreamSlots, s.slots)
	b.put(b.stream, regs.StreamStride, s.stride)
	b.put64(b.stream, regs.StreamBase, s.base)
	b.put(b.stream, regs.StreamRKey, s.rkey)
	b.put64(b.stream, regs.StreamCredit, s.credit)
	b.put(b.stream, regs.StreamRateKbps, s.kbps)
	b.put(b.stream, regs.StreamBurst, s.burst)
	b.put64(b.stream, regs.StreamCount, s.count)
}

func (b *bench) start(index uint32, s streamConfig) {
	b.Helper()
	b.describe(s)
	b.must(b.stream, regs.StreamCommandOpCommit, index)
	b.must(b.stream, regs.StreamCommandOpStart, index)
}

// latch latches and returns the state of a queue pair and its cause.
func (b *bench) latch(index uint32) (state, cause uint32) {
	b.Helper()
	b.must(b.Core, regs.CoreCommandOpLatch, index)
	w := b.get(b.Core, regs.CoreStatState)
	return regs.CoreStatStateState.Get(w), regs.CoreStatStateCause.Get(w)
}

func (b *bench) streamState(index uint32) uint32 {
	b.Helper()
	b.must(b.stream, regs.StreamCommandOpLatch, index)
	return regs.StreamStatStateState.Get(b.get(b.stream, regs.StreamStatState))
}

// counter latches nothing: it returns a counter as last latched.
func (b *bench) counter(r regs.Reg64) uint64 { b.Helper(); return b.get64(b.Core, r) }

func (b *bench) expect(what string, got, want uint64) {
	b.Helper()
	if got != want {
		b.Errorf("%s is %d, want %d", what, got, want)
	}
}

// exchange lets core and peers talk until done or for so many cycles. Frames go
// to the peer of their destination QPN.
func (b *bench) exchange(peers []*responder.Peer, qps []qpConfig, cycles uint64, done func() bool) {
	b.Helper()
	for end := b.Cycle() + cycles; b.Cycle() < end; {
		b.Run(32)
		for _, f := range b.Take() {
			if f.Error {
				b.Fatal("a frame was marked as bad")
			}
			b.frames = append(b.frames, f)
			dst := binary.BigEndian.Uint32(f.Data[46:]) & roce.QPNMask
			for i, q := range qps {
				if uint32(q.peerQPN) == dst {
					peers[i].Send(f.Last, f.Data)
				}
			}
		}
		for _, p := range peers {
			for _, a := range p.Answers(b.Cycle()) {
				b.Receive(a, 30)
			}
			if p.Err != nil {
				b.Fatal(p.Err)
			}
		}
		if done != nil && done() {
			return
		}
	}
	if done != nil {
		b.Errorf("not done after %d cycles", cycles)
	}
}
