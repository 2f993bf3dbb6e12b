package stream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/fpga/regs"
)

// Each way in which a stream ends or halts has its word, and a stream that is
// closed keeps the word of what went wrong before.
func TestCause(t *testing.T) {
	qp := func(cause uint32) func(*bench, rocelink.SessionRequest) {
		return func(b *bench, _ rocelink.SessionRequest) { b.f.FailQP(0, cause) }
	}
	closing := func(b *bench, r rocelink.SessionRequest) {
		if _, err := b.m.Close(r); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func(*bench, rocelink.SessionRequest)
		want string
		text string // within the problem
	}{
		{"runs", func(*bench, rocelink.SessionRequest) {}, "", ""},
		{"no acknowledgement", qp(regs.CoreStatStateCauseRetryExceeded), rocelink.StreamCauseRetry, "no acknowledgement"},
		{"no receives", qp(regs.CoreStatStateCauseRNRRetryExceeded), rocelink.StreamCauseRNR, "no receives"},
		{"invalid request", qp(regs.CoreStatStateCauseRemoteInvalidRequest), rocelink.StreamCauseRequest, "invalid"},
		{"access", qp(regs.CoreStatStateCauseRemoteAccess), rocelink.StreamCauseAccess, "rkey"},
		{"operation", qp(regs.CoreStatStateCauseRemoteOperational), rocelink.StreamCauseOperation, "could not carry"},
		{"bad response", qp(regs.CoreStatStateCauseBadResponse), rocelink.StreamCauseOperation, "response"},
		{"unknown cause", qp(77), rocelink.StreamCauseFabric, "queue pair"},
		{"the link goes down", func(b *bench, _ rocelink.SessionRequest) { b.link = false }, rocelink.StreamCauseLink, "no signal"},
		{"the link comes back", func(b *bench, _ rocelink.SessionRequest) {
			b.link = false
			b.m.Sample()
			b.link = true
		}, "", ""},
		{"no acknowledgement since the link is down", func(b *bench, _ rocelink.SessionRequest) {
			b.link = false
			b.f.FailQP(0, regs.CoreStatStateCauseRetryExceeded)
		}, rocelink.StreamCauseLink, "no acknowledgement"},
		{"and the link comes back too late", func(b *bench, _ rocelink.SessionRequest) {
			b.link = false
			b.f.FailQP(0, regs.CoreStatStateCauseRetryExceeded)
			b.m.Sample()
			b.link = true
		}, rocelink.StreamCauseLink, "no signal"},
		{"something else resets it", func(b *bench, r rocelink.SessionRequest) {
			if err := b.core.ResetStream(0); err != nil {
				b.t.Fatal(err)
			}
		}, rocelink.StreamCauseFabric, "something else"},
		{"the source ends", func(b *bench, _ rocelink.SessionRequest) { b.f.EndSource(0) }, rocelink.StreamCauseSourceDone, ""},
		{"the source ends, closed", func(b *bench, r rocelink.SessionRequest) {
			b.f.EndSource(0)
			b.m.Sample()
			closing(b, r)
		}, rocelink.StreamCauseSourceDone, ""},
		{"closed", closing, rocelink.StreamCauseClosed, ""},
		{"closed after an error", func(b *bench, r rocelink.SessionRequest) {
			b.f.FailQP(0, regs.CoreStatStateCauseRemoteAccess)
			b.m.Sample()
			closing(b, r)
		}, rocelink.StreamCauseAccess, "rkey"},
		{"the board stops", func(b *bench, _ rocelink.SessionRequest) {
			b.m.CloseAll("the board stops", 0, nil)
		}, rocelink.StreamCauseClosed, "the board stops"},
		{"nobody renews", func(b *bench, _ rocelink.SessionRequest) {
			b.now = b.now.Add(rocelink.DefaultLeaseMillis * time.Millisecond)
			b.m.Expire()
		}, rocelink.StreamCauseLease, "lease"},
		{"the fabric is lost", func(b *bench, _ rocelink.SessionRequest) { b.m.Detach("gone") }, rocelink.StreamCauseFabric, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			r := of(b.open(nil))
			if _, err := b.m.Start(r); err != nil {
				t.Fatal(err)
			}
			c.do(b, r)
			b.m.Sample()
			st := b.m.Status()
			if len(st) != 1 || st[0].Cause != c.want || !strings.Contains(st[0].Problem, c.text) || c.text == "" && st[0].Problem != "" {
				t.Errorf("%s, want %q and %q", fmt.Sprintf("%+v", st), c.want, c.text)
			}
		})
	}
}
