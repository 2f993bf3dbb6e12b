package model

import (
	"fmt"
	"testing"
	"time"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

func verbName(v uint32) string {
	return [...]string{"Send", "SendImm", "Write", "WriteImm", "Read"}[v]
}

// session opens a queue pair and a stream of frames that the host checks, in a
// ring of 4 slots where the verb needs one.
func (w *world) session(q qpSettings, s streamSettings) (*hostQP, *slots) {
	w.t.Helper()
	hq := w.openQP(q)
	s.index = q.index
	k := pattern.Kind(s.kind)
	ring := &slots{q: hq, kind: k, crc: s.crc, size: int(s.size), slots: 4, trailer: s.verb == regs.StreamConfigVerbWrite}
	ring.stride = (int(s.size)+7)&^7 + 16
	hq.base, hq.rkey = 0x7F12_8000_0000, 0x1234
	hq.mem = make([]byte, ring.slots*ring.stride+8)
	s.base, s.rkey, s.slots, s.stride = hq.base, hq.rkey, uint32(ring.slots), uint32(ring.stride)
	if s.credit != 0 {
		s.credit = hq.base + uint64(ring.slots*ring.stride)
	}
	switch s.verb {
	case regs.StreamConfigVerbSend, regs.StreamConfigVerbSendImm:
		hq.got = expectFrames(k, int(s.size), s.crc, s.verb == regs.StreamConfigVerbSendImm)
	case regs.StreamConfigVerbWrite:
		hq.wrote = ring.wrote
	case regs.StreamConfigVerbWriteImm:
		hq.got = ring.got
	case regs.StreamConfigVerbRead:
		for i := range ring.slots {
			b := hq.mem[i*ring.stride:][:s.size]
			pattern.Fill(b, k, uint64(i))
			if s.crc {
				if err := pattern.SealCRC(b); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
	w.startStream(s)
	return hq, ring
}

// delivered wants a stream to have ended with count frames done and everything
// acknowledged.
func (w *world) delivered(index int, s streamSettings) {
	w.t.Helper()
	w.until("stream stopped", 200*time.Second, func() bool { return w.f.streams[index].state >= streamStopped })
	if st, cause := w.qpState(index); st != regs.CoreStatStateStateReady {
		w.t.Fatalf("queue pair %d: state %d, cause %d", index, st, cause)
	}
	if st := w.streamState(index); st != regs.StreamStatStateStateStopped {
		w.t.Fatalf("stream %d: state %d", index, st)
	}
	if regs.StreamStatStateEnded.Get(w.read(w.stream, regs.StreamStatState)) != 1 {
		w.t.Errorf("stream %d: Ended is not set", index)
	}
	for _, c := range []struct {
		name string
		reg  regs.Reg64
		want uint64
	}{
		{"SourceFrames", regs.StreamStatSourceFrames, s.count},
		{"SourceBytes", regs.StreamStatSourceBytes, s.count * uint64(s.size)},
		{"FramesPosted", regs.StreamStatFramesPosted, s.count},
		{"FramesDone", regs.StreamStatFramesDone, s.count},
		{"BytesDone", regs.StreamStatBytesDone, s.count * uint64(s.size)},
	} {
		if got := w.read64(w.stream, c.reg); got != c.want {
			w.t.Errorf("stream %d: %s = %d, want %d", index, c.name, got, c.want)
		}
	}
	if s.verb == regs.StreamConfigVerbRead {
		if good, bad := w.read64(w.stream, regs.StreamStatReadGood), w.read64(w.stream, regs.StreamStatReadBad); good != s.count || bad != 0 {
			w.t.Errorf("stream %d: %d frames read right, %d wrong; want %d", index, good, bad, s.count)
		}
	}
	w.must(w.core, regs.CoreCommandOpLatch, index)
	for _, pair := range [][2]regs.Reg64{
		{regs.CoreStatMessagesPosted, regs.CoreStatMessagesAcked},
		{regs.CoreStatBytesPosted, regs.CoreStatBytesAcked},
		{regs.CoreStatPacketsSent, regs.CoreStatPacketsAcked},
	} {
		if a, b := w.read64(w.core, pair[0]), w.read64(w.core, pair[1]); a != b {
			w.t.Errorf("queue pair %d: %#x is %d, %#x is %d", index, pair[0], a, pair[1], b)
		}
	}
	if a, b := w.read(w.core, regs.CoreStatNextPSN), w.read(w.core, regs.CoreStatUnackedPSN); a != b {
		w.t.Errorf("queue pair %d: next PSN %#x, unacknowledged %#x", index, a, b)
	}
}

// Every verb with every size at every MTU arrives once, in order, in the right
// number of packets, across the wrap of the PSN.
func TestVerbsAndSizes(t *testing.T) {
	for verb := uint32(regs.StreamConfigVerbSend); verb <= regs.StreamConfigVerbRead; verb++ {
		for _, mtu := range []roce.MTU{256, 512, 1024, 2048, 4096} {
			for _, size := range []int{0, 1, int(mtu) - 1, int(mtu), int(mtu) + 1, 2 * int(mtu), 8192, 8193, 1 << 20} {
				t.Run(fmt.Sprintf("%s/%d/%d", verbName(verb), mtu, size), func(t *testing.T) {
					w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
					w.frames = size%2 == 1
					q := defaults()
					q.mtu = mtu
					s := streamSettings{verb: verb, size: uint32(size), count: 9, crc: size >= 4, kind: uint32(size % 2)}
					if size == 1<<20 {
						s.count = 2
					}
					hq, _ := w.session(q, s)
					w.delivered(0, s)
					packets := uint64(mtu.Packets(size))
					want := s.count * packets
					switch verb {
					case regs.StreamConfigVerbWrite:
						want += s.count
					case regs.StreamConfigVerbRead:
						if got := w.read64(w.core, regs.CoreStatReadResponses); got != want {
							t.Errorf("%d READ responses, want %d", got, want)
						}
						want = s.count
					}
					if got := w.read64(w.core, regs.CoreStatPacketsSent); got != want {
						t.Errorf("%d packets sent, want %d", got, want)
					}
					if got := hq.requests; got != int(want) {
						t.Errorf("the host got %d requests, want %d", got, want)
					}
					if n := w.read64(w.core, regs.CoreStatPacketsResent) + w.read64(w.core, regs.CoreStatTimeouts); n != 0 {
						t.Errorf("%d packets sent again or timeouts without loss", n)
					}
				})
			}
		}
	}
}
