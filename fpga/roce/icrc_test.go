package roce

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Two check values that are public: an unreliable connected SEND and a
// congestion notification captured from a NIC. This package carries neither
// service, but their ICRC is made the same way. They are in the tests of
// github.com/secdev/scapy, test/contrib/roce.uts.
func TestICRCPublicValues(t *testing.T) {
	for _, tt := range []struct {
		name string
		flow Flow
		udp  string
		want string
	}{
		{
			name: "UC SEND_ONLY over loopback",
			flow: Flow{Src: netip.MustParseAddr("192.168.0.7"), Dst: netip.MustParseAddr("192.168.0.7"),
				SrcPort: 49152, ID: 1144},
			udp: "24 60 ffff 000000d3 00cf1710" + // pad 2, QPN 211, PSN 13571856
				hex.EncodeToString([]byte("F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00")) + "00000000",
			want: "78f353f3",
		},
		{
			name: "congestion notification of a ConnectX-4 Lx",
			flow: Flow{Src: netip.MustParseAddr("10.0.17.1"), Dst: netip.MustParseAddr("10.0.18.1"),
				SrcPort: 0, ID: 0x718c},
			udp:  "81 00 ffff 40000118 00000000 00000000000000000000000000000000 82fd002a",
			want: "82fd002a",
		},
	} {
		udp := unhex(t, tt.udp)
		tt.flow.Seal(udp)
		if got := hex.EncodeToString(udp[len(udp)-4:]); got != tt.want {
			t.Errorf("%s: ICRC %s, want %s", tt.name, got, tt.want)
		}
		if !tt.flow.Check(udp) {
			t.Errorf("%s: check refuses what seal made", tt.name)
		}
	}
}

func TestICRCVectors(t *testing.T) {
	file, err := os.ReadFile("testdata/icrc_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name       string
		Frame      string
		Wire       string `json:"icrc_on_wire"`
		L2Len      int    `json:"l2_len_before_pad"`
		Opcode     string
		Imm        *uint32 `json:"imm_host"`
		PayloadLen *int    `json:"payload_len"`
		Pad        *uint8  `json:"padcnt"`
		PSN        *PSN
		SE, AckReq *int
		MigReq     *int
		Expect     string
	}
	if err := json.Unmarshal(file, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 3 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			if v.Expect != "icrc ok" {
				t.Fatalf("do not know how to expect %q", v.Expect)
			}
			b := unhex(t, v.Frame)
			if len(b) < v.L2Len {
				t.Fatal("frame shorter than it says")
			}
			// With and without Ethernet's padding.
			for _, b := range [][]byte{append([]byte{}, b...), append(append([]byte{}, b...), make([]byte, 7)...)} {
				var f Frame
				err := f.Decode(b)
				if !f.ICRCOK(b) {
					t.Error("ICRC refused")
				}
				udp := f.Transport(b)
				if got := hex.EncodeToString(udp[len(udp)-4:]); got != v.Wire {
					t.Errorf("ICRC on the wire %s, want %s", got, v.Wire)
				}
				// Some of the vectors are of the unreliable connected service,
				// which this package refuses. Their ICRC counts all the same,
				// and as reliable connected they must decode to what they say.
				const serviceMask, unreliable = 0xe0, 0x20
				frame := v.Frame[:2*v.L2Len]
				if udp[0]&serviceMask == unreliable {
					if err != ErrOpcode {
						t.Fatalf("unreliable connected: %v", err)
					}
					udp[0] &^= serviceMask
					f.Flow.Seal(udp)
					frame = hex.EncodeToString(b[:v.L2Len])
					err = f.Decode(b)
				}
				if err != nil {
					t.Fatal(err)
				}
				if start, end := f.Bounds(); start != 14 || end != v.L2Len {
					t.Errorf("IP packet at %d to %d, want 14 to %d", start, end, v.L2Len)
				}
				p := &f.Packet
				if v.Opcode != "" && p.Opcode.String() != v.Opcode {
					t.Errorf("opcode %v, want %s", p.Opcode, v.Opcode)
				}
				if v.Imm != nil && p.Imm != *v.Imm {
					t.Errorf("immediate %d, want %d", p.Imm, *v.Imm)
				}
				if v.PayloadLen != nil && len(p.Payload) != *v.PayloadLen {
					t.Errorf("%d bytes of payload, want %d", len(p.Payload), *v.PayloadLen)
				}
				if v.Pad != nil && p.PadCount != *v.Pad {
					t.Errorf("pad %d, want %d", p.PadCount, *v.Pad)
				}
				if v.PSN != nil && p.PSN != *v.PSN {
					t.Errorf("PSN %d, want %d", p.PSN, *v.PSN)
				}
				for name, c := range map[string]struct {
					want *int
					got  bool
				}{"SE": {v.SE, p.SolicitedEvent}, "ackreq": {v.AckReq, p.AckReq}, "migreq": {v.MigReq, p.MigReq}} {
					if c.want != nil && c.got != (*c.want == 1) {
						t.Errorf("%s is %v", name, c.got)
					}
				}
				out := make([]byte, f.Len())
				if _, err := f.Put(out); err != nil {
					t.Fatal(err)
				}
				if got, want := hex.EncodeToString(out), frame; got != want {
					t.Errorf("encoded again\n%s, want\n%s", got, want)
				}
			}
		})
	}
}

// Every opcode, family and length against the naive division.
func TestICRCAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, flow := range flows {
		for _, op := range knownOpcodes() {
			for _, size := range sizes(op) {
				f := Frame{Flow: flow, Packet: makePacket(rng, op, size),
					TrafficClass: uint8(rng.Uint32()), FlowLabel: rng.Uint32() & flowLabelMask, TTL: 9}
				b := make([]byte, f.Len())
				n, err := f.Put(b)
				if err != nil {
					t.Fatal(name, op, size, err)
				}
				want := naiveICRC(b[14:n])
				if got := binary.LittleEndian.Uint32(b[n-4:]); got != want {
					t.Errorf("%s, %v, %d bytes: ICRC %08x, naive %08x", name, op, size, got, want)
				}
			}
		}
	}
}

// What the ICRC covers and what it does not, bit by bit over the headers.
func TestICRCCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for name, flow := range flows {
		f := Frame{Flow: flow, Packet: makePacket(rng, WriteOnlyImm, 33), TTL: 77}
		b := make([]byte, f.Len())
		if _, err := f.Put(b); err != nil {
			t.Fatal(err)
		}
		start, end := 14, len(b)
		udp := start + 20
		free := map[int]byte{start + 1: 0xff, start + 8: 0xff}
		if !flow.Is4() {
			udp = start + 40
			free = map[int]byte{start: 0x0f, start + 1: 0xff, start + 2: 0xff, start + 3: 0xff, start + 7: 0xff}
		}
		free[udp+6], free[udp+7] = 0xff, 0xff // UDP checksum
		free[udp+8+4] = 0xff                  // FECN, BECN, reserved
		for bit := start * 8; bit < end*8; bit++ {
			at, mask := bit/8, byte(1)<<(bit%8)
			if flow.Is4() && (at == start+10 || at == start+11) {
				continue // the IPv4 checksum follows the rest
			}
			c := append([]byte{}, b...)
			c[at] ^= mask
			if flow.Is4() {
				c[start+10], c[start+11] = 0, 0
				binary.BigEndian.PutUint16(c[start+10:], ipSum(c[start:start+20]))
			}
			var g Frame
			err := g.Decode(c)
			ok := err == nil && g.ICRCOK(c)
			if want := free[at]&mask != 0; ok != want {
				t.Errorf("%s: bit %d of byte %d: accepted %v, want %v (%v)", name, bit%8, at, ok, want, err)
			}
		}
	}
}

func TestICRCMappedAddresses(t *testing.T) {
	flow := flows["v4"]
	mapped := flow
	mapped.Src = netip.AddrFrom16(flow.Src.As16())
	mapped.Dst = netip.AddrFrom16(flow.Dst.As16())
	if !mapped.Src.Is4In6() {
		t.Fatal("address is not mapped")
	}
	udp := make([]byte, 64)
	if flow.ICRC(udp) != mapped.ICRC(udp) {
		t.Error("a mapped address is not IPv4")
	}
}

func TestICRCOfNothing(t *testing.T) {
	var zero Flow
	for n := range MinPacket + 1 {
		b := make([]byte, n)
		for name, f := range map[string]Flow{"zero": zero, "v4": flows["v4"]} {
			f.Seal(b)
			if got := f.Check(b); got != (n == MinPacket) {
				t.Errorf("%s, %d bytes: check %v", name, n, got)
			}
		}
	}
}

func FuzzICRC(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), true, uint16(1), uint16(0))
	f.Add(make([]byte, 4096+36), false, uint16(49152), uint16(9))
	f.Fuzz(func(t *testing.T, udp []byte, v4 bool, port, id uint16) {
		if len(udp) > 9000 {
			return
		}
		flow := flows["v6"]
		ip := make([]byte, 48)
		ip[0], ip[6] = 0x60, 17
		binary.BigEndian.PutUint16(ip[4:], uint16(8+len(udp)))
		src, dst := flow.Src.As16(), flow.Dst.As16()
		copy(ip[8:], src[:])
		copy(ip[24:], dst[:])
		if v4 {
			flow = flows["v4"]
			ip = make([]byte, 28)
			ip[0], ip[6], ip[9] = 0x45, 0x40, 17
			binary.BigEndian.PutUint16(ip[2:], uint16(28+len(udp)))
			binary.BigEndian.PutUint16(ip[4:], id)
			src, dst := flow.Src.As4(), flow.Dst.As4()
			copy(ip[12:], src[:])
			copy(ip[16:], dst[:])
		}
		flow.SrcPort, flow.ID = port, id
		h := ip[len(ip)-8:]
		binary.BigEndian.PutUint16(h, port)
		binary.BigEndian.PutUint16(h[2:], Port)
		binary.BigEndian.PutUint16(h[4:], uint16(8+len(udp)))
		if len(udp) < MinPacket {
			if flow.Check(udp) {
				t.Fatal("accepted too few bytes")
			}
			return
		}
		if got, want := flow.ICRC(udp), naiveICRC(append(ip, udp...)); got != want {
			t.Fatalf("ICRC %08x, naive %08x", got, want)
		}
	})
}

func ExampleFlow_Seal() {
	flow := Flow{
		Src:     netip.MustParseAddr("192.0.2.10"),
		Dst:     netip.MustParseAddr("192.0.2.20"),
		SrcPort: 0xc000,
	}
	p := Packet{
		BTH:     BTH{Opcode: SendOnly, MigReq: true, PKey: PKeyDefault, DestQP: 0x12, PSN: 7},
		Payload: []byte("hello"),
	}
	buf := make([]byte, p.Len())
	n, err := p.Put(buf)
	if err != nil {
		fmt.Println(err)
		return
	}
	flow.Seal(buf[:n])

	var got Packet
	if err := got.Decode(buf[:n]); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.Opcode, got.DestQP, got.PSN, string(got.Payload), flow.Check(buf[:n]))
	// Output: SEND_ONLY 18 7 hello true
}
