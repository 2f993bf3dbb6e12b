package stream

import (
	"context"
	"fmt"
	"time"

	"rocelink/agent/receive"
	"rocelink/agent/verbs"
)

// means is what a session receives with: its own, or those of its share.
type means struct {
	undoing
	pd     verbs.ProtectionDomain
	memory *verbs.Memory
	region verbs.MemoryRegion
	cq     verbs.CompletionQueue

	// Of a share.
	srq  verbs.SharedReceiveQueue
	pool *receive.Pool
}

// obtain makes a protection domain with memory of so many bytes, of which the
// slots take the first, and a completion queue. If a step fails, those before it
// can be unwound. held is how many slots consumers hold when the memory is to go.
func (m *means) obtain(a *Agent, dev verbs.Device, slots uint64, access verbs.Access, receives int, held func() int) error {
	var err error
	if m.pd, err = dev.AllocPD(); err != nil {
		return fmt.Errorf("protection domain: %w", err)
	}
	m.did("free protection domain", m.pd.Close)
	if m.memory, err = verbs.AllocMemory(int(slots+creditBytes), slots >= hugeFrom); err != nil {
		return err
	}
	if slots >= hugeFrom && !m.memory.Huge() {
		a.noHugePages.Do(func() {
			a.log.Warn("no huge pages are free: regions are on normal pages; `rocectl doctor` says how to have them", "bytes", slots)
		})
	}
	memory := m.memory
	m.did("free memory", func() error {
		// One that does not let go keeps it: a leak is better than a fault.
		if n := letGo(held); n > 0 {
			return fmt.Errorf("%d slots are still held by their consumer; their memory stays allocated", n)
		}
		return memory.Free()
	})
	if m.region, err = m.pd.Register(memory, access); err != nil {
		return fmt.Errorf("register %d bytes: %w", len(memory.Bytes()), err)
	}
	m.did("deregister memory", m.region.Close)
	if m.cq, err = dev.CreateCQ(receives + 1); err != nil {
		return fmt.Errorf("completion queue of %d: %w", receives+1, err)
	}
	m.did("destroy completion queue", m.cq.Close)
	return nil
}

// letGo waits for consumers to release the slots they hold, and says how many
// they keep.
func letGo(held func() int) int {
	deadline := time.Now().Add(catchLimit)
	for held() > 0 && time.Now().Before(deadline) {
		pause(context.Background(), pollDelay)
	}
	return held()
}
