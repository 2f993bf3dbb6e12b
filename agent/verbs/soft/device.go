package soft

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// waiting is how many asynchronous events wait for a taker.
const waiting = 64

// patience bounds every wait for the responder. It needs a round for what is
// asked of it, far below a millisecond.
const patience = 2 * time.Second

// device is an open device.
type device struct {
	name    string
	address netip.Addr
	link    *link

	// What the responder looks up, replaced as a whole.
	qps          atomic.Pointer[table[queuePair]]
	lkeys, rkeys atomic.Pointer[table[region]]

	mu                         sync.Mutex // all changes; never the responder
	closed                     bool
	pds, cqs, regions, qpCount int
	srqs                       int
	nextQPN, qpnStep           uint32

	// How the responder is asked for another round, see sync and poke.
	attention       atomic.Bool
	asked, answered atomic.Uint64
	round           chan struct{}
	stop            atomic.Bool
	ended           chan struct{}
	responder       *responder

	eventsMu     sync.Mutex
	events       chan verbs.Event
	eventsClosed bool
}

func openDevice(name string, addr netip.Addr) (*device, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("random queue pair number: %w", err)
	}
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	d := &device{
		name:    name,
		address: addr,
		link:    l,
		nextQPN: binary.NativeEndian.Uint32(seed[:]),
		qpnStep: binary.NativeEndian.Uint32(seed[4:]) | 1,
		round:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
		events:  make(chan verbs.Event, waiting),
	}
	d.qps.Store(newTable[queuePair](0))
	d.lkeys.Store(newTable[region](0))
	d.rkeys.Store(newTable[region](0))
	d.responder = newResponder(d)
	go d.responder.run()
	return d, nil
}

// Name implements verbs.Device.
func (d *device) Name() string { return d.name }

// Attributes implements verbs.Device.
func (d *device) Attributes() verbs.DeviceAttributes {
	return verbs.DeviceAttributes{
		Provider: "soft", MaxQP: maxQP, MaxQPReceives: maxReceives, MaxCQ: maxCQ, MaxCQE: maxCQE,
		MaxMR: maxMR, MaxMRBytes: 1 << 63,
		MaxSRQ: maxSRQ, MaxSRQReceives: maxReceivesShared,
	}
}

// Port implements verbs.Device.
func (d *device) Port() (verbs.PortAttributes, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return verbs.PortAttributes{}, fmt.Errorf("query port of %s: %w", d.name, verbs.ErrClosed)
	}
	return d.port(), nil
}

// newQPN returns the next number of a walk through all 24-bit numbers by a
// random odd step: none comes again before all others had their turn. 0 and 1
// are the management queue pairs, the last is multicast.
func (d *device) newQPN() roce.QPN {
	for {
		d.nextQPN += d.qpnStep
		if n := d.nextQPN & roce.QPNMask; n >= 2 && n != roce.QPNMask && d.qps.Load().get(n) == nil {
			return roce.QPN(n)
		}
	}
}

// sync returns when the responder has begun a round after the call: it sees
// what was published before and holds nothing of what was taken away. Queue
// pairs that are in error have been flushed. It runs under the mutex.
func (d *device) sync() error {
	want := d.asked.Add(1)
	d.attention.Store(true)
	d.link.conn.Wake()
	late := time.NewTimer(patience)
	defer late.Stop()
	for d.answered.Load() < want {
		select {
		case <-d.round:
		case <-d.ended:
			d.responder.control()
			return nil
		case <-late.C:
			return fmt.Errorf("the responder of %s did not answer within %v", d.name, patience)
		}
	}
	return nil
}

// poke has the responder flush a queue pair in error soon.
func (d *device) poke() {
	d.attention.Store(true)
	d.link.conn.Wake()
	select {
	case <-d.ended:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.responder.control()
	default:
	}
}

// Events implements verbs.Device.
func (d *device) Events() <-chan verbs.Event { return d.events }

func (d *device) emit(e verbs.Event) {
	e.Time = time.Now()
	d.eventsMu.Lock()
	defer d.eventsMu.Unlock()
	for !d.eventsClosed {
		select {
		case d.events <- e:
			return
		default:
		}
		select {
		case <-d.events:
		default:
		}
	}
}

// Counters implements verbs.Device. They are as of the end of the last round.
func (d *device) Counters() map[string]uint64 {
	m := d.responder.count.read()
	k := d.link.conn.Counters()
	m[counterNames[socketDropped]] = k.KernelDropped
	m[counterNames[rxTooLong]] = k.Truncated
	return m
}

// Close implements verbs.Device. It is idempotent and bounded.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.pds+d.cqs > 0 {
		return fmt.Errorf("close device %s: %w: %d protection domains and %d completion queues are open: close them first",
			d.name, verbs.ErrBusy, d.pds, d.cqs)
	}
	d.closed = true
	d.stop.Store(true)
	d.link.conn.Wake()
	var err error
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-d.ended:
	case <-late.C:
		err = errors.Join(err, fmt.Errorf("the responder did not end within %v", patience))
	}
	err = errors.Join(err, d.link.conn.Close())
	d.eventsMu.Lock()
	d.eventsClosed = true
	close(d.events)
	d.eventsMu.Unlock()
	if err != nil {
		return fmt.Errorf("close device %s: %w", d.name, err)
	}
	return nil
}
