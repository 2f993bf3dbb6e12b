package soft

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// queuePair is a reliable connected queue pair.
//
// access and peer are written before the state that makes the responder look at
// them, and not after. inbound belongs to the responder.
type queuePair struct {
	device         *device
	pd             *domain
	recvCQ, sendCQ *completionQueue
	qpn            roce.QPN
	access         verbs.Access
	peer           verbs.PeerAttributes
	state          atomic.Uint32 // verbs.State
	closed         atomic.Bool

	receives *receiveQueue // its own, or a shared one
	shared   *sharedQueue  // nil: receives is its own
	inbound  inbound
}

// CreateQP implements verbs.ProtectionDomain. The device sends no requests, so
// MaxSends is not used.
func (pd *domain) CreateQP(c verbs.QPConfig) (verbs.QueuePair, error) {
	d := pd.device
	cq, ok := c.RecvCQ.(*completionQueue)
	if !ok || cq.device != d {
		return nil, fmt.Errorf("create queue pair: %w: the receive completion queue is of another device", verbs.ErrAccess)
	}
	sendCQ := cq
	if c.SendCQ != nil {
		if sendCQ, ok = c.SendCQ.(*completionQueue); !ok || sendCQ.device != d {
			return nil, fmt.Errorf("create queue pair: %w: the send completion queue is of another device", verbs.ErrAccess)
		}
	}
	var shared *sharedQueue
	if c.SRQ != nil {
		if shared, ok = c.SRQ.(*sharedQueue); !ok || shared.pd != pd {
			return nil, fmt.Errorf("create queue pair: %w: the shared receive queue is of another protection domain", verbs.ErrAccess)
		}
		c.MaxReceives = int(shared.depth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	promise := c.MaxReceives
	if shared != nil && shared.completes(cq) {
		promise = 0
	}
	switch {
	case pd.closed:
		return nil, fmt.Errorf("create queue pair: protection domain: %w", verbs.ErrClosed)
	case shared != nil && shared.closed.Load():
		return nil, fmt.Errorf("create queue pair: shared receive queue: %w", verbs.ErrClosed)
	case cq.closed.Load() || sendCQ.closed.Load():
		return nil, fmt.Errorf("create queue pair: completion queue: %w", verbs.ErrClosed)
	case c.MaxReceives < 1 || c.MaxReceives > maxReceives:
		return nil, fmt.Errorf("create queue pair: %w: %d receives, want 1 to %d", verbs.ErrLimit, c.MaxReceives, maxReceives)
	case c.MaxSends < 0:
		return nil, fmt.Errorf("create queue pair: %w: %d sends", verbs.ErrLimit, c.MaxSends)
	case cq.promised+promise > int(cq.depth):
		return nil, fmt.Errorf("create queue pair: %w: the receive completion queue has depth %d, its queue pairs would need %d: create it that deep",
			verbs.ErrLimit, cq.depth, cq.promised+promise)
	case d.qpCount >= maxQP:
		return nil, fmt.Errorf("create queue pair: %w: %d exist", verbs.ErrLimit, d.qpCount)
	}
	qp := &queuePair{device: d, pd: pd, recvCQ: cq, sendCQ: sendCQ, qpn: d.newQPN()}
	if shared != nil {
		qp.shared, qp.receives = shared, &shared.receiveQueue
	} else {
		qp.receives = newReceiveQueue(pd, c.MaxReceives)
	}
	cq.users++
	cq.promised += promise
	if sendCQ != cq {
		sendCQ.users++
	}
	pd.qps = append(pd.qps, qp)
	d.qpCount++
	d.qps.Store(d.qps.Load().with(uint32(qp.qpn), qp))
	return qp, nil
}

// QPN implements verbs.QueuePair.
func (qp *queuePair) QPN() roce.QPN { return qp.qpn }

// State implements verbs.QueuePair.
func (qp *queuePair) State() verbs.State { return verbs.State(qp.state.Load()) }

// live reports whether requests of the peer are executed.
func (qp *queuePair) live() bool {
	s := qp.State()
	return s == verbs.ReadyToReceive || s == verbs.ReadyToSend
}

// expect checks the state before a transition. It runs under the device's mutex.
func (qp *queuePair) expect(want, to verbs.State) error {
	if qp.closed.Load() {
		return fmt.Errorf("queue pair %#06x to %v: %w", uint32(qp.qpn), to, verbs.ErrClosed)
	}
	if s := qp.State(); s != want {
		return fmt.Errorf("queue pair %#06x to %v: %w: it is in %v, want %v", uint32(qp.qpn), to, verbs.ErrState, s, want)
	}
	return nil
}

// Init implements verbs.QueuePair.
func (qp *queuePair) Init(access verbs.Access) error {
	qp.device.mu.Lock()
	defer qp.device.mu.Unlock()
	if err := qp.expect(verbs.Reset, verbs.Init); err != nil {
		return err
	}
	qp.access = access
	qp.state.Store(uint32(verbs.Init))
	return nil
}

// ReadyToReceive implements verbs.QueuePair.
func (qp *queuePair) ReadyToReceive(a verbs.PeerAttributes) error {
	d := qp.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := qp.expect(verbs.Init, verbs.ReadyToReceive); err != nil {
		return err
	}
	a.Address = a.Address.Unmap()
	to := netip.AddrPortFrom(a.Address, roce.Port)
	if a.Address.IsLinkLocalUnicast() && a.Address.Zone() == "" {
		to = netip.AddrPortFrom(a.Address.WithZone(d.address.Zone()), roce.Port)
	}
	a.Address = a.Address.WithZone("")
	mtu := d.port().MTU
	var err error
	switch {
	case !a.MTU.Valid() || a.MTU > mtu:
		err = fmt.Errorf("path MTU %d: the port carries 256 to %d", a.MTU, mtu)
	case a.QPN > roce.QPNMask:
		err = fmt.Errorf("peer's QPN %#x has more than 24 bits", uint32(a.QPN))
	case a.PSN > roce.PSNMask:
		err = fmt.Errorf("peer's PSN %#x has more than 24 bits", uint32(a.PSN))
	case a.MinRNRTimer > 31:
		err = fmt.Errorf("RNR timer code %d, want 0 to 31", a.MinRNRTimer)
	case a.MaxReads < 0 || a.MaxReads > maxReads:
		err = fmt.Errorf("%w: %d outstanding READs, want 0 to %d", verbs.ErrLimit, a.MaxReads, maxReads)
	case !a.Address.IsValid() || a.Address.Is4() != d.address.Is4() || a.Address.IsUnspecified() || a.Address.IsMulticast():
		err = fmt.Errorf("peer's address %v: want a unicast address of the family of %v", a.Address, d.address)
	}
	if err != nil {
		return fmt.Errorf("queue pair %#06x to RTR: %w", uint32(qp.qpn), err)
	}
	qp.peer = a
	qp.inbound.expected = a.PSN
	// One more than asked for: a READ that is repeated may be there twice.
	qp.inbound.reads = make([]read, 0, a.MaxReads+1)
	qp.inbound.flow = roce.Flow{Src: d.address, Dst: a.Address, SrcPort: roce.Port}
	qp.inbound.to = to
	qp.state.Store(uint32(verbs.ReadyToReceive))
	return nil
}

// ReadyToSend implements verbs.QueuePair. Nothing is sent by itself, so psn only
// has to be one.
func (qp *queuePair) ReadyToSend(psn roce.PSN) error {
	qp.device.mu.Lock()
	defer qp.device.mu.Unlock()
	if err := qp.expect(verbs.ReadyToReceive, verbs.ReadyToSend); err != nil {
		return err
	}
	if psn > roce.PSNMask {
		return fmt.Errorf("queue pair %#06x to RTS: PSN %#x has more than 24 bits", uint32(qp.qpn), uint32(psn))
	}
	// The responder may have put it into error since.
	if !qp.state.CompareAndSwap(uint32(verbs.ReadyToReceive), uint32(verbs.ReadyToSend)) {
		return qp.expect(verbs.ReadyToReceive, verbs.ReadyToSend)
	}
	return nil
}

// SetError implements verbs.QueuePair. When it returns, every receive that was
// posted before has its completion, and the responder is done with the memory.
func (qp *queuePair) SetError() error {
	qp.device.mu.Lock()
	defer qp.device.mu.Unlock()
	if qp.closed.Load() {
		return fmt.Errorf("queue pair %#06x to ERR: %w", uint32(qp.qpn), verbs.ErrClosed)
	}
	was := verbs.State(qp.state.Swap(uint32(verbs.Error)))
	err := qp.device.sync()
	if qp.shared != nil && was != verbs.Error {
		qp.lastTaken()
	}
	return err
}

// lastTaken tells that the queue pair takes nothing more from its shared queue.
func (qp *queuePair) lastTaken() {
	qp.device.emit(verbs.Event{Kind: verbs.EventLastWQE, QPN: qp.qpn, Cause: "the queue pair is in error"})
}

// PostReceive implements verbs.QueuePair. In ERR receives are taken and flushed
// (IBTA 10.3.1).
func (qp *queuePair) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	if qp.closed.Load() {
		return 0, qp.postError(0, len(rs), verbs.ErrClosed)
	}
	if qp.shared != nil {
		return 0, qp.postError(0, len(rs), verbs.ErrShared)
	}
	if qp.State() == verbs.Reset {
		return 0, qp.postError(0, len(rs), verbs.ErrState)
	}
	n, err := qp.receives.post(rs)
	// Either the responder's flush sees the receives or this sees the state.
	if n > 0 && qp.State() == verbs.Error {
		qp.device.poke()
	}
	if err != nil {
		return n, qp.postError(n, len(rs), err)
	}
	return n, nil
}

func (qp *queuePair) postError(n, of int, err error) error {
	return fmt.Errorf("post receive %d of %d on queue pair %#06x in %v: %w", n+1, of, uint32(qp.qpn), qp.State(), err)
}

// Close implements verbs.QueuePair. Receives that are posted vanish, as they do
// in ibv_destroy_qp; SetError first has them flushed.
func (qp *queuePair) Close() error {
	d := qp.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if qp.closed.Swap(true) {
		return nil
	}
	qp.state.Store(uint32(verbs.Reset))
	d.qps.Store(d.qps.Load().without(uint32(qp.qpn)))
	d.qpCount--
	qp.pd.qps = slices.DeleteFunc(qp.pd.qps, func(q *queuePair) bool { return q == qp })
	qp.recvCQ.users--
	if qp.shared == nil || !qp.shared.completes(qp.recvCQ) {
		qp.recvCQ.promised -= int(qp.receives.depth)
	}
	if qp.sendCQ != qp.recvCQ {
		qp.sendCQ.users--
	}
	return d.sync()
}
