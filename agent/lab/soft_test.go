//go:build lab

package lab

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"rocelink"
	"rocelink/agent/lab/session"
	"rocelink/fpga/pattern"
	"rocelink/fpga/roce"
)

// largest is the longest message of the cases.
const largest = 1 << 20

// sizes are where messages go wrong: around packets, around a page, and large.
func sizes(mtu roce.MTU) []uint32 {
	m := uint32(mtu)
	return []uint32{1, m - 1, m, m + 1, 2 * m, 8192, 8193, largest}
}

// The kernel's own requester against the software provider: every byte is
// checked by whoever takes it, and the counts of both ends must be the same.
func TestSoftwareProviderAnswersRxe(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		for _, verb := range rocelink.Verbs {
			t.Run(string(verb), func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				host := newSoftHost(t, s)
				s.attach(t, host.gateway.Take)
				before := s.hardware(ctx, t)
				// Empty messages have a session of their own: a WRITE with
				// immediate whose length the device gives as 0 is taken to
				// be as long as was agreed.
				answerRxe(ctx, t, s, host, verb, []uint32{0})
				answerRxe(ctx, t, s, host, verb, sizes(s.mtu))
				g, rxe := host.gateway.Counters(), s.hardware(ctx, t).since(before)
				// A user-mode port drops what the wire does not take at once; rxe
				// sends that again.
				if sent := rxe["sent_pkts"]; *uml == "" || sent < g.In {
					equal(t, "packets sent by rxe and those that came", sent, g.In)
				}
				equal(t, "packets sent to rxe and those that it got", g.Out, rxe["rcvd_pkts"])
				equal(t, "frames with a wrong ICRC", g.BadICRC, 0)
				equal(t, "frames malformed or dropped", g.Malformed+g.Dropped, 0)
				if g.Numbered == 0 {
					t.Error("rxe numbers its packets no more: the gateway has lost its reason")
				}
				t.Logf("gateway %+v; rxe %v", g, rxe)
			})
		}
	})
}

// answerRxe is one session with messages of those sizes.
func answerRxe(ctx context.Context, t *testing.T, s *segment, host *softHost, verb rocelink.Verb, sizes []uint32) {
	t.Helper()
	const slots = 4
	most := slices.Max(sizes)
	stride := most + 64
	opened := host.ask(session.Request{Open: &session.Open{Verb: verb, Slots: slots, Stride: stride, FrameBytes: most,
		Pattern: pattern.PRBS31, MinRNRTimer: 12}}).Opened
	requester := start(ctx, t, "guest-request", "-device", s.device, "-memory", fmt.Sprint(8<<20), "-timeout", "18")
	theirs := requester.next().Opened
	equal(t, "path MTU of the guest's port", theirs.MTU, s.mtu)
	host.ask(session.Request{Peer: &session.Peer{QPN: theirs.QPN, PSN: theirs.PSN, IP: host.near, MAC: s.guestMAC, MTU: s.mtu}})
	requester.ask(session.Request{Peer: &session.Peer{QPN: opened.QPN, PSN: opened.PSN, IP: s.Address, MAC: s.MAC, MTU: s.mtu}})

	var messages uint32
	var bytes uint64
	for _, size := range sizes {
		w := session.Work{Verb: verb, Bytes: size, Count: slots, Sequence: messages, Pattern: pattern.PRBS31,
			Address: opened.Address, RKey: opened.RKey, Stride: stride, Slots: slots, Depth: slots, Trailer: verb == rocelink.VerbWrite}
		done := requester.ask(session.Request{Work: &w}).Done
		if done.Status != 0 || done.Completed != w.Count || done.Bad >= 0 {
			t.Fatalf("%d bytes: %+v", size, *done)
		}
		messages += w.Count
		bytes += uint64(w.Count) * uint64(size)
		if verb == rocelink.VerbRead {
			continue
		}
		// The ring is free again before the next size.
		until(ctx, t, host, fmt.Sprintf("messages of %d bytes", size), func(l *session.Looked) bool {
			return l.Totals.Messages >= rocelink.Count(messages)
		})
	}
	end := host.ask(session.Request{Close: true}).Looked
	equal(t, "how the loop ended", end.Ended, "")
	equal(t, "frames corrupt", end.Corrupt, 0)
	if verb == rocelink.VerbRead {
		equal(t, "bytes read", end.Counters["read_bytes"], host.read+bytes)
		host.read += bytes
		return
	}
	equal(t, "messages", uint64(end.Totals.Messages), uint64(messages))
	equal(t, "bytes", uint64(end.Totals.Bytes), bytes)
	equal(t, "frames verified", end.Verified, uint64(messages))
}
