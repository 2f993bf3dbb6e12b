//go:build linux && cgo && ibverbs

package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

// A pool over the library's shared receive queue: three peers send at once, one
// connection fails and another ends in order meanwhile, and the third goes on.
// Each gets its own frames, each once.
func TestPoolOverASharedQueue(t *testing.T) {
	for _, mode := range []receive.Mode{receive.Event, receive.Busy} {
		g := newSharedRig(t, 3)
		pool, err := receive.NewPool(receive.PoolConfig{
			SRQ: g.srq, CQ: g.cq, Memory: g.mem, LKey: g.mr.LKey(), Slots: sharedDepth, Stride: 64, FrameBytes: 64, Mode: mode,
		})
		g.must(err)
		g.must(pool.Prepare())
		ran := make(chan error, 1)
		go func() { ran <- pool.Run() }()

		var loops [3]*receive.Loop
		ended := [3]chan error{}
		for i, qp := range g.qps {
			loops[i], err = receive.New(receive.Config{QP: qp, Pool: pool, Verb: rocelink.VerbSendImm, Window: 20 * time.Millisecond,
				Sink: sink.Func(func(f *receive.Frame) receive.Verdict {
					if binary.LittleEndian.Uint64(f.Data) != uint64(i)<<32|f.Sequence {
						return receive.Corrupt
					}
					return receive.Verified
				})})
			g.must(err)
			g.must(loops[i].Prepare())
			ended[i] = make(chan error, 1)
			go func() {
				for range loops[i].Windows() {
				}
			}()
			go func() { ended[i] <- loops[i].Run() }()
		}
		go func() {
			for e := range g.dev.Events() {
				for i, qp := range g.qps {
					if e.Kind == verbs.EventLastWQE && e.QPN == qp.QPN() {
						loops[i].LastWQE()
					}
				}
			}
		}()

		send := func(i, from, to int) {
			for q := from; q < to; q++ {
				data := binary.LittleEndian.AppendUint64(nil, uint64(i)<<32|uint64(q))
				until(t, "there is a receive", func() bool {
					err := double.Deliver(g.qpn(i), double.Message{Data: data, WithImm: true, Imm: uint32(q)})
					if err != nil && !errors.Is(err, syscall.EAGAIN) {
						t.Error(err)
						return true
					}
					return err == nil
				})
			}
		}
		var sending sync.WaitGroup
		for i := range 3 {
			sending.Go(func() { send(i, 0, 2000) })
		}
		sending.Wait()
		seen := func(i int, n rocelink.Count) {
			until(t, fmt.Sprintf("%d frames of %d came: %+v", n, i, loops[i].Totals()), func() bool { return loops[i].Totals().Messages == n })
		}
		for i := range 3 {
			seen(i, 2000)
		}
		if err := double.Deliver(g.qpn(0), double.Message{Data: make([]byte, 65), WithImm: true}); !errors.Is(err, syscall.EMSGSIZE) {
			t.Fatal(err)
		}
		loops[1].Stop()
		g.must(g.qps[1].SetError())
		send(2, 2000, 3000)
		if err := <-ended[0]; !errors.Is(err, &receive.CompletionError{Status: verbs.LocalLengthError}) {
			t.Errorf("the one that failed: %v", err)
		}
		if err := <-ended[1]; err != nil {
			t.Errorf("the one that was stopped: %v", err)
		}
		seen(2, 3000)
		loops[2].Stop()
		g.must(g.qps[2].SetError())
		pool.Stop()
		if err := errors.Join(<-ended[2], <-ran); err != nil {
			t.Error(err)
		}
		for i, l := range loops {
			if total := l.Totals(); total.Verified != total.Messages || total.Lost()+total.Late+total.Duplicate+total.Flushed != rocelink.Count([3]int{1, 0, 0}[i]) {
				t.Errorf("stream %d: %+v", i, total)
			}
		}
		posted, held, free, lost := pool.Credits()
		if posted != sharedDepth-free-lost || held != 0 || posted != double.Posted(g.qpn(2)) {
			t.Errorf("%d posted (the hardware has %d), %d held, %d free, %d lost", posted, double.Posted(g.qpn(2)), held, free, lost)
		}
	}
}
