//go:build verilator

package icrc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"rocelink/fpga/roce"
)

// frame returns a random frame with a payload of n bytes, as the codec seals it.
func frame(t testing.TB, rng *rand.Rand, n int) []byte {
	t.Helper()
	var f roce.Frame
	binary.BigEndian.PutUint32(f.Src[2:], rng.Uint32())
	f.Flow = roce.Flow{
		Src: netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, rng.Uint32()))),
		Dst: netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, rng.Uint32()))),
		ID:  uint16(rng.Uint32()), SrcPort: uint16(rng.Uint32()),
	}
	f.TrafficClass, f.TTL = uint8(rng.Uint32()), uint8(rng.Uint32()|1)
	f.Packet.BTH = roce.BTH{MigReq: rng.IntN(2) == 0, FECN: rng.IntN(2) == 0, PKey: uint16(rng.Uint32()),
		DestQP: roce.QPN(rng.Uint32N(roce.QPNMask)), PSN: roce.PSN(rng.Uint32N(roce.PSNMask))}
	f.Packet.Opcode = []roce.Opcode{roce.SendOnly, roce.SendOnlyImm, roce.WriteOnly, roce.WriteOnlyImm}[rng.IntN(4)]
	f.Packet.RETH = roce.RETH{Address: rng.Uint64(), RKey: rng.Uint32(), Length: uint32(n)}
	f.Packet.Payload = make([]byte, n)
	for i := range f.Packet.Payload {
		f.Packet.Payload[i] = byte(rng.Uint32())
	}
	b := make([]byte, f.Len())
	if _, err := f.Put(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func unsealed(frames [][]byte) (out [][]byte) {
	for _, f := range frames {
		f = bytes.Clone(f)
		clear(f[len(f)-roce.ICRCLen:])
		out = append(out, f)
	}
	return out
}

func compare(t *testing.T, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frames came out, %d went in", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			n := len(want[i])
			t.Fatalf("frame %d of %d bytes (tail %d): got ICRC %x, want %x; payload equal: %t", i, n, n%64,
				got[i][len(got[i])-4:], want[i][n-4:], bytes.Equal(got[i][:len(got[i])-4], want[i][:n-4]))
		}
	}
}

// Every payload length there is, alone, densely and with pauses anywhere.
func TestInsertEveryLength(t *testing.T) {
	b := New()
	defer b.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, pause := range []int{0, 20, 128, 230} {
		t.Run(fmt.Sprintf("pause=%d", pause), func(t *testing.T) {
			for from := 0; from <= 4096; from += 256 {
				var want [][]byte
				for n := from; n < min(from+256, 4097); n++ {
					if n > 300 && n < 3800 && (n-from)%7 != pause%7 {
						continue // all tails are among these
					}
					want = append(want, frame(t, rng, n))
				}
				rng.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
				compare(t, b.Run(unsealed(want), rng.Uint32()|1, pause), want)
			}
		})
	}
}

// A beat that waits for its successor must not leave after a reset, nor may any
// other, and the frame after it is right.
func TestInsertReset(t *testing.T) {
	b := New()
	defer b.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for beats := 1; beats <= 24; beats++ {
		if n := b.Reset(frame(t, rng, 1400), beats); n != 0 {
			t.Errorf("reset after %d beats: %d left after it", beats, n)
		}
		want := [][]byte{frame(t, rng, rng.IntN(200))}
		compare(t, b.Run(unsealed(want), 1, 0), want)
	}
}
