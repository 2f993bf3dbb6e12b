package receive

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// generator makes what the verb completes with.
func generator(v rocelink.Verb, count uint64) *scripted.Generator {
	g := &scripted.Generator{ByteLen: 64, Count: count, WithImm: v == rocelink.VerbSendImm}
	if v == rocelink.VerbWriteImm {
		g.Opcode = verbs.OpRecvRDMAWithImm
	}
	return g
}

// land writes the sequence words of the next n frames, as a peer's WRITEs do.
func land(r *rig, n int) {
	ring := &r.loop.ring
	slot := ring.nextSlot
	for i := range uint64(n) {
		atomic.StoreUint64(ring.word(slot), littleEndian(ring.next+i+1))
		slot = ring.after(slot)
	}
}

// A message costs no allocation, whatever the verb, whether the sink keeps its
// slot, and whether the poll finds something.
func TestNoAllocations(t *testing.T) {
	for _, v := range streaming {
		for _, keep := range []bool{false, true} {
			var kept [256]Frame
			n := 0
			sink := funcSink(func(f *Frame) Verdict {
				if !keep {
					return Verified
				}
				kept[n] = *f
				n++
				return Kept
			})
			r := newRig(t, Config{Verb: v, Slots: 64, Sink: sink, Window: time.Hour}, scripted.Config{})
			r.loop.begin = time.Now()
			r.qp.Generate(generator(v, 0))
			allocs := testing.AllocsPerRun(1000, func() {
				if v == rocelink.VerbWrite {
					land(r, 16)
				}
				r.loop.turn()
				for _, f := range kept[:n] {
					f.Release()
				}
				n = 0
			})
			if allocs != 0 || r.loop.account.total.Messages < 16_000 {
				t.Errorf("%s, keep %v: %v allocations a turn, totals %+v", v, keep, allocs, r.loop.account.total)
			}
			r.qp.Generate(nil)
			waits := r.provider.Count(scripted.StepWait)
			allocs = testing.AllocsPerRun(1000, func() {
				r.cq.Wake() // so that no sleep lasts
				r.loop.turn()
				r.loop.rest(r.loop.active + time.Second)
			})
			if waits = r.provider.Count(scripted.StepWait) - waits; allocs != 0 || waits < 400 {
				t.Errorf("%s: %v allocations an empty turn; %d sleeps", v, allocs, waits)
			}
		}
	}
}

// BenchmarkLoop is one message: poll, account, discard, post again.
func BenchmarkLoop(b *testing.B) {
	for _, v := range streaming {
		for _, batch := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/batch=%d", v, batch), func(b *testing.B) {
				r := newRig(b, Config{Verb: v, Slots: 512, Batch: batch, Window: time.Hour, CreditOffset: 0}, scripted.Config{})
				r.loop.begin = time.Now()
				r.qp.Generate(generator(v, 0))
				b.ReportAllocs()
				b.ResetTimer()
				for total := &r.loop.account.total; total.Messages < rocelink.Count(b.N); {
					if v == rocelink.VerbWrite {
						land(r, batch)
					}
					r.loop.turn()
				}
			})
		}
	}
}

// BenchmarkEmpty is one poll that finds nothing.
func BenchmarkEmpty(b *testing.B) {
	for _, v := range streaming {
		b.Run(string(v), func(b *testing.B) {
			r := newRig(b, Config{Verb: v, Slots: 512, Window: time.Hour}, scripted.Config{})
			r.loop.begin = time.Now()
			b.ReportAllocs()
			for b.Loop() {
				r.loop.turn()
			}
		})
	}
}

// BenchmarkKept is one message whose slot the sink keeps and releases later.
func BenchmarkKept(b *testing.B) {
	var kept [64]Frame
	n := 0
	r := newRig(b, Config{Verb: rocelink.VerbSend, Slots: 512, Window: time.Hour, Sink: funcSink(func(f *Frame) Verdict {
		kept[n] = *f
		n++
		return Kept
	})}, scripted.Config{})
	r.loop.begin = time.Now()
	r.qp.Generate(generator(rocelink.VerbSend, 0))
	b.ReportAllocs()
	b.ResetTimer()
	for total := &r.loop.account.total; total.Messages < rocelink.Count(b.N); n = 0 {
		r.loop.turn()
		for i := range n {
			kept[i].Release()
		}
	}
}

// BenchmarkTotals is one reading of the totals by another goroutine.
func BenchmarkTotals(b *testing.B) {
	r := newRig(b, Config{Verb: rocelink.VerbSend}, scripted.Config{})
	b.ReportAllocs()
	for b.Loop() {
		_ = r.loop.Totals()
	}
}
