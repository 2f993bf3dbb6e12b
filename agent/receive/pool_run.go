package receive

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"rocelink/agent/verbs"
)

// Run serves the loops of the pool until Stop is called and the last one has
// left, or something fails that is everybody's. Then all loops end with that
// error, and Run returns it. Receives are still posted when it returns: close
// the queue pairs and the shared queue before the memory goes.
func (p *Pool) Run() error {
	if !p.order.CompareAndSwap(ordPrepared, ordRun) {
		return fmt.Errorf("receive pool: run: %w", ErrOrder)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if p.cfg.CPU != nil {
		undo, err := pin(*p.cfg.CPU)
		if err != nil {
			p.fail(err)
		} else {
			defer undo()
		}
	}
	for {
		now, n := p.turn()
		if len(p.members) == 0 && (p.stop.Load() || p.cause != nil) && p.admit() == 0 {
			break
		}
		if n == 0 {
			p.rest(now)
		}
	}
	if p.cause != nil {
		return fmt.Errorf("receive pool: %w", p.cause)
	}
	return nil
}

func (p *Pool) now() time.Duration { return time.Since(p.begin) }

// admit takes in who joined and says how many there were.
func (p *Pool) admit() int {
	p.mu.Lock()
	joins := p.joins
	p.joins = nil
	p.mu.Unlock()
	now := p.now()
	for _, l := range joins {
		p.members = append(p.members, l)
		p.byQPN[l.share.qpn] = l
		l.checkAt = now + l.cfg.Window
		if p.cause != nil {
			l.leave(p.cause, false)
		}
	}
	return len(joins)
}

// turn looks once for completions, hands each to its loop, and posts what came
// back.
func (p *Pool) turn() (time.Duration, int) {
	if p.attention.Load() && p.attention.Swap(false) {
		p.admit()
		for _, l := range p.members {
			l.attend()
			p.leaving = p.leaving || l.leaving
		}
	}
	if p.leaving {
		for _, l := range p.members {
			if l.leaving && l.share.left < 0 && l.share.lastWQE.Load() {
				// What it completed is in the queue by now.
				l.share.left = p.cfg.CQ.Depth()
			}
		}
	}
	n, err := p.look()
	now := p.now()
	if n > 0 {
		p.active = now
		p.take(p.found[:n], now)
	}
	if err != nil {
		p.blind = true
		p.fail(fmt.Errorf("poll: %w", err))
	}
	p.collect()
	if free := p.stock.free.n; p.cause == nil && free > 0 && (n == 0 || p.both == nil || free > p.cfg.Batch) {
		p.posted(p.post())
	} // else the next look, which follows at once, takes them with it
	// Those who got nothing need a look now and then only.
	who := p.busy
	if n == 0 || p.leaving || now >= p.sweepAt {
		who, p.sweepAt, p.leaving = p.members, now+publishEvery, false
	}
	gone := false
	for _, l := range who {
		gone = p.serve(l, now, n) || gone
		p.leaving = p.leaving || l.leaving
	}
	p.busy = p.busy[:0]
	if gone {
		p.dismiss()
	}
	return now, n
}

// look finds out how many completions there are. What is free is posted by the
// same call if the device can.
func (p *Pool) look() (int, error) {
	switch {
	case p.blind:
		return 0, nil
	case p.both == nil || p.cause != nil || p.stock.free.n == 0:
		return p.cfg.CQ.Poll(p.found)
	}
	p.retry = false
	k := p.describe()
	took, postErr, n, err := p.both.PostPoll(p.cfg.SRQ, p.requests[:k], p.found)
	_, postErr = p.taken(k, took, postErr)
	p.posted(postErr)
	return n, err
}

// posted notes how posting went.
func (p *Pool) posted(err error) {
	if err != nil {
		p.fail(fmt.Errorf("post receive: %w", err))
	}
}

// take hands each completion to the loop of its queue pair, those of one queue
// pair that follow one another together.
func (p *Pool) take(wcs []verbs.WorkCompletion, now time.Duration) {
	busy := p.busy[:0]
	for len(wcs) > 0 {
		qpn, n := wcs[0].QPN, 1
		for n < len(wcs) && wcs[n].QPN == qpn {
			n++
		}
		if l := p.member(qpn); l != nil {
			if l.share.arrived == 0 {
				l.account.arrived(l, now)
				busy = append(busy, l)
			}
			l.share.arrived += n
			l.takeCompletions(&p.stock, wcs[:n])
		} else {
			for i := range n {
				p.stray(&wcs[i])
			}
		}
		wcs = wcs[n:]
	}
	p.busy = busy
}

// member is the loop of a queue pair, nil if it has none.
func (p *Pool) member(qpn uint32) *Loop {
	recent := &p.recent[qpn%uint32(len(p.recent))]
	if l := *recent; l != nil && l.share.qpn == qpn {
		return l
	}
	l := p.byQPN[qpn]
	if l == nil && p.admit() > 0 {
		l = p.byQPN[qpn]
	}
	*recent = l
	return l
}

// stray takes the slot back of a completion that is nobody's any more: its loop
// left without having drained.
func (p *Pool) stray(wc *verbs.WorkCompletion) {
	p.strays++
	s := &p.stock
	if wc.ID < uint64(len(s.posted)) && s.posted[wc.ID] {
		s.posted[wc.ID] = false
		s.outstanding--
		s.free.push(uint32(wc.ID))
	}
}

// serve does what is a loop's own after a poll that found n completions, and
// reports whether the loop has ended.
func (p *Pool) serve(l *Loop, now time.Duration, n int) bool {
	s := &l.share
	if n == 0 {
		l.account.empty()
	}
	if now >= l.checkAt {
		l.checkAt = now + l.cfg.Window
		l.checkState()
	}
	l.account.tick(l, now, s.arrived)
	s.arrived = 0
	if !l.leaving {
		return false
	}
	if s.left > 0 {
		if s.left = max(s.left-n, 0); n < len(p.found) {
			s.left = 0
		}
	}
	l.blind = p.blind
	if !s.drained() && !p.blind && now < l.deadline {
		return false
	}
	s.err, s.ended = l.end(), true
	return true
}

// dismiss forgets the loops that have ended and lets their Run return.
func (p *Pool) dismiss() {
	stay := p.members[:0]
	clear(p.recent[:])
	for _, l := range p.members {
		if !l.share.ended {
			stay = append(stay, l)
			continue
		}
		delete(p.byQPN, l.share.qpn)
		p.mu.Lock()
		delete(p.qpns, l.share.qpn)
		p.mu.Unlock()
		close(l.share.done)
	}
	clear(p.members[len(stay):])
	p.members = stay
}

// fail ends all loops: what happened concerns everybody.
func (p *Pool) fail(err error) {
	if p.cause == nil {
		p.cause = err
		p.close(fmt.Errorf("%w: %w", ErrPool, err))
	}
	p.leaving = true
	for _, l := range p.members {
		l.leave(err, false)
	}
}

// collect takes back the slots that consumers released.
func (p *Pool) collect() {
	s := &p.stock
	for slot, ok := s.lending.take(); ok; slot, ok = s.lending.take() {
		s.held--
		s.free.push(uint32(slot))
	}
}

// post posts what is free, a batch a call. What the queue does not take is tried
// again at the next turn.
func (p *Pool) post() error {
	p.retry = false
	for p.stock.free.n > 0 {
		n := p.describe()
		took, err := p.cfg.SRQ.PostReceive(p.requests[:n])
		if more, err := p.taken(n, took, err); !more {
			return err
		}
	}
	return nil
}

// describe fills in the next batch of requests and says how many there are.
func (p *Pool) describe() int {
	n := min(p.stock.free.n, p.cfg.Batch)
	for i := range n {
		slot := p.stock.free.peek(i)
		p.requests[i] = verbs.ReceiveRequest{ID: uint64(slot), Address: p.base + uint64(slot)*uint64(p.cfg.Stride),
			Length: p.cfg.FrameBytes, LKey: p.cfg.LKey}
	}
	return n
}

// taken notes that the queue took so many of n receives, and reports whether it
// may take more.
func (p *Pool) taken(n, took int, err error) (more bool, _ error) {
	s := &p.stock
	took = min(max(took, 0), n)
	s.outstanding += took
	for range took {
		s.posted[s.free.pop()] = true
	}
	if err != nil && !errors.Is(err, verbs.ErrFull) {
		return false, err
	}
	p.retry = took < n
	return !p.retry, nil
}

// wake ends the thread's sleep if it sleeps.
func (p *Pool) wake() {
	if p.sleeping.Load() && p.sleeping.CompareAndSwap(true, false) {
		p.cfg.CQ.Wake()
	}
}

// rest is Loop.rest for the thread of all.
func (p *Pool) rest(now time.Duration) {
	if p.cfg.Mode == Busy || now-p.active < p.cfg.Spin || p.blind {
		return
	}
	if !p.armed {
		if err := p.cfg.CQ.Arm(); err != nil {
			p.fail(fmt.Errorf("arm: %w", err))
			p.blind = true // or it would try for ever
			return
		}
		p.armed = true
		return
	}
	p.armed = false
	wait := DefaultWindow
	for _, l := range p.members {
		wait = min(wait, l.checkAt-now)
		if end, open := l.account.closes(); open {
			wait = min(wait, end-now)
		}
		if l.leaving {
			wait = min(wait, l.deadline-now)
		}
	}
	if p.retry {
		wait = min(wait, longestNap)
	}
	if wait <= 0 {
		return
	}
	p.sleeping.Store(true)
	if p.attention.Load() || p.stock.lending.pending() {
		p.sleeping.Store(false)
		return
	}
	for _, l := range p.members {
		l.account.sleep()
	}
	_, err := p.cfg.CQ.Wait(wait)
	p.sleeping.Store(false)
	if err != nil {
		p.fail(fmt.Errorf("wait: %w", err))
		p.blind = true
	}
}
