package capture

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"rocelink/fpga/roce"
)

// Lengths of pcap headers, and options of a pcapng interface.
const (
	pcapHeaderLen = 24
	pcapRecordLen = 16

	optionResolution = 9  // if_tsresol
	optionOffset     = 14 // if_tsoffset
)

// vector is a frame whose fields are known; absent members are not checked.
type vector struct {
	Name       string  `json:"name"`
	Frame      string  `json:"frame"`
	Opcode     *string `json:"opcode"`
	Imm        *uint32 `json:"imm_host"`
	PayloadLen *int    `json:"payload_len"`
	Pad        *uint8  `json:"padcnt"`
	PSN        *uint32 `json:"psn"`
	SE         *int    `json:"se"`
	MigReq     *int    `json:"migreq"`
	AckReq     *int    `json:"ackreq"`
	Bytes      []byte  `json:"-"`
}

// Unreliable reports a packet of the unreliable connected service.
func (v *vector) Unreliable() bool { return v.Bytes[42]&serviceMask == unreliableConnected }

// vectors returns the frames of testdata, and those of the unreliable connected
// service a second time as reliable connected, which they say they are.
func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/icrc_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	for i := range vs {
		if vs[i].Bytes, err = hex.DecodeString(vs[i].Frame); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range vs {
		if v.Unreliable() {
			v.Bytes = bytes.Clone(v.Bytes)
			v.Bytes[42] &^= serviceMask
			v.Name += ", reliable connected"
			reseal(v.Bytes)
			vs = append(vs, v)
		}
	}
	return vs
}

// taken is a frame on its way into a capture file.
type taken struct {
	data   []byte
	length int // on the wire; 0 is all of data
	at     time.Duration
	iface  int // pcapng
}

func (c taken) wire() int { return max(c.length, len(c.data)) }

var epoch = time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)

func whole(frames ...[]byte) []taken {
	var ts []taken
	for i, f := range frames {
		ts = append(ts, taken{data: f, at: time.Duration(i) * 334 * time.Nanosecond})
	}
	return ts
}

// pcapFile makes a pcap in the given byte order and resolution.
func pcapFile(order binary.AppendByteOrder, nano bool, link linkType, frames []taken) []byte {
	magic, unit := uint32(magicMicro), time.Microsecond
	if nano {
		magic, unit = magicNano, time.Nanosecond
	}
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, 4)
	b = order.AppendUint64(b, 0)
	b = order.AppendUint32(b, maxCaptured)
	b = order.AppendUint32(b, uint32(link))
	for _, f := range frames {
		ts := epoch.Add(f.at)
		b = order.AppendUint32(b, uint32(ts.Unix()))
		b = order.AppendUint32(b, uint32(ts.Nanosecond()/int(unit)))
		b = order.AppendUint32(b, uint32(len(f.data)))
		b = order.AppendUint32(b, uint32(f.wire()))
		b = append(b, f.data...)
	}
	return b
}

// pcap makes the common kind.
func pcap(link linkType, frames ...taken) []byte {
	return pcapFile(binary.LittleEndian, true, link, frames)
}

func ngBlock(order binary.AppendByteOrder, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	n := uint32(len(body) + blockOverhead)
	b := order.AppendUint32(nil, kind)
	b = order.AppendUint32(b, n)
	b = append(b, body...)
	return order.AppendUint32(b, n)
}

func ngSection(order binary.AppendByteOrder) []byte {
	b := order.AppendUint32(nil, orderMagic)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint64(b, ^uint64(0))
	b = append(b, option(order, 4, []byte("a test"))...)
	return ngBlock(order, blockSection, append(b, option(order, 0, nil)...))
}

func option(order binary.AppendByteOrder, code uint16, value []byte) []byte {
	b := order.AppendUint16(nil, code)
	b = order.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// ngInterface describes an interface with a resolution, 0 for none, and an
// offset in seconds.
func ngInterface(order binary.AppendByteOrder, link linkType, resolution byte, offset int64) []byte {
	b := order.AppendUint16(nil, uint16(link))
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, 0)
	b = append(b, option(order, 2, []byte("if0"))...)
	if resolution != 0 {
		b = append(b, option(order, optionResolution, []byte{resolution})...)
	}
	if offset != 0 {
		b = append(b, option(order, optionOffset, order.AppendUint64(nil, uint64(offset)))...)
	}
	return ngBlock(order, blockInterface, append(b, option(order, 0, nil)...))
}

// ngPacket makes an enhanced packet block; stamp is in the interface's units.
func ngPacket(order binary.AppendByteOrder, f taken, stamp uint64) []byte {
	b := order.AppendUint32(nil, uint32(f.iface))
	b = order.AppendUint32(b, uint32(stamp>>32))
	b = order.AppendUint32(b, uint32(stamp))
	b = order.AppendUint32(b, uint32(len(f.data)))
	b = order.AppendUint32(b, uint32(f.wire()))
	b = append(b, f.data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	b = append(b, option(order, 1, []byte("a comment"))...)
	return ngBlock(order, blockEnhanced, append(b, option(order, 0, nil)...))
}

// ngFile makes a pcapng with nanosecond stamps of one interface, with blocks of
// other kinds in between.
func ngFile(order binary.AppendByteOrder, link linkType, frames []taken) []byte {
	b := append(ngSection(order), ngInterface(order, link, 9, 0)...)
	for _, f := range frames {
		b = append(b, ngBlock(order, 4, []byte{0, 0, 0, 0})...)     // names
		b = append(b, ngBlock(order, 0x7777, []byte("strange"))...) // unknown
		b = append(b, ngPacket(order, f, uint64(epoch.Add(f.at).UnixNano()))...)
	}
	return b
}

// onLink replaces the Ethernet header of an untagged frame.
func onLink(link linkType, ether []byte) []byte {
	ip, kind := ether[etherHeaderLen:], ether[12:14]
	var h []byte
	switch link {
	case linkEthernet:
		return ether
	case linkCooked:
		h = append(make([]byte, 14), kind...)
	case linkCooked2:
		h = append(append(h, kind...), make([]byte, 18)...)
	case linkNull:
		h = []byte{2, 0, 0, 0}
	case linkLoop:
		h = []byte{0, 0, 0, 2}
	}
	return append(h, ip...)
}

var (
	board = roce.Flow{
		Src: netip.MustParseAddr("192.0.2.10"), Dst: netip.MustParseAddr("192.0.2.20"), SrcPort: 0xc001,
	}
	host = roce.Flow{
		Src: netip.MustParseAddr("192.0.2.20"), Dst: netip.MustParseAddr("192.0.2.10"), SrcPort: 0xc002,
	}
	board6 = roce.Flow{
		Src: netip.MustParseAddr("2001:db8::10"), Dst: netip.MustParseAddr("2001:db8::20"), SrcPort: 0xc001,
	}
)

// packet makes a packet with every field of its opcode in order.
func packet(op roce.Opcode, psn roce.PSN, payload int) roce.Packet {
	p := roce.Packet{
		BTH:     roce.BTH{Opcode: op, MigReq: true, PKey: roce.PKeyDefault, DestQP: 0x123, PSN: psn},
		Payload: make([]byte, payload),
	}
	for i := range p.Payload {
		p.Payload[i] = byte(i + 1)
	}
	if op.HasRETH() {
		p.RETH = roce.RETH{Address: 0x7f1280000000, RKey: 0x112233, Length: uint32(payload)}
		if op.IsFirst() {
			p.RETH.Length *= 3
		}
	}
	if op.HasAETH() {
		p.AETH = roce.AETH{Syndrome: roce.ACK(roce.CreditsInvalid), MSN: 7}
	}
	if op.HasImm() {
		p.Imm = 0xcafe0042
	}
	return p
}

// ether puts a packet into a frame that Ethernet has padded.
func ether(t testing.TB, flow roce.Flow, p roce.Packet, tags ...roce.VLAN) []byte {
	t.Helper()
	f := roce.Frame{
		Dst: roce.MAC{2, 0, 0, 0, 0, 0x14}, Src: roce.MAC{2, 0, 0, 0, 0, 0x0a},
		Tags: len(tags), Flow: flow, Packet: p,
	}
	copy(f.VLANs[:], tags)
	b := make([]byte, roce.MaxFrame+roce.MinFrame)
	n, err := f.Put(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:roce.Pad(b, n)]
}

// resum corrects the IPv4 checksum of an untagged frame and seals the packet
// again over the headers as they stand.
func resum(b []byte) []byte {
	ip := b[etherHeaderLen:]
	if ip[0]>>4 == 4 {
		n := int(ip[0]&15) * 4
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ipSum(ip[:n]))
	}
	return b
}

// reseal computes the ICRC of an IPv4 frame bit by bit, independently of the
// code under test.
func reseal(b []byte) []byte {
	resum(b)
	ip := b[etherHeaderLen:]
	ip = ip[:min(len(ip), int(binary.BigEndian.Uint16(ip[2:])))]
	m := append(bytes.Repeat([]byte{0xff}, 8), ip[:len(ip)-4]...)
	h := m[8:]
	udp := int(ip[0]&15) * 4
	for _, i := range []int{1, 8, 10, 11, udp + 6, udp + 7, udp + 8 + 4} {
		if i < len(h) {
			h[i] = 0xff
		}
	}
	crc := ^uint32(0)
	for _, v := range m {
		crc ^= uint32(v)
		for range 8 {
			crc = crc>>1 ^ crc32.IEEE&-(crc&1)
		}
	}
	binary.LittleEndian.PutUint32(ip[len(ip)-4:], ^crc)
	return b
}

// object is what a script sees.
type object = jsonPacket

// decodeJSON decodes a capture and parses every line back, strictly.
func decodeJSON(t testing.TB, file []byte) ([]object, Summary, error) {
	t.Helper()
	return decodeFrom(t, bytes.NewReader(file), Options{JSON: true})
}

func decodeFrom(t testing.TB, in io.Reader, o Options) ([]object, Summary, error) {
	t.Helper()
	var out bytes.Buffer
	s, err := Decode(&out, in, o)
	return parseLines(t, out.Bytes()), s, err
}

func parseLines(t testing.TB, out []byte) []object {
	t.Helper()
	var objects []object
	for line := range bytes.Lines(out) {
		var o object
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		objects = append(objects, o)
	}
	return objects
}

// decodeOne decodes frames on Ethernet and wants one packet of them.
func decodeOne(t testing.TB, f taken) object {
	t.Helper()
	got, _, err := decodeJSON(t, pcap(linkEthernet, f))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("%d packets, want 1", len(got))
	}
	return got[0]
}
