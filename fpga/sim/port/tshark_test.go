//go:build verilator

// Package port proves at the Ethernet port what the RTL core sends.
package port

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/core"
)

const peerQPN = 0xabc01

// send returns the frames that one message of a new core takes. Nobody
// answers, and the queue pair has no timeout.
func send(t *testing.T, verb, size uint32) (frames [][]byte) {
	t.Helper()
	c := core.New(1)
	defer c.Close()
	c.Run(400)
	stream := regs.At(c, 0x1000)
	put := func(b regs.Bus, r regs.Reg, v uint32) {
		t.Helper()
		if err := r.Write(b, v); err != nil {
			t.Fatal(err)
		}
	}
	ip := func(r regs.Reg, a string) {
		b := netip.MustParseAddr(a).As16()
		for i := range 4 {
			put(c, r+regs.Reg(4*i), binary.BigEndian.Uint32(b[4*i:]))
		}
	}
	must := func(b regs.Bus, op uint32) { // both blocks have the same words here
		t.Helper()
		put(b, regs.CoreCommand, op)
		for range 10000 {
			if v, err := regs.CoreCommand.Read(b); err != nil {
				t.Fatal(err)
			} else if v == 0 {
				if s, err := regs.CoreCommandStatus.Read(b); s != 0 || err != nil {
					t.Fatalf("command %d: status %d, %v", op, s, err)
				}
				return
			}
		}
		t.Fatalf("command %d did not end", op)
	}
	put(c, regs.CoreLocalMACHigh, 0x0211)
	put(c, regs.CoreLocalMACLow, 0x22334455)
	ip(regs.CoreLocalIP0, "192.0.2.1")
	put(c, regs.CoreControl, 1)
	put(c, regs.CoreQpConfig, regs.CoreQpConfigMTU.Of(uint32(roce.MTU(1024).Code())))
	put(c, regs.CoreQpLocalQPN, 0x100)
	put(c, regs.CoreQpRemoteQPN, peerQPN)
	put(c, regs.CoreQpStartPSN, 0xfffffe)
	put(c, regs.CoreQpWindow, 128)
	put(c, regs.CoreQpSourcePort, 0xc123)
	put(c, regs.CoreQpTraffic, regs.CoreQpTrafficHopLimit.Of(64))
	put(c, regs.CoreQpPKey, 0xffff)
	put(c, regs.CoreQpRemoteMACHigh, 0x02aa)
	put(c, regs.CoreQpRemoteMACLow, 0xbbccddee)
	ip(regs.CoreQpRemoteIP0, "198.51.100.7")
	must(c, regs.CoreCommandOpCommit)
	put(stream, regs.StreamConfig, regs.StreamConfigVerb.Of(verb))
	put(stream, regs.StreamFrameBytes, size)
	put(stream, regs.StreamSlots, 1)
	put(stream, regs.StreamStride, 8192)
	put(stream, regs.StreamRKey, 0xfeedbeef)
	if err := regs.StreamBase.Write(stream, 0x1234_5678_9abc_0000); err != nil {
		t.Fatal(err)
	}
	if err := regs.StreamCount.Write(stream, 1); err != nil {
		t.Fatal(err)
	}
	must(stream, regs.StreamCommandOpCommit)
	must(stream, regs.StreamCommandOpStart)
	c.Run(5000)
	for _, f := range c.Take() {
		if f.Error {
			t.Fatal("a frame was marked as bad")
		}
		frames = append(frames, f.Data)
	}
	return frames
}

// opcodes is what a message of n packets must be made of.
func opcodes(n int, only, first, middle, last roce.Opcode) []roce.Opcode {
	if n == 1 {
		return []roce.Opcode{only}
	}
	out := []roce.Opcode{first}
	for range n - 2 {
		out = append(out, middle)
	}
	return append(out, last)
}

// Every opcode that the core sends, at sizes around the MTU, read by an
// independent dissector; the ICRC is checked by package roce.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatal("tshark is not installed: apt-get install tshark")
		}
		t.Skip("tshark is not installed: apt-get install tshark")
	}
	le := binary.LittleEndian
	pcap := le.AppendUint32(nil, 0xa1b2c3d4)
	pcap = append(pcap, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0) // 2.4, 65536 bytes, Ethernet
	var want []roce.Opcode
	for _, size := range []uint32{0, 1, 200, 1024, 1025, 5000} {
		n := roce.MTU(1024).Packets(int(size))
		writes := opcodes(n, roce.WriteOnly, roce.WriteFirst, roce.WriteMiddle, roce.WriteLast)
		for verb, ops := range map[uint32][]roce.Opcode{
			regs.StreamConfigVerbSend:     opcodes(n, roce.SendOnly, roce.SendFirst, roce.SendMiddle, roce.SendLast),
			regs.StreamConfigVerbSendImm:  opcodes(n, roce.SendOnlyImm, roce.SendFirst, roce.SendMiddle, roce.SendLastImm),
			regs.StreamConfigVerbWrite:    append(writes, roce.WriteOnly), // the trailer
			regs.StreamConfigVerbWriteImm: opcodes(n, roce.WriteOnlyImm, roce.WriteFirst, roce.WriteMiddle, roce.WriteLastImm),
			regs.StreamConfigVerbRead:     {roce.ReadRequest},
		} {
			frames := send(t, verb, size)
			if len(frames) != len(ops) {
				t.Fatalf("verb %d, %d bytes: %d frames, want %d", verb, size, len(frames), len(ops))
			}
			for i, b := range frames {
				var f roce.Frame
				if err := f.Decode(b); err != nil || !f.ICRCOK(b) || f.Packet.Opcode != ops[i] {
					t.Errorf("verb %d, %d bytes, frame %d: %v, opcode %v, want %v, ICRC right: %t", verb, size, i, err, f.Packet.Opcode, ops[i], f.ICRCOK(b))
				}
				pcap = append(pcap, 0, 0, 0, 0, 0, 0, 0, 0)
				pcap = le.AppendUint32(le.AppendUint32(pcap, uint32(len(b))), uint32(len(b)))
				pcap = append(pcap, b...)
			}
			want = append(want, ops...)
		}
	}
	file := filepath.Join(t.TempDir(), "rtl.pcap")
	if err := os.WriteFile(file, pcap, 0o644); err != nil {
		t.Fatal(err)
	}
	// The payload is a pattern: no protocol is to be guessed in it.
	cmd := exec.Command(tshark, "-r", file, "-n", "--disable-protocol", "rpcordma", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=,", "-E", "occurrence=f",
		"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "ip.checksum.status", "-e", "_ws.malformed")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, &stderr)
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("tshark saw %d of %d frames", len(lines), len(want))
	}
	for i, line := range lines {
		// Checksum status 1 is good; the last field is empty unless malformed.
		if wanted := strconv.Itoa(int(want[i])) + ",0x0abc01,1,"; line != wanted {
			t.Errorf("frame %d, %v: tshark says %q, want %q", i+1, want[i], line, wanted)
		}
	}
	t.Logf("tshark read %d frames", len(want))
}
