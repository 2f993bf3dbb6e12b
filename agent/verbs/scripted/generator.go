package scripted

import "rocelink/agent/verbs"

// Generator completes receives as they are polled: as fast as the caller can
// go. The data is not touched.
type Generator struct {
	// Opcode is verbs.OpRecv (the zero value) or verbs.OpRecvRDMAWithImm.
	Opcode verbs.Opcode
	// ByteLen is the length of every message.
	ByteLen uint32
	// WithImm gives SENDs an immediate too.
	WithImm bool
	// Imm is the first immediate; each message has the one after.
	Imm uint32
	// Count is after how many messages it falls silent; 0 is never.
	Count uint64
}

// Generate starts a generator on the queue pair, or with nil stops the one
// there is. Going to error stops it too. Completions pushed otherwise are
// polled first.
func (qp *QueuePair) Generate(g *Generator) {
	qp.cq.mu.Lock()
	defer qp.cq.mu.Unlock()
	if g == nil || qp.closed || qp.State() == verbs.Error {
		qp.generator = nil
		return
	}
	own := *g
	if own.Opcode == 0 {
		own.Opcode = verbs.OpRecv
	}
	if own.Opcode == verbs.OpRecvRDMAWithImm {
		own.WithImm = true
		if qp.p.config.ZeroWriteLength {
			own.ByteLen = 0
		}
	}
	if own.Count == 0 {
		own.Count = 1<<64 - 1
	}
	qp.generator = &own
	if qp.generates() {
		qp.cq.signal()
	}
}

// generates reports whether a poll would find something. It runs under the lock.
func (qp *QueuePair) generates() bool {
	if qp.generator == nil || qp.generator.Count == 0 || qp.receives.count() == 0 {
		return false
	}
	s := qp.State()
	return s == verbs.ReadyToReceive || s == verbs.ReadyToSend
}

// generate fills wcs. It runs under the lock.
func (qp *QueuePair) generate(wcs []verbs.WorkCompletion) int {
	if !qp.generates() {
		return 0
	}
	g := qp.generator
	qp.receives.lock()
	defer qp.receives.unlock()
	n := min(len(wcs), qp.receives.held)
	if uint64(n) > g.Count {
		n = int(g.Count)
	}
	wc := verbs.WorkCompletion{Opcode: g.Opcode, ByteLen: g.ByteLen, QPN: uint32(qp.qpn)}
	if g.WithImm {
		wc.Flags = verbs.WithImm
	}
	for i := range wcs[:n] {
		r, _ := qp.receives.take()
		wc.ID = r.ID
		if g.WithImm {
			wc.Imm = verbs.ImmediateOf(g.Imm)
			g.Imm++
		}
		wcs[i] = wc
	}
	g.Count -= uint64(n)
	qp.completed += uint64(n)
	return n
}
