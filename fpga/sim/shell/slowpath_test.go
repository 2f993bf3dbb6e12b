//go:build verilator

package shell

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
)

// request is a frame of the slow path and its answer, both written here byte by
// byte: nothing of what makes the core's frames or the fabric's answers is used.
type request struct{ frame, answer []byte }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// sum is the Internet checksum.
func sum(b []byte) []byte {
	var n uint32
	for i := range b {
		n += uint32(b[i]) << (8 - 8*(i&1))
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return binary.BigEndian.AppendUint16(nil, ^uint16(n))
}

func padded(b []byte) []byte {
	for len(b) < 60 {
		b = append(b, 0)
	}
	return b
}

func arp() request {
	mac, peer := localMAC[:], peerMAC[:]
	ip, peerIP := localIP.AsSlice(), remoteIP.AsSlice()
	head := []byte{8, 6, 0, 1, 8, 0, 6, 4, 0}
	return request{
		padded(join(bytes.Repeat([]byte{255}, 6), peer, head, []byte{1}, peer, peerIP, make([]byte, 6), ip)),
		padded(join(peer, mac, head, []byte{2}, mac, ip, peer, peerIP)),
	}
}

// echo is a ping with an identifier and so many random bytes.
func echo(random *rand.Rand, id uint16, size int) request {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	packet := func(src, dst []byte, ttl, kind byte) []byte {
		icmp := join([]byte{kind, 0, 0, 0}, binary.BigEndian.AppendUint16(nil, id), []byte{0, 1}, data)
		copy(icmp[2:], sum(icmp))
		ip := join([]byte{0x45, 0}, binary.BigEndian.AppendUint16(nil, uint16(20+len(icmp))), []byte{byte(id >> 8), byte(id), 0x40, 0, ttl, 1, 0, 0}, src, dst)
		copy(ip[10:], sum(ip))
		return join(ip, icmp)
	}
	local, remote := localIP.AsSlice(), remoteIP.AsSlice()
	type4 := []byte{8, 0}
	return request{
		padded(join(localMAC[:], peerMAC[:], type4, packet(remote, local, byte(id), 8))),
		padded(join(peerMAC[:], localMAC[:], type4, packet(local, remote, 64, 0))),
	}
}

// readBack has tshark judge frames: an ARP reply or an echo reply with right
// checksums each.
func readBack(t *testing.T, frames [][]byte) {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatal("tshark is not installed: apt-get install tshark")
		}
		t.Log("tshark is not installed and reads nothing: apt-get install tshark")
		return
	}
	le := binary.LittleEndian
	pcap := le.AppendUint32(nil, 0xa1b2c3d4)
	pcap = append(pcap, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0) // 2.4, 65536 bytes, Ethernet
	for _, b := range frames {
		pcap = append(pcap, make([]byte, 8)...)
		pcap = le.AppendUint32(le.AppendUint32(pcap, uint32(len(b))), uint32(len(b)))
		pcap = append(pcap, b...)
	}
	file := filepath.Join(t.TempDir(), "slow.pcap")
	if err := os.WriteFile(file, pcap, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tshark, "-r", file, "-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=,",
		"-e", "eth.dst", "-e", "arp.opcode", "-e", "arp.src.hw_mac", "-e", "arp.src.proto_ipv4", "-e", "ip.checksum.status", "-e", "ip.src", "-e", "icmp.type", "-e", "icmp.checksum.status", "-e", "_ws.malformed")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, &stderr)
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("tshark saw %d of %d frames", len(lines), len(frames))
	}
	for i, line := range lines {
		want := fmt.Sprintf("%v,,,,1,%v,0,1,", peerMAC, localIP)
		if frames[i][13] == 6 {
			want = fmt.Sprintf("%v,2,%v,%v,,,,,", peerMAC, localMAC, localIP)
		}
		if line != want {
			t.Errorf("frame %d: tshark says %q, want %q", i, line, want)
		}
	}
}

// ARP and ping are answered while two streams send as fast as the MAC takes
// beats, and the streams do not see it: no cycle without a beat, no packet twice.
func TestSlowPathBesideStreams(t *testing.T) {
	for _, c := range []struct {
		name string
		mac  func(*rand.Rand) func() bool
		full bool
	}{
		{"full rate", func(*rand.Rand) func() bool { return nil }, true},
		{"a MAC that pauses", func(r *rand.Rand) func() bool { return func() bool { return r.IntN(4) > 0 } }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t, 1)
			random := rand.New(rand.NewPCG(1, 1))
			h.Takes = c.mac(random)
			h.Pauses = func() bool { return random.IntN(8) == 0 }
			verbs := []uint32{regs.StreamConfigVerbSend, regs.StreamConfigVerbWriteImm}
			for i := range uint32(2) {
				h.connect(i)
				h.start(i, verbs[i], 0)
			}
			h.exchange(3000, nil)
			h.Idle = 0
			var asked []request
			const count = 160
			sizes := []int{0, 1, 17, 18, 19, 22, 23, 56, 500, 1472, 4000, 8972}
			h.exchange(200000, func() bool {
				if len(asked) == count {
					return len(h.slow) == count
				}
				// One at a time, and now and then several.
				if len(h.slow) < len(asked) && random.IntN(40) != 0 {
					return false
				}
				r := arp()
				if len(asked)%3 != 0 {
					r = echo(random, uint16(len(asked)), sizes[random.IntN(len(sizes))])
				}
				asked = append(asked, r)
				h.Receive(r.frame)
				return false
			})
			if c.full && h.Idle != 0 {
				t.Errorf("%d cycles without a beat", h.Idle)
			}
			for i := range uint32(2) {
				h.must(h.stream, regs.StreamCommandOpStop, i)
			}
			h.exchange(60000, func() bool { return h.stopped(0) && h.stopped(1) })
			h.checkAnswers(asked)
			readBack(t, h.slow)
			var arps, echos uint64
			for _, f := range h.slow {
				if f[13] == 6 {
					arps++
				} else {
					echos++
				}
			}
			if got, want := h.Counters(), (Counters{ARP: arps, Echo: echos}); got != want {
				t.Errorf("counters %+v, want %+v", got, want)
			}
			if arps < 10 || echos < 20 {
				t.Errorf("only %d ARP and %d echo", arps, echos)
			}
			h.checkStreams(100)
		})
	}
}

// How long an answer takes where nothing else wants to leave: three times its
// beats, to be taken, summed and sent, and what is the same for each.
func TestSlowPathLatency(t *testing.T) {
	h := open(t, 6)
	random := rand.New(rand.NewPCG(6, 6))
	for _, r := range []request{arp(), echo(random, 1, 0), echo(random, 2, 56), echo(random, 3, 1472), echo(random, 4, 8972)} {
		beats := (len(r.frame) + 63) / 64
		h.Receive(r.frame)
		h.Run(beats)
		arrived := h.Cycle()
		h.Run(4*beats + 100)
		if len(h.Frames) != 1 || !bytes.Equal(h.Frames[0].Data, r.answer) {
			t.Fatalf("%d frames left", len(h.Frames))
		}
		took := int(h.Frames[0].Last - arrived + 1)
		if took > 3*beats+30 {
			t.Errorf("%d bytes: answered in %d cycles", len(r.frame), took)
		}
		t.Logf("%d bytes: answered in %d cycles", len(r.frame), took)
		h.Frames = nil
	}
}

// A flood that is nobody's, of the smallest frames as fast as a MAC could ever
// give them: what does not fit is counted, the streams and their answers are
// untouched, and the next ping is answered.
func TestSlowPathFlood(t *testing.T) {
	h := open(t, 2)
	random := rand.New(rand.NewPCG(2, 2))
	h.connect(0)
	h.start(0, regs.StreamConfigVerbSend, 0)
	h.exchange(3000, nil)
	const flood = 6000
	sent := 0
	h.exchange(flood+3000, func() bool {
		for h.Queued() < 40 && sent < flood {
			f := make([]byte, 60)
			for i := range f {
				f[i] = byte(random.Uint32())
			}
			h.Receive(f)
			sent++
		}
		return sent == flood && h.Queued() == 0
	})
	h.must(h.stream, regs.StreamCommandOpStop, 0)
	h.exchange(60000, func() bool { return h.stopped(0) })
	// The buffer is worked off.
	settled := h.Counters()
	h.exchange(60000, func() bool {
		h.Run(2000)
		now := h.Counters()
		done := now == settled
		settled = now
		return done
	})
	if c := settled; c.Overrun == 0 || c.Unanswered < 500 || c.Overrun+c.Unanswered != flood {
		t.Errorf("counters %+v of %d frames", c, flood)
	}
	asked := []request{arp(), echo(random, 1, 100)}
	for _, r := range asked {
		h.Receive(r.frame)
	}
	h.exchange(3000, func() bool { return len(h.slow) == len(asked) })
	h.checkAnswers(asked)
	h.checkStreams(50)
}

// A MAC that takes nothing for long, with an answer at its port or behind a frame
// of the core, and then goes on: nothing is stuck.
func TestSlowPathBehindDeadMAC(t *testing.T) {
	for at := range 40 {
		h := open(t, uint32(at))
		random := rand.New(rand.NewPCG(uint64(at), 3))
		h.connect(0)
		h.start(0, regs.StreamConfigVerbSend, 0)
		h.exchange(2000, nil)
		h.Receive(echo(random, 1, 700).frame)
		h.Run(40 + at)
		h.Takes = func() bool { return false }
		h.Run(6000) // rl_tx_out gives it 4096
		h.Takes = nil
		h.Run(400)
		h.abandon()
		h.must(h.stream, regs.StreamCommandOpReset, 0)
		h.must(h.Shell, regs.CoreCommandOpReset, 0)
		h.Run(400)
		h.abandon()
		asked := []request{arp(), echo(random, 2, 30)}
		for _, r := range asked {
			h.Receive(r.frame)
		}
		h.connect(0)
		h.start(0, regs.StreamConfigVerbSend, 4)
		h.exchange(20000, func() bool { return len(h.slow) == len(asked) && len(h.peers[0].Messages) == 4 })
		h.checkAnswers(asked)
		h.checkStreams(4)
	}
}

// After a reset in any cycle of everything, registers, streams and slow path
// begin anew: no old frame leaves, and the addresses are gone until set again.
func TestReset(t *testing.T) {
	h := open(t, 4)
	random := rand.New(rand.NewPCG(4, 4))
	for range 25 {
		h.connect(0)
		h.start(0, regs.StreamConfigVerbSend, 0)
		for range 4 {
			h.Receive(echo(random, 9, random.IntN(3000)).frame)
		}
		h.exchange(uint64(100+random.IntN(700)), nil)
		h.Reset()
		h.Frames, h.slow = nil, nil
		h.Receive(arp().frame)
		h.exchange(1000, nil)
		if len(h.slow) != 0 || h.Queued() != 0 {
			t.Fatalf("%d frames left without an address, %d wait", len(h.slow), h.Queued())
		}
		h.configure()
		asked := []request{arp(), echo(random, 3, 200)}
		for _, r := range asked {
			h.Receive(r.frame)
		}
		h.connect(0)
		h.start(0, regs.StreamConfigVerbSend, 4)
		h.exchange(20000, func() bool { return len(h.slow) == len(asked) && len(h.peers[0].Messages) == 4 })
		h.checkAnswers(asked)
		h.checkStreams(4)
		h.must(h.stream, regs.StreamCommandOpReset, 0)
		h.must(h.Shell, regs.CoreCommandOpReset, 0)
		h.slow = nil
	}
}

// Registers are there through AXI4-Lite, and what is not there is refused.
func TestRegisters(t *testing.T) {
	h := open(t, 5)
	for _, c := range []struct {
		bus  regs.Bus
		r    regs.Reg
		want uint32
	}{{h.Shell, regs.CoreIdent, regs.IdentCore}, {h.stream, regs.StreamIdent, regs.IdentStream}, {h.Shell, regs.CoreClockKHz, 322266}} {
		if v := h.get(c.bus, c.r); v != c.want {
			t.Errorf("register %#x reads %#x, want %#x", c.r, v, c.want)
		}
	}
	h.put(h.Shell, regs.CoreScratch, 0xdeadbeef)
	for _, offset := range []uint32{0x10000, 0x10000 | uint32(regs.CoreScratch), uint32(regs.CoreScratch) + 2} {
		if v, err := h.Read32(offset); err == nil || v != 0 {
			t.Errorf("read of %#x: %#x, %v", offset, v, err)
		}
		if err := h.Write32(offset, 1); err == nil {
			t.Errorf("write of %#x was taken", offset)
		}
	}
	if v := h.get(h.Shell, regs.CoreScratch); v != 0xdeadbeef {
		t.Errorf("Scratch is %#x", v)
	}
}

// The streams' frames are those of the pattern, in order, and at least so many.
func (h *host) checkStreams(least int) {
	h.Helper()
	want := make([]byte, frameBytes)
	for i, p := range h.peers {
		if p == nil {
			continue
		}
		if len(p.Messages) < least {
			h.Errorf("stream %d: %d frames arrived", i, len(p.Messages))
		}
		for n, m := range p.Messages {
			pattern.Fill(want, pattern.PRBS31, uint64(n))
			if !bytes.Equal(m.Data, want) {
				h.Fatalf("stream %d: frame %d arrived wrong", i, n)
			}
		}
		h.must(h.Shell, regs.CoreCommandOpLatch, uint32(i))
		if n, err := regs.CoreStatPacketsResent.Read(h.Shell); n != 0 || err != nil {
			h.Errorf("stream %d: %d packets were sent again (%v)", i, n, err)
		}
	}
}

// checkAnswers compares the answers with what was asked.
func (h *host) checkAnswers(asked []request) {
	h.Helper()
	if len(h.slow) != len(asked) {
		h.Fatalf("%d answers to %d requests", len(h.slow), len(asked))
	}
	for i, r := range asked {
		if !bytes.Equal(h.slow[i], r.answer) {
			h.Fatalf("request %d:\n asked %x\n   got %x\n  want %x", i, r.frame, h.slow[i], r.answer)
		}
	}
}
