package soft

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"rocelink/agent/verbs"
)

// domain is a protection domain. Its fields are under the device's mutex.
type domain struct {
	device  *device
	closed  bool
	qps     []*queuePair
	regions int
	srqs    int
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.ProtectionDomain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("allocate protection domain on %s: %w", d.name, verbs.ErrClosed)
	}
	d.pds++
	return &domain{device: d}, nil
}

// Close implements verbs.ProtectionDomain.
func (pd *domain) Close() error {
	d := pd.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(pd.qps)+pd.regions+pd.srqs > 0 {
		return fmt.Errorf("close protection domain: %w: %d queue pairs, %d shared receive queues and %d memory regions are open: close them first",
			verbs.ErrBusy, len(pd.qps), pd.srqs, pd.regions)
	}
	if !pd.closed {
		pd.closed = true
		d.pds--
	}
	return nil
}

// region is a memory region. It does not change while it is in the tables.
type region struct {
	pd         *domain
	bytes      []byte
	base       uint64
	access     verbs.Access
	lkey, rkey uint32
	closed     bool // under the device's mutex
}

// Register implements verbs.ProtectionDomain.
func (pd *domain) Register(m *verbs.Memory, access verbs.Access) (verbs.MemoryRegion, error) {
	const known = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
	d := pd.device
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case pd.closed:
		return nil, fmt.Errorf("register memory: protection domain: %w", verbs.ErrClosed)
	case m == nil || len(m.Bytes()) == 0:
		return nil, fmt.Errorf("register memory: %w: no memory, or freed", verbs.ErrAccess)
	case access&^known != 0:
		return nil, fmt.Errorf("register memory: %w: access flags %#x, known are %#x", verbs.ErrAccess, access, known)
	case access&verbs.RemoteWrite != 0 && access&verbs.LocalWrite == 0:
		return nil, fmt.Errorf("register memory: %w: RemoteWrite needs LocalWrite", verbs.ErrAccess)
	case d.regions >= maxMR:
		return nil, fmt.Errorf("register memory: %w: %d regions exist", verbs.ErrLimit, d.regions)
	}
	r := &region{pd: pd, bytes: m.Bytes(), base: m.Address(), access: access}
	var err error
	if r.lkey, err = newKey(d.lkeys.Load(), 0); err != nil {
		return nil, fmt.Errorf("register memory: %w", err)
	}
	// A different number, so that who mixes up the two is found out here.
	if r.rkey, err = newKey(d.rkeys.Load(), r.lkey); err != nil {
		return nil, fmt.Errorf("register memory: %w", err)
	}
	d.lkeys.Store(d.lkeys.Load().with(r.lkey, r))
	d.rkeys.Store(d.rkeys.Load().with(r.rkey, r))
	d.regions++
	pd.regions++
	return r, nil
}

// newKey returns a random key that is free, not 0 and not other.
func newKey(t *table[region], other uint32) (uint32, error) {
	var b [4]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("random key: %w", err)
		}
		if k := binary.NativeEndian.Uint32(b[:]); k != 0 && k != other && t.get(k) == nil {
			return k, nil
		}
	}
}

// Address implements verbs.MemoryRegion.
func (r *region) Address() uint64 { return r.base }

// Length implements verbs.MemoryRegion.
func (r *region) Length() uint64 { return uint64(len(r.bytes)) }

// LKey implements verbs.MemoryRegion.
func (r *region) LKey() uint32 { return r.lkey }

// RKey implements verbs.MemoryRegion.
func (r *region) RKey() uint32 { return r.rkey }

// slice returns n bytes at an address; false if the region does not hold all of
// them. An address below the base wraps to an offset above the length.
func (r *region) slice(address uint64, n uint32) ([]byte, bool) {
	at := address - r.base
	if size := uint64(len(r.bytes)); at > size || uint64(n) > size-at {
		return nil, false
	}
	return r.bytes[at : at+uint64(n) : at+uint64(n)], true
}

// Close implements verbs.MemoryRegion. A queue pair of the domain in INIT, RTR
// or RTS could reach the region.
func (r *region) Close() error {
	d := r.pd.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.closed {
		return nil
	}
	for _, qp := range r.pd.qps {
		if s := qp.State(); s != verbs.Reset && s != verbs.Error {
			return fmt.Errorf("close memory region: %w: queue pair %#06x is in %v: close it or set it to error first", verbs.ErrBusy, uint32(qp.qpn), s)
		}
	}
	r.closed = true
	d.lkeys.Store(d.lkeys.Load().without(r.lkey))
	d.rkeys.Store(d.rkeys.Load().without(r.rkey))
	d.regions--
	r.pd.regions--
	return d.sync()
}
