// Package slow_test runs the slow path's splitter and arbiter in iverilog.
package slow_test

import (
	"bytes"
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

const beats = 8 // of the buffer, bench.sv

// frame makes a frame, and says whether it is the core's.
func frame(t *testing.T, random *rand.Rand) ([]byte, bool) {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	udp := &layers.UDP{SrcPort: 49152, DstPort: 4791}
	payload := make([]byte, 20+random.IntN(300))
	for i := range payload {
		payload[i] = byte(random.Uint32())
	}
	var stack []gopacket.SerializableLayer
	roce := false
	switch random.IntN(10) {
	case 0:
		eth.EthernetType = layers.EthernetTypeARP
		stack = []gopacket.SerializableLayer{eth, gopacket.Payload(payload[:20])}
	case 1:
		ip.Protocol = layers.IPProtocolICMPv4
		stack = []gopacket.SerializableLayer{eth, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, gopacket.Payload(payload)}
	case 2:
		udp.DstPort = layers.UDPPort([]uint16{4790, 0xb712, 53, 4791 ^ 0x100}[random.IntN(4)])
		stack = []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(payload)}
	case 3:
		ip.FragOffset = []uint16{1, 0x100, 0x1f00}[random.IntN(3)]
		stack = []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(payload)}
	case 4:
		eth.EthernetType = layers.EthernetTypeIPv6
		stack = []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(payload)}
	case 5: // the port of RoCE where TCP has its own
		ip.Protocol = layers.IPProtocolTCP
		stack = []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(payload)}
	case 6: // IP options: the ports are elsewhere
		ip.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
		payload[4], payload[5] = 0x12, 0xb7
		stack = []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(payload)}
	default:
		roce = true
		stack = []gopacket.SerializableLayer{eth, ip, udp, gopacket.Payload(payload)}
	}
	_ = udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), roce
}

// beat prints a beat as bench.sv does.
func beat(data []byte) string {
	var keep uint64
	var b bytes.Buffer
	for i := 63; i >= 0; i-- {
		if i < len(data) {
			keep |= 1 << i
			fmt.Fprintf(&b, "%02x", data[i])
		} else {
			b.WriteString("00")
		}
	}
	return fmt.Sprintf("%016x %s", keep, b.String())
}

// TestSplit sends frames with pauses on both sides and resets at any cycle, and
// compares every cycle with a buffer of its own.
func TestSplit(t *testing.T) {
	for _, tool := range []string{"iverilog", "vvp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	// What the test itself has read is what go test's cache depends on.
	for _, source := range []string{"bench.sv", "../../rtl/shell/rl_slow_rx.sv"} {
		if _, err := os.ReadFile(source); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "bench")
	if out, err := exec.Command("iverilog", "-g2012", "-o", program, "bench.sv", "../../rtl/shell/rl_slow_rx.sv").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { split(t, dir, program, seed) })
	}
}

func split(t *testing.T, dir, program string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	idle := beat(nil)
	var in strings.Builder
	var want []string
	var queue, writing []string
	var core = "0"
	dropped, roces, slows, resets := 0, 0, 0, 0
	skip, lost, there := false, false, false
	cycle := func(rst, valid, last, user bool, word string, roce bool) {
		ready := random.IntN(8) < 2+int(seed)
		fmt.Fprintf(&in, "%d %d %d %d %d %s\n", b(rst), b(ready), b(valid), b(last), b(user), word)
		slow := "0"
		if there && !rst {
			slow = "1 " + queue[0]
		}
		want = append(want, fmt.Sprintf("%s|%s|%d", core, slow, dropped))
		held := len(queue) + len(writing)
		core = "0"
		if slow != "0" && ready {
			slows++
			queue = queue[1:]
		}
		there = len(queue) > 0 && !rst // what comes now is read a cycle later
		if valid && !rst && !skip {
			switch {
			case roce:
				core = fmt.Sprintf("1 %d%d %s", b(last), b(user), word)
				roces++
			default:
				if lost = lost || held == beats; !lost {
					writing = append(writing, fmt.Sprintf("%d %s", b(last), word))
				}
				if last {
					if !lost && !user {
						queue = append(queue, writing...)
					} else if !user {
						dropped++
					}
					writing, lost = nil, false
				}
			}
		}
		if rst {
			queue, writing, lost, core, dropped = nil, nil, false, "0", 0
			skip = skip || valid
			resets++
		}
		if valid && last {
			skip = false
		}
	}
	cycle(true, false, false, false, idle, false)
	first := len(want)
	most := 0
	for range 600 {
		data, roce := frame(t, random)
		user := random.IntN(10) == 0
		begun := false
		for chunk := range slices.Chunk(data, 64) {
			for random.IntN(4) == 0 {
				// A frame that is under way at a reset is the rest of one.
				if rst := random.IntN(60) == 0; rst {
					cycle(true, false, false, false, idle, false)
					skip = begun
				} else {
					cycle(false, false, false, false, idle, false)
				}
			}
			last := len(data) <= 64
			data = data[len(chunk):]
			cycle(random.IntN(200) == 0, true, last, last && user, beat(chunk), roce)
			begun = true
			most = max(most, dropped)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cycles"), []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("vvp", "-n", program)
	run.Dir = dir
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < len(want) || (seed < 3 && most == 0) || roces == 0 || slows == 0 || resets < 3 {
		t.Fatalf("%d of %d cycles, %d dropped, %d and %d beats, %d resets", len(lines), len(want), most, roces, slows, resets)
	}
	for i := first; i < len(want); i++ {
		f := strings.Fields(lines[i])
		if len(f) != 9 {
			t.Fatalf("cycle %d: %q", i, lines[i])
		}
		got := "0|"
		if f[0] != "0" {
			got = strings.Join(f[:4], " ") + "|"
		}
		if f[4] != "0" {
			got += strings.Join(f[4:8], " ")
		} else {
			got += "0"
		}
		if got += "|" + f[8]; got != want[i] {
			t.Fatalf("cycle %d:\n got %s\nwant %s", i, got, want[i])
		}
	}
}

func b(v bool) int {
	if v {
		return 1
	}
	return 0
}
