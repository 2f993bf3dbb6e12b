package model

import (
	"net/netip"
	"testing"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// ackTo is an acknowledgement from the host as an Ethernet frame.
func (w *world) ackTo(q *hostQP, psn roce.PSN, change func(f *roce.Frame)) []byte {
	f := roce.Frame{Dst: fabricMAC, Src: hostMAC, Flow: roce.Flow{Src: w.host.addr, Dst: w.local(), SrcPort: 50000}}
	f.Packet = q.ack(psn)[0]
	if change != nil {
		change(&f)
	}
	b := make([]byte, f.Len()+8)
	n, err := f.Put(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return b[:n]
}

// Each reason to ignore a frame has its counter and no other effect.
func TestIgnoredFrames(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *roce.Frame)
		edit   func(b []byte) []byte
		want   regs.Reg64
	}{
		{"good", nil, nil, regs.CoreStatAcksReceived},
		{"bit in the PSN", nil, func(b []byte) []byte { b[42+11] ^= 1; return b }, regs.CoreRxBadICRC},
		{"bit in the ICRC", nil, func(b []byte) []byte { b[42+12+4] ^= 1; return b }, regs.CoreRxBadICRC},
		{"unknown QP", func(f *roce.Frame) { f.Packet.DestQP = 0x999 }, nil, regs.CoreRxUnknownQP},
		{"queue pair in Reset", func(f *roce.Frame) { f.Packet.DestQP = 0x101 }, nil, regs.CoreRxUnknownQP},
		{"a request", func(f *roce.Frame) { f.Packet.Opcode = roce.SendOnly }, nil, regs.CoreRxBadOpcode},
		{"an opcode that is none", nil, func(b []byte) []byte {
			b[42] = 0xC5
			flow := roce.Flow{Src: hostIP, Dst: fabricIP, SrcPort: 50000}
			flow.Seal(b[42:])
			return b
		}, regs.CoreRxBadOpcode},
		{"source address", func(f *roce.Frame) { f.Flow.Src = netip.MustParseAddr("192.0.2.21") }, nil, regs.CoreRxWrongAddress},
		{"destination address", func(f *roce.Frame) { f.Flow.Dst = netip.MustParseAddr("192.0.2.11") }, nil, regs.CoreRxWrongAddress},
		{"destination MAC", func(f *roce.Frame) { f.Dst = hostMAC }, nil, regs.CoreRxWrongAddress},
		{"reserved syndrome", func(f *roce.Frame) { f.Packet.AETH.Syndrome = 0x4F }, nil, regs.CoreRxMalformed},
		{"unknown NAK", func(f *roce.Frame) { f.Packet.AETH.Syndrome = roce.Nak(5) }, nil, regs.CoreRxMalformed},
		{"IP checksum", nil, func(b []byte) []byte { b[24] ^= 1; return b }, regs.CoreRxMalformed},
		{"UDP length", nil, func(b []byte) []byte { b[39]++; return b }, regs.CoreRxMalformed},
		{"cut off", nil, func(b []byte) []byte { return b[:50] }, regs.CoreRxMalformed},
		{"another port", nil, func(b []byte) []byte { b[37]++; return b }, 0},
		{"another protocol", nil, func(b []byte) []byte { b[12] = 9; return b }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{QueuePairs: 2}, FaultConfig{})
			hq, _ := w.session(defaults(), streamSettings{size: 100, count: 3})
			hq.mute = true
			w.run(time.Millisecond)
			w.must(w.core, regs.CoreCommandOpLatch, 0)
			before := w.f.qps[0]
			b := w.ackTo(hq, hq.expected, c.change)
			if c.edit != nil {
				b = c.edit(b)
			}
			w.f.Receive(w.now, b)
			for _, r := range []regs.Reg64{regs.CoreStatAcksReceived, regs.CoreRxBadICRC, regs.CoreRxMalformed,
				regs.CoreRxUnknownQP, regs.CoreRxBadOpcode, regs.CoreRxWrongAddress} {
				want := uint64(0)
				if r == c.want {
					want = 1
				}
				if got := w.stat(0, r); got != want {
					t.Errorf("counter %#x is %d, want %d", r, got, want)
				}
			}
			if c.want != 0 && w.stat(0, regs.CoreRxPackets) != 1 || c.want == 0 && w.stat(0, regs.CoreRxPackets) != 0 {
				t.Errorf("RxPackets = %d", w.stat(0, regs.CoreRxPackets))
			}
			if after := &w.f.qps[0]; c.want != regs.CoreStatAcksReceived && (after.count != before.count || after.una != before.una || after.state != before.state) {
				t.Error("an ignored frame changed the queue pair")
			}
		})
	}
}

// Whatever arrives, nothing panics, and a frame that is not a response with a
// right ICRC changes nothing but a counter.
func FuzzReceive(f *testing.F) {
	w := newWorld(f, Config{QueuePairs: 1}, FaultConfig{})
	hq := w.openQP(defaults())
	good := w.ackTo(hq, hq.expected, nil)
	f.Add(good)
	f.Add(w.ackTo(hq, hq.expected, func(f *roce.Frame) { f.Packet.AETH.Syndrome = roce.Nak(2) }))
	f.Add(w.ackTo(hq, hq.expected, func(f *roce.Frame) {
		f.Packet = roce.Packet{BTH: f.Packet.BTH, Payload: make([]byte, 100)}
		f.Packet.Opcode = roce.ReadResponseOnly
	}))
	f.Add([]byte{})
	f.Add(good[:43])
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, Config{QueuePairs: 1}, FaultConfig{})
		hq, _ := w.session(defaults(), streamSettings{verb: regs.StreamConfigVerbRead, size: 5000, count: 3})
		hq.mute = true
		w.run(time.Millisecond)
		q := &w.f.qps[0]
		before := *q
		w.f.Receive(w.now, b)
		var fr roce.Frame
		valid := fr.Decode(b) == nil && fr.ICRCOK(b)
		if !valid && (q.count != before.count || q.state != before.state || q.una != before.una || q.cursor != before.cursor || q.timer != before.timer) {
			t.Errorf("%x changed the queue pair", b)
		}
		// As a datagram too, with a right ICRC so that more of it is looked at.
		if len(b) >= roce.MinPacket {
			d := Datagram{Src: netip.AddrPortFrom(hostIP, 50000), Dst: netip.AddrPortFrom(fabricIP, roce.Port), Payload: b}
			flow := roce.Flow{Src: hostIP, Dst: fabricIP, SrcPort: 50000}
			flow.Seal(d.Payload)
			w.f.ReceiveDatagrams(w.now, []Datagram{d})
		}
		hq.mute = false
		w.run(time.Second)
		if c := q.count; c.messagesAcked > c.messagesPosted || c.packetsAcked > c.packetsSent || q.una > q.end || q.cursor < q.una || q.cursor > q.end {
			t.Errorf("after %x: %+v", b, c)
		}
	})
}

// sink is a port whose other end acknowledges each batch at once.
type sink struct {
	f       *Fabric
	ack     []byte
	flow    roce.Flow
	last    roce.PSN
	asked   bool
	packets int
}

func (s *sink) Transmit(frames [][]byte) (taken, dropped int) {
	for _, b := range frames {
		bth := b[42:]
		if bth[8]&0x80 != 0 {
			s.asked = true
			s.last = roce.PSN(bth[9])<<16 | roce.PSN(bth[10])<<8 | roce.PSN(bth[11])
		}
	}
	s.packets += len(frames)
	return len(frames), 0
}

// engine returns a fabric with n streams into a sink.
func engine(t testing.TB, n int, s streamSettings) (*Fabric, *sink) {
	k := &sink{}
	w := &world{t: t, host: &host{addr: hostIP, qps: map[roce.QPN]*hostQP{}}}
	f, err := New(Config{Port: k, QueuePairs: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	k.f = f
	w.f, w.bus = f, f.Bus()
	w.core, w.stream, w.cmac = regs.At(w.bus, CoreBase), regs.At(w.bus, StreamBase), regs.At(w.bus, CMACBase)
	w.bringUp()
	q := defaults()
	q.mtu, q.psn, q.window = 4096, 0, 256
	hq := w.openQP(q)
	w.startStream(s)
	k.flow = roce.Flow{Src: hostIP, Dst: fabricIP, SrcPort: 50000}
	k.ack = make([]byte, roce.MinPacket+roce.AETHLen)
	p := hq.ack(0)[0]
	if _, err := p.Put(k.ack); err != nil {
		t.Fatal(err)
	}
	return f, k
}

// turn is one step with its acknowledgement.
func (s *sink) turn(now time.Duration, batch []Datagram) {
	s.f.Step(now)
	if !s.asked {
		return
	}
	s.asked = false
	s.ack[9], s.ack[10], s.ack[11] = byte(s.last>>16), byte(s.last>>8), byte(s.last)
	s.flow.Seal(s.ack)
	batch[0].Payload = s.ack
	s.f.ReceiveDatagrams(now, batch)
}

func ackDatagram() []Datagram {
	return []Datagram{{Src: netip.AddrPortFrom(hostIP, 50000), Dst: netip.AddrPortFrom(fabricIP, roce.Port)}}
}

// The data path allocates nothing.
func TestNoAllocation(t *testing.T) {
	for verb := uint32(regs.StreamConfigVerbSend); verb <= regs.StreamConfigVerbWriteImm; verb++ {
		s := streamSettings{verb: verb, size: 20_000, crc: true, kbps: 40_000_000, slots: 8, stride: 20_016}
		f, k := engine(t, 1, s)
		batch := ackDatagram()
		now := time.Duration(0)
		before := k.packets
		allocs := testing.AllocsPerRun(2000, func() {
			now += 10 * time.Microsecond
			k.turn(now, batch)
		})
		if allocs != 0 || k.packets-before < 2000 || f.qps[0].count.packetsAcked < 2000 {
			t.Errorf("%s: %v allocations a step, %d packets", verbName(verb), allocs, k.packets-before)
		}
	}
}

// BenchmarkEngine is the engine alone: packets of 4 KiB made, sealed, sent and
// acknowledged, without a socket.
func BenchmarkEngine(b *testing.B) {
	for name, s := range map[string]streamSettings{
		"counter/4KiB":  {size: 4096},
		"counter/64KiB": {size: 65536},
		"prbs31/64KiB":  {size: 65536, kind: regs.StreamConfigPatternPRBS31},
		"counter+crc":   {size: 65536, crc: true},
		"write/64KiB":   {verb: regs.StreamConfigVerbWrite, size: 65536, slots: 8, stride: 65552},
		"counter/64B":   {size: 64},
	} {
		b.Run(name, func(b *testing.B) {
			_, k := engine(b, 1, s)
			batch := ackDatagram()
			b.ReportAllocs()
			b.SetBytes(int64(min(s.size, 4096)))
			now := time.Duration(0)
			start := k.packets
			for k.packets-start < b.N {
				now += time.Microsecond
				k.turn(now, batch)
			}
		})
	}
}
