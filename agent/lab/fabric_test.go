//go:build lab

package lab

import (
	"context"
	"fmt"
	"testing"

	"rocelink"
	"rocelink/agent/lab/session"
	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
)

var streamVerbs = map[rocelink.Verb]uint32{
	rocelink.VerbSend:     regs.StreamConfigVerbSend,
	rocelink.VerbSendImm:  regs.StreamConfigVerbSendImm,
	rocelink.VerbWrite:    regs.StreamConfigVerbWrite,
	rocelink.VerbWriteImm: regs.StreamConfigVerbWriteImm,
	rocelink.VerbRead:     regs.StreamConfigVerbRead,
}

// startAgent starts the receive loop on the segment's device.
func (s *segment) startAgent(ctx context.Context, t *testing.T) *program {
	t.Helper()
	return start(ctx, t, s.agentArgs()...)
}

func (s *segment) agentArgs() []string {
	return []string{"guest-receive", "-provider", "ibverbs", "-device", s.device}
}

// boardAndAgent has a board here and the receive loop in the guest, at the two
// ends of the segment.
func (s *segment) boardAndAgent(ctx context.Context, t *testing.T, faults model.FaultConfig) (*board, *program) {
	t.Helper()
	b := newBoard(t, s, faults, nil)
	s.attach(t, b.Take)
	return b, s.startAgent(ctx, t)
}

// The fabric's requester against the kernel's responder, under the agent's
// receive loop on libibverbs. Every size is a session of its own.
func TestAgentOnRxeTakesFromFabric(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		for _, verb := range rocelink.Verbs {
			for _, loss := range []float64{0, 1} {
				t.Run(fmt.Sprintf("%s/loss=%v%%", verb, loss), func(t *testing.T) {
					if verb == rocelink.VerbRead {
						needsQEMU(t, "a user-mode port drops what the wire does not take at once")
					}
					report(t)
					ctx := bounded(t)
					b, agent := s.boardAndAgent(ctx, t, model.FaultConfig{Drop: loss, Seed: 1})
					before := s.hardware(ctx, t)
					l := patient
					if loss > 0 {
						l = quick
					}
					sum := counters{}
					for _, size := range append([]uint32{0}, sizes(s.mtu)...) {
						takeFromFabric(ctx, t, s, b, agent, verb, size, l, before)
						sum.add(b.counters())
					}
					rxe := b.settled(ctx, t, before)
					out, in := b.faults()
					if loss == 0 {
						equal(t, "receiver not ready, told by rxe and heard by the fabric", rxe["send_rnr_err"], sum["RNR NAKs"])
						equal(t, "timeouts without loss", sum["timeouts"], 0)
					} else if out.Dropped+in.Dropped == 0 {
						t.Error("nothing was lost")
					}
					t.Logf("to rxe %d frames, %d lost; from rxe %d, %d lost\nfabric %v\nrxe %v", out.Passed, out.Dropped, in.Passed, in.Dropped, sum, rxe)
				})
			}
		}
	})
}

// takeFromFabric is one session of frames of one size. With before, what rxe had
// counted earlier, it waits for repeated packets to arrive: those that come when
// the queue pair is gone are not counted.
func takeFromFabric(ctx context.Context, t *testing.T, s *segment, b *board, agent *program, verb rocelink.Verb, size uint32, l link, before counters) {
	t.Helper()
	const slots = 8
	count := uint64(64)
	if size == largest {
		count = 3
	}
	stride := (size+7)&^7 + rocelink.TrailerBytes
	open := session.Open{Verb: verb, Slots: slots, Stride: stride, FrameBytes: size, Pattern: pattern.PRBS31,
		CRC: b.crc && size >= pattern.CRCLen, MinRNRTimer: 12}
	o := agent.ask(session.Request{Open: &open}).Opened
	equal(t, "the port's address", o.IP, s.guestIP)
	equal(t, "the port's MAC", o.MAC, s.guestMAC)
	equal(t, "the port's path MTU", o.MTU, s.mtu)
	b.connect(o.QPN, boardQPN, s.mtu, l)
	agent.ask(session.Request{Peer: b.peer(s.mtu)})
	b.begin(stream{verb: streamVerbs[verb], pattern: regs.StreamConfigPatternPRBS31, crc: open.CRC, size: size,
		slots: slots, stride: stride, address: o.Address, credit: o.Credit, rkey: o.RKey, count: count})
	st, qp, cause := b.finished(ctx.Done())
	if st != regs.StreamStatStateStateStopped {
		t.Fatalf("%d bytes: the stream ended in state %d, queue pair %d, cause %d", size, st, qp, cause)
	}
	posted, acked := b.count(b.stream, regs.StreamStatFramesPosted), b.count(b.stream, regs.StreamStatFramesDone)
	equal(t, fmt.Sprintf("%d bytes: frames posted by the fabric", size), posted, count)
	equal(t, fmt.Sprintf("%d bytes: frames acknowledged to the fabric", size), acked, count)
	if before != nil && b.counters()["packets resent"] > 0 {
		b.settled(ctx, t, before)
	}
	if verb == rocelink.VerbRead {
		equal(t, fmt.Sprintf("%d bytes: frames read that are right", size), b.count(b.stream, regs.StreamStatReadGood), count)
		equal(t, fmt.Sprintf("%d bytes: frames read that are wrong", size), b.count(b.stream, regs.StreamStatReadBad), 0)
		end := agent.ask(session.Request{Close: true}).Looked
		equal(t, fmt.Sprintf("%d bytes: how the loop ended", size), end.Ended, "")
		return
	}
	until(ctx, t, agent, fmt.Sprintf("%d bytes: frames", size), func(l *session.Looked) bool {
		return uint64(l.Totals.Messages) >= count
	})
	end := agent.ask(session.Request{Close: true}).Looked
	want := rocelink.Totals{Messages: rocelink.Count(count), Bytes: rocelink.Count(count * uint64(size)),
		Accepted: rocelink.Count(count), Verified: rocelink.Count(count), Flushed: end.Totals.Flushed}
	equal(t, fmt.Sprintf("%d bytes: the loop's totals", size), end.Totals, want)
	equal(t, fmt.Sprintf("%d bytes: first corruption", size), end.First, "")
	equal(t, fmt.Sprintf("%d bytes: how the loop ended", size), end.Ended, "")
}
