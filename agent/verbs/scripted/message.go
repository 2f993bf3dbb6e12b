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
	if qp.held == 0 {
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
	} else {
		r := &qp.ring[qp.head]
		if len(m.Data) > int(r.Length) {
			qp.finish(verbs.WorkCompletion{Status: verbs.LocalLengthError})
			qp.setError()
			return nil
		}
		if mr := qp.region(r); mr != nil {
			verbs.Place(mr.bytes[r.Address-mr.address:], m.Data)
		}
	}
	if m.Write || m.WithImm {
		wc.Flags, wc.Imm = verbs.WithImm, m.Imm
	}
	qp.finish(wc)
	return nil
}

// Fail completes the oldest receive, if there is one, with a status, puts the
// queue pair in error and flushes the others.
func (qp *QueuePair) Fail(status verbs.Status, vendor uint32) {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	if qp.closed {
		return
	}
	if qp.held > 0 {
		qp.finish(verbs.WorkCompletion{Status: status, VendorError: vendor})
	}
	qp.setError()
}
