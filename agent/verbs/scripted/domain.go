package scripted

import (
	"fmt"
	"sync/atomic"

	"rocelink/agent/verbs"
)

// ProtectionDomain implements verbs.ProtectionDomain.
type ProtectionDomain struct {
	d        *Device
	object   string
	closed   atomic.Bool
	qps, mrs atomic.Int32
	srqs     atomic.Int32
}

// Close fails with ErrBusy while a queue pair or region is open.
func (pd *ProtectionDomain) Close() error {
	p := pd.d.p
	if err := p.enter(StepClosePD); err != nil {
		return p.record(StepClosePD, pd.object, fmt.Errorf("close %s: %w", pd.object, err))
	}
	if qps, srqs, mrs := pd.qps.Load(), pd.srqs.Load(), pd.mrs.Load(); qps+srqs+mrs > 0 {
		return p.record(StepClosePD, pd.object,
			fmt.Errorf("close %s: %w: %d queue pairs, %d shared receive queues and %d memory regions are open", pd.object, verbs.ErrBusy, qps, srqs, mrs))
	}
	if pd.closed.Swap(true) {
		return nil
	}
	pd.d.pds.Add(-1)
	return p.record(StepClosePD, pd.object, nil)
}

// MemoryRegion implements verbs.MemoryRegion.
type MemoryRegion struct {
	pd         *ProtectionDomain
	object     string
	bytes      []byte
	address    uint64
	access     verbs.Access
	lkey, rkey uint32
	closed     atomic.Bool
}

// Register implements verbs.ProtectionDomain.
func (pd *ProtectionDomain) Register(m *verbs.Memory, access verbs.Access) (verbs.MemoryRegion, error) {
	p := pd.d.p
	err := p.enter(StepRegister)
	switch {
	case err != nil:
	case pd.closed.Load():
		err = verbs.ErrClosed
	case m == nil || len(m.Bytes()) == 0:
		err = fmt.Errorf("%w: no memory", verbs.ErrAccess)
	case uint64(len(m.Bytes())) > p.config.Attributes.MaxMRBytes:
		err = fmt.Errorf("%w: %d bytes, the device takes %d", verbs.ErrLimit, len(m.Bytes()), p.config.Attributes.MaxMRBytes)
	case access&verbs.RemoteWrite != 0 && access&verbs.LocalWrite == 0:
		err = fmt.Errorf("%w: RemoteWrite needs LocalWrite", verbs.ErrAccess)
	case int(pd.d.mrs.Load()) >= p.config.Attributes.MaxMR:
		err = fmt.Errorf("%w: %d memory regions", verbs.ErrLimit, pd.d.mrs.Load())
	}
	if err != nil {
		return nil, p.record(StepRegister, "mr", fmt.Errorf("register memory: %w", err))
	}
	p.mu.Lock()
	mr := &MemoryRegion{pd: pd, object: fmt.Sprintf("mr %d", len(p.regions)+1), bytes: m.Bytes(),
		address: m.Address(), access: access, lkey: p.nextKey, rkey: p.nextKey ^ 0x00ff_00ff}
	p.nextKey += 0x100
	p.regions = append(p.regions, mr)
	p.mu.Unlock()
	pd.mrs.Add(1)
	pd.d.mrs.Add(1)
	_ = p.record(StepRegister, mr.object, nil)
	return mr, nil
}

// Address implements verbs.MemoryRegion.
func (mr *MemoryRegion) Address() uint64 { return mr.address }

// Length implements verbs.MemoryRegion.
func (mr *MemoryRegion) Length() uint64 { return uint64(len(mr.bytes)) }

// LKey implements verbs.MemoryRegion.
func (mr *MemoryRegion) LKey() uint32 { return mr.lkey }

// RKey differs from LKey always.
func (mr *MemoryRegion) RKey() uint32 { return mr.rkey }

// Access returns what the region was registered for.
func (mr *MemoryRegion) Access() verbs.Access { return mr.access }

// Write plays a peer's plain WRITE: data lands at an offset, its last aligned
// word last, and nobody is told.
func (mr *MemoryRegion) Write(offset int, data []byte) error {
	switch {
	case mr.closed.Load():
		return fmt.Errorf("write to %s: %w", mr.object, verbs.ErrClosed)
	case mr.access&verbs.RemoteWrite == 0, offset < 0, offset > len(mr.bytes), len(data) > len(mr.bytes)-offset:
		return fmt.Errorf("write to %s: %w: %d bytes at %d of %d", mr.object, verbs.ErrAccess, len(data), offset, len(mr.bytes))
	}
	verbs.Place(mr.bytes[offset:], data)
	return nil
}

// Close fails with ErrBusy while a queue pair of the domain is in INIT, RTR or
// RTS.
func (mr *MemoryRegion) Close() error {
	p := mr.pd.d.p
	if err := p.enter(StepCloseRegion); err != nil {
		return p.record(StepCloseRegion, mr.object, fmt.Errorf("close %s: %w", mr.object, err))
	}
	for _, qp := range p.QueuePairs() {
		if s := qp.State(); qp.pd == mr.pd && s != verbs.Reset && s != verbs.Error {
			return p.record(StepCloseRegion, mr.object,
				fmt.Errorf("close %s: %w: %s is in %v", mr.object, verbs.ErrBusy, qp.object, s))
		}
	}
	if mr.closed.Swap(true) {
		return nil
	}
	mr.pd.mrs.Add(-1)
	mr.pd.d.mrs.Add(-1)
	return p.record(StepCloseRegion, mr.object, nil)
}

// takes reports whether a receive on a queue pair of pd may use the region.
func (mr *MemoryRegion) takes(pd *ProtectionDomain, r *verbs.ReceiveRequest) bool {
	at := r.Address - mr.address
	return mr.lkey == r.LKey && mr.pd == pd && !mr.closed.Load() && mr.access&verbs.LocalWrite != 0 &&
		r.Address >= mr.address && at <= uint64(len(mr.bytes)) && uint64(r.Length) <= uint64(len(mr.bytes))-at
}
