//go:build verilator

package shell

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

const (
	streamBase = 0x1000
	frameBytes = 5000
)

var (
	localIP  = netip.MustParseAddr("192.0.2.1")
	remoteIP = netip.MustParseAddr("198.51.100.7")
	localMAC = roce.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	peerMAC  = roce.MAC{0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee}
)

// host is a shell with all that is around it: a processor, a peer for each of
// its two queue pairs, and somebody who asks.
type host struct {
	testing.TB
	*Shell
	stream regs.Bus
	peers  [2]*responder.Peer
	slow   [][]byte // frames that left and are not RoCE
}

// open returns a shell with its addresses set. At the end the MAC must have seen
// an AXI4-Stream as it should be.
func open(t testing.TB, seed uint32) *host {
	t.Helper()
	h := &host{TB: t, Shell: New(seed)}
	h.stream = regs.At(h.Shell, streamBase)
	t.Cleanup(func() {
		if h.Gaps+h.Changed+h.Holes != 0 {
			t.Errorf("the MAC saw %d gaps inside frames, %d beats that changed, %d wrong byte enables", h.Gaps, h.Changed, h.Holes)
		}
		h.Close()
	})
	h.configure()
	return h
}

// configure sets the addresses.
func (h *host) configure() {
	h.Helper()
	h.put(h.Shell, regs.CoreLocalMACHigh, uint32(localMAC[0])<<8|uint32(localMAC[1]))
	h.put(h.Shell, regs.CoreLocalMACLow, binary.BigEndian.Uint32(localMAC[2:]))
	h.putIP(regs.CoreLocalIP0, localIP)
	h.put(h.Shell, regs.CoreControl, 1)
}

func (h *host) put(bus regs.Bus, r regs.Reg, v uint32) {
	h.Helper()
	if err := r.Write(bus, v); err != nil {
		h.Fatal(err)
	}
}

func (h *host) get(bus regs.Bus, r regs.Reg) uint32 {
	h.Helper()
	v, err := r.Read(bus)
	if err != nil {
		h.Fatal(err)
	}
	return v
}

func (h *host) putIP(r regs.Reg, a netip.Addr) {
	h.Helper()
	b := a.As16()
	for i := range 4 {
		h.put(h.Shell, r+regs.Reg(4*i), binary.BigEndian.Uint32(b[4*i:]))
	}
}

// must carries a command out, which both blocks have the same words for.
func (h *host) must(bus regs.Bus, op, index uint32) {
	h.Helper()
	h.put(bus, regs.CoreCommand, op|index<<8)
	for range 2000 {
		if h.get(bus, regs.CoreCommand) == 0 {
			if code := h.get(bus, regs.CoreCommandStatus); code != 0 {
				h.Fatalf("command %d of %d: status %d, detail %#x", op, index, code, h.get(bus, regs.CoreCommandDetail))
			}
			return
		}
	}
	h.Fatalf("command %d of %d did not end", op, index)
}

// connect makes a queue pair ready and gives it a peer.
func (h *host) connect(index uint32) {
	h.Helper()
	const mtu = roce.MTU(1024)
	local, peer, psn := roce.QPN(0x100+index), roce.QPN(0xabc00+index), roce.PSN(0xfffffe)
	h.put(h.Shell, regs.CoreQpConfig, regs.CoreQpConfigMTU.Of(uint32(mtu.Code()))|regs.CoreQpConfigTimeout.Of(6)|
		regs.CoreQpConfigRetryCount.Of(7)|regs.CoreQpConfigRNRRetry.Of(7))
	h.put(h.Shell, regs.CoreQpLocalQPN, uint32(local))
	h.put(h.Shell, regs.CoreQpRemoteQPN, uint32(peer))
	h.put(h.Shell, regs.CoreQpStartPSN, uint32(psn))
	h.put(h.Shell, regs.CoreQpWindow, 256)
	h.put(h.Shell, regs.CoreQpSourcePort, 0xc123)
	h.put(h.Shell, regs.CoreQpTraffic, regs.CoreQpTrafficHopLimit.Of(64))
	h.put(h.Shell, regs.CoreQpPKey, 0xffff)
	h.put(h.Shell, regs.CoreQpRemoteMACHigh, uint32(peerMAC[0])<<8|uint32(peerMAC[1]))
	h.put(h.Shell, regs.CoreQpRemoteMACLow, binary.BigEndian.Uint32(peerMAC[2:]))
	h.putIP(regs.CoreQpRemoteIP0, remoteIP)
	h.must(h.Shell, regs.CoreCommandOpCommit, index)
	h.peers[index] = responder.New(responder.Config{QPN: peer, RemoteQPN: local, StartPSN: psn, MTU: mtu, Delay: 100}, uint64(index))
}

// start lets a stream make frames of PRBS31, count of them or, of 0, without end.
func (h *host) start(index, verb uint32, count uint64) {
	h.Helper()
	h.put(h.stream, regs.StreamConfig, regs.StreamConfigVerb.Of(verb)|regs.StreamConfigPattern.Of(uint32(pattern.PRBS31)))
	h.put(h.stream, regs.StreamFrameBytes, frameBytes)
	h.put(h.stream, regs.StreamSlots, 4)
	h.put(h.stream, regs.StreamStride, 5024)
	h.put(h.stream, regs.StreamRKey, 5)
	for r, v := range map[regs.Reg64]uint64{regs.StreamBase: 1 << 40, regs.StreamCount: count} {
		if err := r.Write(h.stream, v); err != nil {
			h.Fatal(err)
		}
	}
	h.must(h.stream, regs.StreamCommandOpCommit, index)
	h.must(h.stream, regs.StreamCommandOpStart, index)
}

func (h *host) stopped(index uint32) bool {
	h.Helper()
	h.must(h.stream, regs.StreamCommandOpLatch, index)
	return regs.StreamStatStateState.Get(h.get(h.stream, regs.StreamStatState)) == regs.StreamStatStateStateStopped
}

// exchange lets the shell and those around it talk until done or for so many
// cycles.
func (h *host) exchange(cycles uint64, done func() bool) {
	h.Helper()
	for end := h.Cycle() + cycles; h.Cycle() < end; {
		h.Run(16)
		for _, f := range h.Frames {
			if f.Error {
				h.Fatal("a frame was marked as bad")
			}
			if binary.BigEndian.Uint16(f.Data[12:]) != 0x0800 || f.Data[23] != 17 {
				h.slow = append(h.slow, f.Data)
				continue
			}
			index := binary.BigEndian.Uint32(f.Data[46:])&roce.QPNMask - 0xabc00
			if index >= uint32(len(h.peers)) || h.peers[index] == nil {
				h.Fatalf("a frame for queue pair %#x", index)
			}
			h.peers[index].Send(f.Last, f.Data)
		}
		h.Frames = nil
		for _, p := range h.peers {
			if p == nil {
				continue
			}
			for _, a := range p.Answers(h.Cycle()) {
				h.Receive(a)
			}
			if p.Err != nil {
				h.Fatal(p.Err)
			}
		}
		if done != nil && done() {
			return
		}
	}
	if done != nil {
		h.Errorf("not done after %d cycles", cycles)
	}
}

// abandon forgets what left, which may have been cut off.
func (h *host) abandon() { h.Frames, h.slow = nil, nil }
