package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink/fpga/roce"
)

func checkVector(t *testing.T, v vector, o object) {
	t.Helper()
	flag := func(name string, want *int, got bool) {
		if want != nil && (*want != 0) != got {
			t.Errorf("%s: %s = %v, want %d", v.Name, name, got, *want)
		}
	}
	if v.Opcode != nil && o.Opcode != *v.Opcode {
		t.Errorf("%s: opcode %s, want %s", v.Name, o.Opcode, *v.Opcode)
	}
	service := "RC"
	if v.Unreliable() {
		service = "UC"
	}
	if o.Service != service || o.OpcodeValue != v.Bytes[42] {
		t.Errorf("%s: service %s of opcode 0x%02x, want %s", v.Name, o.Service, o.OpcodeValue, service)
	}
	if v.Imm != nil && (o.Imm == nil || *o.Imm != *v.Imm) {
		t.Errorf("%s: imm %v, want %d", v.Name, o.Imm, *v.Imm)
	}
	if v.PayloadLen != nil && o.PayloadLen != *v.PayloadLen {
		t.Errorf("%s: payload %d, want %d", v.Name, o.PayloadLen, *v.PayloadLen)
	}
	if v.Pad != nil && o.Pad != *v.Pad {
		t.Errorf("%s: pad %d, want %d", v.Name, o.Pad, *v.Pad)
	}
	if v.PSN != nil && o.PSN != *v.PSN {
		t.Errorf("%s: PSN %d, want %d", v.Name, o.PSN, *v.PSN)
	}
	flag("solicited", v.SE, o.Solicited)
	flag("migreq", v.MigReq, o.MigReq)
	flag("ackreq", v.AckReq, o.AckReq)
	if o.DestQPN != 0x123 || o.ICRC != "ok" || o.Error != "" {
		t.Errorf("%s: QPN %#x, ICRC %s, error %q", v.Name, o.DestQPN, o.ICRC, o.Error)
	}
}

// Every container crossed with every link type.
func TestContainersAndLinks(t *testing.T) {
	vs := vectors(t)
	containers := []struct {
		name string
		unit time.Duration
		make func(linkType, []taken) []byte
	}{
		{"pcap µs", time.Microsecond, func(l linkType, f []taken) []byte { return pcapFile(binary.LittleEndian, false, l, f) }},
		{"pcap µs big endian", time.Microsecond, func(l linkType, f []taken) []byte { return pcapFile(binary.BigEndian, false, l, f) }},
		{"pcap ns", 1, func(l linkType, f []taken) []byte { return pcapFile(binary.LittleEndian, true, l, f) }},
		{"pcap ns big endian", 1, func(l linkType, f []taken) []byte { return pcapFile(binary.BigEndian, true, l, f) }},
		{"pcapng", 1, func(l linkType, f []taken) []byte { return ngFile(binary.LittleEndian, l, f) }},
		{"pcapng big endian", 1, func(l linkType, f []taken) []byte { return ngFile(binary.BigEndian, l, f) }},
	}
	links := []linkType{linkNull, linkEthernet, linkRaw, linkLoop, linkCooked, linkIPv4, linkCooked2, linkRawBSD, linkRawOpenBSD}
	for _, c := range containers {
		for _, link := range links {
			t.Run(fmt.Sprintf("%s/link %d", c.name, link), func(t *testing.T) {
				var frames []taken
				for i, v := range vs {
					frames = append(frames, taken{data: onLink(link, v.Bytes), at: time.Duration(i) * 1001001})
				}
				got, s, err := decodeJSON(t, c.make(link, frames))
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != len(vs) || s.Frames != uint64(len(vs)) || s.Packets != uint64(len(vs)) {
					t.Fatalf("%d objects of %d frames, want %d", len(got), s.Frames, len(vs))
				}
				for i, v := range vs {
					checkVector(t, v, got[i])
					if got[i].Frame != uint64(i+1) {
						t.Errorf("frame %d, want %d", got[i].Frame, i+1)
					}
					want := epoch.Add(frames[i].at).Truncate(c.unit).Format(time.RFC3339Nano)
					if got[i].Time != want {
						t.Errorf("time %s, want %s", got[i].Time, want)
					}
					if got[i].Src != "192.0.2.10" || got[i].Dst != "192.0.2.20" || got[i].SrcPort != 49152 {
						t.Errorf("from %s:%d to %s", got[i].Src, got[i].SrcPort, got[i].Dst)
					}
				}
			})
		}
	}
}

// Several interfaces of different links, resolutions and offsets, a second
// section in the other byte order, and the two other packet blocks.
func TestPcapngMixed(t *testing.T) {
	v := vectors(t)[0]
	le, be := binary.LittleEndian, binary.BigEndian
	stamp := func(perSecond uint64) uint64 { return uint64(epoch.Unix())*perSecond + perSecond/4 }
	b := ngSection(le)
	b = append(b, ngInterface(le, linkEthernet, 0, 0)...)          // µs by default
	b = append(b, ngInterface(le, linkCooked2, 9, 0)...)           // ns
	b = append(b, ngInterface(le, linkRaw, 0x80|20, 3600)...)      // 2^-20 s
	b = append(b, ngInterface(le, linkRaw, 12, epoch.Unix()-1)...) // ps
	b = append(b, ngPacket(le, taken{data: v.Bytes}, stamp(1e6))...)
	b = append(b, ngPacket(le, taken{data: onLink(linkCooked2, v.Bytes), iface: 1}, stamp(1e9))...)
	b = append(b, ngPacket(le, taken{data: onLink(linkRaw, v.Bytes), iface: 2}, stamp(1<<20))...)
	// 64 bits hold 213 days of picoseconds: that is what the offset is for.
	b = append(b, ngPacket(le, taken{data: onLink(linkRaw, v.Bytes), iface: 3}, 1e12/4)...)
	b = append(b, ngSection(be)...)
	b = append(b, ngInterface(be, linkEthernet, 9, 0)...)
	simple := be.AppendUint32(nil, uint32(len(v.Bytes)))
	b = append(b, ngBlock(be, blockSimple, append(simple, v.Bytes...))...)
	old := be.AppendUint16(nil, 0)
	old = be.AppendUint16(old, 5) // drops
	old = be.AppendUint32(old, uint32(stamp(1e9)>>32))
	old = be.AppendUint32(old, uint32(stamp(1e9)))
	old = be.AppendUint32(old, uint32(len(v.Bytes)))
	old = be.AppendUint32(old, uint32(len(v.Bytes)))
	b = append(b, ngBlock(be, blockPacket, append(old, v.Bytes...))...)

	got, _, err := decodeJSON(t, b)
	if err != nil {
		t.Fatal(err)
	}
	quarter := epoch.Add(time.Second / 4)
	want := []string{
		quarter.Format(time.RFC3339Nano), quarter.Format(time.RFC3339Nano),
		quarter.Add(time.Hour).Format(time.RFC3339Nano), quarter.Add(-time.Second).Format(time.RFC3339Nano),
		"", quarter.Format(time.RFC3339Nano),
	}
	if len(got) != len(want) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	for i, o := range got {
		checkVector(t, v, o)
		if o.Time != want[i] || o.Frame != uint64(i+1) {
			t.Errorf("packet %d: frame %d at %q, want %q", i, o.Frame, o.Time, want[i])
		}
	}
}

// What surrounds a right packet must not make it wrong.
func TestSurroundings(t *testing.T) {
	vlan := func(id uint16) roce.VLAN { return roce.VLAN{TPID: 0x8100, TCI: 3<<13 | id} }
	short := packet(roce.SendOnly, 5, 0)
	write := packet(roce.WriteOnlyImm, 5, 64)
	tests := []struct {
		name    string
		frame   []byte
		payload int
		vlans   []uint16
	}{
		{name: "padded to 60", frame: ether(t, board, short)},
		{name: "padded, with FCS", frame: append(ether(t, board, short), 1, 2, 3, 4)},
		{name: "with FCS", frame: append(ether(t, board, write), 1, 2, 3, 4), payload: 64},
		{name: "tagged", frame: ether(t, board, write, vlan(100)), payload: 64, vlans: []uint16{100}},
		{name: "tagged twice", frame: ether(t, board, write, roce.VLAN{TPID: 0x88a8, TCI: 7}, vlan(4094)), payload: 64, vlans: []uint16{7, 4094}},
		{name: "IPv6", frame: ether(t, board6, write), payload: 64},
		{name: "IPv6, zero length", frame: ether(t, board6, short)},
		{name: "IPv6, tagged", frame: ether(t, board6, write, vlan(9)), payload: 64, vlans: []uint16{9}},
		{name: "IPv4 options", frame: reseal(insert(ether(t, board, write), 34, []byte{1, 1, 1, 0}, func(b []byte) {
			b[14] = 0x46
			binary.BigEndian.PutUint16(b[16:], binary.BigEndian.Uint16(b[16:])+4)
		})), payload: 64},
		{name: "may be fragmented, identified", frame: ether(t, roce.Flow{
			Src: board.Src, Dst: board.Dst, SrcPort: 9, ID: 77, MayFragment: true}, write), payload: 64},
		{name: "TTL, DSCP and congestion marks changed in flight", frame: func() []byte {
			b := ether(t, board, write)
			b[15], b[22], b[46] = 0x6b, 1, 0xc0
			return resum(b)
		}(), payload: 64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := decodeOne(t, taken{data: tt.frame})
			if o.ICRC != "ok" || o.Error != "" {
				t.Errorf("ICRC %s, error %q", o.ICRC, o.Error)
			}
			if o.PayloadLen != tt.payload || o.PSN != 5 || o.DestQPN != 0x123 || !slices.Equal(o.VLANs, tt.vlans) {
				t.Errorf("got %+v", o)
			}
			// One bit anywhere in the payload or the headers below is noticed.
			bad := slices.Clone(tt.frame)
			bad[len(bad)-roce.MinPacket-8] ^= 0x10
			if tt.payload > 0 {
				if o := decodeOne(t, taken{data: bad}); o.ICRC != "bad" {
					t.Errorf("a flipped bit: ICRC %s", o.ICRC)
				}
			}
		})
	}
}

// unreliably makes a frame one of the unreliable connected service.
func unreliably(b []byte) []byte {
	b[etherHeaderLen+ipv4HeaderLen+udpHeaderLen] |= unreliableConnected
	return reseal(b)
}

// SEND and WRITE of the unreliable connected service have the same names and
// headers; its other opcodes do not exist.
func TestUnreliable(t *testing.T) {
	names := map[string]bool{}
	for op := range roce.Opcode(32) {
		n := 256
		if !op.HasPayload() {
			n = 0
		}
		reliable := decodeOne(t, taken{data: ether(t, board, packet(roce.WriteOnly, 9, n))})
		b := ether(t, board, packet(roce.WriteOnly, 9, n))
		if op.Known() {
			b = ether(t, board, packet(op, 9, n))
			reliable = decodeOne(t, taken{data: b})
		}
		b[42] = byte(op)
		o := decodeOne(t, taken{data: unreliably(b)})
		if o.Service != "UC" || o.OpcodeValue != 0x20+uint8(op) || o.ICRC != "ok" {
			t.Errorf("0x%02x: service %q, value 0x%02x, ICRC %s", 0x20+op, o.Service, o.OpcodeValue, o.ICRC)
		}
		if !op.IsSend() && !op.IsWrite() {
			if o.Error == "" || o.Opcode != (0x20+op).String() {
				t.Errorf("0x%02x: opcode %s, error %q", 0x20+op, o.Opcode, o.Error)
			}
			continue
		}
		names[o.Opcode] = true
		o.Service, o.OpcodeValue = reliable.Service, reliable.OpcodeValue
		if !reflect.DeepEqual(o, reliable) || o.Service != "RC" || o.Error != "" {
			t.Errorf("0x%02x: %+v, as reliable %+v", 0x20+op, o, reliable)
		}
	}
	if len(names) != 12 {
		t.Errorf("%d names: %v", len(names), names)
	}
	// Other services have no name, and what is wrong in this one is seen too.
	if o := decodeOne(t, taken{data: reseal(func() []byte {
		b := ether(t, board, packet(roce.SendOnly, 9, 64))
		b[42] = 0x64
		return b
	}())}); o.Service != "" || o.Error == "" {
		t.Errorf("unreliable datagram: %+v", o)
	}
	wrong := ether(t, board, packet(roce.WriteOnlyImm, 9, 64))
	wrong[69]++
	if o := decodeOne(t, taken{data: unreliably(wrong)}); o.Opcode != "WRITE_ONLY_IMM" || !strings.Contains(o.Error, "the payload of WRITE_ONLY_IMM is 64") {
		t.Errorf("wrong RETH length: %+v", o)
	}
	var out bytes.Buffer
	if _, err := Decode(&out, bytes.NewReader(pcap(linkEthernet, taken{data: unreliably(ether(t, board, packet(roce.WriteOnlyImm, 9, 64)))})), Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), " ok        UC va 0x7f1280000000") || !strings.Contains(out.String(), "1 WRITE_ONLY_IMM UC\n") {
		t.Errorf("text:\n%s", &out)
	}
}

// insert puts bytes into a frame and lets fix adjust it.
func insert(b []byte, at int, what []byte, fix func([]byte)) []byte {
	b = slices.Insert(slices.Clone(b), at, what...)
	fix(b)
	return b
}

// IPv6 extension headers are stepped over; the ICRC covers them as they stand,
// which a change in them shows.
func TestIPv6Extensions(t *testing.T) {
	ext := []byte{extDestination, 0, 1, 4, 0, 0, 0, 0, // hop by hop
		protoUDP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // destination options
	b := insert(ether(t, board6, packet(roce.SendOnly, 5, 8)), 54, ext, func(b []byte) {
		b[20] = extHopByHop
		binary.BigEndian.PutUint16(b[18:], binary.BigEndian.Uint16(b[18:])+uint16(len(ext)))
	})
	d := datagram{ip: b[14:], udp: 40 + len(ext), end: len(b) - 14}
	binary.LittleEndian.PutUint32(b[len(b)-4:], d.rawICRC())
	if o := decodeOne(t, taken{data: b}); o.ICRC != "ok" || o.Error != "" || o.PayloadLen != 8 {
		t.Errorf("got %+v", o)
	}
	b[60] ^= 1
	if o := decodeOne(t, taken{data: b}); o.ICRC != "bad" || o.PayloadLen != 8 {
		t.Errorf("changed option: %+v", o)
	}
	for n := 54; n < 62+16+4; n++ {
		_, s, err := decodeJSON(t, pcap(linkEthernet, taken{data: b[:n], length: len(b)}))
		if err != nil || s.CutShort != 1 || s.Packets != 0 {
			t.Fatalf("cut at %d: %+v, %v", n, s, err)
		}
	}
}

// rawICRC agrees with package roce where both can be had.
func TestRawICRC(t *testing.T) {
	for _, flow := range []roce.Flow{board, host, board6, {Src: board.Src, Dst: board.Dst, ID: 0xbeef, MayFragment: true}} {
		for _, n := range []int{0, 1, 5, 256, 4096} {
			b := ether(t, flow, packet(roce.WriteOnlyImm, 1, n))
			var f frame
			f.link, f.data = linkEthernet, b
			at, _, _, _ := network(&f, nil)
			var d datagram
			var p Packet
			if v := new(fragments).locate(&d, &p, b[at:], len(b)-at); v != isRoCE {
				t.Fatal(v)
			}
			payload, _ := d.payload()
			if want := binary.LittleEndian.Uint32(payload[len(payload)-4:]); d.rawICRC() != want {
				t.Errorf("%v, %d bytes: %08x, want %08x", flow.Src, n, d.rawICRC(), want)
			}
		}
	}
}

func TestMalformed(t *testing.T) {
	put16 := binary.BigEndian.PutUint16
	tests := []struct {
		name   string
		op     roce.Opcode
		n      int
		change func(b []byte) []byte // offsets: IP 14, UDP 34, BTH 42
		seal   bool
		icrc   string
		opcode string // if not that of op
		want   string
	}{
		{"pad on FIRST", roce.WriteFirst, 256, func(b []byte) []byte { b[43] |= 0x10; return b }, true, "ok", "", "pad count 1 impossible in WRITE_FIRST"},
		{"pad on MIDDLE", roce.SendMiddle, 256, func(b []byte) []byte { b[43] |= 0x30; return b }, true, "ok", "", "pad count 3 impossible in SEND_MIDDLE"},
		{"pad without payload", roce.SendOnly, 0, func(b []byte) []byte { b[43] |= 0x20; return b }, true, "ok", "", "pad count 2 impossible in SEND_ONLY"},
		{"FIRST of no path MTU", roce.SendFirst, 300, nil, false, "ok", "", "300 bytes in SEND_FIRST is no path MTU"},
		{"unknown opcode", roce.SendOnly, 8, func(b []byte) []byte { b[42] = 0x1f; return b }, true, "ok", "OPCODE_0x1f", "opcode 0x1f"},
		{"unknown opcode, not sealed", roce.SendOnly, 8, func(b []byte) []byte { b[42] = 0xff; return b }, false, "bad", "OPCODE_0xff", "opcode 0xff"},
		{"unreliable datagram", roce.SendOnly, 256, func(b []byte) []byte { b[42] = 0x64; return b }, true, "ok", "OPCODE_0x64", "unreliable datagram"},
		{"atomic", roce.SendOnly, 28, func(b []byte) []byte { b[42] = byte(roce.FetchAdd); return b }, true, "ok", "FETCH_ADD", "not supported"},
		{"version", roce.SendOnly, 8, func(b []byte) []byte { b[43] |= 0x03; return b }, true, "ok", "", "transport header version 3, want 0"},
		{"UDP length too small", roce.SendOnly, 8, func(b []byte) []byte { put16(b[38:], 20); return b }, true, "ok", "", "UDP length 20, but IP carries 32"},
		{"UDP length too large", roce.SendOnly, 8, func(b []byte) []byte { put16(b[38:], 900); return b }, false, "bad", "", "UDP length 900, but IP carries 32"},
		{"IP length beyond the frame", roce.SendOnly, 8, func(b []byte) []byte { put16(b[16:], 500); return resum(b) }, false, "unchecked", "", "IP length 500, but the frame ends after 52"},
		{"IP length without room", roce.SendOnly, 8, func(b []byte) []byte { put16(b[16:], 22); return resum(b) }, false, "bad", "", "IP length 22 leaves no room for UDP"},
		{"IP checksum", roce.SendOnly, 8, func(b []byte) []byte { b[24] ^= 1; return b }, false, "ok", "", "wrong IPv4 header checksum"},
		{"reserved IP flag", roce.SendOnly, 8, func(b []byte) []byte { b[20] |= 0x80; return b }, true, "ok", "", "reserved IPv4 flag"},
		{"RETH longer than WRITE_ONLY", roce.WriteOnly, 8, func(b []byte) []byte { b[69] = 9; return b }, true, "ok", "", "RETH length 9, but the payload of WRITE_ONLY is 8"},
		{"RETH shorter than WRITE_ONLY_IMM", roce.WriteOnlyImm, 8, func(b []byte) []byte { b[69] = 0; return b }, true, "ok", "", "RETH length 0, but the payload of WRITE_ONLY_IMM is 8"},
		{"RETH no longer than FIRST", roce.WriteFirst, 256, func(b []byte) []byte { put16(b[68:], 256); return b }, true, "ok", "", "more is to follow"},
		{"RETH too long", roce.ReadRequest, 0, func(b []byte) []byte { b[66] = 0x80; b[69] = 1; return b }, true, "ok", "", "RETH length 2147483649"},
		{"reserved syndrome", roce.Acknowledge, 0, func(b []byte) []byte { b[54] = 0x5f; return b }, true, "ok", "", "reserved AETH syndrome 0x5f"},
		{"no whole words", roce.SendOnly, 8, func(b []byte) []byte { return resize(b, -2) }, true, "ok", "", "no whole words"},
		{"ACK with payload", roce.Acknowledge, 0, func(b []byte) []byte { return resize(b, 8) }, true, "ok", "", "payload of 8 bytes not allowed in ACKNOWLEDGE"},
		{"READ_REQUEST with payload", roce.ReadRequest, 0, func(b []byte) []byte { return resize(b, 4) }, true, "ok", "", "payload of 4 bytes not allowed in READ_REQUEST"},
		{"LAST without payload", roce.SendLast, 4, func(b []byte) []byte { return resize(b, -4) }, true, "ok", "", "payload of 0 bytes not allowed in SEND_LAST"},
		{"more than the largest MTU", roce.SendOnly, 4096, func(b []byte) []byte { return resize(b, 4) }, true, "ok", "", "4100 bytes is more than the largest path MTU"},
		{"far more", roce.SendOnly, 4096, func(b []byte) []byte { return resize(b, 4096) }, false, "bad", "", "longer than one packet can be"},
		{"headers missing", roce.WriteOnly, 0, func(b []byte) []byte { return resize(b, -8) }, true, "ok", "", "too short for the headers of WRITE_ONLY"},
		{"no ICRC", roce.SendOnly, 0, func(b []byte) []byte { return resize(b, -2) }, false, "unchecked", "", "14 bytes are too short"},
		{"no BTH", roce.SendOnly, 0, func(b []byte) []byte { return resize(b, -6) }, false, "unchecked", "-", "10 bytes are too short for a BTH"},
		{"nothing", roce.SendOnly, 0, func(b []byte) []byte { return resize(b, -16) }, false, "unchecked", "-", "0 bytes are too short for a BTH"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := ether(t, board, packet(tt.op, 9, tt.n))
			if tt.change != nil {
				b = tt.change(b)
			}
			if tt.seal {
				reseal(b)
			}
			file := pcap(linkEthernet, taken{data: b})
			o := decodeOne(t, taken{data: b})
			if !strings.Contains(o.Error, tt.want) {
				t.Errorf("error %q, want %q", o.Error, tt.want)
			}
			opcode := tt.opcode
			switch opcode {
			case "":
				opcode = tt.op.String()
			case "-":
				opcode = ""
			}
			if o.Opcode != opcode || o.ICRC != tt.icrc {
				t.Errorf("opcode %q, ICRC %s, want %q, %s", o.Opcode, o.ICRC, opcode, tt.icrc)
			}
			if opcode != "" && (o.PSN != 9 || o.DestQPN != 0x123) {
				t.Errorf("PSN %d, QPN %#x", o.PSN, o.DestQPN)
			}
			var out bytes.Buffer
			s, err := Decode(&out, bytes.NewReader(file), Options{})
			if err != nil || s.Malformed != 1 {
				t.Errorf("counted %d malformed, %v", s.Malformed, err)
			}
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("text does not say so:\n%s", &out)
			}
		})
	}
}

// resize changes the length of a frame and of what IP and UDP say about it.
func resize(b []byte, by int) []byte {
	total := binary.BigEndian.Uint16(b[16:])
	binary.BigEndian.PutUint16(b[16:], total+uint16(by))
	binary.BigEndian.PutUint16(b[38:], total-20+uint16(by))
	end := 14 + int(total) + by
	b = append(slices.Clone(b), make([]byte, max(0, end-len(b)))...)
	return resum(b[:max(end, roce.MinFrame)])
}

func TestCongestionNotification(t *testing.T) {
	b := ether(t, board, packet(roce.SendOnly, 0, 16))
	b[42] = byte(opcodeCNP)
	o := decodeOne(t, taken{data: reseal(b)})
	if o.Opcode != "OPCODE_0x81" || o.Error != "" || o.Note == "" || o.ICRC != "ok" {
		t.Errorf("got %+v", o)
	}
}

// Every cut of every kind of packet: the object says as much as there is, and
// nothing that is not.
func TestCut(t *testing.T) {
	for _, op := range []roce.Opcode{roce.SendOnly, roce.WriteOnlyImm, roce.ReadResponseOnly, roce.SendOnlyImm, roce.WriteFirst} {
		for _, flow := range []roce.Flow{board, board6} {
			n := 64
			if op.IsFirst() {
				n = 256
			}
			full := ether(t, flow, packet(op, 5, n))
			bth := 14 + 20 + 8
			if !flow.Is4() {
				bth += 20
			}
			want := decodeOne(t, taken{data: full})
			for cut := range len(full) {
				got, s, err := decodeJSON(t, pcap(linkEthernet, taken{data: full[:cut], length: len(full)}))
				if err != nil {
					t.Fatal(err)
				}
				if cut < bth-8+4 {
					if len(got) != 0 || s.CutShort+s.Other != 1 {
						t.Fatalf("%v cut at %d: %d packets", op, cut, len(got))
					}
					continue
				}
				if len(got) != 1 {
					t.Fatalf("%v cut at %d: %d packets", op, cut, len(got))
				}
				o := got[0]
				if o.ICRC != "unchecked" || o.Error != fmt.Sprintf("capture cut at %d of %d bytes", cut, len(full)) {
					t.Errorf("%v cut at %d: ICRC %s, error %q", op, cut, o.ICRC, o.Error)
				}
				if s.Cut != 1 || s.Malformed != 0 {
					t.Errorf("%v cut at %d: %+v", op, cut, s)
				}
				switch {
				case cut < bth+12:
					if o.DestQPN != 0 || o.PSN != 0 || o.Opcode != "" || o.Imm != nil {
						t.Errorf("%v cut at %d: %+v", op, cut, o)
					}
				case o.DestQPN != want.DestQPN || o.PSN != want.PSN || o.Opcode != want.Opcode || o.PayloadLen != want.PayloadLen:
					t.Errorf("%v cut at %d: %+v", op, cut, o)
				case (cut >= bth+op.HeaderLen()) != (o.RETH != nil || o.AETH != nil || o.Imm != nil) && op != roce.SendOnly:
					t.Errorf("%v cut at %d: extended headers %v %v %v", op, cut, o.RETH, o.AETH, o.Imm)
				case o.Imm != nil && *o.Imm != *want.Imm:
					t.Errorf("%v cut at %d: imm %d", op, cut, *o.Imm)
				}
			}
		}
	}
	// Only Ethernet's padding and FCS are cut off: nothing is missing.
	b := ether(t, board, packet(roce.SendOnly, 5, 0))
	if o := decodeOne(t, taken{data: b[:58], length: 64}); o.ICRC != "ok" || o.Error != "" {
		t.Errorf("padding cut off: %+v", o)
	}
}

func TestFragments(t *testing.T) {
	b := ether(t, roce.Flow{Src: board.Src, Dst: board.Dst, ID: 7}, packet(roce.SendOnly, 5, 64))
	part := func(from, to int, more uint16) []byte {
		f := append(slices.Clone(b[:34]), b[34+from:34+to]...)
		binary.BigEndian.PutUint16(f[16:], uint16(20+to-from))
		binary.BigEndian.PutUint16(f[20:], more<<13|uint16(from/8))
		return resum(f)
	}
	first, second := part(0, 48, 1), part(48, 88, 0)
	got, s, err := decodeJSON(t, pcap(linkEthernet, whole(second, first, second)...))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || s.Other != 1 || s.Fragments != 2 || s.Malformed != 0 {
		t.Fatalf("%d packets, %+v", len(got), s)
	}
	if o := got[0]; o.Frame != 2 || !strings.Contains(o.Error, "first IP fragment") || o.PSN != 5 || o.ICRC != "unchecked" {
		t.Errorf("first: %+v", o)
	}
	if o := got[1]; o.Frame != 3 || !strings.Contains(o.Error, "IP fragment at byte 48") || o.PSN != 0 || o.ICRC != "unchecked" {
		t.Errorf("later: %+v", o)
	}
	b6 := insert(ether(t, board6, packet(roce.SendOnly, 5, 64)), 54, []byte{protoUDP, 0, 0, 1, 0, 0, 0, 9}, func(b []byte) {
		b[20] = extFragment
		binary.BigEndian.PutUint16(b[18:], binary.BigEndian.Uint16(b[18:])+8)
	})
	later := slices.Clone(b6)
	binary.BigEndian.PutUint16(later[56:], 64)
	got, s, err = decodeJSON(t, pcap(linkEthernet, whole(b6, later)...))
	if err != nil || len(got) != 2 || s.Fragments != 2 {
		t.Fatalf("IPv6: %d packets, %+v, %v", len(got), s, err)
	}
}

// A datagram that a host was to segment holds several packets.
func TestSegmentation(t *testing.T) {
	build := func(flow roce.Flow, step int, service byte, packets ...roce.Packet) []byte {
		var run []byte
		for _, p := range packets {
			b := make([]byte, p.Len())
			if _, err := p.Put(b); err != nil {
				t.Fatal(err)
			}
			b[0] |= service
			flow.Seal(b)
			flow.ID += uint16(step)
			run = append(run, b...)
		}
		b := append(slices.Clone(ether(t, board, packet(roce.SendOnly, 0, 64))[:42]), run...)
		if flow.MayFragment {
			b[20] = 0
		}
		binary.BigEndian.PutUint16(b[16:], uint16(28+len(run)))
		binary.BigEndian.PutUint16(b[38:], uint16(8+len(run)))
		return resum(b)
	}
	message := []roce.Packet{packet(roce.SendFirst, 1, 1024), packet(roce.SendMiddle, 2, 1024), packet(roce.SendMiddle, 3, 1024), packet(roce.SendLast, 4, 17)}
	only := []roce.Packet{packet(roce.SendOnly, 1, 64), packet(roce.SendOnly, 2, 63)}
	long := slices.Repeat([]roce.Packet{packet(roce.SendOnly, 1, 4096)}, 15)
	for i := range long {
		long[i].PSN = roce.PSN(i + 1)
	}
	for name, tt := range map[string]struct {
		file    []byte
		packets []roce.Packet
	}{
		"message":              {build(board, 0, 0, message...), message},
		"unreliable":           {build(board, 0, unreliableConnected, message...), message},
		"two small":            {build(board, 0, 0, only...), only},
		"fifteen":              {build(board, 0, 0, long...), long},
		"identification grows": {build(roce.Flow{Src: board.Src, Dst: board.Dst, SrcPort: board.SrcPort, MayFragment: true}, 1, 0, message...), message},
	} {
		t.Run(name, func(t *testing.T) {
			got, s, err := decodeJSON(t, pcap(linkEthernet, taken{data: tt.file}))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tt.packets) || s.Segmented != 1 || s.BadICRC != 0 || s.Malformed != 0 {
				t.Fatalf("%d packets, want %d; %+v", len(got), len(tt.packets), s)
			}
			for i, o := range got {
				p := tt.packets[i]
				if o.Frame != 1 || o.Segment != i+1 || o.Segments != len(got) || o.PSN != uint32(p.PSN) ||
					o.Opcode != p.Opcode.String() || o.PayloadLen != len(p.Payload) || o.ICRC != "ok" || o.Gap != 0 || o.Error != "" {
					t.Errorf("packet %d: %+v", i, o)
				}
			}
			// With one wrong piece there is no telling, so it stays whole.
			bad := slices.Clone(tt.file)
			bad[len(bad)-6] ^= 1
			o := decodeOne(t, taken{data: bad})
			if o.ICRC != "bad" || o.Segment != 0 {
				t.Errorf("with a wrong piece: %+v", o)
			}
			if name == "fifteen" && !strings.Contains(o.Error, "UDP GSO") {
				t.Errorf("with a wrong piece: error %q", o.Error)
			}
		})
	}
}

func TestOtherTraffic(t *testing.T) {
	good := ether(t, board, packet(roce.SendOnly, 5, 64))
	mutate := func(change func(b []byte)) []byte {
		b := slices.Clone(good)
		change(b)
		return b
	}
	frames := whole(
		mutate(func(b []byte) { b[37]++ }),                            // another port
		mutate(func(b []byte) { b[23] = 6 }),                          // TCP
		mutate(func(b []byte) { b[12], b[13] = 8, 6 }),                // ARP
		mutate(func(b []byte) { b[14] = 0x95 }),                       // no IP version
		mutate(func(b []byte) { b[34], b[35] = 0x12, 0xb7; b[37]++ }), // from 4791, not to it
		good,
		mutate(func(b []byte) { b[14] = 0x44 }), // header too short
	)
	got, s, err := decodeJSON(t, pcap(linkEthernet, frames...))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Frame != 6 || s.Frames != 7 || s.Other != 5 || s.Unreadable != 1 {
		t.Errorf("%d packets, %+v", len(got), s)
	}
	_, s, err = decodeJSON(t, pcap(105, whole(good, good)...))
	if err != nil || s.UnknownLink != 2 || s.UnknownLinkType != 105 {
		t.Errorf("unknown link: %+v, %v", s, err)
	}
}

// Output comes while the input is still open.
func TestLive(t *testing.T) {
	frames := whole(ether(t, board, packet(roce.SendOnly, 5, 64)))
	for name, file := range map[string][]byte{
		"pcap":   pcap(linkEthernet, frames...),
		"pcapng": ngFile(binary.LittleEndian, linkEthernet, frames),
	} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			lines := make(chan []byte, 8)
			done := make(chan error, 1)
			go func() {
				_, err := Decode(writerFunc(func(b []byte) (int, error) {
					lines <- slices.Clone(b)
					return len(b), nil
				}), r, Options{JSON: true})
				done <- err
			}()
			if _, err := w.Write(file); err != nil {
				t.Fatal(err)
			}
			select {
			case b := <-lines:
				if got := parseLines(t, b); len(got) != 1 {
					t.Errorf("%d packets", len(got))
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no output while the input is open")
			}
			w.Close()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWriteError(t *testing.T) {
	file := pcap(linkEthernet, whole(ether(t, board, packet(roce.SendOnly, 5, 64)))...)
	for _, o := range []Options{{}, {JSON: true}} {
		_, err := Decode(writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe }), bytes.NewReader(file), o)
		if err == nil || !strings.Contains(err.Error(), "write what was decoded") {
			t.Errorf("error %v", err)
		}
	}
}
