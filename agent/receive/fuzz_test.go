package receive

import (
	"encoding/binary"
	"testing"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// FuzzCompletions: whatever a device says, no slot is lost, no frame reaches
// beyond its slot, and nothing is posted after an error.
func FuzzCompletions(f *testing.F) {
	f.Add(uint8(0), []byte{0, 0, 128, 0, 64, 0, 0, 0, 1, 0, 128, 0, 64, 0, 0, 0})
	f.Add(uint8(1), []byte{0, 0, 128, 2, 64, 0, 5, 0, 0, 5, 128, 0, 64, 0, 0, 0, 1, 0, 128, 2, 64, 0, 6, 0})
	f.Add(uint8(2), []byte{0, 0, 129, 2, 0, 0, 0, 0, 0, 0, 129, 2, 64, 0, 200, 0, 9, 0, 129, 2, 65, 0, 3, 0})
	f.Add(uint8(3), []byte{0, 0, 128, 0, 1, 0, 0, 0, 9, 77, 9, 9, 9, 9, 9, 9})
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		var r *rig
		var kept []Frame
		verb := rocelink.Verbs[int(which)%len(rocelink.Verbs)]
		r = newRig(t, Config{Verb: verb, Sink: funcSink(func(f *Frame) Verdict {
			r.balance()
			if len(f.Data) > 64 || cap(f.Data) > 64 {
				t.Errorf("frame of %d bytes, room for %d", len(f.Data), cap(f.Data))
			}
			if f.Sequence%2 == 0 {
				return 0
			}
			kept = append(kept, *f)
			return Kept
		})}, scripted.Config{})
		for ; len(data) >= 8; data = data[8:] {
			wc := verbs.WorkCompletion{
				ID: uint64(int8(data[0])), Status: verbs.Status(data[1]), Opcode: verbs.Opcode(data[2]),
				Flags: verbs.CompletionFlags(data[3]), ByteLen: uint32(binary.LittleEndian.Uint16(data[4:])),
				Imm: verbs.ImmediateOf(uint32(int32(int8(data[6])))),
			}
			left := r.loop.leaving
			posted, _ := r.qp.Posted()
			r.cq.Push(wc)
			r.loop.turn()
			if after, _ := r.qp.Posted(); left && after != posted {
				t.Fatalf("%d receives posted while leaving", after-posted)
			}
			if data[7]%2 == 0 {
				for _, f := range kept {
					f.Release()
				}
				kept = nil
			}
			r.balance()
		}
	})
}

// FuzzRing: whatever stands in the trailers, the loop reads within its slots
// and goes forward.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 1, 0, 64, 1, 2, 0, 64, 3, 9, 0, 65})
	f.Add([]byte{2, 255, 255, 1, 0, 5, 7, 1, 1, 6, 255, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := uint64(0)
		r := newRig(t, Config{Verb: rocelink.VerbWrite, Slots: 4, CreditOffset: -1, Sink: funcSink(func(f *Frame) Verdict {
			if f.Sequence < next || f.Sequence > maxSequence || len(f.Data) > 64 || f.Slot != int(f.Sequence%4) {
				t.Errorf("frame %d of %d bytes in slot %d after %d", f.Sequence, len(f.Data), f.Slot, next)
			}
			next = f.Sequence + 1
			return Verdict(f.Sequence) & (Verified | Corrupt | Refused)
		})}, scripted.Config{})
		for ; len(data) >= 4; data = data[4:] {
			word := uint64(data[1]) << (data[2] % 64)
			if data[2] >= 128 {
				word = r.loop.ring.next + uint64(int8(data[1]))
			}
			r.must(r.trailer(uint64(data[0]%4), uint32(int8(data[3])), word))
			for range 5 {
				r.loop.turn()
				r.balance()
			}
		}
	})
}
