package roce

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func makeFrame(rng *rand.Rand, flow Flow, op Opcode, size int) Frame {
	f := Frame{
		Dst: MAC{2, 0, 0, 0, 0, 1}, Src: MAC{2, 0, 0, 0, 0, 2},
		Flow: flow, TrafficClass: uint8(rng.Uint32()), TTL: uint8(rng.IntN(255) + 1),
		Packet: makePacket(rng, op, size),
	}
	if !flow.Is4() {
		f.FlowLabel = rng.Uint32() & flowLabelMask
	}
	f.Tags = rng.IntN(MaxVLANs + 1)
	for i := range f.Tags {
		f.VLANs[i] = VLAN{TPID: []uint16{0x8100, 0x88a8}[rng.IntN(2)], TCI: uint16(rng.Uint32())}
	}
	return f
}

func equalFrames(a, b *Frame) bool {
	return a.Dst == b.Dst && a.Src == b.Src && a.Tags == b.Tags && a.VLANs == b.VLANs &&
		a.Flow == b.Flow && a.TrafficClass == b.TrafficClass && a.FlowLabel == b.FlowLabel &&
		a.TTL == b.TTL && equalPackets(&a.Packet, &b.Packet)
}

func TestFrameRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for name, flow := range flows {
		for _, op := range knownOpcodes() {
			for _, size := range sizes(op) {
				f := makeFrame(rng, flow, op, size)
				b := make([]byte, f.Len()+MinFrame)
				n, err := f.Put(b)
				if err != nil || n != f.Len() || n > MaxFrame {
					t.Fatalf("%s, %v, %d bytes: put %d of %d, %v", name, op, size, n, f.Len(), err)
				}
				padded := Pad(b, n)
				if padded != max(n, MinFrame) {
					t.Fatalf("padded %d to %d", n, padded)
				}
				var g Frame
				if err := g.Decode(b[:padded]); err != nil {
					t.Fatalf("%s, %v, %d bytes: decode: %v", name, op, size, err)
				}
				if !equalFrames(&f, &g) {
					t.Fatalf("%s: got %+v\nwant %+v", name, g, f)
				}
				if !g.ICRCOK(b[:padded]) {
					t.Errorf("%s, %v, %d bytes: ICRC", name, op, size)
				}
				if start, end := g.Bounds(); start != 14+4*f.Tags || end != n {
					t.Errorf("bounds %d, %d of a frame of %d", start, end, n)
				}
				b[n-5] ^= 1
				if g.ICRCOK(b[:padded]) {
					t.Errorf("%s, %v, %d bytes: a flipped bit goes unseen", name, op, size)
				}
				if _, err := f.Put(b[:n-1]); err != ErrRoom {
					t.Errorf("into one byte too few: %v", err)
				}
			}
		}
	}
}

// An empty SEND is 58 bytes; behind it come two of Ethernet's.
func TestFramePadding(t *testing.T) {
	f := Frame{Flow: flows["v4"], Packet: Packet{BTH: BTH{Opcode: SendOnly}}}
	b := bytes.Repeat([]byte{0xee}, 64)
	n, err := f.Put(b)
	if err != nil || n != 58 || Pad(b, n) != 60 || b[58] != 0 || b[60] != 0xee {
		t.Fatalf("%d, %v, % x", n, err, b)
	}
	var g Frame
	if err := g.Decode(b[:60]); err != nil || !g.ICRCOK(b[:60]) || len(g.Packet.Payload) != 0 {
		t.Errorf("%v, %+v", err, g)
	}
	if len(g.Transport(b[:60])) != 16 || g.Transport(b[:57]) != nil {
		t.Error("transport bounds")
	}
	if g.TTL != 64 {
		t.Errorf("TTL %d", g.TTL)
	}
}

func TestFrameRefuses(t *testing.T) {
	good := func(flow string) []byte {
		f := Frame{Flow: flows[flow], Packet: Packet{BTH: BTH{Opcode: SendOnly}, Payload: []byte("12345678")}}
		b := make([]byte, f.Len())
		if _, err := f.Put(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	sum := func(b []byte) {
		n := 14 + int(b[14]&15)*4
		b[24], b[25] = 0, 0
		binary.BigEndian.PutUint16(b[24:], ipSum(b[14:n]))
	}
	v4 := func(edit func(b []byte)) []byte { b := good("v4"); edit(b); sum(b); return b }
	v6 := func(edit func(b []byte)) []byte { b := good("v6"); edit(b); return b }
	for _, tt := range []struct {
		name      string
		b         []byte
		want      error
		transport bool // IP and UDP are right
	}{
		{"nothing", nil, ErrNotRoCE, false},
		{"ARP", v4(func(b []byte) { b[12], b[13] = 8, 6 }), ErrNotRoCE, false},
		{"three tags", append(append(good("v4")[:12:12], 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1), good("v4")[12:]...), ErrNotRoCE, false},
		{"cut in a tag", append(good("v4")[:12:12], 0x81, 0, 0), ErrNotRoCE, false},
		{"TCP", v4(func(b []byte) { b[23] = 6 }), ErrNotRoCE, false},
		{"another port", v4(func(b []byte) { b[37]++ }), ErrNotRoCE, false},
		{"IPv4 cut", good("v4")[:33], ErrShort, false},
		{"IPv4 says more than there is", good("v4")[:57], ErrShort, false},
		{"IPv4 version", v4(func(b []byte) { b[14] = 0x65 }), ErrIPHeader, false},
		{"IPv4 header length 4", v4(func(b []byte) { b[14] = 0x44 }), ErrIPHeader, false},
		{"IPv4 total below header", v4(func(b []byte) { b[16], b[17] = 0, 19 }), ErrIPHeader, false},
		{"IPv4 reserved flag", v4(func(b []byte) { b[20] |= 0x80 }), ErrIPHeader, false},
		{"IPv4 checksum", func() []byte { b := good("v4"); b[24] ^= 1; return b }(), ErrIPChecksum, false},
		{"first fragment", v4(func(b []byte) { b[20] |= 0x20 }), ErrFragment, false},
		{"later fragment", v4(func(b []byte) { b[21] = 1 }), ErrFragment, false},
		{"no UDP", v4(func(b []byte) { b[16], b[17] = 0, 27 }), ErrUDPLength, false},
		{"UDP longer than IP", v4(func(b []byte) { b[39]++ }), ErrUDPLength, false},
		{"UDP shorter than IP", v4(func(b []byte) { b[39]-- }), ErrUDPLength, false},
		{"empty datagram", v4(func(b []byte) { b[16], b[17], b[38], b[39] = 0, 28, 0, 8 }), ErrShort, true},
		{"IPv6 cut", good("v6")[:53], ErrShort, false},
		{"IPv6 says more than there is", good("v6")[:85], ErrShort, false},
		{"IPv6 version", v6(func(b []byte) { b[14] = 0x45 }), ErrIPHeader, false},
		{"IPv6 fragment", v6(func(b []byte) { b[20] = 44 }), ErrFragment, false},
		{"IPv6 hop-by-hop", v6(func(b []byte) { b[20] = 0 }), ErrNotRoCE, false},
		{"IPv4 mapped on the wire", v6(func(b []byte) {
			copy(b[22:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1})
		}), ErrIPHeader, false},
		{"transport", v4(func(b []byte) { b[42] = 0x14 }), ErrOpcode, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f Frame
			if err := f.Decode(tt.b); err != tt.want {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.transport {
				return
			}
			if f.Transport(tt.b) != nil {
				t.Error("a transport packet in spite of the error")
			}
			if f.ICRCOK(tt.b) {
				t.Error("an ICRC in spite of the error")
			}
		})
	}
}

func TestFrameIPv4Options(t *testing.T) {
	f := Frame{Flow: flows["v4"], Packet: Packet{BTH: BTH{Opcode: SendOnly}, Payload: []byte("123456789")}}
	b := make([]byte, f.Len())
	if _, err := f.Put(b); err != nil {
		t.Fatal(err)
	}
	options := []byte{7, 7, 4, 0, 0, 0, 0, 0}
	b = append(append(b[:34:34], options...), b[34:]...)
	b[14] = 0x47
	binary.BigEndian.PutUint16(b[16:], binary.BigEndian.Uint16(b[16:])+8)
	b[24], b[25] = 0, 0
	binary.BigEndian.PutUint16(b[24:], ipSum(b[14:42]))
	var g Frame
	if err := g.Decode(b); err != nil || string(g.Packet.Payload) != "123456789" || g.Flow != f.Flow {
		t.Fatalf("%v, %+v", err, g)
	}
	if g.ICRCOK(b) {
		t.Error("the ICRC does not cover the options")
	}
	binary.LittleEndian.PutUint32(b[len(b)-4:], g.icrcOptions(b))
	if !g.ICRCOK(b) {
		t.Error("ICRC over the options refused")
	}
	// In flight: TOS, TTL, checksums, congestion marks.
	b[15], b[22] = 3, 1
	b[24], b[25] = 0, 0
	binary.BigEndian.PutUint16(b[24:], ipSum(b[14:42]))
	b[48], b[49], b[54] = 9, 9, 0xc0
	if err := g.Decode(b); err != nil || !g.ICRCOK(b) {
		t.Errorf("changed in flight: %v", err)
	}
	b[40] ^= 1
	b[24], b[25] = 0, 0
	binary.BigEndian.PutUint16(b[24:], ipSum(b[14:42]))
	if err := g.Decode(b); err != nil || g.ICRCOK(b) {
		t.Errorf("a flipped bit in the options: %v", err)
	}
}

func TestFramePutRefuses(t *testing.T) {
	p := Packet{BTH: BTH{Opcode: SendOnly}}
	for _, tt := range []struct {
		name string
		f    Frame
		want error
	}{
		{"no addresses", Frame{Packet: p}, ErrAddress},
		{"two families", Frame{Packet: p, Flow: Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("::1")}}, ErrAddress},
		{"mapped and IPv6", Frame{Packet: p, Flow: Flow{Src: netip.MustParseAddr("::ffff:10.0.0.1"), Dst: netip.MustParseAddr("::1")}}, ErrAddress},
		{"tags", Frame{Packet: p, Flow: flows["v4"], Tags: 3}, ErrTags},
		{"negative tags", Frame{Packet: p, Flow: flows["v4"], Tags: -1}, ErrTags},
		{"opcode", Frame{Packet: Packet{BTH: BTH{Opcode: FetchAdd}}, Flow: flows["v4"]}, ErrOpcode},
	} {
		b := make([]byte, 200)
		if n, err := tt.f.Put(b); err != tt.want || n != 0 {
			t.Errorf("%s: %d, %v, want %v", tt.name, n, err, tt.want)
		}
		if !bytes.Equal(b, make([]byte, 200)) {
			t.Errorf("%s: something was written", tt.name)
		}
	}
}

func FuzzFrame(f *testing.F) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, flow := range flows {
		for _, op := range knownOpcodes() {
			fr := makeFrame(rng, flow, op, sizes(op)[0])
			b := make([]byte, fr.Len())
			if _, err := fr.Put(b); err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Most of what is tried would fail at the IPv4 checksum: put it right.
		if len(b) > 34 && b[12] == 8 && b[13] == 0 && b[14] == 0x45 {
			b[24], b[25] = 0, 0
			binary.BigEndian.PutUint16(b[24:], ipSum(b[14:34]))
		}
		var a, c Frame
		err := a.Decode(b)
		a.ICRCOK(b)
		a.ICRCOK(b[:len(b)/2])
		start, end := a.Bounds()
		if start < 0 || end < start || end > len(b) {
			t.Fatalf("bounds %d, %d of %d", start, end, len(b))
		}
		if err != nil {
			return
		}
		out := make([]byte, a.Len())
		if n, err := a.Put(out); err != nil || n != len(out) {
			t.Fatalf("put: %d of %d, %v", n, len(out), err)
		}
		if err := c.Decode(out); err != nil || !c.ICRCOK(out) {
			t.Fatalf("decode again: %v", err)
		}
		if a.TTL == 0 {
			a.TTL = defaultTTL
		}
		if !equalFrames(&a, &c) {
			t.Fatalf("%+v\n%+v", a, c)
		}
	})
}
