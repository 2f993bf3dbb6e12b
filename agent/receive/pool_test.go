package receive

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// poolRig is a pool on a scripted device, with an owner that passes the
// device's events on.
type poolRig struct {
	testing.TB
	dev   verbs.Device
	pd    verbs.ProtectionDomain
	cq    verbs.CompletionQueue
	srq   *scripted.SharedReceiveQueue
	pool  *Pool
	p     *scripted.Provider
	ended chan error

	mu   sync.Mutex
	byQP map[uint32]*poolMember
}

type poolMember struct {
	r       *poolRig
	qp      *scripted.QueuePair
	loop    *Loop
	windows []*rocelink.Window
	ended   chan error
	sent    uint32
}

func newPoolRig(t testing.TB, c PoolConfig, sc scripted.Config) *poolRig {
	t.Helper()
	r := restingPoolRig(t, c, sc)
	r.start()
	return r
}

// restingPoolRig is a poolRig whose thread does not run yet.
func restingPoolRig(t testing.TB, c PoolConfig, sc scripted.Config) *poolRig {
	t.Helper()
	r := &poolRig{TB: t, p: scripted.New(sc), ended: make(chan error, 1), byQP: map[uint32]*poolMember{}}
	if c.Slots == 0 {
		c.Slots = 8
	}
	if c.FrameBytes == 0 {
		c.FrameBytes, c.Stride = 64, 64
	}
	mem, err := verbs.AllocMemory(int(c.Slots*c.Stride), false)
	r.must(err)
	t.Cleanup(func() { _ = mem.Free() })
	r.dev, err = r.p.Open("")
	r.must(err)
	r.pd, err = r.dev.AllocPD()
	r.must(err)
	mr, err := r.pd.Register(mem, verbs.LocalWrite)
	r.must(err)
	r.cq, err = r.dev.CreateCQ(int(c.Slots) + 1)
	r.must(err)
	srq, err := r.pd.CreateSRQ(int(c.Slots))
	r.must(err)
	r.srq = srq.(*scripted.SharedReceiveQueue)
	c.SRQ, c.Memory, c.LKey = srq, mem, mr.LKey()
	if c.CQ == nil {
		c.CQ = inOneCall(r.cq)
	} else {
		c.CQ.(*mixer).CompletionQueue = r.cq
	}
	r.pool, err = NewPool(c)
	r.must(err)
	r.must(r.pool.Prepare())
	return r
}

// start runs the pool and passes the device's events on.
func (r *poolRig) start() {
	go func() {
		for e := range r.dev.Events() {
			r.mu.Lock()
			if m := r.byQP[uint32(e.QPN)]; m != nil && e.Kind == verbs.EventLastWQE {
				m.loop.LastWQE()
			}
			r.mu.Unlock()
		}
	}()
	go func() { r.ended <- r.pool.Run() }()
}

func (r *poolRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *poolRig) join(c Config) *poolMember {
	r.Helper()
	m := &poolMember{r: r, ended: make(chan error, 1)}
	qp, err := r.pd.CreateQP(verbs.QPConfig{RecvCQ: r.cq, SRQ: r.srq})
	r.must(err)
	r.must(qp.Init(verbs.LocalWrite))
	if c.Verb == "" {
		c.Verb = rocelink.VerbSendImm
	}
	if c.Sink == nil {
		c.Sink = discard
	}
	c.QP, c.Pool = qp, r.pool
	if c.Window == 0 {
		c.Window = 20 * time.Millisecond
	}
	m.qp = qp.(*scripted.QueuePair)
	m.loop, err = New(c)
	r.must(err)
	r.mu.Lock()
	r.byQP[uint32(qp.QPN())] = m
	r.mu.Unlock()
	r.must(m.loop.Prepare())
	r.must(qp.ReadyToReceive(verbs.PeerAttributes{MTU: 1024, Address: netip.MustParseAddr("192.0.2.9")}))
	gathered := make(chan struct{})
	go func() {
		for w := range m.loop.Windows() {
			m.windows = append(m.windows, w)
		}
		close(gathered)
	}()
	go func() {
		err := m.loop.Run()
		<-gathered
		m.ended <- err
	}()
	return m
}

// send delivers a frame, as soon as there is a receive. Its first word is the
// queue pair's number, its second the sequence.
func (m *poolMember) send(t testing.TB) {
	t.Helper()
	var b [16]byte
	binary.LittleEndian.PutUint32(b[:], uint32(m.qp.QPN()))
	binary.LittleEndian.PutUint32(b[4:], m.sent)
	eventually(t, "a receive is posted", func() bool {
		err := m.qp.Deliver(scripted.Message{Data: b[:], Imm: m.sent, WithImm: true})
		if err != nil && !errors.Is(err, scripted.ErrNoReceive) {
			t.Fatal(err)
		}
		return err == nil
	})
	m.sent++
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// end waits for Run of the loop, closes the queue pair, and checks that the
// windows add up.
func (m *poolMember) end(t testing.TB) error {
	t.Helper()
	var err error
	select {
	case err = <-m.ended:
	case <-time.After(patience):
		t.Fatal("the loop did not end")
	}
	if e := m.qp.Close(); e != nil {
		t.Fatal(e)
	}
	var sum rocelink.Count
	for i, w := range m.windows {
		sum += w.Messages
		if w.Last != (i == len(m.windows)-1) {
			t.Errorf("window %d of %d: last %v", i+1, len(m.windows), w.Last)
		}
	}
	if total := m.loop.Totals(); m.loop.Dropped() == 0 && sum != total.Messages {
		t.Errorf("the windows have %d messages, the totals %d", sum, total.Messages)
	}
	return err
}

func (m *poolMember) stop(t testing.TB) error {
	t.Helper()
	m.loop.Stop()
	if err := m.qp.SetError(); err != nil {
		t.Fatal(err)
	}
	return m.end(t)
}

// finish ends the pool, whose loops have left, and checks that no slot is lost.
func (r *poolRig) finish(held, lost int) error {
	r.Helper()
	r.pool.Stop()
	var err error
	select {
	case err = <-r.ended:
	case <-time.After(patience):
		r.Fatal("the pool did not end")
	}
	p, h, f, l := r.pool.Credits()
	if slots := int(r.pool.cfg.Slots); p+h+f+l != slots || h != held || l != lost || p != r.srq.Outstanding() {
		r.Errorf("%d posted (the device has %d) + %d held + %d free + %d lost, of %d slots", p, r.srq.Outstanding(), h, f, l, slots)
	}
	return err
}

// Three streams in turn, in both modes of counting: each has its own sequence,
// totals and sink, and at every frame all slots are accounted for.
func TestPoolServesStreams(t *testing.T) {
	for _, mode := range []Mode{Event, Busy} {
		r := newPoolRig(t, PoolConfig{Mode: mode, Batch: 3}, scripted.Config{})
		var ms []*poolMember
		for i := range 3 {
			sink := funcSink(func(f *Frame) Verdict {
				s := &r.pool.stock
				posted := 0
				for _, is := range s.posted {
					if is {
						posted++
					}
				}
				if posted != s.outstanding || posted+s.held+s.free.n != int(r.pool.cfg.Slots) {
					t.Errorf("%d posted (%d counted) + %d held + %d free", posted, s.outstanding, s.held, s.free.n)
				}
				if q := binary.LittleEndian.Uint32(f.Data); q != f.Owner.(*Loop).share.qpn || binary.LittleEndian.Uint32(f.Data[4:]) != uint32(f.Sequence) {
					t.Errorf("frame %d of queue pair %#x went to %#x", f.Sequence, q, f.Owner.(*Loop).share.qpn)
					return Corrupt
				}
				return Verified
			})
			ms = append(ms, r.join(Config{Sink: sink, Stream: string(rune('a' + i))}))
		}
		for i := range 600 {
			ms[(i*i+i/7)%3].send(t)
		}
		for i, m := range ms {
			eventually(t, "all has arrived", func() bool { return m.loop.Totals().Messages == rocelink.Count(m.sent) })
			if err := m.stop(t); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			total := m.loop.Totals()
			if total.Verified != total.Messages || total.Bytes != 16*total.Messages || total.Lost()+total.Late+total.Duplicate != 0 {
				t.Errorf("stream %d of %d frames: %+v", i, m.sent, total)
			}
		}
		if err := r.finish(0, 0); err != nil {
			t.Error(err)
		}
	}
}

// A queue pair that fails ends its own loop; the others go on with all slots but
// what its sink holds, and a loop that comes later begins at 0.
func TestPoolOutlivesStreams(t *testing.T) {
	r := newPoolRig(t, PoolConfig{}, scripted.Config{})
	kept := make(chan Frame, 8)
	a := r.join(Config{Sink: funcSink(func(f *Frame) Verdict { kept <- *f; return Kept })})
	b := r.join(Config{Verb: rocelink.VerbSendImm})
	for range 3 {
		a.send(t)
	}
	eventually(t, "3 frames are held", func() bool { return a.loop.Held() == 3 })
	b.send(t)
	a.qp.Fail(verbs.LocalLengthError, 7)
	err := a.end(t)
	var c *CompletionError
	if !errors.As(err, &c) || c.Status != verbs.LocalLengthError || c.VendorError != 7 {
		t.Fatalf("the loop that failed: %v", err)
	}
	if w := a.windows[len(a.windows)-1]; w.HeldSlots != 3 || w.Total.Messages != 3 || w.Total.Errors != 1 || w.Total.Flushed != 0 {
		t.Errorf("last window %+v", w)
	}
	eventually(t, "5 receives are posted", func() bool { return r.srq.Outstanding() == 5 })
	for range 50 {
		b.send(t)
	}
	late := r.join(Config{})
	late.send(t)
	for range 2 {
		f := <-kept
		if !f.Intact() {
			t.Error("a frame that is held is not intact")
		}
		f.Release()
		f.Release()
	}
	eventually(t, "7 receives are posted", func() bool { return r.srq.Outstanding() == 7 })
	if n := a.loop.Held(); n != 1 {
		t.Errorf("%d slots are held", n)
	}
	eventually(t, "all has arrived", func() bool {
		return b.loop.Totals().Messages == 51 && late.loop.Totals().Messages == 1
	})
	if err := errors.Join(late.stop(t), b.stop(t)); err != nil {
		t.Error(err)
	}
	for _, m := range []*poolMember{b, late} {
		if total := m.loop.Totals(); total.Lost()+total.Errors+total.Flushed+total.Duplicate+total.Late != 0 {
			t.Errorf("%+v", total)
		}
	}
	if err := r.finish(1, 0); err != nil {
		t.Error(err)
	}
}

// What concerns everybody ends all loops with the same error, and nobody joins
// any more.
func TestPoolFailures(t *testing.T) {
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		fault func(*poolRig)
		want  error
		held  int
		lost  int
	}{
		"poll":   {func(r *poolRig) { r.p.Inject(scripted.Fault{Step: scripted.StepPoll, Err: mine, Sticky: true}) }, mine, 0, 0},
		"arm":    {func(r *poolRig) { r.p.Inject(scripted.Fault{Step: scripted.StepArm, Err: mine}) }, mine, 0, 0},
		"wait":   {func(r *poolRig) { r.p.Inject(scripted.Fault{Step: scripted.StepWait, Err: mine}) }, mine, 0, 0},
		"post":   {func(r *poolRig) { r.p.Inject(scripted.Fault{Step: scripted.StepPostReceive, Err: mine}) }, mine, 0, 0},
		"bad id": {nil, ErrBadID, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPoolRig(t, PoolConfig{}, scripted.Config{})
			ms := []*poolMember{r.join(Config{}), r.join(Config{})}
			ms[1].send(t)
			if c.fault != nil {
				c.fault(r)
				_ = ms[0].qp.Deliver(scripted.Message{WithImm: true})
			} else {
				r.cq.(*scripted.CompletionQueue).Push(verbs.WorkCompletion{ID: 8, Opcode: verbs.OpRecv, Flags: verbs.WithImm, QPN: uint32(ms[0].qp.QPN())})
			}
			for i, m := range ms {
				if err := m.end(t); !errors.Is(err, c.want) {
					t.Errorf("loop %d: %v", i, err)
				}
			}
			if err := r.finishAnyhow(); !errors.Is(err, c.want) {
				t.Errorf("the pool: %v", err)
			}
			qp, err := r.pd.CreateQP(verbs.QPConfig{RecvCQ: r.cq, SRQ: r.srq})
			r.must(err)
			l, err := New(Config{QP: qp, Pool: r.pool, Verb: rocelink.VerbSend, Sink: discard})
			r.must(err)
			if err := l.Prepare(); !errors.Is(err, ErrPool) || !errors.Is(err, c.want) {
				t.Errorf("join: %v", err)
			}
		})
	}
}

// finishAnyhow waits for a pool that has failed: completions may be left in the
// queue, so the slots are only counted.
func (r *poolRig) finishAnyhow() error {
	r.Helper()
	select {
	case err := <-r.ended:
		if p, h, f, l := r.pool.Credits(); p+h+f+l != int(r.pool.cfg.Slots) {
			r.Errorf("%d posted + %d held + %d free + %d lost, of %d slots", p, h, f, l, r.pool.cfg.Slots)
		}
		return err
	case <-time.After(patience):
		r.Fatal("the pool did not end")
	}
	return nil
}

// A device that gives a failed completion a rubbish ID costs the pool that slot,
// and the books say so.
func TestPoolCountsLostSlots(t *testing.T) {
	r := newPoolRig(t, PoolConfig{}, scripted.Config{RubbishIDs: true})
	a, b := r.join(Config{}), r.join(Config{})
	a.qp.Fail(verbs.LocalProtectionError, 0)
	if err := a.end(t); err == nil {
		t.Error("no error")
	}
	for range 30 {
		b.send(t)
	}
	if err := b.stop(t); err != nil {
		t.Error(err)
	}
	if err := r.finish(0, 1); err != nil {
		t.Error(err)
	}
}

// A device that never says that the last receive is reached: the loop leaves
// when its time is over, and a completion that comes later gives its slot back.
func TestPoolWithoutLastWQE(t *testing.T) {
	r := newPoolRig(t, PoolConfig{}, scripted.Config{NoLastWQE: true})
	a, b := r.join(Config{}), r.join(Config{})
	a.send(t)
	begin := time.Now()
	if err := a.stop(t); err != nil || time.Since(begin) < DrainTime {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	b.send(t)
	b.loop.Stop()
	r.must(b.qp.SetError())
	b.loop.LastWQE()
	if err := b.end(t); err != nil {
		t.Error(err)
	}
	if err := r.finish(0, 0); err != nil {
		t.Error(err)
	}
}

// A completion of a queue pair that is nobody's gives its slot back.
func TestPoolTakesStrays(t *testing.T) {
	r := newPoolRig(t, PoolConfig{}, scripted.Config{})
	qp, err := r.pd.CreateQP(verbs.QPConfig{RecvCQ: r.cq, SRQ: r.srq})
	r.must(err)
	r.must(errors.Join(qp.Init(verbs.LocalWrite), qp.ReadyToReceive(verbs.PeerAttributes{MTU: 1024, Address: netip.MustParseAddr("192.0.2.9")})))
	stranger := &poolMember{r: r, qp: qp.(*scripted.QueuePair)}
	for range 40 {
		stranger.send(t)
	}
	eventually(t, "all are posted", func() bool { return r.srq.Outstanding() == 8 })
	if err := r.finish(0, 0); err != nil {
		t.Error(err)
	}
	if r.pool.strays != 40 {
		t.Errorf("%d strays", r.pool.strays)
	}
}

func TestPoolRefusals(t *testing.T) {
	r := newPoolRig(t, PoolConfig{}, scripted.Config{})
	m := r.join(Config{})
	good := Config{QP: m.qp, Pool: r.pool, Verb: rocelink.VerbSend, Sink: discard}
	for name, change := range map[string]func(*Config){
		"write":         func(c *Config) { c.Verb = rocelink.VerbWrite },
		"write-imm":     func(c *Config) { c.Verb = rocelink.VerbWriteImm },
		"read":          func(c *Config) { c.Verb = rocelink.VerbRead },
		"longer frames": func(c *Config) { c.FrameBytes = 65 },
		"no sink":       func(c *Config) { c.Sink = nil },
		"too brief":     func(c *Config) { c.Window = 1 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	l, err := New(good)
	r.must(err)
	if err := l.Prepare(); err == nil {
		t.Error("a queue pair joined twice")
	}
	pool := r.pool.cfg
	for name, change := range map[string]func(*PoolConfig){
		"no queue":       func(c *PoolConfig) { c.SRQ = nil },
		"no slots":       func(c *PoolConfig) { c.Slots = 0 },
		"too many slots": func(c *PoolConfig) { c.Slots = 9000 },
		"narrow stride":  func(c *PoolConfig) { c.Stride = 63 },
		"batch":          func(c *PoolConfig) { c.Batch = MaxBatch + 1 },
		"mode":           func(c *PoolConfig) { c.Mode = 2 },
		"shallow CQ":     func(c *PoolConfig) { c.Slots, c.Stride, c.FrameBytes = 16, 32, 32 },
	} {
		c := pool
		change(&c)
		if _, err := NewPool(c); err == nil {
			t.Errorf("pool, %s: no error", name)
		}
	}
	if err := r.pool.Prepare(); !errors.Is(err, ErrOrder) {
		t.Errorf("prepared twice: %v", err)
	}
	fresh, err := NewPool(pool)
	r.must(err)
	if err := fresh.Run(); !errors.Is(err, ErrOrder) {
		t.Errorf("run before prepare: %v", err)
	}
	r.must(m.stop(t))
	r.must(r.finish(0, 0))
}
