package scripted

import (
	"fmt"
	"sync/atomic"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// QueuePair implements verbs.QueuePair.
type QueuePair struct {
	p      *Provider
	pd     *ProtectionDomain
	cq     *CompletionQueue // of the receives; its mutex guards what follows
	sendCQ *CompletionQueue
	object string
	qpn    roce.QPN

	state  atomic.Uint32 // verbs.State; written under the lock
	access verbs.Access
	peer   verbs.PeerAttributes
	psn    roce.PSN
	closed bool

	receives *receiveQueue // its own, or a shared one
	shared   *SharedReceiveQueue

	posted, postsInError, completed uint64
	generator                       *Generator
}

// CreateQP implements verbs.ProtectionDomain.
func (pd *ProtectionDomain) CreateQP(c verbs.QPConfig) (verbs.QueuePair, error) {
	qp, err := pd.createQP(c)
	if err != nil {
		return nil, pd.d.p.record(StepCreateQP, "qp", fmt.Errorf("create queue pair: %w", err))
	}
	_ = pd.d.p.record(StepCreateQP, qp.object, nil)
	return qp, nil
}

func (pd *ProtectionDomain) createQP(c verbs.QPConfig) (*QueuePair, error) {
	p := pd.d.p
	if err := p.enter(StepCreateQP); err != nil {
		return nil, err
	}
	cq, ok := c.RecvCQ.(*CompletionQueue)
	if !ok || cq.d != pd.d {
		return nil, fmt.Errorf("%w: the receive completion queue is of another device", verbs.ErrAccess)
	}
	sendCQ := cq
	if c.SendCQ != nil {
		if sendCQ, ok = c.SendCQ.(*CompletionQueue); !ok || sendCQ.d != pd.d {
			return nil, fmt.Errorf("%w: the send completion queue is of another device", verbs.ErrAccess)
		}
	}
	var shared *SharedReceiveQueue
	if c.SRQ != nil {
		if shared, ok = c.SRQ.(*SharedReceiveQueue); !ok || shared.pd != pd {
			return nil, fmt.Errorf("%w: the shared receive queue is of another protection domain", verbs.ErrAccess)
		}
		c.MaxReceives = len(shared.ring)
	}
	a := pd.d.Attributes()
	switch {
	case pd.closed.Load():
		return nil, verbs.ErrClosed
	case int(pd.d.qps.Load()) >= a.MaxQP:
		return nil, fmt.Errorf("%w: %d queue pairs", verbs.ErrLimit, a.MaxQP)
	case shared == nil && (c.MaxReceives < 1 || c.MaxReceives > a.MaxQPReceives):
		return nil, fmt.Errorf("%w: %d receives, want 1 to %d", verbs.ErrLimit, c.MaxReceives, a.MaxQPReceives)
	case shared != nil && !shared.use():
		return nil, fmt.Errorf("%s: %w", shared.object, verbs.ErrClosed)
	}
	qp := &QueuePair{p: p, pd: pd, cq: cq, sendCQ: sendCQ, shared: shared}
	if shared != nil {
		qp.receives = &shared.receiveQueue
	} else {
		qp.receives = &receiveQueue{ring: make([]verbs.ReceiveRequest, c.MaxReceives)}
	}

	cq.mu.Lock()
	need := c.MaxReceives
	counted := map[*receiveQueue]bool{qp.receives: true}
	for _, q := range cq.qps {
		if !counted[q.receives] {
			counted[q.receives] = true
			need += len(q.receives.ring)
		}
	}
	closed := cq.closed
	if !closed && need <= len(cq.ring) {
		cq.qps = append(cq.qps, qp)
		cq.users++
	}
	cq.mu.Unlock()
	if shared != nil && (closed || need > len(cq.ring)) {
		shared.leave()
	}
	switch {
	case closed:
		return nil, fmt.Errorf("%s: %w", cq.object, verbs.ErrClosed)
	case need > len(cq.ring):
		return nil, fmt.Errorf("%w: completion queue of depth %d, its queue pairs need %d", verbs.ErrLimit, len(cq.ring), need)
	}
	if sendCQ != cq {
		sendCQ.mu.Lock()
		sendCQ.users++
		sendCQ.mu.Unlock()
	}
	pd.qps.Add(1)
	pd.d.qps.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	qp.qpn = p.nextQPN
	p.nextQPN++
	qp.object = fmt.Sprintf("qp %d", len(p.qps)+1)
	p.qps = append(p.qps, qp)
	return qp, nil
}

// QPN implements verbs.QueuePair.
func (qp *QueuePair) QPN() roce.QPN { return qp.qpn }

// State implements verbs.QueuePair.
func (qp *QueuePair) State() verbs.State { return verbs.State(qp.state.Load()) }

// move changes the state if it is the one expected. apply runs under the lock.
func (qp *QueuePair) move(s Step, from, to verbs.State, apply func() error) error {
	err := qp.p.enter(s)
	if err == nil {
		qp.cq.mu.Lock()
		switch is := qp.State(); {
		case qp.closed:
			err = verbs.ErrClosed
		case is != from:
			err = fmt.Errorf("%w: %v, want %v", verbs.ErrState, is, from)
		default:
			if err = apply(); err == nil {
				qp.state.Store(uint32(to))
			}
		}
		qp.cq.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("%s to %v: %w", qp.object, s, err)
	}
	return qp.p.record(s, qp.object, err)
}

// Init implements verbs.QueuePair.
func (qp *QueuePair) Init(access verbs.Access) error {
	return qp.move(StepInit, verbs.Reset, verbs.Init, func() error {
		qp.access = access
		return nil
	})
}

// ReadyToReceive implements verbs.QueuePair.
func (qp *QueuePair) ReadyToReceive(a verbs.PeerAttributes) error {
	return qp.move(StepReadyToReceive, verbs.Init, verbs.ReadyToReceive, func() error {
		qp.pd.d.mu.Lock()
		port := qp.pd.d.port
		qp.pd.d.mu.Unlock()
		switch {
		case !a.MTU.Valid() || a.MTU > port.MTU:
			return fmt.Errorf("path MTU %d: want 256 to %d", a.MTU, port.MTU)
		case a.QPN > roce.QPNMask || a.PSN > roce.PSNMask:
			return fmt.Errorf("QPN %#x, PSN %#x: more than 24 bits", uint32(a.QPN), uint32(a.PSN))
		case a.MinRNRTimer > 31:
			return fmt.Errorf("RNR timer code %d: want 0 to 31", a.MinRNRTimer)
		case !a.Address.IsValid():
			return fmt.Errorf("no address of the peer")
		}
		qp.peer = a
		return nil
	})
}

// ReadyToSend implements verbs.QueuePair.
func (qp *QueuePair) ReadyToSend(psn roce.PSN) error {
	return qp.move(StepReadyToSend, verbs.ReadyToReceive, verbs.ReadyToSend, func() error {
		qp.psn = psn
		return nil
	})
}

// SetError implements verbs.QueuePair. When it returns, the flushed completions
// are in the queue.
func (qp *QueuePair) SetError() error {
	err := qp.p.enter(StepSetError)
	if err == nil {
		qp.cq.mu.Lock()
		if qp.closed {
			err = verbs.ErrClosed
		} else {
			qp.setError()
		}
		qp.cq.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("%s to %v: %w", qp.object, StepSetError, err)
	}
	return qp.p.record(StepSetError, qp.object, err)
}

// setError flushes. It runs under the lock.
func (qp *QueuePair) setError() {
	was := verbs.State(qp.state.Swap(uint32(verbs.Error)))
	qp.generator = nil
	if qp.shared != nil {
		if was != verbs.Error && !qp.p.config.NoLastWQE {
			qp.pd.d.Emit(verbs.Event{Kind: verbs.EventLastWQE, QPN: qp.qpn})
		}
		return
	}
	for qp.receives.held > 0 {
		qp.finish(verbs.WorkCompletion{Status: verbs.WorkRequestFlushed})
	}
}

// finish consumes the oldest receive and completes it. It runs under the lock.
func (qp *QueuePair) finish(wc verbs.WorkCompletion) {
	qp.receives.lock()
	r, _ := qp.receives.take()
	qp.receives.unlock()
	qp.settle(r.ID, wc)
}

// settle completes a receive that was taken. It runs under the lock.
func (qp *QueuePair) settle(id uint64, wc verbs.WorkCompletion) {
	wc.ID = id
	if wc.Status != verbs.Success && qp.p.config.RubbishIDs {
		wc.ID = RubbishID
	}
	wc.QPN = uint32(qp.qpn)
	qp.completed++
	qp.cq.push(&wc)
}

// PostReceive implements verbs.QueuePair. On a queue pair in error the receives
// are taken and flushed, and [QueuePair.PostsInError] counts them.
func (qp *QueuePair) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	f := qp.p.fails(StepPostReceive)
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	if f != nil {
		n, _ := qp.post(rs[:min(f.Posted, len(rs))])
		return n, fmt.Errorf("post receive on %s: %w", qp.object, f.Err)
	}
	n, err := qp.post(rs)
	if err != nil {
		return n, fmt.Errorf("post receive %d of %d on %s: %w", n+1, len(rs), qp.object, err)
	}
	return n, nil
}

// post runs under the lock.
func (qp *QueuePair) post(rs []verbs.ReceiveRequest) (int, error) {
	s := qp.State()
	switch {
	case qp.closed:
		return 0, verbs.ErrClosed
	case s == verbs.Reset:
		return 0, verbs.ErrState
	}
	if qp.shared != nil {
		return 0, verbs.ErrShared
	}
	for n := range rs {
		if err := qp.receives.put(qp.pd, &rs[n]); err != nil {
			return n, err
		}
		qp.posted++
		if s == verbs.Error {
			qp.postsInError++
			qp.finish(verbs.WorkCompletion{Status: verbs.WorkRequestFlushed})
		}
	}
	if qp.generates() {
		qp.cq.signal()
	}
	return len(rs), nil
}

// Close implements verbs.QueuePair: receives that are posted vanish.
func (qp *QueuePair) Close() error {
	if err := qp.p.enter(StepCloseQP); err != nil {
		return qp.p.record(StepCloseQP, qp.object, fmt.Errorf("close %s: %w", qp.object, err))
	}
	qp.cq.mu.Lock()
	closed := qp.closed
	qp.closed = true
	if !closed {
		qp.state.Store(uint32(verbs.Reset))
		qp.generator = nil
		if qp.shared == nil {
			qp.receives.held = 0
		} else {
			qp.shared.leave()
		}
		for i, q := range qp.cq.qps {
			if q == qp {
				qp.cq.qps = append(qp.cq.qps[:i], qp.cq.qps[i+1:]...)
				break
			}
		}
		qp.cq.users--
	}
	qp.cq.mu.Unlock()
	if closed {
		return nil
	}
	if qp.sendCQ != qp.cq {
		qp.sendCQ.mu.Lock()
		qp.sendCQ.users--
		qp.sendCQ.mu.Unlock()
	}
	qp.pd.qps.Add(-1)
	qp.pd.d.qps.Add(-1)
	return qp.p.record(StepCloseQP, qp.object, nil)
}

// Peer returns the attributes given to ReadyToReceive.
func (qp *QueuePair) Peer() verbs.PeerAttributes {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	return qp.peer
}

// Access returns what was given to Init.
func (qp *QueuePair) Access() verbs.Access {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	return qp.access
}

// Outstanding returns how many receives are posted and not completed, with a
// shared queue those of all its queue pairs.
func (qp *QueuePair) Outstanding() int {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	return qp.receives.count()
}

// Posted returns how many receives were ever taken, and how many of them
// completed.
func (qp *QueuePair) Posted() (posted, completed uint64) {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	return qp.posted, qp.completed
}

// PostsInError returns how many receives were posted while the queue pair was
// in error. A well-behaved caller makes it stay 0.
func (qp *QueuePair) PostsInError() uint64 {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	return qp.postsInError
}
