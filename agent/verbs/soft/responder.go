package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// spin is how long an idle responder looks for datagrams before it sleeps. A
// requester with a window's worth of packets under way comes back within it.
const spin = 50 * time.Microsecond

// responder executes what arrives. All of it belongs to one goroutine.
type responder struct {
	device   *device
	count    tally
	owing    []*queuePair // have answers to be sent
	current  *queuePair   // whose request is being executed
	lastLKey *region
	packet   roce.Packet
	flow     roce.Flow
	rnr      refusal
}

func newResponder(d *device) *responder {
	return &responder{device: d, owing: make([]*queuePair, 0, maxQP), flow: roce.Flow{Dst: d.address}}
}

// run is the responder's life: rounds until the device closes or its socket
// fails.
func (r *responder) run() {
	runtime.LockOSThread()
	d := r.device
	defer func() {
		close(d.ended)
		// From here on who asks for something does it himself under the mutex;
		// this is for who asked just before.
		d.mu.Lock()
		defer d.mu.Unlock()
		r.control()
	}()
	idleSince := time.Now()
	for !d.stop.Load() {
		r.control()
		busy, err := r.round()
		if err != nil {
			r.abandon(err)
			return
		}
		if busy {
			idleSince = time.Now()
			continue
		}
		if time.Since(idleSince) < spin {
			continue
		}
		if _, err := d.link.conn.Wait(-1); err != nil {
			r.abandon(err)
			return
		}
	}
}

// round handles a batch of datagrams and sends the answers. It reports whether
// there was anything to do.
func (r *responder) round() (busy bool, err error) {
	l := r.device.link
	n, err := l.conn.Receive(l.batch)
	if err != nil {
		return false, err
	}
	for i := range n {
		r.handle(l.batch.Packet(i))
	}
	more := r.answers()
	if n == 0 && l.queued == 0 && !more {
		return false, nil
	}
	r.count.add(rounds, 1)
	// Who has the answer finds it counted.
	r.count.publish()
	r.transmit()
	return true, nil
}

// control does what others asked for: it flushes queue pairs in error and says
// that a round begins.
func (r *responder) control() {
	d := r.device
	if !d.attention.Load() {
		return
	}
	// First this, then what was asked for: who asks meanwhile sets it again.
	d.attention.Store(false)
	asked := d.asked.Load()
	r.lastLKey = nil
	for _, s := range d.qps.Load().slots {
		if s.value != nil && s.value.State() == verbs.Error {
			r.flush(s.value)
		}
	}
	r.count.publish()
	d.answered.Store(asked)
	select {
	case d.round <- struct{}{}:
	default:
	}
}

// abandon ends a device whose socket failed.
func (r *responder) abandon(err error) {
	d := r.device
	cause := fmt.Sprintf("the socket failed: %v", err)
	d.emit(verbs.Event{Kind: verbs.EventDeviceRemoved, Cause: cause})
	for _, s := range d.qps.Load().slots {
		if s.value != nil {
			r.fail(s.value, cause)
		}
	}
	r.count.publish()
}

// handle takes one datagram.
func (r *responder) handle(b []byte, from netip.AddrPort) {
	r.count.add(rxPackets, 1)
	r.count.add(rxBytes, len(b))
	p := &r.packet
	fault := p.Decode(b)
	if fault != nil && !errors.Is(fault, roce.ErrOpcode) && !errors.Is(fault, roce.ErrPad) && !errors.Is(fault, roce.ErrLength) {
		r.count.add(rxMalformed, 1)
		return
	}
	r.flow.Src, r.flow.SrcPort = from.Addr(), from.Port()
	if !r.flow.Check(b) {
		r.count.add(rxICRCError, 1)
		return
	}
	if p.Opcode > lastRC {
		r.count.add(rxMalformed, 1)
		return
	}
	qp := r.device.qps.Load().get(uint32(p.DestQP))
	switch {
	case qp == nil:
		r.count.add(rxUnknownQP, 1)
	case !qp.live():
		r.count.add(rxQPNotReady, 1)
	case from.Addr().WithZone("") != qp.peer.Address:
		r.count.add(rxWrongAddress, 1)
	case p.PKey&pkeyMask != roce.PKeyDefault&pkeyMask:
		r.count.add(rxPKeyMismatch, 1)
	case p.Opcode.HasAETH() || p.Opcode == roce.AtomicAcknowledge || p.Opcode.IsReadResponse():
		r.count.add(rxUnexpectedResponse, 1)
	default:
		r.current = qp
		r.request(qp, p, fault)
		r.current = nil
	}
}

const (
	// lastRC is the last opcode of the reliable connected service: the upper
	// three bits of others are not 0 (IBTA 9.2.1).
	lastRC roce.Opcode = 0x1f
	// pkeyMask leaves the membership bit out: a full member, as the device
	// is, talks to full and limited members (IBTA 10.9.3).
	pkeyMask = 0x7fff
)
