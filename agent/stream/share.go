package stream

import (
	"errors"
	"fmt"
	"sync"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/verbs"
)

// shared is what streams of a share have in common. Its frame is the largest of
// theirs, since a receive must take whichever message comes next; its slots are
// the most that one of them asks for.
type shared struct {
	frame uint64
	slots int
	asked bool // a stream gives slots; else they follow from the frame
	mode  string
	batch int
	cpu   *int
}

// with is what streams have in common when one more comes.
func (c shared) with(s *shared) (shared, error) {
	for _, v := range [...][3]string{
		{"mode", c.mode, s.mode}, {"batch", fmt.Sprint(c.batch), fmt.Sprint(s.batch)}, {"cpu", cpuText(c.cpu), cpuText(s.cpu)},
	} {
		if v[1] != v[2] {
			return c, fmt.Errorf("a stream has %s %s, another %[1]s %[3]s: one thread serves them all, give each the same", v[0], v[1], v[2])
		}
	}
	c.frame = max(c.frame, s.frame)
	switch {
	case c.asked && s.asked:
		c.slots = max(c.slots, s.slots)
	case s.asked:
		c.slots, c.asked = s.slots, true
	case !c.asked:
		c.slots = defaultSlots(c.stride())
	}
	return c, checkRegion(c.slots, c.stride())
}

func cpuText(cpu *int) string {
	if cpu == nil {
		return "none"
	}
	return fmt.Sprint(*cpu)
}

func (c shared) stride() uint64 { return roundStride(c.frame) }

// CompleteAll completes the streams of an agent, and settles what those of a
// share have in common. Names must be unique.
func CompleteAll(specs []Spec) ([]Spec, error) {
	done := make([]Spec, len(specs))
	names := map[string]bool{}
	shares := map[string]*shared{}
	for i, s := range specs {
		s, err := s.Complete()
		if err != nil {
			return nil, fmt.Errorf("stream %d: %w", i+1, err)
		}
		if names[s.Name] {
			return nil, fmt.Errorf("stream %d: %w", i+1, bad("two streams are called %s: give names", s.Name))
		}
		names[s.Name] = true
		if c := shares[s.Share]; c != nil {
			if *c, err = c.with(s.common); err != nil {
				return nil, fmt.Errorf("stream %d: %w", i+1, bad("share %s: %v", s.Share, err))
			}
			s.common = c
		} else if s.common != nil {
			shares[s.Share] = s.common
		}
		done[i] = s
	}
	return done, nil
}

// share is what streams of one name receive with together: a protection domain,
// memory, a completion queue, a shared receive queue and the thread that serves
// them. They exist while a session of one of the streams does.
type share struct {
	name   string
	common shared // under the agent's mutex

	mu    sync.Mutex
	stock *stock // nil: there is none, or it must not be used any more
}

// stock is one set-up of a share.
type stock struct {
	means
	users int           // under the share's mutex
	ended chan struct{} // the thread has ended
}

// share returns the share of a stream that is to be opened, nil if it has none.
// It runs under the agent's mutex.
func (a *Agent) share(spec Spec) (*share, error) {
	if spec.common == nil {
		return nil, nil
	}
	sh := a.shares[spec.Share]
	if sh == nil {
		sh = &share{name: spec.Share}
		a.shares[spec.Share] = sh
	}
	for _, s := range a.streams {
		if s.share != sh || s.done() {
			continue
		}
		has, asks := &sh.common, spec.common
		switch _, err := has.with(asks); {
		case err != nil:
			return nil, bad("share %s: %v", sh.name, err)
		case asks.frame > has.frame:
			return nil, bad("frame of %d bytes: share %s is open with receives of %d: open the largest first, or all at once", asks.frame, sh.name, has.frame)
		case asks.asked && asks.slots > has.slots:
			return nil, bad("slots %d: share %s is open with %d: open the largest first, or all at once", asks.slots, sh.name, has.slots)
		}
		return sh, nil
	}
	sh.common = *spec.common
	return sh, nil
}

// acquire gives a session what the share receives with, and makes it for the
// first. What has failed is made anew; those who still use it close it.
func (sh *share) acquire(a *Agent, dev verbs.Device) (*stock, error) {
	a.mu.Lock()
	common := sh.common
	a.mu.Unlock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.stock != nil {
		select {
		case <-sh.stock.ended:
		default:
			sh.stock.users++
			return sh.stock, nil
		}
	}
	st, err := newStock(a, dev, common)
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", sh.name, err)
	}
	st.users = 1
	sh.stock = st
	return st, nil
}

// release lets go of it; the last one closes it. Who acquires meanwhile waits.
func (sh *share) release(st *stock) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st.users--; st.users > 0 {
		return nil
	}
	if sh.stock == st {
		sh.stock = nil
	}
	if err := st.unwind(); err != nil {
		return fmt.Errorf("share %s: %w", sh.name, err)
	}
	return nil
}

func newStock(a *Agent, dev verbs.Device, c shared) (_ *stock, err error) {
	if dev.Attributes().MaxSRQ < 1 {
		return nil, fmt.Errorf("%w: %s has no shared receive queue: open its streams without share", verbs.ErrLimit, dev.Name())
	}
	st := &stock{ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.unwind())
		}
	}()
	if err := st.obtain(a, dev, c.stride()*uint64(c.slots), access(rocelink.VerbSend), c.slots, st.held); err != nil {
		return nil, err
	}
	if st.srq, err = st.pd.CreateSRQ(c.slots); err != nil {
		return nil, err
	}
	st.did("destroy shared receive queue", st.srq.Close)
	config := receive.PoolConfig{
		SRQ: st.srq, CQ: st.cq, Memory: st.memory, LKey: st.region.LKey(),
		Slots: uint32(c.slots), Stride: uint32(c.stride()), FrameBytes: uint32(c.frame), Batch: c.batch, CPU: c.cpu, Mode: waiting(c.mode),
	}
	if st.pool, err = receive.NewPool(config); err != nil {
		return nil, err
	}
	if err := st.pool.Prepare(); err != nil {
		return nil, err
	}
	go func() {
		if err := st.pool.Run(); err != nil {
			a.log.Warn("share", "err", err) // each of its streams says it too
		}
		close(st.ended)
	}()
	st.did("end the receive thread", func() error {
		st.pool.Stop()
		<-st.ended
		return nil
	})
	return st, nil
}

// held is how many slots consumers hold when the thread has ended.
func (st *stock) held() int {
	if st.pool == nil {
		return 0
	}
	_, held, _, _ := st.pool.Credits()
	return held
}
