//go:build linux && cgo && ibverbs

package ibverbs

import (
	"bytes"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
)

func (g *rig) post(rs ...verbs.ReceiveRequest) {
	g.Helper()
	if n, err := g.qp.PostReceive(rs); err != nil || n != len(rs) {
		g.Fatalf("posted %d of %d: %v", n, len(rs), err)
	}
}

// slot is a receive of 64 bytes.
func (g *rig) slot(i int) verbs.ReceiveRequest {
	return verbs.ReceiveRequest{ID: uint64(i), Address: g.mr.Address() + uint64(i)*64, Length: 64, LKey: g.mr.LKey()}
}

// TestDescriptors: what the hardware reads is what was posted, over several
// chains and laps, with and without buffer.
func TestDescriptors(t *testing.T) {
	const depth = 600 // more than two chains
	g := newRig(t, depth, depth*64)
	g.connect()
	var rs []verbs.ReceiveRequest
	for i := range depth {
		r := g.slot(i)
		if i%7 == 3 {
			r = verbs.ReceiveRequest{ID: uint64(i)}
		}
		rs = append(rs, r)
	}
	for lap := range 3 {
		g.post(rs...)
		if n := double.Posted(g.qpn()); n != depth {
			t.Fatalf("lap %d: the hardware has %d receives", lap, n)
		}
		for i, r := range rs {
			a, l, k, err := double.Descriptor(g.qpn(), i)
			if err != nil || a != r.Address || l != r.Length || r.Length > 0 && k != r.LKey || r.Length == 0 && k != 0x100 {
				t.Fatalf("lap %d: receive %d is %#x+%d key %#x, %v; posted %+v", lap, i, a, l, k, err, r)
			}
		}
		double.Generate(g.qpn(), int(verbs.OpRecv), 0, 0, false)
		for i := range depth {
			g.must(double.Deliver(g.qpn(), double.Message{}))
			if wc := g.poll(1)[0]; wc.ID != uint64(i) {
				t.Fatalf("lap %d: completion of %d, want %d", lap, wc.ID, i)
			}
		}
	}
}

// TestPartialPost: exactly what the device took is reported, wherever in a chain
// it stopped, and the chain is whole again afterwards.
func TestPartialPost(t *testing.T) {
	const depth = 300
	for _, taken := range []int{0, 1, 15, 255, 256, 257, 299} {
		for _, c := range []struct {
			errno syscall.Errno
			is    error
		}{{syscall.ENOMEM, verbs.ErrFull}, {syscall.EINVAL, verbs.ErrAccess}, {syscall.EIO, verbs.ErrNoDevice}, {syscall.EFAULT, syscall.EFAULT}} {
			g := newRig(t, depth, depth*64)
			g.connect()
			var rs []verbs.ReceiveRequest
			for i := range depth {
				rs = append(rs, g.slot(i))
			}
			double.Fail("post_recv", c.errno, taken, 1)
			n, err := g.qp.PostReceive(rs)
			if n != taken || double.Posted(g.qpn()) != taken {
				t.Fatalf("%d taken, the hardware has %d, want %d", n, double.Posted(g.qpn()), taken)
			}
			wantError(t, err, c.is, "post receive")
			double.Fail("post_recv", 0, 0, 0)
			g.post(rs[n:]...)
			if n := double.Posted(g.qpn()); n != depth {
				t.Fatalf("the hardware has %d receives", n)
			}
			n, err = g.qp.PostReceive(rs[:2])
			if n != 0 {
				t.Errorf("%d taken by a full queue", n)
			}
			wantError(t, err, verbs.ErrFull, "post receive 1 of 2")
			g.close()
		}
	}
}

func TestPostInWrongState(t *testing.T) {
	g := newRig(t, 8, 4096)
	n, err := g.qp.PostReceive([]verbs.ReceiveRequest{{}})
	if n != 0 {
		t.Errorf("%d taken", n)
	}
	wantError(t, err, verbs.ErrState, "RESET")
	g.must(g.qp.SetError())
	n, err = g.qp.PostReceive([]verbs.ReceiveRequest{{}})
	if n != 0 || double.Posted(g.qpn()) != 0 {
		t.Errorf("%d taken in error", n)
	}
	wantError(t, err, verbs.ErrState, "ERR")
	if n, err := g.qp.PostReceive(nil); n != 0 || err != nil {
		t.Errorf("nothing posted: %d, %v", n, err)
	}
	if n, err := g.cq.Poll(nil); n != 0 || err != nil {
		t.Errorf("nothing polled: %d, %v", n, err)
	}
}

// TestMessages: SEND, SEND with immediate, WRITE, WRITE with immediate.
func TestMessages(t *testing.T) {
	g := newRig(t, 8, 4096)
	g.must(g.qp.Init(allAccess))
	for i := range 8 {
		g.post(g.slot(i)) // before RTR
	}
	g.connect()
	mem := g.mem.Bytes()

	g.must(double.Deliver(g.qpn(), double.Message{Data: []byte("send")}))
	want := verbs.WorkCompletion{ID: 0, Opcode: verbs.OpRecv, ByteLen: 4, QPN: g.qpn()}
	if wc := g.poll(1)[0]; wc != want || !bytes.Equal(mem[:4], []byte("send")) {
		t.Errorf("%+v, memory %q", wc, mem[:4])
	}
	g.must(double.Deliver(g.qpn(), double.Message{Data: []byte("sendimm"), WithImm: true, Imm: 0x01020304}))
	want = verbs.WorkCompletion{ID: 1, Opcode: verbs.OpRecv, Flags: verbs.WithImm, ByteLen: 7, Imm: verbs.ImmediateOf(0x01020304), QPN: g.qpn()}
	if wc := g.poll(1)[0]; wc != want || !bytes.Equal(mem[64:71], []byte("sendimm")) {
		t.Errorf("%+v, memory %q", wc, mem[64:71])
	}
	g.must(double.Deliver(g.qpn(), double.Message{Write: true, Address: g.mr.Address() + 1000, RKey: g.mr.RKey(), Data: []byte("write")}))
	g.poll(0)
	g.must(double.Deliver(g.qpn(), double.Message{Write: true, WithImm: true, Imm: 0xfffffffe, Address: g.mr.Address() + 4092, RKey: g.mr.RKey(), Data: []byte("last")}))
	want = verbs.WorkCompletion{ID: 2, Opcode: verbs.OpRecvRDMAWithImm, Flags: verbs.WithImm, ByteLen: 4, Imm: verbs.ImmediateOf(0xfffffffe), QPN: g.qpn()}
	if wc := g.poll(1)[0]; wc != want || !bytes.Equal(mem[1000:1005], []byte("write")) || !bytes.Equal(mem[4092:], []byte("last")) {
		t.Errorf("%+v, memory %q %q", wc, mem[1000:1005], mem[4092:])
	}
	if n := double.Posted(g.qpn()); n != 5 {
		t.Errorf("the hardware has %d receives, want 5", n)
	}
}

// TestEveryStatus: all statuses and opcodes of the library come through as they
// are.
func TestEveryStatus(t *testing.T) {
	g := newRig(t, 64, 4096)
	g.connect()
	for s := range verbs.Statuses {
		g.must(double.Complete(g.qpn(), double.Completion{ID: 0xdead0000beef0000 + uint64(s), Status: s, Opcode: 128, VendorError: 0x80 + uint32(s)}))
		wc := g.poll(1)[0]
		if wc.Status != verbs.Status(s) || wc.ID != 0xdead0000beef0000+uint64(s) || wc.QPN != g.qpn() {
			t.Errorf("status %d: %+v", s, wc)
		}
		if s != 0 && wc.VendorError != 0x80+uint32(s) {
			t.Errorf("status %d: %+v", s, wc)
		}
	}
	for _, o := range []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead, 3, 4, 5, 6, 7, verbs.OpRecv, verbs.OpRecvRDMAWithImm, 130, 138} {
		g.must(double.Complete(g.qpn(), double.Completion{Opcode: int(o)}))
		if wc := g.poll(1)[0]; wc.Opcode != o {
			t.Errorf("opcode %d: %+v", o, wc)
		}
	}
	// A status beyond those known stays what it is.
	g.must(double.Complete(g.qpn(), double.Completion{Status: 200}))
	if wc := g.poll(1)[0]; wc.Status != 200 {
		t.Errorf("%+v", wc)
	}
}

func TestPollInBatches(t *testing.T) {
	const depth = 512
	g := newRig(t, depth, depth*64)
	g.connect()
	for i := range depth {
		g.post(g.slot(i))
	}
	for range depth {
		g.must(double.Deliver(g.qpn(), double.Message{}))
	}
	wcs := make([]verbs.WorkCompletion, depth)
	next := uint64(0)
	for _, most := range []int{1, 16, 64, depth, depth} {
		n, err := g.cq.Poll(wcs[:most])
		if want := min(most, depth-int(next)); err != nil || n != want {
			t.Fatalf("%d, %v, want %d", n, err, want)
		}
		for _, wc := range wcs[:n] {
			if wc.ID != next {
				t.Fatalf("completion of %d, want %d", wc.ID, next)
			}
			next++
		}
	}
}

func TestPollFails(t *testing.T) {
	g := newRig(t, 8, 4096)
	double.Fail("poll_cq", syscall.EINVAL, 0, 1)
	_, err := g.cq.Poll(make([]verbs.WorkCompletion, 1))
	wantError(t, err, nil, "poll completion queue")
	g.poll(0)
}

func TestArmAndWait(t *testing.T) {
	g := newRig(t, 64, 64*64)
	g.connect()
	for i := range 16 {
		g.post(g.slot(i))
	}
	wait := func(timeout time.Duration, want bool) {
		t.Helper()
		if got, err := g.cq.Wait(timeout); err != nil || got != want {
			t.Fatalf("Wait: %v, %v, want %v", got, err, want)
		}
	}
	deliver := func() { t.Helper(); g.must(double.Deliver(g.qpn(), double.Message{})) }

	deliver() // not armed
	wait(time.Millisecond, false)
	g.must(g.cq.Arm()) // it came before
	wait(time.Millisecond, false)
	g.poll(1)
	deliver() // armed still
	wait(-1, true)
	wait(time.Millisecond, false)
	g.poll(1)

	g.must(g.cq.Arm())
	deliver()
	g.must(g.cq.Arm()) // the notification of the one before is stale
	wait(time.Millisecond, false)
	deliver()
	wait(limit, true)
	g.poll(2)

	g.cq.Wake() // nobody waits: the next one returns at once
	g.cq.Wake()
	wait(-1, false)
	wait(0, false)

	g.must(g.cq.Arm())
	deliver()
	g.cq.Wake()
	wait(-1, true) // both
	wait(0, false)

	// From another goroutine, while it sleeps.
	g.must(g.cq.Arm())
	var wg sync.WaitGroup
	wg.Go(func() {
		until(t, "the waiter waits", func() bool { return *g.cq.guard.in() != 0 })
		deliver()
	})
	wait(-1, true)
	wg.Wait()
	wg.Go(func() {
		until(t, "the waiter waits", func() bool { return *g.cq.guard.in() != 0 })
		g.cq.Wake()
	})
	wait(-1, false)
	wg.Wait()

	double.Fail("req_notify_cq", syscall.EINVAL, 0, 1)
	wantError(t, g.cq.Arm(), syscall.EINVAL, "arm completion queue")
	double.Fail("get_cq_event", syscall.EBADF, 0, 1)
	wantError(t, g.cq.Arm(), nil, "arm completion queue")
}

// TestAcknowledgements: events are acknowledged in batches, and all of them
// before the queue is destroyed, which else would not return.
func TestAcknowledgements(t *testing.T) {
	const events = 200
	g := newRig(t, 8, 4096)
	g.connect()
	most := 0
	for range events {
		g.post(g.slot(0))
		g.must(g.cq.Arm())
		g.must(double.Deliver(g.qpn(), double.Message{}))
		if ok, err := g.cq.Wait(limit); !ok || err != nil {
			t.Fatal(ok, err)
		}
		g.poll(1)
		most = max(most, double.Unacked(g.qpn()))
	}
	if left := double.Unacked(g.qpn()); most < 32 || most > 64 || left == 0 {
		t.Errorf("up to %d events not acknowledged, %d at the end", most, left)
	}
	begin := time.Now()
	g.close()
	if d := time.Since(begin); d > time.Second || double.Hangs() > 0 {
		t.Errorf("closing took %v, %d hangs", d, double.Hangs())
	}
}

// TestInterruptedWait: signals, of which Go sends many, neither end nor prolong
// a wait.
func TestInterruptedWait(t *testing.T) {
	g := newRig(t, 8, 4096)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	defer signal.Stop(c)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-c:
			default:
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
			}
		}
	}()
	begin := time.Now()
	for range 5 {
		if ok, err := g.cq.Wait(20 * time.Millisecond); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if d := time.Since(begin); d < 100*time.Millisecond || d > limit {
		t.Errorf("five waits of 20 ms took %v", d)
	}
	close(stop)
	<-done
}

func TestNoAllocations(t *testing.T) {
	g := newRig(t, 64, 64*64)
	g.connect()
	double.Generate(g.qpn(), int(verbs.OpRecv), 0, 64, true)
	var rs []verbs.ReceiveRequest
	for i := range 16 {
		rs = append(rs, g.slot(i))
	}
	wcs := make([]verbs.WorkCompletion, 16)
	var cq verbs.CompletionQueue = g.cq
	var qp verbs.QueuePair = g.qp
	messages := 0
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := qp.PostReceive(rs); err != nil {
			t.Fatal(err)
		}
		n, err := cq.Poll(wcs)
		if err != nil {
			t.Fatal(err)
		}
		messages += n
		if n, err = cq.Poll(wcs); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if err := cq.Arm(); err != nil {
			t.Fatal(err)
		}
		cq.Wake()
		if _, err := cq.Wait(time.Second); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 || messages < 16_000 {
		t.Errorf("%v allocations a batch of 16, %d messages", allocs, messages)
	}
}
