package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rocelink/fpga/roce"
)

// tool finds a program, or skips the test: or fails it where tools must be.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatalf("%s is missing and ROCELINK_REQUIRE_TOOLS is 1", name)
		}
		t.Skipf("skipped: %s is not installed (ROCELINK_REQUIRE_TOOLS=1 makes this a failure)", name)
	}
	return path
}

// shark is what tshark says about a frame, one field as text.
type shark struct{ frame, opcode, psn, qp, pad, imm, va, length, syndrome string }

// runTshark dissects a file.
func runTshark(t *testing.T, path string) map[string]shark {
	t.Helper()
	args := []string{"-r", path, "-Y", "infiniband", "-T", "fields", "-E", "occurrence=f"}
	fields := []string{"frame.number", "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.destqp",
		"infiniband.bth.padcnt", "infiniband.immdt", "infiniband.reth.va", "infiniband.reth.dmalen", "infiniband.aeth.syndrome"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.Command(tool(t, "tshark"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, &stderr)
	}
	frames := map[string]shark{}
	for line := range strings.Lines(string(out)) {
		v := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(v) != len(fields) {
			t.Fatalf("tshark printed %d fields: %q", len(v), line)
		}
		frames[v[0]] = shark{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]}
	}
	return frames
}

// ours puts an object into tshark's words.
func ours(o object) shark {
	s := shark{
		frame: strconv.FormatUint(o.Frame, 10), opcode: strconv.Itoa(int(o.OpcodeValue)),
		psn: strconv.Itoa(int(o.PSN)), qp: fmt.Sprintf("0x%06x", o.DestQPN), pad: strconv.Itoa(int(o.Pad)),
	}
	if o.Imm != nil {
		s.imm = fmt.Sprintf("%08x", *o.Imm)
	}
	if o.RETH != nil {
		s.va, s.length = o.RETH.VA, strconv.FormatUint(uint64(o.RETH.Length), 10)
	}
	if o.AETH != nil {
		s.syndrome = strconv.Itoa(int(o.AETH.Syndrome))
	}
	return s
}

// tshark and this package say the same about every frame of a file.
func TestTshark(t *testing.T) {
	tool(t, "tshark")
	rng := rand.New(rand.NewPCG(1, 2))
	var frames []taken
	for range 400 {
		ops := []roce.Opcode{}
		for o := range 256 {
			if roce.Opcode(o).Known() {
				ops = append(ops, roce.Opcode(o))
			}
		}
		op := ops[rng.IntN(len(ops))]
		n := 0
		switch {
		case op.IsFirst() || op.IsMiddle():
			n = 256 << rng.IntN(5)
		case op.HasPayload():
			n = 1 + rng.IntN(4096)
		}
		p := packet(op, roce.PSN(rng.IntN(1<<24)), n)
		p.DestQP, p.Imm = roce.QPN(2+rng.IntN(1<<24-2)), rng.Uint32()
		p.RETH.Address = rng.Uint64()
		p.AETH.Syndrome = roce.Syndrome(rng.IntN(0x80))
		// A payload that no heuristic takes for a protocol.
		for i := range p.Payload {
			p.Payload[i] = 0xff
		}
		flow := []roce.Flow{board, host, board6}[rng.IntN(3)]
		var tags []roce.VLAN
		for range rng.IntN(3) {
			tags = append(tags, roce.VLAN{TPID: 0x8100, TCI: uint16(rng.IntN(4096))})
		}
		frames = append(frames, taken{data: ether(t, flow, p, tags...)})
	}
	// The unreliable connected service: every opcode that it has.
	for op := range roce.Opcode(32) {
		if !op.IsSend() && !op.IsWrite() {
			continue
		}
		p := packet(op, roce.PSN(rng.IntN(1<<24)), 1024)
		for i := range p.Payload {
			p.Payload[i] = 0xff
		}
		frames = append(frames, taken{data: unreliably(ether(t, board, p))})
	}
	for _, v := range vectors(t) {
		frames = append(frames, taken{data: v.Bytes})
	}
	other := bytes.Clone(frames[0].data)
	frames = append(frames, taken{data: other[:20]}, frames[1])
	var untagged []taken
	for _, f := range frames {
		if len(f.data) > 20 && f.data[12] == 8 {
			untagged = append(untagged, f)
		}
	}
	on := func(link linkType) (fs []taken) {
		for _, f := range untagged {
			fs = append(fs, taken{data: onLink(link, f.data)})
		}
		return fs
	}
	// Blocks that tshark numbers, and some that it does not, between packets.
	le := binary.LittleEndian
	numbered := append(ngSection(le), ngInterface(le, linkEthernet, 9, 0)...)
	for i, f := range frames {
		kind := []uint32{blockCustom, blockCustomNoCopy, 4, 10, 0x8000_0001, 0x9999}[i%6]
		numbered = append(numbered, ngBlock(le, kind, append(le.AppendUint32(nil, 12345), 0, 0, 0, 0))...)
		numbered = append(numbered, ngPacket(le, f, uint64(i))...)
	}
	for name, file := range map[string][]byte{
		"numbered.pcapng": numbered,
		"ethernet.pcap":   pcap(linkEthernet, frames...),
		"ethernet.pcapng": ngFile(le, linkEthernet, frames),
		"sll.pcap":        pcap(linkCooked, on(linkCooked)...),
		"sll2.pcap":       pcap(linkCooked2, on(linkCooked2)...),
		"raw.pcap":        pcap(linkRaw, on(linkRaw)...),
		"null.pcap":       pcap(linkNull, on(linkNull)...),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, file, 0o644); err != nil {
				t.Fatal(err)
			}
			want := runTshark(t, path)
			got, _, err := decodeJSON(t, file)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Errorf("%d packets, tshark has %d", len(got), len(want))
			}
			for _, o := range got {
				mine := ours(o)
				if theirs := want[mine.frame]; mine != theirs {
					t.Errorf("frame %s:\n%+v, tshark\n%+v", mine.frame, mine, theirs)
				}
			}
		})
	}
}

// What the capture tools write is read: other containers, cuts, merged files.
func TestCaptureTools(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.pcap")
	frames := threeFrames(t)
	if err := os.WriteFile(in, pcap(linkEthernet, frames...), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"pcapng": {"editcap", "-F", "pcapng", in},
		"cut":    {"editcap", "-F", "pcapng", "-s", "70", in},
		"micro":  {"editcap", "-F", "pcap", in},
		"merged": {"mergecap", "-F", "pcapng", "-w", "", in, in},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			tool(t, args[0])
			a := append([]string{}, args[1:]...)
			if args[0] == "mergecap" {
				a[3] = path
			} else {
				a = append(a, path)
			}
			if out, err := exec.Command(args[0], a...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, s, err := decodeJSON(t, file)
			if err != nil {
				t.Fatal(err)
			}
			n, cut := 3, 0
			switch name {
			case "merged":
				n = 6
			case "cut":
				cut = 1
			}
			if len(got) != n || s.BadICRC != 0 || s.Cut != uint64(cut) || s.Malformed != 0 {
				t.Errorf("%d packets, %+v", len(got), s)
			}
		})
	}
}
