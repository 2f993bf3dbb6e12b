package capture

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"rocelink/fpga/roce"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

// A capture with something of everything.
func goldenFrames(t testing.TB) []taken {
	imm := packet(roce.WriteOnlyImm, 16777214, 64)
	imm.AckReq, imm.SolicitedEvent, imm.Imm = true, true, 42
	unreliable := imm
	unreliable.DestQP, unreliable.AckReq = 0x77, false
	rnr, nak := packet(roce.Acknowledge, 0, 0), packet(roce.Acknowledge, 2, 0)
	rnr.AETH.Syndrome, nak.AETH.Syndrome = roce.RNRNak(12), roce.Nak(roce.PSNSequenceError)
	ack := packet(roce.Acknowledge, 3, 0)
	rnr.DestQP, nak.DestQP, ack.DestQP = 0x45, 0x45, 0x45
	read := packet(roce.ReadRequest, 4, 0)
	read.RETH.Length = 1500
	first, last := packet(roce.ReadResponseFirst, 4, 1024), packet(roce.ReadResponseLast, 5, 476)
	first.DestQP, last.DestQP = 0x45, 0x45
	bad := ether(t, board, packet(roce.SendOnly, 6, 64))
	bad[60] ^= 1
	unknown := ether(t, board, packet(roce.SendOnly, 7, 64))
	unknown[42] = 0x1f
	other := ether(t, board, packet(roce.SendOnly, 0, 64))
	other[37]++
	long := ether(t, board, packet(roce.SendOnlyImm, 7, 300))
	return append(whole(
		ether(t, board, imm),
		ether(t, board, packet(roce.SendOnly, 16777215, 1)),
		ether(t, board, packet(roce.SendOnly, 0, 0)),
		ether(t, host, rnr),
		ether(t, board, packet(roce.SendOnly, 0, 0)),
		ether(t, board, packet(roce.SendOnly, 3, 64)),
		ether(t, host, nak),
		ether(t, board, packet(roce.SendOnly, 1, 64)),
		ether(t, board, packet(roce.SendOnly, 2, 64)),
		ether(t, board, packet(roce.SendOnly, 3, 64)),
		ether(t, host, ack),
		ether(t, board, read),
		ether(t, host, first),
		ether(t, host, last),
		other,
		bad,
		reseal(unknown),
		ether(t, board6, packet(roce.SendLastImm, 9, 33), roce.VLAN{TPID: 0x8100, TCI: 100}),
	), taken{data: long[:96], length: len(long), at: 3_000_000_123},
		taken{data: unreliably(ether(t, board, unreliable)), at: 3_000_000_457})
}

func TestGolden(t *testing.T) {
	var out bytes.Buffer
	if _, err := Decode(&out, bytes.NewReader(pcap(linkEthernet, goldenFrames(t)...)), Options{}); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/golden.txt"
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// The JSON summary is one more object, of another shape, and only on demand.
func TestJSONSummary(t *testing.T) {
	file := pcap(linkEthernet, goldenFrames(t)...)
	var plain, with bytes.Buffer
	if _, err := Decode(&plain, bytes.NewReader(file), Options{JSON: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(&with, bytes.NewReader(file), Options{JSON: true, Summary: true}); err != nil {
		t.Fatal(err)
	}
	if n := len(parseLines(t, plain.Bytes())); n != 19 {
		t.Errorf("%d objects, want 19", n)
	}
	last, ok := bytes.CutPrefix(with.Bytes(), plain.Bytes())
	if !ok || !bytes.HasPrefix(last, []byte(`{"summary":{"frames":20,"packets":19,`)) || bytes.Count(last, []byte("\n")) != 1 {
		t.Errorf("summary %s", last)
	}
}
