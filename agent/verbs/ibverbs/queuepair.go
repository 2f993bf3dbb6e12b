//go:build linux && cgo && ibverbs

package ibverbs

/*
#cgo noescape rl_post
#cgo nocallback rl_post
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// C reads verbs.ReceiveRequests as struct rl_receive: these do not compile if
// the layouts differ.
var (
	requestGo verbs.ReceiveRequest
	requestC  C.struct_rl_receive

	_ [unsafe.Sizeof(requestGo)]byte           = [unsafe.Sizeof(requestC)]byte{}
	_ [unsafe.Offsetof(requestGo.ID)]byte      = [unsafe.Offsetof(requestC.id)]byte{}
	_ [unsafe.Offsetof(requestGo.Address)]byte = [unsafe.Offsetof(requestC.address)]byte{}
	_ [unsafe.Offsetof(requestGo.Length)]byte  = [unsafe.Offsetof(requestC.length)]byte{}
	_ [unsafe.Offsetof(requestGo.LKey)]byte    = [unsafe.Offsetof(requestC.lkey)]byte{}
)

// Attributes that are not up to the caller.
const (
	// hopLimit lets the peer be behind routers.
	hopLimit = 64
	// For the send queue, which only tests use: 4.096 µs · 2^14 = 67 ms, tried
	// seven times more, and for ever when the peer is not ready.
	ackTimeout = 14
	retries    = 7
	rnrRetries = 7
	// Most READs of ours at a time.
	ownReads = 16
)

// queuePair is a reliable connected queue pair.
type queuePair struct {
	device         *device
	pd             *domain
	sendCQ, recvCQ *completionQueue
	c              *C.struct_rl_qp
	qpn            roce.QPN
	shared         *sharedQueue // nil: the receive queue is its own
	receives       int
	sends          int
	source         netip.Addr // the address that the peer was told
	guard          guard

	mu     sync.RWMutex  // held over every call for control
	closed bool          // under mu
	state  atomic.Uint32 // verbs.State as far as is known; written under mu
}

// CreateQP implements verbs.ProtectionDomain.
func (pd *domain) CreateQP(c verbs.QPConfig) (verbs.QueuePair, error) {
	const step = "create queue pair"
	d := pd.device
	cq, ok := c.RecvCQ.(*completionQueue)
	if !ok || cq.device != d {
		return nil, fmt.Errorf("%s: %w: receives: %w", step, verbs.ErrAccess, errOtherDevice)
	}
	sendCQ := cq
	if c.SendCQ != nil {
		if sendCQ, ok = c.SendCQ.(*completionQueue); !ok || sendCQ.device != d {
			return nil, fmt.Errorf("%s: %w: sends: %w", step, verbs.ErrAccess, errOtherDevice)
		}
	}
	most := int(d.limits.max_qp_wr)
	var shared *sharedQueue
	var srq *C.struct_rl_srq
	if c.SRQ != nil {
		if shared, ok = c.SRQ.(*sharedQueue); !ok || shared.pd != pd {
			return nil, fmt.Errorf("%s: %w: the shared receive queue is of another protection domain", step, verbs.ErrAccess)
		}
		srq, c.MaxReceives = shared.c, shared.depth
	}
	switch {
	case shared == nil && (c.MaxReceives < 1 || c.MaxReceives > most):
		return nil, fmt.Errorf("%s on %s: %w: %d receives, want 1 to %d", step, d.name, verbs.ErrLimit, c.MaxReceives, most)
	case c.MaxSends < 0 || c.MaxSends > most:
		return nil, fmt.Errorf("%s on %s: %w: %d sends, want 0 to %d", step, d.name, verbs.ErrLimit, c.MaxSends, most)
	}
	qp := &queuePair{device: d, pd: pd, sendCQ: sendCQ, recvCQ: cq, shared: shared, receives: c.MaxReceives, sends: c.MaxSends, source: d.source()}
	if err := pd.begin(&pd.making, step); err != nil {
		return nil, err
	}
	defer pd.end(&pd.making)
	if err := d.begin(&d.qps, step); err != nil {
		return nil, err
	}
	if err := qp.claim(); err != nil {
		d.end(&d.qps)
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	// Some drivers know no queue of length 0.
	if rc := C.rl_create_qp(d.c, pd.c, sendCQ.c, cq.c, C.int(max(c.MaxSends, 1)), C.int(c.MaxReceives), srq, &qp.c); rc < 0 {
		qp.disclaim()
		d.end(&d.qps)
		return nil, d.exhausted(step, "queue pairs", int(d.limits.max_qp), errno(rc))
	}
	qp.qpn = roce.QPN(C.rl_qpn(qp.c))
	pd.mu.Lock()
	pd.qps[qp] = struct{}{}
	pd.mu.Unlock()
	return qp, nil
}

// claim takes room in the completion queues, which keeps them open.
func (qp *queuePair) claim() error {
	d := qp.device
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cq := range []*completionQueue{qp.recvCQ, qp.sendCQ} {
		if cq.closing {
			return fmt.Errorf("completion queue: %w", verbs.ErrClosed)
		}
	}
	promise := qp.receives
	if qp.shared != nil {
		if qp.shared.closed {
			return fmt.Errorf("shared receive queue: %w", verbs.ErrClosed)
		}
		if qp.shared.users[qp.recvCQ] > 0 {
			promise = 0
		}
	}
	if need := qp.recvCQ.promised + promise; need > qp.recvCQ.depth {
		return fmt.Errorf("%w: the receive completion queue has depth %d, its queue pairs would need %d: create it that deep",
			verbs.ErrLimit, qp.recvCQ.depth, need)
	}
	if qp.shared != nil {
		qp.shared.users[qp.recvCQ]++
	}
	qp.recvCQ.users++
	qp.recvCQ.promised += promise
	if qp.sendCQ != qp.recvCQ {
		qp.sendCQ.users++
	}
	return nil
}

func (qp *queuePair) disclaim() {
	qp.device.mu.Lock()
	defer qp.device.mu.Unlock()
	qp.recvCQ.users--
	if qp.shared == nil || qp.shared.leave(qp.recvCQ) {
		qp.recvCQ.promised -= qp.receives
	}
	if qp.sendCQ != qp.recvCQ {
		qp.sendCQ.users--
	}
}

// QPN implements verbs.QueuePair.
func (qp *queuePair) QPN() roce.QPN { return qp.qpn }

// Raw is the library's own queue pair, for requests that this package does not
// make. Who needs it asks a verbs.QueuePair for an interface with this method.
func (qp *queuePair) Raw() unsafe.Pointer { return C.rl_raw(qp.c) }

// State implements verbs.QueuePair. It asks the device, which may have put the
// queue pair into error; that is a system call.
func (qp *queuePair) State() verbs.State {
	qp.mu.RLock()
	defer qp.mu.RUnlock()
	s := verbs.State(qp.state.Load())
	if qp.closed || s == verbs.Reset || s == verbs.Error {
		return s
	}
	rc := C.rl_query_qp(qp.c)
	switch {
	case rc < 0 && !qp.device.survives(errno(rc)), verbs.State(rc) == verbs.Error:
		s = verbs.Error
		qp.state.Store(uint32(s))
	case rc >= 0:
		s = verbs.State(rc)
	}
	return s
}

// expect checks the state before a transition. It runs under the mutex.
func (qp *queuePair) expect(want, to verbs.State) error {
	if qp.closed {
		return fmt.Errorf("queue pair %#06x to %v: %w", uint32(qp.qpn), to, verbs.ErrClosed)
	}
	if s := verbs.State(qp.state.Load()); s != want {
		return fmt.Errorf("queue pair %#06x to %v: %w: it is in %v, want %v", uint32(qp.qpn), to, verbs.ErrState, s, want)
	}
	return nil
}

// modify makes a transition. It runs under the mutex.
func (qp *queuePair) modify(to verbs.State, a *C.struct_ibv_qp_attr, mask C.int) syscall.Errno {
	a.qp_state = uint32(to)
	if rc := C.rl_modify_qp(qp.c, a, mask|C.IBV_QP_STATE); rc < 0 {
		return errno(rc)
	}
	qp.state.Store(uint32(to))
	return 0
}

// refused is the error of a transition that the device did not make.
func (qp *queuePair) refused(to verbs.State, err syscall.Errno) error {
	step := fmt.Sprintf("queue pair %#06x to %v", uint32(qp.qpn), to)
	if err == syscall.EINVAL {
		return fmt.Errorf("%s on %s: %w: the device does not take these attributes, or the queue pair went to another state", step, qp.device.name, err)
	}
	return qp.device.failure(step, err)
}

// Init implements verbs.QueuePair.
func (qp *queuePair) Init(access verbs.Access) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.expect(verbs.Reset, verbs.Init); err != nil {
		return err
	}
	if err := qp.init(access); err != 0 {
		return qp.refused(verbs.Init, err)
	}
	return nil
}

func (qp *queuePair) init(access verbs.Access) syscall.Errno {
	// P_Key index 0 is the default partition, the only one that RoCE has.
	a := C.struct_ibv_qp_attr{qp_access_flags: C.uint(access), port_num: portNumber}
	return qp.modify(verbs.Init, &a, C.IBV_QP_PKEY_INDEX|C.IBV_QP_PORT|C.IBV_QP_ACCESS_FLAGS)
}

// ReadyToReceive implements verbs.QueuePair. The kernel finds the peer's MAC by
// ARP or neighbour discovery and may take seconds to find that nobody answers.
func (qp *queuePair) ReadyToReceive(p verbs.PeerAttributes) error {
	const to = verbs.ReadyToReceive
	d := qp.device
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.expect(verbs.Init, to); err != nil {
		return err
	}
	port, err := d.queryPort()
	if err != nil {
		return fmt.Errorf("queue pair %#06x to %v: %w", uint32(qp.qpn), to, err)
	}
	p.Address = p.Address.Unmap()
	mtu, _ := roce.MTUFromCode(uint8(port.mtu))
	reads := min(int(d.limits.max_qp_rd_atom), 255)
	switch {
	case !p.MTU.Valid() || p.MTU > mtu:
		err = fmt.Errorf("path MTU %d: the port carries 256 to %d", p.MTU, mtu)
	case p.QPN > roce.QPNMask:
		err = fmt.Errorf("peer's QPN %#x has more than 24 bits", uint32(p.QPN))
	case p.PSN > roce.PSNMask:
		err = fmt.Errorf("peer's PSN %#x has more than 24 bits", uint32(p.PSN))
	case p.MinRNRTimer > 31:
		err = fmt.Errorf("RNR timer code %d, want 0 to 31", p.MinRNRTimer)
	case p.MaxReads < 0 || p.MaxReads > reads:
		err = fmt.Errorf("%w: %d outstanding READs, want 0 to %d", verbs.ErrLimit, p.MaxReads, reads)
	case !qp.source.IsValid():
		err = fmt.Errorf("%w: %s had no address when the queue pair was created", verbs.ErrNoDevice, d.name)
	case !p.Address.IsValid() || p.Address.Is4() != qp.source.Is4() || p.Address.IsUnspecified() || p.Address.IsMulticast():
		err = fmt.Errorf("peer's address %v: want a unicast address of the family of %v", p.Address, qp.source)
	}
	if err != nil {
		return fmt.Errorf("queue pair %#06x to %v: %w", uint32(qp.qpn), to, err)
	}
	index, err := d.indexOf(qp.source)
	if err != nil {
		return fmt.Errorf("queue pair %#06x to %v: %w", uint32(qp.qpn), to, err)
	}
	a := C.struct_ibv_qp_attr{
		path_mtu:           uint32(p.MTU.Code()),
		dest_qp_num:        C.uint32_t(p.QPN),
		rq_psn:             C.uint32_t(p.PSN),
		max_dest_rd_atomic: C.uint8_t(p.MaxReads),
		min_rnr_timer:      C.uint8_t(p.MinRNRTimer),
		ah_attr:            C.struct_ibv_ah_attr{is_global: 1, port_num: portNumber},
	}
	a.ah_attr.grh.dgid = p.Address.As16()
	a.ah_attr.grh.sgid_index = C.uint8_t(index)
	a.ah_attr.grh.hop_limit = hopLimit
	switch err := qp.modify(to, &a, C.IBV_QP_AV|C.IBV_QP_PATH_MTU|C.IBV_QP_DEST_QPN|C.IBV_QP_RQ_PSN|C.IBV_QP_MAX_DEST_RD_ATOMIC|C.IBV_QP_MIN_RNR_TIMER); err {
	case 0:
		return nil
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENODATA, syscall.EADDRNOTAVAIL:
		return fmt.Errorf("queue pair %#06x to %v: no way from %v to %v: %w: check cable, addresses and subnet, "+
			"or tell the kernel the board's MAC (ip neigh replace %v lladdr %v dev IFACE nud permanent)",
			uint32(qp.qpn), to, qp.source, p.Address, err, p.Address.WithZone(""), net.HardwareAddr(p.MAC[:]))
	default:
		return qp.refused(to, err)
	}
}

// ReadyToSend implements verbs.QueuePair.
func (qp *queuePair) ReadyToSend(psn roce.PSN) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.expect(verbs.ReadyToReceive, verbs.ReadyToSend); err != nil {
		return err
	}
	if psn > roce.PSNMask {
		return fmt.Errorf("queue pair %#06x to RTS: PSN %#x has more than 24 bits", uint32(qp.qpn), uint32(psn))
	}
	a := C.struct_ibv_qp_attr{sq_psn: C.uint32_t(psn), timeout: ackTimeout, retry_cnt: retries, rnr_retry: rnrRetries}
	if qp.sends > 0 {
		a.max_rd_atomic = C.uint8_t(min(int(qp.device.limits.max_qp_init_rd_atom), ownReads))
	}
	if err := qp.modify(verbs.ReadyToSend, &a, C.IBV_QP_TIMEOUT|C.IBV_QP_RETRY_CNT|C.IBV_QP_RNR_RETRY|C.IBV_QP_SQ_PSN|C.IBV_QP_MAX_QP_RD_ATOMIC); err != 0 {
		return qp.refused(verbs.ReadyToSend, err)
	}
	return nil
}

// SetError implements verbs.QueuePair. The device flushes the receives that are
// posted; their completions may come after the return. A receive that is posted
// meanwhile is either in time to be flushed or refused: some devices (rdma_rxe)
// do not flush what comes later.
func (qp *queuePair) SetError() error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.closed {
		return fmt.Errorf("queue pair %#06x to ERR: %w", uint32(qp.qpn), verbs.ErrClosed)
	}
	reopen, err := qp.guard.shut(C.rl_failed, func() {})
	if err != nil {
		return fmt.Errorf("queue pair %#06x to ERR: %w", uint32(qp.qpn), err)
	}
	if err := qp.setError(); err != 0 && qp.device.survives(err) {
		reopen()
		return qp.refused(verbs.Error, err)
	}
	qp.state.Store(uint32(verbs.Error))
	return nil
}

func (qp *queuePair) setError() syscall.Errno {
	if verbs.State(qp.state.Load()) == verbs.Reset {
		// The kernel knows no way from RESET to ERR (drivers/infiniband/core/verbs.c, qp_state_table).
		if err := qp.init(0); err != 0 {
			return err
		}
	}
	var a C.struct_ibv_qp_attr
	return qp.modify(verbs.Error, &a, 0)
}

// PostReceive implements verbs.QueuePair. It is one call of C, which posts the
// whole batch as one chain. In ERR it posts nothing, see SetError.
func (qp *queuePair) PostReceive(rs []verbs.ReceiveRequest) (int, error) {
	if len(rs) == 0 {
		return 0, nil
	}
	if qp.shared != nil {
		return 0, qp.postError(0, len(rs), verbs.ErrShared)
	}
	if qp.state.Load() == uint32(verbs.Reset) && atomic.LoadUint32(qp.guard.why()) == 0 {
		return 0, qp.postError(0, len(rs), verbs.ErrState)
	}
	r := C.rl_post(&qp.guard.c, qp.c, (*C.struct_rl_receive)(unsafe.Pointer(unsafe.SliceData(rs))), C.int(len(rs)))
	n := int(uint32(r))
	if err := syscall.Errno(r >> 32); err != 0 {
		return n, qp.postFailure(n, len(rs), err)
	}
	return n, nil
}

func (qp *queuePair) postFailure(n, of int, err syscall.Errno) error {
	switch err {
	case syscall.EBADF:
		return qp.postError(n, of, verbs.ErrClosed)
	case syscall.ENOTCONN:
		return qp.postError(n, of, verbs.ErrState)
	case syscall.ENOMEM:
		return qp.postError(n, of, verbs.ErrFull)
	case syscall.EINVAL:
		return qp.postError(n, of, fmt.Errorf("%w: %w", verbs.ErrAccess, err))
	}
	return qp.device.failure(qp.postError(n, of, nil).Error(), err)
}

func (qp *queuePair) postError(n, of int, err error) error {
	where := fmt.Sprintf("post receive %d of %d on queue pair %#06x in %v", n+1, of, uint32(qp.qpn), verbs.State(qp.state.Load()))
	if err == nil {
		return fmt.Errorf("%s", where)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// Close implements verbs.QueuePair. Receives that are posted vanish; SetError
// first has them flushed.
func (qp *queuePair) Close() error {
	step := fmt.Sprintf("close queue pair %#06x", uint32(qp.qpn))
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.closed {
		return nil
	}
	reopen, err := qp.guard.shut(C.rl_closed, func() {})
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err := qp.device.destroyed(step, C.rl_destroy_qp(qp.c)); err != nil {
		reopen()
		return err
	}
	qp.closed = true
	qp.state.Store(uint32(verbs.Reset))
	qp.disclaim()
	qp.pd.mu.Lock()
	delete(qp.pd.qps, qp)
	qp.pd.mu.Unlock()
	qp.device.end(&qp.device.qps)
	return nil
}
