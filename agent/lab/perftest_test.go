//go:build lab

package lab

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/lab/remote"
	"rocelink/agent/lab/session"
	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
)

// bandwidth is one of perftest's programs.
type bandwidth struct {
	name string
	verb rocelink.Verb
	// before and after are how often the programs swap endpoints between
	// having connected and beginning, and between the end and closing.
	before, after int
	reports       bool
}

var bandwidths = []bandwidth{
	{name: "ib_send_bw", verb: rocelink.VerbSend, before: 3},
	{name: "ib_write_bw", verb: rocelink.VerbWrite, before: 2, after: 1, reports: true},
	{name: "ib_read_bw", verb: rocelink.VerbRead, before: 2, after: 1, reports: true},
}

// finish is the rest of the conversation after the last message.
func (w bandwidth) finish(x *Perftest) error {
	if err := x.Steps(w.after); err != nil {
		return err
	}
	if w.reports {
		if err := x.Reports(); err != nil {
			return err
		}
	}
	return x.Close()
}

// args is the command line; a server has no host. The timeout is more than a
// second, so that a slow guest repeats nothing and counts are exact.
func (w bandwidth) args(s *segment, size uint32, count uint64, port int, host ...string) []string {
	return append([]string{w.name, "-d", s.device, "-x", "1", "-F", "-u", "18", "-s", fmt.Sprint(size), "-n", fmt.Sprint(count),
		"-p", strconv.Itoa(port), "--output=bandwidth"}, host...)
}

// listen takes one TCP connection of the guest.
func listen(ctx context.Context, t *testing.T) (port int, accept func() net.Conn) {
	t.Helper()
	ln, err := guest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().(*net.TCPAddr).Port, func() net.Conn {
		t.Helper()
		stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
		defer stop()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		keep(ctx, t, c)
		return c
	}
}

// keep closes a connection when the case ends or its time is over.
func keep(ctx context.Context, t *testing.T, c net.Conn) {
	t.Helper()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	t.Cleanup(func() {
		stop()
		_ = c.Close()
	})
}

// ended waits for a foreign program; it must have been content.
func ended(ctx context.Context, t *testing.T, p *remote.Process) string {
	t.Helper()
	out, err := p.Finish(ctx)
	if err != nil {
		t.Error(err)
	}
	return out
}

// perftest's clients in the guest against the software provider.
func TestSoftwareProviderAnswersPerftest(t *testing.T) {
	const size, count, slots = 8193, 200, 32
	onEach(t, func(t *testing.T, s *segment) {
		for _, w := range bandwidths {
			t.Run(w.name, func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				host := newSoftHost(t, s)
				s.attach(t, host.gateway.Take)
				opened := host.ask(session.Request{Open: &session.Open{Verb: w.verb, Slots: slots, Stride: 2 * size &^ 7, FrameBytes: size,
					Pattern: pattern.Counter, Unchecked: true, MinRNRTimer: 12}}).Opened
				port, accept := listen(ctx, t)
				p, err := guest.Start(remote.Command{Args: w.args(s, size, count, port, hostFromGuest), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				x := &Perftest{Exchange: Exchange{Conn: accept(), Server: true}}
				theirs, mtu, err := x.Open(Endpoint{QPN: opened.QPN, PSN: opened.PSN, IP: s.Address, RKey: opened.RKey, Address: opened.Address}, s.mtu)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "path MTU agreed", mtu, s.mtu)
				host.ask(session.Request{Peer: &session.Peer{QPN: theirs.QPN, PSN: theirs.PSN, IP: host.near, MAC: s.guestMAC, MTU: mtu}})
				if err := x.Steps(w.before); err != nil {
					t.Fatal(err)
				}
				if err := w.finish(x); err != nil {
					t.Error(err)
				}
				ended(ctx, t, p)
				var got uint64
				end := host.ask(session.Request{Close: true}).Looked
				switch w.verb {
				case rocelink.VerbSend:
					got = uint64(end.Totals.Bytes)
					equal(t, "messages", uint64(end.Totals.Messages), count)
				case rocelink.VerbWrite:
					got = end.Counters["write_bytes"]
					equal(t, "requests", end.Counters["write_requests"], count)
				case rocelink.VerbRead:
					got = end.Counters["read_bytes"]
					equal(t, "requests", end.Counters["read_requests"], count)
				}
				equal(t, "bytes", got, count*size)
			})
		}
	})
}

// The fabric against perftest's servers in the guest.
func TestPerftestTakesFromFabric(t *testing.T) {
	const size, count = 8193, 200
	onEach(t, func(t *testing.T, s *segment) {
		for _, w := range bandwidths {
			t.Run(w.name, func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				b := newBoard(t, s, model.FaultConfig{}, nil)
				s.attach(t, b.Take)
				const port = 18515
				p, err := guest.Start(remote.Command{Args: w.args(s, size, count, port), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				conn, err := guest.DialGuest(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err != nil {
					t.Fatal(err)
				}
				keep(ctx, t, conn)
				x := &Perftest{Exchange: Exchange{Conn: conn}}
				theirs, mtu, err := x.Open(Endpoint{QPN: boardQPN, PSN: boardPSN, IP: s.Address}, s.mtu)
				if err != nil {
					t.Fatal(err)
				}
				b.connect(theirs.QPN, boardQPN, mtu, patient)
				if err := x.Steps(w.before); err != nil {
					t.Fatal(err)
				}
				// Behind a frame that is written comes its trailer; the
				// server's buffer is rounded up by more than that.
				b.begin(stream{verb: streamVerbs[w.verb], size: size, slots: 1, stride: (size+7)&^7 + rocelink.TrailerBytes,
					address: theirs.Address, rkey: theirs.RKey, count: count})
				b.mustDeliver(ctx, count)
				if err := w.finish(x); err != nil {
					t.Error(err)
				}
				ended(ctx, t, p)
			})
		}
	})
}

// The agent on rxe as receiver of ib_send_bw, both in the guest and on the same
// device. The conversation is ours.
func TestAgentOnRxeTakesFromPerftest(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		report(t)
		ctx := bounded(t)
		agent := s.startAgent(ctx, t)
		const size, count = 8193, 300
		rate := s.sendToAgent(ctx, t, agent, size, count, false)
		t.Logf("%.1f MB/s", rate)
	})
}

// sendToAgent has ib_send_bw send to a session of the agent and returns the
// rate in MB/s. A busy session polls, as ib_send_bw does without -e.
func (s *segment) sendToAgent(ctx context.Context, t *testing.T, agent *program, size uint32, count uint64, busy bool) float64 {
	t.Helper()
	w := bandwidths[0]
	o := agent.ask(session.Request{Open: &session.Open{Verb: rocelink.VerbSend, Slots: perftestReceives, Stride: (size + 63) &^ 63, FrameBytes: size,
		Unchecked: true, Busy: busy, MinRNRTimer: 12}}).Opened
	port, accept := listen(ctx, t)
	p, err := guest.Start(remote.Command{Args: w.args(s, size, count, port, hostFromGuest), Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	conn := &stopwatch{Conn: accept(), after: w.said()}
	x := &Perftest{Exchange: Exchange{Conn: conn, Server: true}}
	theirs, mtu, err := x.Open(Endpoint{QPN: o.QPN, PSN: o.PSN, IP: o.IP}, o.MTU)
	if err != nil {
		t.Fatal(err)
	}
	agent.ask(session.Request{Peer: &session.Peer{QPN: theirs.QPN, PSN: theirs.PSN, IP: theirs.IP, MAC: o.MAC, MTU: mtu}})
	if err := x.Steps(w.before); err != nil {
		t.Fatal(err)
	}
	if err := w.finish(x); err != nil {
		t.Error(err)
	}
	ended(ctx, t, p)
	end := agent.ask(session.Request{Close: true}).Looked
	equal(t, "messages", uint64(end.Totals.Messages), count)
	equal(t, "bytes", uint64(end.Totals.Bytes), count*uint64(size))
	equal(t, "how the loop ended", end.Ended, "")
	return conn.rate(t, size, count)
}

// perftestReceives is how many receives ib_send_bw posts.
const perftestReceives = 512

// said is how many bytes a client says before it begins.
func (w bandwidth) said() int {
	const endpoint = 108
	return perftestVersionBytes + 4 + 4 + 2 + endpoint*(1+w.before)
}

// stopwatch is a connection that notes when its other end has said all that it
// says before it begins, and when it speaks again: perftest's own clock is the
// time stamp counter, which an emulated machine does not keep well.
type stopwatch struct {
	net.Conn
	after      int
	heard      int
	begin, end time.Time
}

func (c *stopwatch) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch was := c.heard; {
	case n == 0:
	case was < c.after && was+n >= c.after:
		c.begin = time.Now()
	case was >= c.after && c.end.IsZero():
		c.end = time.Now()
	}
	c.heard += n
	return n, err
}

func (c *stopwatch) rate(t *testing.T, size uint32, count uint64) float64 {
	t.Helper()
	if c.begin.IsZero() || c.end.IsZero() {
		t.Fatalf("the client said %d bytes only", c.heard)
	}
	return float64(uint64(size)*count) / c.end.Sub(c.begin).Seconds() / 1e6
}

// mustDeliver waits until so many frames were acknowledged.
func (b *board) mustDeliver(ctx context.Context, count uint64) {
	b.t.Helper()
	st, qp, cause := b.finished(ctx.Done())
	if got := b.count(b.stream, regs.StreamStatFramesDone); got != count {
		b.t.Fatalf("the fabric has %d of %d frames acknowledged; stream in state %d, queue pair %d, cause %d", got, count, st, qp, cause)
	}
}
