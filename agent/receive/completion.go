package receive

import (
	"fmt"

	"rocelink"
	"rocelink/agent/verbs"
)

// takeCompletions handles a batch, to its end even if there are errors in it.
func (l *Loop) takeCompletions(wcs []verbs.WorkCompletion) {
	for i := range wcs {
		wc := &wcs[i]
		switch {
		case wc.Status != verbs.Success:
			l.failed(wc)
		case wc.Opcode != l.wantOpcode || wc.Flags&verbs.WithImm != l.wantFlags:
			l.unfit(wc)
		case l.kind == kindWriteImm:
			l.written(wc)
		default:
			l.received(wc)
		}
	}
}

// failed notes a completion with an error.
func (l *Loop) failed(wc *verbs.WorkCompletion) {
	flushed := wc.Status == verbs.WorkRequestFlushed
	if flushed {
		l.account.total.Flushed++
	} else {
		l.account.total.Errors++
	}
	if int(wc.Status) < verbs.Statuses {
		l.account.byStatus[wc.Status]++
	} else {
		l.account.name(wc.Status.String())
	}
	if l.outstanding > 0 {
		l.outstanding--
	}
	// The identification only counts if it makes sense.
	if wc.ID < uint64(len(l.posted)) && l.posted[wc.ID] {
		l.posted[wc.ID] = false
		l.free.push(uint32(wc.ID))
	}
	if !l.leaving || l.weak && !flushed {
		l.leave(&CompletionError{Status: wc.Status, VendorError: wc.VendorError, ID: wc.ID}, flushed)
	}
}

// unfit notes a good completion of another kind than the verb makes: the peer
// was set up otherwise than the host. The receive it consumed is posted again.
func (l *Loop) unfit(wc *verbs.WorkCompletion) {
	l.account.total.Errors++
	with := ""
	if wc.Opcode == verbs.OpRecv {
		with = " without immediate"
		if wc.Flags&verbs.WithImm != 0 {
			with = " with immediate"
		}
	}
	l.account.name("unexpected " + wc.Opcode.String() + with)
	if wc.Opcode&verbs.OpRecv == 0 {
		return
	}
	switch l.kind {
	case kindSend:
		if slot, ok := l.consumed(wc); ok {
			l.free.push(uint32(slot))
		}
	case kindWriteImm:
		l.consumed(wc)
	}
}

// consumed takes note that a receive is not posted any more. For SEND it
// returns the slot.
func (l *Loop) consumed(wc *verbs.WorkCompletion) (slot int, ok bool) {
	if l.kind == kindWriteImm {
		if l.outstanding == 0 {
			l.account.total.Errors++
			l.account.name(badID)
			l.leave(fmt.Errorf("%w: none is: the device or its driver is at fault", ErrBadID), false)
			return 0, false
		}
		l.outstanding--
		return 0, true
	}
	if wc.ID >= uint64(len(l.posted)) || !l.posted[wc.ID] {
		// Which slot was filled is not known, so nothing can go on.
		l.account.total.Errors++
		l.account.name(badID)
		l.leave(fmt.Errorf("%w: ID %#x of %d slots: the device or its driver is at fault", ErrBadID, wc.ID, l.cfg.Slots), false)
		return 0, false
	}
	l.outstanding--
	l.posted[wc.ID] = false
	return int(wc.ID), true
}

// received handles a SEND.
func (l *Loop) received(wc *verbs.WorkCompletion) {
	slot, ok := l.consumed(wc)
	if !ok {
		return
	}
	if wc.ByteLen > l.cfg.FrameBytes {
		l.account.total.Errors++
		l.account.name(tooLong)
		l.free.push(uint32(slot))
		return
	}
	q := l.seq.next
	if l.wantFlags != 0 {
		q = l.seq.extend(wc.Imm)
	}
	where := l.place(q, wc.ByteLen)
	if where == duplicate || !l.lend(q, slot, wc.ByteLen, where == late) {
		l.free.push(uint32(slot))
	}
}

// Names of good completions that are errors all the same.
const (
	tooLong = "length beyond the slot"
	badID   = "receive not posted"
)

// written handles a WRITE with immediate.
func (l *Loop) written(wc *verbs.WorkCompletion) {
	if _, ok := l.consumed(wc); !ok {
		return
	}
	length := wc.ByteLen
	if length == 0 {
		length = l.cfg.FrameBytes // some devices do not say
	}
	if length > l.cfg.FrameBytes {
		l.account.total.Errors++
		l.account.name(tooLong)
		return
	}
	q := l.seq.extend(wc.Imm)
	if l.place(q, length) != inOrder {
		// The slot of a late frame may be the next frame's by now.
		l.ring.advance(l.seq.next)
		return
	}
	slot := l.ring.slotOf(q)
	if l.ring.held[slot] {
		// The peer went further than its credits let it.
		l.account.total.Overrun++
		l.ring.advance(l.seq.next)
		return
	}
	l.ring.hold(slot, q)
	if !l.lend(q, slot, length, false) {
		l.ring.drop(slot)
	}
	l.ring.advance(l.seq.next)
}

// place counts a message and finds its place in the stream.
func (l *Loop) place(q uint64, length uint32) order {
	t := &l.account.total
	t.Messages++
	t.Bytes += rocelink.Count(length)
	where, skipped := l.seq.see(q)
	t.Missing += rocelink.Count(skipped)
	switch where {
	case late:
		t.Late++
		// It was counted as missing. A window that is published is not
		// changed: there it stays missing.
		if t.Missing > l.account.before.Missing {
			t.Missing--
		}
	case duplicate:
		t.Duplicate++
	}
	return where
}

// lend hands a frame to the sink and reports whether the sink keeps its slot.
func (l *Loop) lend(q uint64, slot int, length uint32, late bool) (kept bool) {
	v := l.show(q, slot, length, late)
	l.judge(v)
	return !l.settle(slot, v)
}

// show calls the sink.
func (l *Loop) show(q uint64, slot int, length uint32, late bool) Verdict {
	f := &l.frame
	f.Sequence, f.Slot, f.Late = q, slot, late
	f.Data = l.slot(slot, length)
	f.Owner = l
	f.generation = l.lending.lend(slot)
	l.held++
	return l.cfg.Sink.Take(f)
}

// judge counts a verdict.
func (l *Loop) judge(v Verdict) {
	t := &l.account.total
	if v&Refused != 0 {
		return
	}
	t.Accepted++
	switch {
	case v&Corrupt != 0:
		t.Corrupt++
	case v&Verified != 0:
		t.Verified++
	}
}

// settle reports whether the slot is the loop's again after the sink was
// called.
func (l *Loop) settle(slot int, v Verdict) bool {
	if v&Kept == 0 && l.lending.giveBack(slot, l.frame.generation) {
		l.held--
		return true
	}
	// Either the sink keeps it, or it has released it already and the slot
	// comes back by the queue.
	l.heldNow.Add(1)
	return false
}

// collect takes back the slots that consumers released.
func (l *Loop) collect() {
	slot, ok := l.lending.take()
	if !ok {
		return
	}
	for ; ok; slot, ok = l.lending.take() {
		l.held--
		switch l.kind {
		case kindSend:
			l.free.push(uint32(slot))
		case kindWrite:
			if !l.ring.torn[slot] && !l.ring.same(slot) {
				l.account.total.Overrun++
				l.account.dirty = true
			}
			fallthrough
		default:
			l.ring.drop(slot)
		}
	}
	switch l.kind {
	case kindWriteImm:
		l.ring.advance(l.seq.next)
	case kindWrite:
		l.ring.advance(l.ring.next)
		l.ring.grant()
	}
}
