package pattern

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// serialPRBS is the generator as a shift register, one bit a step.
func serialPRBS(n int, seq uint64) []byte {
	var reg [31]byte // reg[0] is the youngest bit
	seed := Seed(seq)
	for i := range reg {
		reg[i] = byte(seed >> (30 - i) & 1)
	}
	out := make([]byte, n)
	for i := range n * 8 {
		bit := reg[27] ^ reg[30]
		copy(reg[1:], reg[:30])
		reg[0] = bit
		out[i/8] |= bit << (i % 8)
	}
	return out
}

// serialCounter is the counter, one byte a step.
func serialCounter(n int, seq uint64) []byte {
	out := make([]byte, n)
	for i := range out {
		switch j := i % 8; {
		case j < 4:
			out[i] = byte(uint32(i/8) >> (8 * j))
		default:
			out[i] = byte(uint32(seq) >> (8 * (j - 4)))
		}
	}
	return out
}

func reference(n int, k Kind, seq uint64) []byte {
	if k == PRBS31 {
		return serialPRBS(n, seq)
	}
	return serialCounter(n, seq)
}

var kinds = []Kind{Counter, PRBS31}

var seqs = []uint64{0, 1, 2, 41, SeedXOR, 1<<30 - 1, 1 << 30, 1<<32 - 1, 1 << 32, 1<<64 - 1}

func TestFillAgainstReference(t *testing.T) {
	var lengths []int
	for n := range 600 {
		lengths = append(lengths, n)
	}
	lengths = append(lengths, 4095, 4096, 4097, 8192, 65537)
	for _, k := range kinds {
		for _, seq := range seqs {
			want := reference(65537, k, seq)
			for _, n := range lengths {
				b := bytes.Repeat([]byte{0x55}, n+1)
				Fill(b[:n], k, seq)
				if !bytes.Equal(b[:n], want[:n]) {
					t.Fatalf("%v, frame %d, %d bytes: differs from the reference", k, seq, n)
				}
				if b[n] != 0x55 {
					t.Fatalf("%v, %d bytes: wrote behind the end", k, n)
				}
				if at := Check(b[:n], k, seq); at != -1 {
					t.Fatalf("%v, frame %d, %d bytes: check finds byte %d", k, seq, n, at)
				}
			}
		}
	}
}

func TestFillAt(t *testing.T) {
	const n = 20000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range kinds {
		for _, seq := range seqs {
			want := reference(n, k, seq)
			offsets := []int{0, 1, 3, 7, 8, 9, 255, 256, 4096, 4100, n}
			for range 20 {
				offsets = append(offsets, rng.IntN(n))
			}
			for _, off := range offsets {
				for _, l := range []int{0, 1, 5, 8, 11, 300, 4096} {
					l = min(l, n-off)
					b := make([]byte, l)
					FillAt(b, k, seq, off)
					if !bytes.Equal(b, want[off:off+l]) {
						t.Fatalf("%v, frame %d, %d bytes at %d: differs", k, seq, l, off)
					}
					if at := CheckAt(b, k, seq, off); at != -1 {
						t.Fatalf("%v, frame %d, %d bytes at %d: check finds %d", k, seq, l, off, at)
					}
				}
			}
		}
	}
	b, c := make([]byte, 64), make([]byte, 64)
	for _, k := range kinds {
		FillAt(b, k, 5, -3)
		Fill(c, k, 5)
		if !bytes.Equal(b, c) {
			t.Errorf("%v: a negative offset", k)
		}
	}
}

// A frame cut to a path MTU, as the fabric does it.
func TestPieces(t *testing.T) {
	for _, k := range kinds {
		for _, mtu := range []int{256, 1024, 4096} {
			want := make([]byte, 3*4096+77)
			Fill(want, k, 99)
			got := make([]byte, len(want))
			for at := 0; at < len(got); at += mtu {
				FillAt(got[at:min(at+mtu, len(got))], k, 99, at)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%v at %d: pieces differ from the whole", k, mtu)
			}
		}
	}
}

// Far into a frame, where no reference can be run: the sequence has period
// 2^31-1 bits, so 2^31-1 bytes make eight periods.
func TestFarOffset(t *testing.T) {
	const period = 1<<31 - 1
	near, far := make([]byte, 512), make([]byte, 512)
	Fill(near, PRBS31, 7)
	for _, times := range []uint64{1, 2, 1 << 20} {
		if times*period > math.MaxInt {
			break
		}
		FillAt(far, PRBS31, 7, int(times*period))
		if !bytes.Equal(near, far) {
			t.Errorf("%d periods later the sequence differs", times)
		}
	}
	FillAt(far, PRBS31, 7, period-1)
	if bytes.Equal(near, far) {
		t.Error("a byte before the period it is the same")
	}
	words := uint64(1) << 32
	if strconv.IntSize < 64 {
		return
	}
	FillAt(far, Counter, 7, int(8*words))
	if got := binary.LittleEndian.Uint64(far); got != 7<<32 {
		t.Errorf("counter beyond 2^32 words: %#x", got)
	}
}

func TestCheckFindsTheByte(t *testing.T) {
	for _, k := range kinds {
		for _, n := range []int{1, 7, 8, 31, 33, 250, 264, 300, 1000} {
			b := make([]byte, n)
			Fill(b, k, 12)
			for i := range b {
				b[i] ^= 0x10
				for j := i + 1; j < min(i+3, n); j++ {
					b[j] ^= 1
				}
				if at := Check(b, k, 12); at != i {
					t.Fatalf("%v, %d bytes, byte %d wrong: check says %d", k, n, i, at)
				}
				Fill(b, k, 12)
			}
		}
		b := make([]byte, 64)
		Fill(b, k, 12)
		if Check(b, k, 13) == -1 {
			t.Errorf("%v: frame 12 passes for 13", k)
		}
	}
}

// Any damage: runs of bytes from elsewhere, so that the differences of one word
// may cancel those of the next.
func TestCheckAgainstComparing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, k := range kinds {
		for range 20000 {
			n, seq, off := rng.IntN(700), rng.Uint64(), rng.IntN(100)
			b, want := make([]byte, n), make([]byte, n)
			FillAt(want, k, seq, off)
			FillAt(b, k, seq, off)
			from, to := rng.IntN(n+1), rng.IntN(n+1)
			if from < to {
				FillAt(b[from:to], k, seq+uint64(rng.IntN(2)), off+from+8*rng.IntN(3))
			}
			first := -1
			for i := range b {
				if b[i] != want[i] {
					first = i
					break
				}
			}
			if at := CheckAt(b, k, seq, off); at != first {
				t.Fatalf("%v, %d bytes at %d, damaged from %d to %d: check says %d, comparing %d",
					k, n, off, from, to, at, first)
			}
		}
	}
}

func TestSeed(t *testing.T) {
	seen := map[uint32]bool{}
	for seq := range uint64(100000) {
		s := Seed(seq)
		if s == 0 || s > prbsMask || seen[s] {
			t.Fatalf("seed of %d is %#x, seen before %v", seq, s, seen[s])
		}
		seen[s] = true
	}
	if Seed(SeedXOR) != 1 || Seed(0) != SeedXOR<<1&prbsMask|1 {
		t.Error("seed is not as documented")
	}
}

// PRBS31 as others know it: a register of ones gives the sequence that begins
// with 28 zeros, three ones.
func TestPRBSFromOnes(t *testing.T) {
	w0, _ := firstWords(prbsMask)
	if got := w0 & prbsMask; got != 7<<28 {
		t.Errorf("first bits %031b", got)
	}
}

func TestKind(t *testing.T) {
	for _, k := range kinds {
		for _, s := range []string{k.String(), string(bytes.ToUpper([]byte(k.String())))} {
			if got, err := ParseKind(s); err != nil || got != k {
				t.Errorf("%q: %v, %v", s, got, err)
			}
		}
		b, err := json.Marshal(k)
		var back Kind = 9
		if err != nil || json.Unmarshal(b, &back) != nil || back != k {
			t.Errorf("%v as JSON: %s, %v, %v", k, b, err, back)
		}
	}
	for _, s := range []string{"", "prbs", "prbs23", "counter "} {
		var k Kind
		if _, err := ParseKind(s); !errors.Is(err, ErrKind) {
			t.Errorf("%q: %v", s, err)
		}
		if err := k.UnmarshalText([]byte(s)); !errors.Is(err, ErrKind) {
			t.Errorf("text %q: %v", s, err)
		}
	}
	bad := Kind(7)
	if _, err := bad.MarshalText(); !errors.Is(err, ErrKind) || bad.Valid() || bad.String() != "pattern(7)" {
		t.Errorf("%v: %v", bad, err)
	}
	b := []byte{1, 2, 3}
	Fill(b, bad, 1)
	if !bytes.Equal(b, make([]byte, 3)) || Check(b, bad, 1) != 0 || Check(nil, bad, 1) != -1 {
		t.Error("a kind that is none")
	}
}

func TestCRC(t *testing.T) {
	for _, n := range []int{4, 5, 64, 4096} {
		b := make([]byte, n)
		Fill(b[:n-CRCLen], PRBS31, 3)
		if CheckCRC(b) && n > CRCLen {
			t.Errorf("%d bytes: right before it was sealed", n)
		}
		if err := SealCRC(b); err != nil || !CheckCRC(b) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if got := binary.LittleEndian.Uint32(b[n-4:]); got != crc32.ChecksumIEEE(b[:n-4]) {
			t.Errorf("%d bytes: trailer %#x", n, got)
		}
		if at := Check(b[:n-CRCLen], PRBS31, 3); at != -1 {
			t.Errorf("sealing changed byte %d", at)
		}
		b[n/2] ^= 0x80
		if CheckCRC(b) {
			t.Errorf("%d bytes: a flipped bit goes unseen", n)
		}
	}
	for n := range CRCLen {
		b := make([]byte, n)
		if err := SealCRC(b); !errors.Is(err, ErrShort) || CheckCRC(b) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	b := make([]byte, 4096)
	for _, k := range kinds {
		if n := testing.AllocsPerRun(50, func() {
			FillAt(b, k, 5, 4096)
			if CheckAt(b, k, 5, 4096) != -1 || SealCRC(b) != nil || !CheckCRC(b) {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", k, n)
		}
	}
}

func FuzzCheckFill(f *testing.F) {
	f.Add(uint8(0), uint64(0), uint16(100), uint32(0), uint16(50), uint8(1))
	f.Add(uint8(1), uint64(1<<40), uint16(4096), uint32(4096), uint16(300), uint8(0x80))
	f.Add(uint8(1), uint64(9), uint16(0), uint32(7), uint16(0), uint8(0))
	f.Fuzz(func(t *testing.T, kind uint8, seq uint64, n uint16, offset uint32, at uint16, flip uint8) {
		k := Kind(kind % 2)
		b := make([]byte, n)
		FillAt(b, k, seq, int(offset))
		if got := CheckAt(b, k, seq, int(offset)); got != -1 {
			t.Fatalf("check(fill) = %d", got)
		}
		// Cut anywhere, the rest is the same.
		cut := int(at) % (len(b) + 1)
		rest := make([]byte, len(b)-cut)
		FillAt(rest, k, seq, int(offset)+cut)
		if !bytes.Equal(rest, b[cut:]) {
			t.Fatal("pieces differ from the whole")
		}
		if cut == len(b) || flip == 0 {
			return
		}
		b[cut] ^= flip
		if got := CheckAt(b, k, seq, int(offset)); got != cut {
			t.Fatalf("byte %d wrong, check says %d", cut, got)
		}
	})
}

func BenchmarkFill(b *testing.B) {
	for _, k := range kinds {
		for _, n := range []int{64, 1024, 4096, 65536} {
			b.Run(fmt.Sprintf("%v/%d", k, n), func(b *testing.B) {
				buf := make([]byte, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				var seq uint64
				for b.Loop() {
					Fill(buf, k, seq)
					seq++
				}
			})
		}
	}
}

// Pieces of a path MTU each, the last of a 64 KiB frame.
func BenchmarkFillAt(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.String(), func(b *testing.B) {
			buf := make([]byte, 4096)
			b.SetBytes(4096)
			for b.Loop() {
				FillAt(buf, k, 1, 61440)
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, k := range kinds {
		for _, n := range []int{64, 4096, 65536} {
			b.Run(fmt.Sprintf("%v/%d", k, n), func(b *testing.B) {
				buf := make([]byte, n)
				Fill(buf, k, 1)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if Check(buf, k, 1) != -1 {
						b.Fatal("wrong")
					}
				}
			})
		}
	}
}

func BenchmarkCRC(b *testing.B) {
	buf := make([]byte, 4096)
	b.SetBytes(4096)
	for b.Loop() {
		if err := SealCRC(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleFillAt() {
	// The second packet of a frame at a path MTU of 256.
	piece := make([]byte, 256)
	FillAt(piece, Counter, 5, 256)
	fmt.Printf("% x\n", piece[:16])
	// Output: 20 00 00 00 05 00 00 00 21 00 00 00 05 00 00 00
}
