//go:build verilator

package core

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/responder"
)

func peerConfig(q qpConfig) responder.Config {
	return responder.Config{QPN: q.peerQPN, RemoteQPN: q.localQPN, StartPSN: q.psn, MTU: q.mtu, Delay: 300}
}

// checkMessages compares what a peer got with what the stream had to send.
func checkMessages(t testing.TB, got []responder.Message, s streamConfig, frames uint64) {
	t.Helper()
	per := uint64(1)
	if s.verb == regs.StreamConfigVerbWrite {
		per = 2
	}
	if uint64(len(got)) != frames*per {
		t.Fatalf("%d messages arrived, want %d", len(got), frames*per)
	}
	want := make([]byte, s.bytes)
	for i, m := range got {
		sequence := uint64(i) / per
		trailer := per == 2 && i%2 == 1
		data := want
		pattern.Fill(want, s.kind, sequence)
		slot := s.base
		if s.slots > 0 {
			slot += sequence % uint64(s.slots) * uint64(s.stride)
		}
		if trailer {
			data = binary.LittleEndian.AppendUint32(nil, s.bytes)
			data = binary.LittleEndian.AppendUint32(data, 0)
			data = binary.LittleEndian.AppendUint64(data, sequence+1)
			slot += uint64(s.stride) - 16
		}
		if !bytes.Equal(m.Data, data) {
			at := 0
			for at < min(len(data), len(m.Data)) && data[at] == m.Data[at] {
				at++
			}
			t.Fatalf("message %d: %d bytes, want %d; they differ at %d:\n%x\n%x", i, len(m.Data), len(data), at, m.Data[at:min(at+64, len(m.Data))], data[at:min(at+64, len(data))])
		}
		if m.Op.IsWrite() && (m.Address != slot || m.RKey != s.rkey) {
			t.Fatalf("message %d: written to %#x with rkey %#x, want %#x, %#x", i, m.Address, m.RKey, slot, s.rkey)
		}
		if m.Op.HasImm() && m.Imm != uint32(sequence) {
			t.Fatalf("message %d: immediate %d", i, m.Imm)
		}
		if m.Solicited != (s.solicited && !trailer) {
			t.Fatalf("message %d: solicited %t", i, m.Solicited)
		}
	}
}

var verbs = []struct {
	name string
	verb uint32
	imm  bool
}{
	{"send", regs.StreamConfigVerbSend, false},
	{"send-imm", regs.StreamConfigVerbSendImm, true},
	{"write", regs.StreamConfigVerbWrite, false},
	{"write-imm", regs.StreamConfigVerbWriteImm, true},
}

// Every verb, MTU and kind of pattern, frames that are no multiple of anything.
func TestVerbs(t *testing.T) {
	for _, v := range verbs {
		for _, mtu := range []roce.MTU{256, 1024, 4096} {
			for _, size := range []uint32{0, 1, 200, 1023, 5000} {
				t.Run(fmt.Sprintf("%s/%d/%d", v.name, mtu, size), func(t *testing.T) {
					b := open(t, 7)
					b.SetSink(Pausing(40))
					q := qp(0)
					q.mtu = mtu
					b.connect(0, q)
					s := streamConfig{verb: v.verb, kind: pattern.Kind(size % 2), bytes: size, slots: 3, stride: 5024,
						base: 0x1234_5678_9abc_0000, rkey: 0xfeed_beef, count: 9, solicited: size%3 == 0}
					b.start(0, s)
					p := responder.New(peerConfig(q), 1)
					b.exchange([]*responder.Peer{p}, []qpConfig{q}, 200000, func() bool {
						return b.streamState(0) == regs.StreamStatStateStateStopped
					})
					checkMessages(t, p.Messages, s, s.count)
					b.expect("FramesDone", b.get64(b.stream, regs.StreamStatFramesDone), s.count)
					b.expect("BytesDone", b.get64(b.stream, regs.StreamStatBytesDone), s.count*uint64(size))
					b.latch(0)
					b.expect("PacketsSent", b.counter(regs.CoreStatPacketsSent), uint64(p.Accepted))
					b.expect("PacketsAcked", b.counter(regs.CoreStatPacketsAcked), uint64(p.Accepted))
					b.expect("PacketsResent", b.counter(regs.CoreStatPacketsResent), 0)
					b.expect("MessagesAcked", b.counter(regs.CoreStatMessagesAcked), uint64(len(p.Messages)))
					b.expect("MessagesPosted", b.counter(regs.CoreStatMessagesPosted), uint64(len(p.Messages)))
					b.expect("TxPackets", b.counter(regs.CoreTxPackets), uint64(len(b.frames)))
				})
			}
		}
	}
}
