//go:build lab

package lab

import (
	"strings"
	"testing"

	"rocelink"
	"rocelink/agent/lab/session"
	"rocelink/agent/verbs"
	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
)

// What goes wrong between the fabric and the agent on rxe: the fabric must name
// the cause, the loop must end with the first error that it saw, every receive
// must come back, and the next session on the same device must be as good as
// the first.
func TestErrorsBetweenFabricAndAgentOnRxe(t *testing.T) {
	const slots, size = 8, 4096
	s := segments[0]
	open := func(verb rocelink.Verb) session.Open {
		return session.Open{Verb: verb, Slots: slots, Stride: size + rocelink.TrailerBytes, FrameBytes: size,
			Pattern: pattern.Counter, MinRNRTimer: 12}
	}
	for _, c := range []struct {
		name   string
		open   session.Open
		change func(*stream)
		link   link
		lose   bool
		cause  uint32
		// What the agent sees: nothing where a NAK or silence is all there is.
		ended    string
		errors   int
		returned int // receives that came back, good, bad or unused
	}{
		{name: "remote access: rkey", open: open(rocelink.VerbWrite), link: quick, cause: regs.CoreStatStateCauseRemoteAccess,
			change: func(m *stream) { m.rkey ^= 0x5a00 }},
		{name: "remote access: beyond the region", open: open(rocelink.VerbWriteImm), link: quick, cause: regs.CoreStatStateCauseRemoteAccess,
			change: func(m *stream) { m.address += 1 << 20 }},
		// A NIC says "local length error" and answers "invalid request"; rxe
		// (Linux 6.1, RESPST_ERR_MALFORMED_WQE) has its own view.
		{name: "longer than the receive", open: open(rocelink.VerbSend), link: quick, cause: regs.CoreStatStateCauseRemoteOperational,
			change: func(m *stream) { m.size, m.stride = 2*size, 2*size },
			ended:  verbs.LocalQPOperationError.String(), errors: 1, returned: slots},
		{name: "receiver not ready", open: open(rocelink.VerbRead), link: link{window: 8, timeout: 15, retries: 7, rnrRetries: 2},
			cause: regs.CoreStatStateCauseRNRRetryExceeded, change: func(m *stream) { m.verb = regs.StreamConfigVerbSend }},
		{name: "silence", open: open(rocelink.VerbSend), link: link{window: 8, timeout: 14, retries: 2, rnrRetries: 7},
			lose: true, cause: regs.CoreStatStateCauseRetryExceeded, change: func(*stream) {}, returned: slots},
	} {
		t.Run(c.name, func(t *testing.T) {
			report(t)
			ctx := bounded(t)
			faults := model.FaultConfig{}
			if c.lose {
				faults.Drop = 100
			}
			b, agent := s.boardAndAgent(ctx, t, faults)
			o := agent.ask(session.Request{Open: &c.open}).Opened
			b.connect(o.QPN, boardQPN, s.mtu, c.link)
			agent.ask(session.Request{Peer: b.peer(s.mtu)})
			m := stream{verb: streamVerbs[c.open.Verb], size: size, slots: slots, stride: c.open.Stride,
				address: o.Address, credit: o.Credit, rkey: o.RKey, count: 4}
			c.change(&m)
			b.begin(m)
			st, qp, cause := b.finished(ctx.Done())
			equal(t, "state of the stream", st, regs.StreamStatStateStateError)
			equal(t, "state of the queue pair", qp, regs.CoreStatStateStateError)
			equal(t, "cause", cause, c.cause)
			end := agent.ask(session.Request{Close: true}).Looked
			if !strings.Contains(end.Ended, c.ended) || c.ended == "" && end.Totals.Errors > 0 {
				t.Errorf("the loop ended with %q, want %q", end.Ended, c.ended)
			}
			equal(t, "frames", end.Totals.Messages, 0)
			equal(t, "completions with an error", int(end.Totals.Errors), c.errors)
			if c.returned > 0 {
				equal(t, "receives that came back", int(end.Totals.Errors+end.Totals.Flushed), c.returned)
			}
			t.Logf("the loop ended: %q; events %v; totals %+v", end.Ended, end.Events, end.Totals)
			if c.lose {
				b = newBoard(t, s, model.FaultConfig{}, nil)
				s.take.Store(new(b.Take))
			}
			takeFromFabric(ctx, t, s, b, agent, c.open.Verb, size, quick, nil)
		})
	}
}

// What goes wrong between rxe's requester and the software provider: the
// requester's completion must name the cause.
func TestErrorsBetweenRxeAndSoftwareProvider(t *testing.T) {
	const slots, size = 4, 4096
	s := segments[0]
	for _, c := range []struct {
		name    string
		verb    rocelink.Verb // of the host's session
		change  func(*session.Work)
		options []string
		lose    bool
		status  verbs.Status
		event   bool
	}{
		{name: "remote access", verb: rocelink.VerbWrite, change: func(w *session.Work) { w.RKey ^= 0x5a00 }, status: verbs.RemoteAccessError, event: true},
		{name: "remote access by READ", verb: rocelink.VerbRead, change: func(w *session.Work) { w.Address -= 1 << 20 }, status: verbs.RemoteAccessError, event: true},
		{name: "longer than the receive", verb: rocelink.VerbSend, change: func(w *session.Work) { w.Bytes = 4 * size }, status: verbs.RemoteInvalidRequest, event: true},
		{name: "receiver not ready", verb: rocelink.VerbRead, change: func(w *session.Work) { w.Verb = rocelink.VerbSend },
			options: []string{"-rnr-retries", "2"}, status: verbs.RNRRetryExceeded},
		{name: "silence", verb: rocelink.VerbSend, change: func(*session.Work) {}, options: []string{"-timeout", "14", "-retries", "2"},
			lose: true, status: verbs.RetryExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			report(t)
			ctx := bounded(t)
			host := newSoftHost(t, s)
			if !c.lose {
				s.attach(t, host.gateway.Take)
			}
			o := host.ask(session.Request{Open: &session.Open{Verb: c.verb, Slots: slots, Stride: size + 16, FrameBytes: size,
				Pattern: pattern.Counter, MinRNRTimer: 12}}).Opened
			requester := start(ctx, t, append([]string{"guest-request", "-device", s.device}, c.options...)...)
			theirs := requester.next().Opened
			host.ask(session.Request{Peer: &session.Peer{QPN: theirs.QPN, PSN: theirs.PSN, IP: host.near, MAC: s.guestMAC, MTU: s.mtu}})
			requester.ask(session.Request{Peer: &session.Peer{QPN: o.QPN, PSN: o.PSN, IP: s.Address, MAC: s.MAC, MTU: s.mtu}})
			w := session.Work{Verb: c.verb, Bytes: size, Count: slots, Pattern: pattern.Counter, Address: o.Address, RKey: o.RKey,
				Stride: size + 16, Slots: slots, Depth: slots}
			c.change(&w)
			done := requester.ask(session.Request{Work: &w}).Done
			equal(t, "status of the requester", verbs.Status(done.Status), c.status)
			equal(t, "completed", done.Completed, 0)
			end := host.ask(session.Request{Close: true}).Looked
			equal(t, "events", len(end.Events) > 0, c.event)
			t.Logf("requester: %s; host ended %q; events %v", done.StatusText, end.Ended, end.Events)
		})
	}
}

// The guest's link goes down and comes back while the agent waits.
func TestPortDownAndUp(t *testing.T) {
	needsQEMU(t, "a user-mode port that goes down closes its file for good")
	report(t)
	ctx := bounded(t)
	s := segments[0]
	b, agent := s.boardAndAgent(ctx, t, model.FaultConfig{})
	takeFromFabric(ctx, t, s, b, agent, rocelink.VerbSend, 1024, patient, nil)
	agent.ask(session.Request{Open: &session.Open{Verb: rocelink.VerbSend, Slots: 4, Stride: 64, FrameBytes: 64}})
	saw := func(what string) {
		t.Helper()
		until(ctx, t, agent, what, func(l *session.Looked) bool {
			return strings.Contains(strings.Join(l.Events, "\n"), what)
		})
	}
	run(ctx, t, "ip", "link", "set", s.netdev, "down")
	saw(verbs.EventPortDown.String())
	run(ctx, t, "ip", "link", "set", s.netdev, "up")
	saw(verbs.EventPortActive.String())
	agent.ask(session.Request{Close: true})
	takeFromFabric(ctx, t, s, b, agent, rocelink.VerbSend, 1024, patient, nil)
}
