package receive

import (
	"fmt"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// mixer gives the completions to the queue pairs in turn, so many to each: a
// generator alone would fill a whole batch for one of them.
type mixer struct {
	verbs.CompletionQueue
	qpns     []uint32
	together int
	count    int
}

func (m *mixer) Depth() int {
	if m.CompletionQueue == nil {
		return 1 << 20
	}
	return m.CompletionQueue.Depth()
}

func (m *mixer) Poll(wcs []verbs.WorkCompletion) (int, error) {
	n, err := m.CompletionQueue.Poll(wcs)
	for i := range wcs[:n] {
		wcs[i].QPN = m.qpns[m.count/m.together%len(m.qpns)]
		m.count++
	}
	return n, err
}

// generatingPool is a pool of so many streams whose peers send whenever there is
// a receive. Its turns are the test's.
func generatingPool(t testing.TB, streams, batch, together int, sink Sink) (*poolRig, []*poolMember) {
	mix := &mixer{together: together}
	r := restingPoolRig(t, PoolConfig{CQ: mix, Slots: 512, Batch: batch}, scripted.Config{})
	var ms []*poolMember
	for range streams {
		m := r.join(Config{Verb: rocelink.VerbSend, Window: time.Hour, Sink: sink})
		mix.qpns = append(mix.qpns, uint32(m.qp.QPN()))
		ms = append(ms, m)
	}
	ms[0].qp.Generate(&scripted.Generator{ByteLen: 64})
	r.pool.attention.Store(true)
	r.pool.turn()
	return r, ms
}

// endPool ends it in order.
func endPool(r *poolRig, ms []*poolMember) {
	ms[0].qp.Generate(nil)
	r.start()
	for _, m := range ms {
		r.must(m.stop(r))
	}
	r.must(r.finish(0, 0))
}

// A message of a pool costs no allocation either, whether the sink keeps its slot
// and whether the poll finds something, and each stream gets its own.
func TestPoolAllocatesNothing(t *testing.T) {
	for _, keep := range []bool{false, true} {
		var kept [16]Frame
		n := 0
		r, ms := generatingPool(t, 3, 16, 1, funcSink(func(f *Frame) Verdict {
			if !keep {
				return Verified
			}
			kept[n] = *f
			n++
			return Kept
		}))
		release := func() {
			for _, f := range kept[:n] {
				f.Release()
			}
			n = 0
		}
		release()
		if allocs := testing.AllocsPerRun(1000, func() {
			r.pool.turn()
			release()
		}); allocs != 0 {
			t.Errorf("keep %v: %v allocations a turn", keep, allocs)
		}
		ms[0].qp.Generate(nil)
		if allocs := testing.AllocsPerRun(1000, func() {
			r.cq.Wake() // so that no sleep lasts
			r.pool.turn()
			r.pool.rest(r.pool.active + time.Second)
		}); allocs != 0 {
			t.Errorf("keep %v: %v allocations an empty turn", keep, allocs)
		}
		for i, m := range ms {
			if n := m.loop.Totals().Messages; n < 16*1000/3 {
				t.Errorf("keep %v: stream %d has %d messages", keep, i, n)
			}
		}
		endPool(r, ms)
	}
}

// BenchmarkPool is one message of three streams in a pool, beside BenchmarkLoop:
// their messages come in turn, or 16 of one together.
func BenchmarkPool(b *testing.B) {
	for _, together := range []int{1, 16} {
		for _, batch := range []int{16, 64} {
			b.Run(fmt.Sprintf("together=%d/batch=%d", together, batch), func(b *testing.B) {
				r, ms := generatingPool(b, 3, batch, together, discard)
				b.ReportAllocs()
				b.ResetTimer()
				for left := b.N; left > 0; {
					_, n := r.pool.turn()
					left -= n
				}
				b.StopTimer()
				endPool(r, ms)
			})
		}
	}
}
