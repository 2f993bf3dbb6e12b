//go:build linux && cgo && ibverbs

package ibverbs

import (
	"errors"
	"fmt"
	"sort"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

const (
	benchSlots = 512
	benchFrame = 64
)

// benchRig is a rig whose peer uses each receive at once: all slots are full.
func benchRig(b *testing.B) *rig {
	g := newRig(b, benchSlots, benchSlots*benchFrame)
	g.connect()
	double.Generate(g.qpn(), int(verbs.OpRecv), 0, benchFrame, true)
	for i := range benchSlots {
		g.post(g.slot(i))
	}
	return g
}

// goLoop polls, looks at each status, and posts again, as double.Loop does in C.
// What is posted again goes with the next poll.
func goLoop(cq verbs.PostPoller, qp verbs.QueuePair, base uint64, lkey uint32, batch int, messages int) (bytes uint64, err error) {
	wcs := make([]verbs.WorkCompletion, batch)
	rs := make([]verbs.ReceiveRequest, batch)
	n := 0
	for messages > 0 {
		_, postErr, found, err := cq.PostPoll(qp, rs[:n], wcs)
		if postErr != nil || err != nil {
			return 0, errors.Join(postErr, err)
		}
		n = found
		again := rs[:n]
		for i := range wcs[:n] {
			wc, r := &wcs[i], &again[i]
			if wc.Status != verbs.Success || wc.ID >= benchSlots {
				return 0, fmt.Errorf("completion %+v", *wc)
			}
			bytes += uint64(wc.ByteLen)
			r.ID, r.Address, r.Length, r.LKey = wc.ID, base+wc.ID*benchFrame, benchFrame, lkey
		}
		messages -= n
	}
	_, err = qp.PostReceive(rs[:n])
	return bytes, err
}

// quiet is the time of slices, for one of n messages, that a tenth of them stays
// below. Other work on the machine only ever adds: on a busy one it disturbs the
// median as well, since what shares the core slows both down.
func quiet(slices []time.Duration, n int) float64 {
	sort.Slice(slices, func(i, j int) bool { return slices[i] < slices[j] })
	return float64(slices[len(slices)/10].Nanoseconds()) / float64(n)
}

// BenchmarkLoop is one message through libibverbs' entry points: in Go, in C, and
// what Go adds. Both take turns in slices of one run.
func BenchmarkLoop(b *testing.B) {
	for _, batch := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			g := benchRig(b)
			const slice = 1 << 14
			var inGo, inC []time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= slice {
				begin := time.Now()
				if _, err := goLoop(g.cq, g.qp, g.mr.Address(), g.mr.LKey(), batch, slice); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if _, err := double.Loop(g.qpn(), g.mr.Address(), benchFrame, benchSlots, g.mr.LKey(), batch, slice); err != nil {
					b.Fatal(err)
				}
				inGo = append(inGo, middle.Sub(begin))
				inC = append(inC, time.Since(middle))
			}
			goNs, cNs := quiet(inGo, slice), quiet(inC, slice)
			b.ReportMetric(0, "ns/op") // both together: of no use
			b.ReportMetric(goNs, "go-ns/msg")
			b.ReportMetric(cNs, "c-ns/msg")
			b.ReportMetric(goNs-cNs, "added-ns/msg")
		})
	}
}

// BenchmarkReceive is one message through the agent's receive loop, with all of
// its accounting, beside the bare loop in C.
func BenchmarkReceive(b *testing.B) {
	for _, batch := range []int{16, 64} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			g := newRig(b, benchSlots, benchSlots*benchFrame)
			g.must(g.qp.Init(allAccess))
			double.Generate(g.qpn(), int(verbs.OpRecv), 0, benchFrame, true)
			seen, done := 0, make(chan struct{})
			loop, err := receive.New(receive.Config{
				QP: g.qp, CQ: g.cq, Memory: g.mem, LKey: g.mr.LKey(), Verb: rocelink.VerbSend, Slots: benchSlots, Stride: benchFrame,
				FrameBytes: benchFrame, Batch: batch, Mode: receive.Busy, Window: time.Hour, Sink: sink.Func(func(*receive.Frame) receive.Verdict {
					if seen++; seen == b.N {
						// On the loop's thread, which is the one that posts.
						double.Generate(uint32(g.qp.qpn), 0, 0, 0, false)
						close(done)
					}
					return 0
				}),
			})
			g.must(err)
			g.must(loop.Prepare())
			g.connect()
			b.ReportAllocs()
			b.ResetTimer()
			ended := make(chan error)
			begin := time.Now()
			go func() { ended <- loop.Run() }()
			<-done
			inGo := time.Since(begin)
			b.StopTimer()
			loop.Stop()
			g.must(g.qp.SetError())
			g.must(<-ended)
			h := benchRig(b)
			begin = time.Now()
			_, err = double.Loop(h.qpn(), h.mr.Address(), benchFrame, benchSlots, h.mr.LKey(), batch, int64(b.N))
			h.must(err)
			b.ReportMetric(float64(time.Since(begin).Nanoseconds())/float64(b.N), "c-ns/msg")
			b.ReportMetric(float64(inGo.Nanoseconds())/float64(b.N), "ns/op")
		})
	}
}

// BenchmarkIdle is one look of a poll that finds nothing: in Go, where one call
// makes several, and in C.
func BenchmarkIdle(b *testing.B) {
	g := newRig(b, benchSlots, benchSlots*benchFrame)
	wcs := make([]verbs.WorkCompletion, 16)
	b.ReportAllocs()
	b.ResetTimer()
	begin := time.Now()
	for left := b.N; left > 0; left -= DefaultLooks {
		if n, err := g.cq.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
	inGo := time.Since(begin)
	b.StopTimer()
	begin = time.Now()
	double.Empty(g.qpn(), int64(b.N))
	b.ReportMetric(float64(time.Since(begin).Nanoseconds())/float64(b.N), "c-ns/poll")
	b.ReportMetric(float64(inGo.Nanoseconds())/float64(b.N), "ns/op")
}

// BenchmarkCall is one poll of one look: what a call of C costs.
func BenchmarkCall(b *testing.B) {
	g := newRig(b, benchSlots, benchSlots*benchFrame)
	g.dev.looks = 1
	wcs := make([]verbs.WorkCompletion, 16)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := g.cq.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
