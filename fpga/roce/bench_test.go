package roce

import (
	"fmt"
	"hash/crc32"
	"testing"
	"time"
)

func TestNoAllocations(t *testing.T) {
	payload := make([]byte, 4096)
	buf := make([]byte, MaxFrame)
	for name, flow := range flows {
		var p Packet
		var f, g Frame
		for what, fn := range map[string]func(){
			"put, seal, decode, check": func() {
				q := Packet{BTH: BTH{Opcode: WriteOnlyImm}, Payload: payload}
				n, err := q.Put(buf)
				if err != nil {
					t.Fatal(err)
				}
				flow.Seal(buf[:n])
				if p.Decode(buf[:n]) != nil || !flow.Check(buf[:n]) {
					t.Fatal("refused")
				}
			},
			"frame": func() {
				f = Frame{Flow: flow, Packet: Packet{BTH: BTH{Opcode: SendOnly}, Payload: payload}}
				n, err := f.Put(buf)
				if err != nil {
					t.Fatal(err)
				}
				if g.Decode(buf[:n]) != nil || !g.ICRCOK(buf[:n]) {
					t.Fatal("refused")
				}
			},
			"refusal": func() {
				if p.Decode(buf[:15]) == nil || g.Decode(buf[:15]) == nil {
					t.Fatal("accepted")
				}
			},
		} {
			if n := testing.AllocsPerRun(100, fn); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, what, n)
			}
		}
	}
}

var benchSizes = []int{0, 64, 256, 1024, 4096}

func BenchmarkPutSeal(b *testing.B) {
	for _, name := range []string{"v4", "v6"} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				flow := flows[name]
				p := Packet{BTH: BTH{Opcode: SendOnly, PKey: PKeyDefault}, Payload: make([]byte, size)}
				buf := make([]byte, p.Len())
				b.SetBytes(int64(len(buf)))
				b.ReportAllocs()
				for b.Loop() {
					n, err := p.Put(buf)
					if err != nil {
						b.Fatal(err)
					}
					flow.Seal(buf[:n])
				}
			})
		}
	}
}

func BenchmarkDecodeCheck(b *testing.B) {
	for _, name := range []string{"v4", "v6"} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				flow := flows[name]
				p := Packet{BTH: BTH{Opcode: SendOnly, PKey: PKeyDefault}, Payload: make([]byte, size)}
				buf := make([]byte, p.Len())
				n, err := p.Put(buf)
				if err != nil {
					b.Fatal(err)
				}
				flow.Seal(buf[:n])
				b.SetBytes(int64(n))
				b.ReportAllocs()
				var q Packet
				for b.Loop() {
					if q.Decode(buf[:n]) != nil || !flow.Check(buf[:n]) {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}

// BenchmarkICRC stands beside BenchmarkCRC32, which runs hash/crc32 over as
// many bytes: what the pseudo header costs.
func BenchmarkICRC(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			flow := flows["v4"]
			udp := make([]byte, MinPacket+size)
			b.SetBytes(int64(48 + size))
			for b.Loop() {
				flow.ICRC(udp)
			}
		})
	}
}

func BenchmarkCRC32(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			buf := make([]byte, 48+size)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				crc32.ChecksumIEEE(buf)
			}
		})
	}
}

// BenchmarkICRCRatio takes turns between the two and reports how much of the
// speed of hash/crc32 over the same bytes is left: a ratio within one run means
// more than two figures on a machine that others use as well.
func BenchmarkICRCRatio(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			const turn = 100
			flow := flows["v4"]
			udp, buf := make([]byte, MinPacket+size), make([]byte, 48+size)
			var icrc, crc time.Duration
			for range b.N {
				start := time.Now()
				for range turn {
					flow.ICRC(udp)
				}
				middle := time.Now()
				for range turn {
					crc32.ChecksumIEEE(buf)
				}
				icrc += middle.Sub(start)
				crc += time.Since(middle)
			}
			b.ReportMetric(float64(crc)/float64(icrc), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
