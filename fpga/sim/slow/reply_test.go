package slow_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	localMAC  = net.HardwareAddr{2, 0x11, 0x22, 0x33, 0x44, 0x55}
	peerMAC   = net.HardwareAddr{2, 0xaa, 0xbb, 0xcc, 0xdd, 0xee}
	everybody = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	localIP   = net.IP{192, 0, 2, 1}
	peerIP    = net.IP{198, 51, 100, 7}
)

const mapped = "00000000000000000000ffffc0000201"

// exchange is a request and its answer, nil where there is none.
type exchange struct {
	name    string
	request []byte
	answer  []byte
}

func serialize(t *testing.T, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	// Ethernet pads, with what it likes.
	data := slices.Clone(b.Bytes())
	for len(data) < 60 {
		data = append(data, 0)
	}
	return data
}

// arp is an exchange that edit spoils where it is not nil.
func arp(t *testing.T, name string, edit func(*layers.Ethernet, *layers.ARP)) exchange {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: peerMAC, DstMAC: everybody, EthernetType: layers.EthernetTypeARP}
	q := &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: layers.ARPRequest, SourceHwAddress: peerMAC, SourceProtAddress: peerIP, DstHwAddress: make([]byte, 6), DstProtAddress: localIP}
	if edit != nil {
		edit(eth, q)
	}
	a := *q
	a.Operation = layers.ARPReply
	a.SourceHwAddress, a.SourceProtAddress = localMAC, localIP
	a.DstHwAddress, a.DstProtAddress = q.SourceHwAddress, q.SourceProtAddress
	back := &layers.Ethernet{SrcMAC: localMAC, DstMAC: q.SourceHwAddress, EthernetType: layers.EthernetTypeARP}
	return exchange{name, serialize(t, eth, q), serialize(t, back, &a)}
}

// ping is an echo request and its reply.
func ping(t *testing.T, name string, data []byte, edit func(*layers.Ethernet, *layers.IPv4, *layers.ICMPv4)) exchange {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: peerMAC, DstMAC: localMAC, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 61, TOS: 0x12, Id: 0xbeef, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolICMPv4, SrcIP: peerIP, DstIP: localIP}
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 0x1234, Seq: 7}
	if edit != nil {
		edit(eth, ip, icmp)
	}
	request := serialize(t, eth, ip, icmp, gopacket.Payload(data))
	back := &layers.Ethernet{SrcMAC: localMAC, DstMAC: eth.SrcMAC, EthernetType: layers.EthernetTypeIPv4}
	ip2, icmp2 := *ip, *icmp
	ip2.TTL, ip2.SrcIP, ip2.DstIP = 64, ip.DstIP, ip.SrcIP
	icmp2.TypeCode = 0
	return exchange{name, request, serialize(t, back, &ip2, &icmp2, gopacket.Payload(data))}
}

// ignored is the exchange without its answer.
func (x exchange) ignored() exchange { x.answer = nil; return x }

// with is the exchange with a byte of the request changed.
func (x exchange) with(at int, xor byte) exchange {
	x.request = slices.Clone(x.request)
	x.request[at] ^= xor
	x.name = fmt.Sprintf("%s, byte %d", x.name, at)
	return x
}

func (x exchange) cut(n int) exchange {
	x.request = x.request[:n]
	x.name = fmt.Sprintf("%s, cut to %d", x.name, n)
	return x
}

func (x exchange) padded(n int) exchange {
	x.request = append(slices.Clone(x.request), bytes.Repeat([]byte{0xa5}, n)...)
	x.name = fmt.Sprintf("%s and %d bytes", x.name, n)
	return x
}

// exchanges are frames of all kinds; those of the buffer's size are for a memory
// of 512 bytes.
func exchanges(t *testing.T) []exchange {
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 600)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	ask, echo := arp(t, "ARP", nil), ping(t, "echo", data[:100], nil)
	all := []exchange{ask, echo,
		arp(t, "ARP to us alone", func(e *layers.Ethernet, _ *layers.ARP) { e.DstMAC = localMAC }),
		arp(t, "ARP probe", func(_ *layers.Ethernet, a *layers.ARP) { a.SourceProtAddress = net.IP{0, 0, 0, 0} }),
		arp(t, "ARP claim", func(_ *layers.Ethernet, a *layers.ARP) { a.SourceProtAddress = localIP }),
		arp(t, "ARP by a relay", func(e *layers.Ethernet, _ *layers.ARP) { e.SrcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9} }),
		arp(t, "ARP to another MAC", func(e *layers.Ethernet, _ *layers.ARP) { e.DstMAC = peerMAC }).ignored(),
		arp(t, "ARP to a group", func(e *layers.Ethernet, _ *layers.ARP) { e.DstMAC = net.HardwareAddr{1, 0, 0x5e, 0, 0, 1} }).ignored(),
		arp(t, "ARP for another", func(_ *layers.Ethernet, a *layers.ARP) { a.DstProtAddress = net.IP{192, 0, 2, 2} }).ignored(),
		arp(t, "ARP for 0.0.0.0", func(_ *layers.Ethernet, a *layers.ARP) { a.DstProtAddress = net.IP{0, 0, 0, 0} }).ignored(),
		ping(t, "echo to 0.0.0.0", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.DstIP = net.IP{0, 0, 0, 0} }).ignored(),
		arp(t, "ARP reply", func(_ *layers.Ethernet, a *layers.ARP) { a.Operation = layers.ARPReply }).ignored(),
		arp(t, "our own ARP", func(e *layers.Ethernet, a *layers.ARP) { e.SrcMAC, a.SourceHwAddress = localMAC, localMAC }).ignored(),
		arp(t, "ARP by a group", func(_ *layers.Ethernet, a *layers.ARP) { a.SourceHwAddress = everybody }).ignored(),
		arp(t, "ARP by nobody", func(_ *layers.Ethernet, a *layers.ARP) { a.SourceHwAddress = make([]byte, 6) }).ignored(),
		ask.padded(1), ask.padded(200), ask.cut(42), ask.cut(41).ignored(), ask.cut(1).ignored(),
		// Hardware, protocol, lengths.
		ask.with(15, 7).ignored(), ask.with(16, 1).ignored(), ask.with(17, 4).ignored(), ask.with(18, 2).ignored(), ask.with(19, 1).ignored(),
		ask.with(20, 1).ignored(), ask.with(12, 1).ignored(), ask.with(13, 1).ignored(),

		ping(t, "echo without DF", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.Flags = 0 }),
		ping(t, "echo to everybody", data[:9], func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.DstMAC = everybody }).ignored(),
		ping(t, "echo to another MAC", data[:9], func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.DstMAC = peerMAC }).ignored(),
		ping(t, "echo to another", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.DstIP = net.IP{192, 0, 2, 255} }).ignored(),
		ping(t, "our own echo", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = localIP }).ignored(),
		ping(t, "echo by our MAC", data[:9], func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.SrcMAC = localMAC }).ignored(),
		ping(t, "echo by a group's MAC", data[:9], func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) {
			e.SrcMAC = net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}
		}).ignored(),
		ping(t, "echo by everybody", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = net.IP{255, 255, 255, 255} }).ignored(),
		ping(t, "echo by a group", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = net.IP{224, 0, 0, 1} }).ignored(),
		ping(t, "echo by nobody", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = net.IP{0, 0, 0, 0} }).ignored(),
		ping(t, "first fragment", data[:64], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.Flags = layers.IPv4MoreFragments }).ignored(),
		ping(t, "fragment", data[:64], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.FragOffset = 1 }).ignored(),
		ping(t, "far fragment", data[:64], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.FragOffset = 0x1f00 }).ignored(),
		ping(t, "echo in UDP", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.Protocol = layers.IPProtocolUDP }).ignored(),
		ping(t, "echo with options", data[:9], func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) {
			ip.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
		}).ignored(),
		ping(t, "echo reply", data[:9], func(_ *layers.Ethernet, _ *layers.IPv4, icmp *layers.ICMPv4) { icmp.TypeCode = 0 }).ignored(),
		ping(t, "echo with a code", data[:9], func(_ *layers.Ethernet, _ *layers.IPv4, icmp *layers.ICMPv4) {
			icmp.TypeCode = layers.CreateICMPv4TypeCode(8, 1)
		}).ignored(),
		echo.with(14, 0x20).ignored(), echo.padded(1), echo.padded(63), echo.padded(64), echo.padded(200),
	}
	// A wrong bit anywhere that the checksums are over, and in them.
	for at := 14; at < len(echo.request); at++ {
		all = append(all, echo.with(at, 1<<(at%8)).ignored())
	}
	for size := range 152 {
		x := ping(t, fmt.Sprintf("echo of %d", size), data[:size], nil)
		all = append(all, x)
		if size > 18 { // more than Ethernet's pad
			all = append(all, x.cut(len(x.request)-1).ignored())
		} else {
			// Nor does the pad count in the checksum.
			x.request = append(slices.Clone(x.request[:42+size]), bytes.Repeat([]byte{0x5a}, 18-size)...)
			all = append(all, x)
		}
	}
	// As much as the memory holds, and more.
	for _, size := range []int{468, 469, 470, 471, 534, 535, 600} {
		x := ping(t, fmt.Sprintf("echo of %d", size), data[:size], nil)
		if 42+size > 512 {
			x = x.ignored()
		}
		all = append(all, x)
	}
	all = append(all, echo.padded(512-142), echo.padded(513-142).ignored())
	// A total length of less than the headers, or of more than any frame.
	for _, n := range []int{0, 19, 20, 27, 0xffff} {
		x := echo.ignored()
		x.name = fmt.Sprintf("length %d", n)
		x.request = slices.Clone(x.request)
		x.request[16], x.request[17] = byte(n>>8), byte(n)
		reseal(x.request, 28)
		all = append(all, x)
	}
	// Checksums of both zeros, and carries all along.
	for _, id := range []uint16{0, 1, 0x07ff, 0x0800, 0xf7fe, 0xf7ff, 0xf800, 0xfffe, 0xffff} {
		all = append(all, ping(t, fmt.Sprintf("sum %#x", id), nil, func(_ *layers.Ethernet, ip *layers.IPv4, icmp *layers.ICMPv4) {
			icmp.Id, icmp.Seq, ip.Id, ip.TTL = id, 0, id, uint8(id)
		}))
		all = append(all, ping(t, fmt.Sprintf("sum %#x of many", id), bytes.Repeat([]byte{0xff}, 400), func(_ *layers.Ethernet, _ *layers.IPv4, icmp *layers.ICMPv4) {
			icmp.Id = id
		}))
	}
	for range 40 {
		x := exchange{name: "noise", request: make([]byte, 1+random.IntN(600))}
		for i := range x.request {
			x.request[i] = byte(random.Uint32())
		}
		copy(x.request, echo.request[:random.IntN(42)])
		all = append(all, x)
	}
	return all
}

// ones is the sum that RFC 1071 wants over what a checksum is over.
func ones(b []byte) uint16 {
	var sum uint32
	for i, v := range b {
		sum += uint32(v) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// reseal makes both checksums right; n bytes of IP count.
func reseal(frame []byte, n int) {
	put := func(at int, over []byte) {
		frame[at], frame[at+1] = 0, 0
		sum := ^ones(over)
		frame[at], frame[at+1] = byte(sum>>8), byte(sum)
	}
	put(24, frame[14:34])
	put(36, frame[34:14+n])
}

// same says whether a frame is the wanted one. A checksum of zero is as good as
// one of all ones where both are right.
func same(got, want []byte) bool {
	if !bytes.Equal(got[12:min(14, len(got))], []byte{8, 0}) || len(got) < 42 {
		return bytes.Equal(got, want)
	}
	n := 14 + int(got[16])<<8 + int(got[17])
	if n < 42 || n > len(got) || ones(got[14:34]) != 0xffff || ones(got[34:n]) != 0xffff {
		return false
	}
	got, want = slices.Clone(got), slices.Clone(want)
	for _, at := range []int{24, 25, 36, 37} {
		got[at], want[at] = 0, 0
	}
	return bytes.Equal(got, want)
}

type arguments struct {
	seed, in, out, resets int
	mac, ip               string
}

// reply runs the bench over all frames and checks what comes back: the answer to
// each frame, whole, before the next frame is taken, unless a reset was between.
func reply(t *testing.T, program string, all []exchange, a arguments) (answers int) {
	t.Helper()
	var in strings.Builder
	for _, x := range all {
		for i, chunk := range slices.Collect(slices.Chunk(x.request, 64)) {
			fmt.Fprintf(&in, "%d %s\n", b(64*i+len(chunk) == len(x.request)), beat(chunk))
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "frames"), []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("vvp", "-n", program, "+mac="+a.mac, "+ip="+a.ip, fmt.Sprintf("+seed=%d", a.seed),
		fmt.Sprintf("+in=%d", a.in), fmt.Sprintf("+out=%d", a.out), fmt.Sprintf("+resets=%d", a.resets))
	run.Dir = dir
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	pending := -1 // the frame that was taken last, while its answer is not there
	var got []byte
	var counts [3]int
	owed := func() {
		t.Helper()
		if pending >= 0 && all[pending].answer != nil {
			t.Fatalf("%s: no answer", all[pending].name)
		}
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		switch f[0] {
		case "F":
			t.Fatal(line)
		case "R":
			pending, got, counts = -1, nil, [3]int{}
		case "I":
			owed()
			if _, err := fmt.Sscan(f[1], &pending); err != nil {
				t.Fatal(err)
			}
			if all[pending].answer == nil {
				counts[2]++
			}
		case "O":
			data, err := hex.DecodeString(f[3])
			if err != nil {
				t.Fatal(err)
			}
			slices.Reverse(data)
			var keep uint64
			if _, err := fmt.Sscanf(f[2], "%x", &keep); err != nil {
				t.Fatal(err)
			}
			n := 0
			for n < 64 && keep>>n&1 == 1 {
				n++
			}
			if n < 64 && (keep>>n != 0 || f[1] == "0") {
				t.Fatalf("bytes %x of a beat, last %s", keep, f[1])
			}
			got = append(got, data[:n]...)
			if f[1] == "1" {
				if pending < 0 || all[pending].answer == nil {
					t.Fatalf("an answer to nothing (frame %d): %x", pending, got)
				}
				x := all[pending]
				if !same(got, x.answer) {
					t.Fatalf("%s:\n asked %x\n   got %x\n  want %x", x.name, x.request, got, x.answer)
				}
				counts[b(got[12] == 8 && got[13] == 0)]++
				answers++
				pending, got = -1, nil
			}
		case "C":
			owed()
			if want := fmt.Sprintf("C %d %d %d\n", counts[0], counts[1], counts[2]); line != want {
				t.Errorf("counters %q, want %q", line, want)
			}
		}
	}
	if !strings.Contains(string(out), "\nC ") {
		t.Fatal("the bench did not come to its end")
	}
	return answers
}

// Each request for us is answered right, nothing else is answered, and each is
// counted, with pauses on both sides and resets in any cycle.
func TestReply(t *testing.T) {
	if _, err := exec.LookPath("iverilog"); err != nil {
		t.Skip("iverilog is not installed")
	}
	for _, source := range []string{"reply.sv", "../../rtl/shell/rl_slow_reply.sv", "../../rtl/rl_wire.vh"} {
		if _, err := os.ReadFile(source); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "bench")
	if out, err := exec.Command("iverilog", "-g2012", "-I", "../../rtl", "-o", program, "reply.sv", "../../rtl/shell/rl_slow_reply.sv").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := exchanges(t)
	want := 0
	for _, x := range all {
		want += b(x.answer != nil)
	}
	silent := make([]exchange, 60)
	for i := range silent {
		silent[i] = all[i].ignored()
	}
	mac := strings.ReplaceAll(localMAC.String(), ":", "")
	for _, c := range []struct {
		name   string
		frames []exchange
		a      arguments
	}{
		{"dense", all, arguments{1, 0, 0, 0, mac, mapped}},
		{"pauses", all, arguments{2, 100, 100, 0, mac, mapped}},
		{"a slow MAC", all, arguments{3, 0, 230, 0, mac, mapped}},
		{"resets", all, arguments{4, 40, 60, 1000, mac, mapped}},
		{"many resets", all, arguments{5, 0, 30, 4000, mac, mapped}},
		{"address 0.0.0.0", silent, arguments{6, 0, 0, 0, mac, "00000000000000000000ffff00000000"}},
		{"no address", silent, arguments{7, 0, 0, 0, mac, strings.Repeat("0", 32)}},
		{"an IPv6 address", silent, arguments{8, 0, 0, 0, mac, "20010db80000000000000000c0000201"}},
		{"no MAC", silent, arguments{9, 0, 0, 0, "000000000000", mapped}},
		{"a group's MAC", silent, arguments{10, 0, 0, 0, "011122334455", mapped}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := reply(t, program, c.frames, c.a)
			if c.a.ip == mapped && c.a.mac == mac {
				if c.a.resets == 0 && n != want || c.a.resets > 0 && (n < want/10 || n == want) {
					t.Errorf("%d answers of %d", n, want)
				}
			}
		})
	}
}
