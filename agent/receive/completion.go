package receive

import (
	"fmt"

	"rocelink"
	"rocelink/agent/verbs"
)

// takeCompletions handles a batch, to its end even if there are errors in it.
// The stock is the loop's own or its pool's: a parameter, since a pointer in the
// loop would be loaded anew after each call of the sink.
func (l *Loop) takeCompletions(s *stock, wcs []verbs.WorkCompletion) {
	for i := range wcs {
		wc := &wcs[i]
		switch {
		case wc.Status != verbs.Success:
			l.failed(s, wc)
		case wc.Opcode != l.wantOpcode || wc.Flags&verbs.WithImm != l.wantFlags:
			l.unfit(s, wc)
		case l.kind == kindWriteImm:
			l.written(s, wc)
		default:
			l.received(s, wc)
		}
	}
}

// failed notes a completion with an error.
func (l *Loop) failed(s *stock, wc *verbs.WorkCompletion) {
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
	if s.outstanding > 0 {
		s.outstanding--
	}
	// The identification only counts if it makes sense.
	if wc.ID < uint64(len(s.posted)) && s.posted[wc.ID] {
		s.posted[wc.ID] = false
		s.free.push(uint32(wc.ID))
	}
	if !l.leaving || l.weak && !flushed {
		l.leave(&CompletionError{Status: wc.Status, VendorError: wc.VendorError, ID: wc.ID}, flushed)
	}
}

// unfit notes a good completion of another kind than the verb makes: the peer
// was set up otherwise than the host. The receive it consumed is posted again.
func (l *Loop) unfit(s *stock, wc *verbs.WorkCompletion) {
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
		if slot, ok := l.consumed(s, wc); ok {
			s.free.push(uint32(slot))
		}
	case kindWriteImm:
		l.credit(s)
	}
}

// consumed takes note that the receive of a SEND is not posted any more, and
// returns its slot.
func (l *Loop) consumed(s *stock, wc *verbs.WorkCompletion) (slot int, ok bool) {
	if wc.ID >= uint64(len(s.posted)) || !s.posted[wc.ID] {
		// Which slot was filled is not known, so nothing can go on.
		err := l.notPosted(fmt.Sprintf("ID %#x of %d slots", wc.ID, l.cfg.Slots))
		if l.pool != nil {
			l.pool.fail(err)
		}
		return 0, false
	}
	s.outstanding--
	s.posted[wc.ID] = false
	return int(wc.ID), true
}

// credit takes note that a receive of a WRITE with immediate is not posted any
// more.
func (l *Loop) credit(s *stock) (ok bool) {
	if s.outstanding == 0 {
		_ = l.notPosted("none is")
		return false
	}
	s.outstanding--
	return true
}

// notPosted notes a completion of a receive that is not posted.
func (l *Loop) notPosted(what string) error {
	l.account.total.Errors++
	l.account.name(badID)
	err := fmt.Errorf("%w: %s: the device or its driver is at fault", ErrBadID, what)
	l.leave(err, false)
	return err
}

// received handles a SEND.
func (l *Loop) received(s *stock, wc *verbs.WorkCompletion) {
	slot, ok := l.consumed(s, wc)
	if !ok {
		return
	}
	if wc.ByteLen > l.cfg.FrameBytes {
		l.account.total.Errors++
		l.account.name(tooLong)
		s.free.push(uint32(slot))
		return
	}
	q := l.seq.next
	if l.wantFlags != 0 {
		q = l.seq.extend(wc.Imm.Uint32())
	}
	where := l.place(q, wc.ByteLen)
	if where == duplicate || !l.lend(s, q, slot, wc.ByteLen, where == late) {
		s.free.push(uint32(slot))
	}
}

// Names of good completions that are errors all the same.
const (
	tooLong = "length beyond the slot"
	badID   = "receive not posted"
)

// written handles a WRITE with immediate.
func (l *Loop) written(s *stock, wc *verbs.WorkCompletion) {
	if !l.credit(s) {
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
	q := l.seq.extend(wc.Imm.Uint32())
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
	if !l.lend(s, q, slot, length, false) {
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
func (l *Loop) lend(s *stock, q uint64, slot int, length uint32, late bool) (kept bool) {
	v := l.show(s, q, slot, length, late)
	l.judge(v)
	return !l.settle(s, slot, v)
}

// show calls the sink.
func (l *Loop) show(s *stock, q uint64, slot int, length uint32, late bool) Verdict {
	f := &l.frame
	f.Sequence, f.Slot, f.Late = q, slot, late
	f.Data = l.slot(slot, length)
	f.Owner = l
	f.generation = s.lending.lend(slot)
	s.held++
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
func (l *Loop) settle(s *stock, slot int, v Verdict) bool {
	if v&Kept == 0 && s.lending.giveBack(slot, l.frame.generation) {
		s.held--
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
