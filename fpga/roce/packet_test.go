package roce

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestPacketRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, op := range knownOpcodes() {
		for _, size := range sizes(op) {
			t.Run(fmt.Sprintf("%v/%d", op, size), func(t *testing.T) {
				p := makePacket(rng, op, size)
				buf := bytes.Repeat([]byte{0xa5}, p.Len()+8)
				n, err := p.Put(buf)
				if err != nil || n != p.Len() || n != op.HeaderLen()+(size+3)/4*4+4 {
					t.Fatalf("put: %d, %v, want %d", n, err, p.Len())
				}
				if !bytes.Equal(buf[n-4:], bytes.Repeat([]byte{0xa5}, 12)) {
					t.Fatal("put wrote to the ICRC or behind the packet")
				}
				var q Packet
				if err := q.Decode(buf[:n]); err != nil {
					t.Fatal("decode:", err)
				}
				if !equalPackets(&p, &q) {
					t.Fatalf("got %+v\nwant %+v", q, p)
				}
				if size > 0 && &q.Payload[0] != &buf[op.HeaderLen()] {
					t.Error("the payload was copied")
				}
				if cap(q.Payload) != size {
					t.Errorf("appending to the payload reaches the pad: cap %d", cap(q.Payload))
				}
				for _, b := range buf[op.HeaderLen()+size : n-4] {
					if b != 0 {
						t.Error("pad is not zero")
					}
				}
				if _, err := p.Put(buf[:n-1]); !errors.Is(err, ErrRoom) {
					t.Errorf("into one byte too few: %v", err)
				}
			})
		}
	}
}

// A payload that stands where it belongs, or overlaps the place of the
// headers, survives.
func TestPutPayloadInPlace(t *testing.T) {
	for _, off := range []int{0, 4, 28, 40} {
		buf := make([]byte, 200)
		for i := range buf {
			buf[i] = byte(i)
		}
		want := bytes.Clone(buf[off : off+101])
		p := Packet{BTH: BTH{Opcode: WriteOnly}, Payload: buf[off : off+101]}
		n, err := p.Put(buf)
		if err != nil {
			t.Fatal(err)
		}
		var q Packet
		if err := q.Decode(buf[:n]); err != nil || !bytes.Equal(q.Payload, want) {
			t.Errorf("payload at %d: %v, %x", off, err, q.Payload)
		}
	}
}

func TestPutFieldsTooWide(t *testing.T) {
	p := Packet{BTH: BTH{Opcode: Acknowledge, DestQP: 0xff123456, PSN: 0xffabcdef, PadCount: 3},
		AETH: AETH{MSN: 0xff112233}}
	buf := make([]byte, p.Len())
	if _, err := p.Put(buf); err != nil {
		t.Fatal(err)
	}
	var q Packet
	if err := q.Decode(buf); err != nil {
		t.Fatal(err)
	}
	if q.DestQP != 0x123456 || q.PSN != 0xabcdef || q.AETH.MSN != 0x112233 || q.AckReq || q.FECN || q.BECN {
		t.Errorf("fields run into their neighbours: %+v", q)
	}
}

func TestDecodeRefuses(t *testing.T) {
	packet := func(op Opcode, flags byte, n int) []byte {
		b := make([]byte, max(n, BTHLen))
		b[0], b[1], b[7], b[11] = byte(op), flags, 0x77, 0x99
		return b[:n]
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
		bth  bool
	}{
		{"nothing", nil, ErrShort, false},
		{"half a BTH", packet(SendOnly, 0, 11), ErrShort, false},
		{"no ICRC", packet(SendOnly, 0, 12), ErrShort, true},
		{"three bytes of ICRC", packet(SendOnly, 0, 15), ErrShort, true},
		{"no RETH", packet(WriteOnly, 0, 28), ErrShort, true},
		{"no AETH", packet(Acknowledge, 0, 16), ErrShort, true},
		{"no immediate", packet(SendOnlyImm, 0, 16), ErrShort, true},
		{"version 1", packet(SendOnly, 1, 16), ErrVersion, true},
		{"atomic", packet(FetchAdd, 0, 44), ErrOpcode, true},
		{"send with invalidate", packet(SendOnlyInv, 0, 20), ErrOpcode, true},
		{"unreliable connected", packet(0x24, 0, 16), ErrOpcode, true},
		{"datagram", packet(0x64, 0, 24), ErrOpcode, true},
		{"congestion notification", packet(0x81, 0, 32), ErrOpcode, true},
		{"odd length", packet(SendOnly, 0, 17), ErrLength, true},
		{"pad without payload", packet(SendOnly, 0x10, 16), ErrPad, true},
		{"pad in a FIRST", packet(SendFirst, 0x10, 16+256), ErrPad, true},
		{"pad in a MIDDLE", packet(WriteMiddle, 0x30, 16+256), ErrPad, true},
		{"pad in a READ response MIDDLE", packet(ReadResponseMiddle, 0x20, 16+256), ErrPad, true},
		{"pad in an ACK", packet(Acknowledge, 0x10, 20), ErrPad, true},
		{"payload in an ACK", packet(Acknowledge, 0, 24), ErrLength, true},
		{"payload in a READ request", packet(ReadRequest, 0, 36), ErrLength, true},
		{"empty FIRST", packet(SendFirst, 0, 16), ErrLength, true},
		{"empty MIDDLE", packet(SendMiddle, 0, 16), ErrLength, true},
		{"empty LAST", packet(WriteLast, 0, 16), ErrLength, true},
		{"more than the largest MTU", packet(SendOnly, 0, 16+4100), ErrLength, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Packet{Payload: []byte("left over"), Imm: 5}
			if err := p.Decode(tt.b); err != tt.want {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.bth && (p.Opcode != Opcode(tt.b[0]) || p.DestQP != 0x77 || p.PSN != 0x99) {
				t.Errorf("the BTH is lost: %+v", p.BTH)
			}
			if p.Payload != nil || p.Imm != 0 {
				t.Error("something of the packet before is left")
			}
		})
	}
	// The RETH is there for a responder that answers.
	b := packet(WriteOnly, 0x10, 32)
	b[19] = 0x42
	var p Packet
	if err := p.Decode(b); err != ErrPad || p.RETH.Address != 0x42 {
		t.Errorf("%v, RETH %+v", err, p.RETH)
	}
}

func TestPutRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    Packet
		want error
	}{
		{"atomic", Packet{BTH: BTH{Opcode: CompareSwap}}, ErrOpcode},
		{"version", Packet{BTH: BTH{Opcode: SendOnly, Version: 1}}, ErrVersion},
		{"odd FIRST", Packet{BTH: BTH{Opcode: SendFirst}, Payload: make([]byte, 255)}, ErrPad},
		{"empty LAST", Packet{BTH: BTH{Opcode: SendLast}}, ErrLength},
		{"payload in an ACK", Packet{BTH: BTH{Opcode: Acknowledge}, Payload: make([]byte, 4)}, ErrLength},
		{"too much", Packet{BTH: BTH{Opcode: SendOnly}, Payload: make([]byte, 4097)}, ErrLength},
		{"no room", Packet{BTH: BTH{Opcode: SendOnly}, Payload: make([]byte, 500)}, ErrRoom},
	} {
		buf := bytes.Repeat([]byte{0x5a}, 300)
		if n, err := tt.p.Put(buf); err != tt.want || n != 0 {
			t.Errorf("%s: %d, %v, want %v", tt.name, n, err, tt.want)
		}
		if !bytes.Equal(buf, bytes.Repeat([]byte{0x5a}, 300)) {
			t.Errorf("%s: something was written", tt.name)
		}
	}
}

func TestMaxPacket(t *testing.T) {
	longest := 0
	for _, op := range knownOpcodes() {
		for _, n := range sizes(op) {
			p := Packet{BTH: BTH{Opcode: op}, Payload: make([]byte, n)}
			longest = max(longest, p.Len())
		}
	}
	if longest != MaxPacket {
		t.Errorf("longest packet %d, MaxPacket %d", longest, MaxPacket)
	}
}

func FuzzPacket(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, op := range knownOpcodes() {
		for _, size := range sizes(op) {
			if size > 300 {
				continue
			}
			p := makePacket(rng, op, size)
			b := make([]byte, p.Len())
			if _, err := p.Put(b); err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte{})
	f.Add([]byte{0x14, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		var p, q Packet
		err := p.Decode(b)
		if !bytes.Equal(b, before) {
			t.Fatal("decode changed its input")
		}
		if len(b) >= BTHLen && p.Opcode != Opcode(b[0]) {
			t.Fatal("the BTH is lost")
		}
		if err != nil {
			if p.Payload != nil {
				t.Fatal("a payload in spite of", err)
			}
			return
		}
		buf := make([]byte, p.Len())
		n, err := p.Put(buf)
		if err != nil || n != len(b) || p.Len() != n {
			t.Fatalf("put: %d of %d, %v", n, len(b), err)
		}
		if err := q.Decode(buf); err != nil || !equalPackets(&p, &q) {
			t.Fatalf("%v\n%+v\n%+v", err, p, q)
		}
		// Bit for bit the same but for reserved fields, the pad's content and
		// the ICRC.
		end := p.HeaderLen() + len(p.Payload)
		b, buf = bytes.Clone(b[:end]), buf[:end]
		b[4] &= 0xc0
		b[8] &= 0x80
		if !bytes.Equal(b, buf) {
			t.Fatalf("in  %x\nout %x", b, buf)
		}
	})
}
