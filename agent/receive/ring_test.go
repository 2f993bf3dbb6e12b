package receive

import (
	"testing"

	"rocelink"
	"rocelink/agent/verbs/scripted"
	"rocelink/fpga/pattern"
)

// What the loop makes of the ring of plain WRITE, looked at turn by turn.
func TestRing(t *testing.T) {
	type step func(r *rig)
	write := func(qs ...uint64) step {
		return func(r *rig) {
			for _, q := range qs {
				offset := int(q%4) * int(r.cfg.Stride)
				r.must(r.mr.Write(offset, frame(q, 64)))
				r.must(r.trailer(q, 64, q+1))
			}
		}
	}
	turn := func(r *rig) {
		// As often as it takes to probe every slot.
		for range 8 {
			r.loop.turn()
		}
	}
	for _, test := range []struct {
		name  string
		steps []step
		taken []uint64
		want  rocelink.Totals
	}{
		{"in order", []step{write(0, 1), turn, write(2), turn, write(3, 4, 5), turn},
			[]uint64{0, 1, 2, 3, 4, 5}, rocelink.Totals{Messages: 6, Bytes: 384, Accepted: 6}},
		{"the whole ring", []step{write(0, 1, 2, 3), turn, write(4, 5, 6, 7), turn},
			[]uint64{0, 1, 2, 3, 4, 5, 6, 7}, rocelink.Totals{Messages: 8, Bytes: 512, Accepted: 8}},
		{"lapped by one", []step{write(0, 1, 2, 3, 4), turn},
			[]uint64{1, 2, 3, 4}, rocelink.Totals{Messages: 4, Bytes: 256, Accepted: 4, Overrun: 1}},
		{"lapped by a ring and more", []step{write(0, 1), turn, write(2, 3, 4, 5, 6, 7, 8, 9, 10), turn},
			[]uint64{0, 1, 7, 8, 9, 10}, rocelink.Totals{Messages: 6, Bytes: 384, Accepted: 6, Overrun: 5}},
		{"one never written", []step{write(0, 2), turn, write(3, 4), turn},
			[]uint64{0, 2, 3, 4}, rocelink.Totals{Messages: 4, Bytes: 256, Accepted: 4, Missing: 1}},
		{"the first never written", []step{write(3), turn},
			[]uint64{3}, rocelink.Totals{Messages: 1, Bytes: 64, Accepted: 1, Missing: 3}},
		{"far ahead", []step{write(0), turn, write(1001), turn, write(1002), turn},
			[]uint64{0, 1001, 1002}, rocelink.Totals{Messages: 3, Bytes: 192, Accepted: 3, Missing: 3, Overrun: 997}},
		{"stale words do not count", []step{write(4, 5, 6, 7), turn, write(8, 9), turn, write(6), turn, write(10), turn},
			[]uint64{4, 5, 6, 7, 8, 9, 10}, rocelink.Totals{Messages: 7, Bytes: 448, Accepted: 7, Overrun: 4}},
		{"words in the wrong slot do not count", []step{
			func(r *rig) { r.must(r.trailer(1, 64, 100)) }, turn, write(0, 1), turn},
			[]uint64{0, 1}, rocelink.Totals{Messages: 2, Bytes: 128, Accepted: 2}},
		{"length beyond the frame", []step{
			func(r *rig) { r.must(r.trailer(0, 65, 1)) }, turn,
			func(r *rig) { r.must(r.trailer(1, 1<<32-1, 2)) }, turn, write(2), turn},
			[]uint64{2}, rocelink.Totals{Messages: 3, Bytes: 64, Accepted: 1, Corrupt: 2}},
		{"shorter", []step{func(r *rig) { r.must(r.trailer(0, 0, 1)); r.must(r.trailer(1, 5, 2)) }, turn},
			[]uint64{0, 1}, rocelink.Totals{Messages: 2, Bytes: 5, Accepted: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var taken []uint64
			r := newRig(t, Config{Verb: rocelink.VerbWrite, Slots: 4, CreditOffset: -1, Sink: funcSink(func(f *Frame) Verdict {
				taken = append(taken, f.Sequence)
				return 0
			})}, scripted.Config{})
			r.loop.account.begin(r.loop)
			for _, s := range test.steps {
				s(r)
				r.balance()
			}
			if got := r.loop.account.total; got != test.want || !equal(taken, test.taken) {
				t.Errorf("taken %d, totals %+v, want %d, %+v", taken, got, test.taken, test.want)
			}
		})
	}
}

// A frame that is overwritten while the sink looks at it is an overrun, and
// neither corrupt nor verified; so is one that is overwritten while it is kept.
func TestOverwritten(t *testing.T) {
	for _, test := range []struct {
		name    string
		credit  bool
		during  func(r *rig) // while frame 0 of 4 slots is looked at
		verdict Verdict
		want    rocelink.Totals
	}{
		{"untouched", false, func(*rig) {}, Verified, rocelink.Totals{Accepted: 1, Verified: 1}},
		{"corrupt", false, func(*rig) {}, Corrupt, rocelink.Totals{Accepted: 1, Corrupt: 1}},
		{"overwritten, found right", false, func(r *rig) { r.must(r.trailer(4, 64, 5)) }, Verified, rocelink.Totals{Overrun: 1}},
		{"overwritten, not looked at", false, func(r *rig) { r.must(r.trailer(4, 64, 5)) }, 0, rocelink.Totals{Overrun: 1}},
		{"overwritten, found wrong", false, func(r *rig) { r.must(r.trailer(4, 64, 5)) }, Corrupt, rocelink.Totals{Overrun: 1}},
		{"overwritten and kept", false, func(r *rig) { r.must(r.trailer(4, 64, 5)) }, Kept, rocelink.Totals{Overrun: 1}},
		// The trailer comes last: the frame before it has landed, so the data
		// of the next may be on its way into the slot.
		{"being overwritten", false, func(r *rig) { r.must(r.trailer(3, 64, 4)) }, Corrupt, rocelink.Totals{Overrun: 1}},
		{"not to be overwritten", true, func(r *rig) { r.must(r.trailer(3, 64, 4)) }, Corrupt, rocelink.Totals{Accepted: 1, Corrupt: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r *rig
			var kept Frame
			c := Config{Verb: rocelink.VerbWrite, Slots: 4, CreditOffset: -1}
			if test.credit {
				c.CreditOffset = 0
			}
			c.Sink = funcSink(func(f *Frame) Verdict {
				if f.Sequence > 0 {
					return Refused
				}
				kept = *f
				test.during(r)
				if test.verdict == Corrupt && f.Intact() != (test.want.Corrupt == 1) {
					t.Errorf("intact: %v", f.Intact())
				}
				return test.verdict
			})
			r = newRig(t, c, scripted.Config{})
			r.must(r.try(0, frame(0, 64)))
			r.loop.turn()
			if test.verdict&Kept != 0 {
				kept.Release()
				r.loop.turn()
			}
			got := r.loop.account.total
			got.Messages, got.Bytes = 0, 0
			if got != test.want {
				t.Errorf("totals %+v, want %+v", got, test.want)
			}
			r.balance()
		})
	}
}

// A frame that is overwritten while a consumer holds it is found when it comes
// back.
func TestOverwrittenWhileHeld(t *testing.T) {
	var kept []Frame
	r := newRig(t, Config{Verb: rocelink.VerbWrite, Slots: 4, CreditOffset: -1, Sink: funcSink(func(f *Frame) Verdict {
		kept = append(kept, *f)
		return Kept
	})}, scripted.Config{})
	for q := range uint64(2) {
		r.must(r.try(q, frame(q, 64)))
	}
	r.loop.turn()
	for q := range uint64(3) {
		r.must(r.try(2+q, frame(2+q, 64))) // the last into slot 0
	}
	if kept[0].Intact() {
		t.Error("frame 0 is intact, but its slot holds frame 4")
	}
	r.loop.turn()
	for _, f := range kept {
		f.Release()
	}
	r.loop.turn()
	// Frame 0 was overwritten, frame 4 had nowhere to go.
	if got := r.loop.account.total; got.Accepted != 4 || got.Overrun != 2 {
		t.Errorf("totals %+v, kept %d", got, len(kept))
	}
	r.balance()
	if r.loop.ring.floor != 5 {
		t.Errorf("floor %d, want 5", r.loop.ring.floor)
	}
}

// The credit word follows what is released in order, batch by batch.
func TestCredit(t *testing.T) {
	var kept []Frame
	r := newRig(t, Config{Verb: rocelink.VerbWrite, Slots: 4, Sink: funcSink(func(f *Frame) Verdict {
		if pattern.Check(f.Data, pattern.Counter, f.Sequence) >= 0 {
			t.Errorf("frame %d is wrong", f.Sequence)
		}
		if f.Sequence%2 == 0 {
			return 0
		}
		kept = append(kept, *f)
		return Kept
	})}, scripted.Config{})
	expect := func(want uint64) {
		t.Helper()
		r.loop.turn()
		if got := r.credit(); got != want {
			t.Errorf("credit %d, want %d", got, want)
		}
		r.balance()
	}
	expect(0)
	for q := range uint64(4) {
		r.must(r.try(q, frame(q, 64)))
	}
	expect(1) // 1 is held
	r.must(r.try(4, frame(4, 64)))
	if err := r.try(5, nil); err != errBlocked {
		t.Fatalf("frame 5 into the slot of frame 1: %v", err)
	}
	expect(1)
	kept[1].Release() // 3
	expect(1)
	kept[0].Release()
	expect(5)
}

// Memory of an earlier session holds no frames of this one.
func TestStaleMemory(t *testing.T) {
	r := newRig(t, Config{Verb: rocelink.VerbWrite}, scripted.Config{})
	for q := range uint64(8) {
		r.must(r.try(q, frame(q, 64)))
	}
	r.mem.Bytes()[r.cfg.CreditOffset] = 99
	again, err := New(r.cfg)
	r.must(err)
	r.must(again.Prepare())
	if _, n := again.turn(); n != 0 || again.account.total != (rocelink.Totals{}) || r.credit() != 0 {
		t.Errorf("%d frames of an earlier session, totals %+v, credit %d", n, again.account.total, r.credit())
	}
}
