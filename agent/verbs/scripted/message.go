package scripted

import (
	"fmt"

	"rocelink/agent/verbs"
)

// Message is what a peer sends.
type Message struct {
	// Write makes it a WRITE with immediate; without, it is a SEND.
	Write bool
	// Data lands in the receive's buffer, or for a WRITE in Region at Offset.
	Data   []byte
	Region *MemoryRegion
	Offset int
	// Imm is the immediate; a SEND has one only with WithImm.
	Imm     uint32
	WithImm bool
}

// Deliver plays a message: it places the data and completes the oldest receive.
// Without a receive it returns ErrNoReceive and nothing has happened. A SEND
// longer than the receive completes it with LocalLengthError and puts the queue
// pair in error, as a device does; that is no error of Deliver.
func (qp *QueuePair) Deliver(m Message) error {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	if s := qp.State(); s != verbs.ReadyToReceive && s != verbs.ReadyToSend {
		return fmt.Errorf("deliver to %s: %w: %v", qp.object, verbs.ErrState, s)
	}
	if qp.receives.count() == 0 {
		return fmt.Errorf("deliver to %s: %w", qp.object, ErrNoReceive)
	}
	wc := verbs.WorkCompletion{Opcode: verbs.OpRecv, ByteLen: uint32(len(m.Data))}
	if m.Write {
		if m.Region != nil {
			if err := m.Region.Write(m.Offset, m.Data); err != nil {
				return fmt.Errorf("deliver to %s: %w", qp.object, err)
			}
		}
		wc.Opcode = verbs.OpRecvRDMAWithImm
		if qp.p.config.ZeroWriteLength {
			wc.ByteLen = 0
		}
	}
	qp.receives.lock()
	r, ok := qp.receives.take()
	var mr *MemoryRegion
	if ok && !m.Write {
		mr = qp.receives.region(qp.pd, &r)
	}
	qp.receives.unlock()
	switch {
	case !ok: // another queue pair of the shared queue was quicker
		return fmt.Errorf("deliver to %s: %w", qp.object, ErrNoReceive)
	case !m.Write && len(m.Data) > int(r.Length):
		qp.settle(r.ID, verbs.WorkCompletion{Status: verbs.LocalLengthError})
		qp.setError()
		return nil
	case mr != nil:
		verbs.Place(mr.bytes[r.Address-mr.address:], m.Data)
	}
	if m.Write || m.WithImm {
		wc.Flags, wc.Imm = verbs.WithImm, verbs.ImmediateOf(m.Imm)
	}
	qp.settle(r.ID, wc)
	return nil
}

// Fail completes the oldest receive, if there is one, with a status, puts the
// queue pair in error and flushes the others, but for those of a shared queue.
func (qp *QueuePair) Fail(status verbs.Status, vendor uint32) {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	if qp.closed {
		return
	}
	if qp.receives.count() > 0 {
		qp.finish(verbs.WorkCompletion{Status: status, VendorError: vendor})
	}
	qp.setError()
}
