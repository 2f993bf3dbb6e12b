//go:build lab

package lab

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rocelink/agent/lab/remote"
	"rocelink/agent/lab/session"
	"rocelink/agent/verbs/soft"
)

// caseTime bounds one case; TestMain doubles it with -strict.
var caseTime = 2 * time.Minute

func bounded(t *testing.T) context.Context {
	t.Helper()
	// Not the test's own context: that ends before what was started is
	// cleaned up.
	ctx, cancel := context.WithTimeout(context.Background(), caseTime)
	t.Cleanup(cancel)
	return ctx
}

// run runs a program of the guest to its end.
func run(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := guest.Run(ctx, remote.Command{Args: args, Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// program is one of ours in the guest, spoken to by package session.
type program struct {
	t       *testing.T
	process *remote.Process
	out     *json.Encoder
	in      *json.Decoder
}

// start starts a program and stops it when the case ends.
func start(ctx context.Context, t *testing.T, args ...string) *program {
	t.Helper()
	return startCommand(ctx, t, remote.Command{Args: args})
}

func startCommand(ctx context.Context, t *testing.T, cmd remote.Command) *program {
	t.Helper()
	cmd.Limit = caseTime
	if *strict {
		cmd.Env = []string{"GOGC=1"}
	}
	p, err := guest.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.CloseInput()
		stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
		defer stop()
		if _, err := p.Wait(); err != nil {
			t.Errorf("%s: %v", cmd.Args[0], err)
		}
		if s := strings.TrimSpace(p.Stderr()); s != "" {
			t.Logf("%s: %s", cmd.Args[0], s)
		}
	})
	return &program{t: t, process: p, out: json.NewEncoder(p), in: json.NewDecoder(p)}
}

// next reads a reply; one that is an error ends the case.
func (p *program) next() session.Reply {
	p.t.Helper()
	r := p.reply()
	if r.Error != "" {
		p.t.Fatalf("guest: %s", r.Error)
	}
	return r
}

func (p *program) reply() session.Reply {
	p.t.Helper()
	var r session.Reply
	p.decode(&r)
	return r
}

// decode reads a line; without one the case ends.
func (p *program) decode(line any) {
	p.t.Helper()
	if err := p.in.Decode(line); err != nil {
		_ = p.process.Kill()
		_, ended := p.process.Wait()
		p.t.Fatalf("no reply: %v; %v", err, ended)
	}
}

func (p *program) ask(q session.Request) session.Reply {
	p.t.Helper()
	p.say(q)
	return p.next()
}

// refused asks for what must fail, and returns why it did.
func (p *program) refused(q session.Request) string {
	p.t.Helper()
	p.say(q)
	r := p.reply()
	if r.Error == "" {
		p.t.Fatalf("the guest has done it: %+v", r)
	}
	return r.Error
}

func (p *program) say(q session.Request) {
	p.t.Helper()
	if err := p.out.Encode(q); err != nil {
		p.t.Fatal(err)
	}
}

// stander is whoever holds a session: a program of the guest, or a Host here.
type stander interface {
	ask(session.Request) session.Reply
}

// local is a Host in this process.
type local struct {
	t *testing.T
	*session.Host
}

func (l local) ask(q session.Request) session.Reply {
	l.t.Helper()
	r := l.Handle(q)
	if r.Error != "" {
		l.t.Fatalf("host: %s", r.Error)
	}
	return r
}

// until asks for the counts until they satisfy done.
func until(ctx context.Context, t *testing.T, s stander, what string, done func(*session.Looked) bool) *session.Looked {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		l := s.ask(session.Request{Look: true}).Looked
		if done(l) {
			return l
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not in time; counts: %+v", what, *l)
		case <-tick.C:
		}
	}
}

var lastAddress atomic.Uint32

func init() { lastAddress.Store(uint32(os.Getpid()) * 16) }

// loopback returns an address that no other test uses.
func loopback() netip.Addr {
	n := lastAddress.Add(1)
	return netip.AddrFrom4([4]byte{127, 44, byte(n >> 8), byte(n)})
}

// softHost is the agent on the software provider, reached by the guest through
// a gateway on a segment.
type softHost struct {
	local
	gateway *Gateway
	near    netip.Addr // the guest's address as the device sees it
	read    uint64     // bytes that were read in earlier sessions
}

func newSoftHost(t *testing.T, s *segment) *softHost {
	t.Helper()
	at := loopback()
	dev, err := soft.New().Open(at.String())
	if err != nil {
		t.Fatal(err)
	}
	h := &softHost{local: local{t, session.NewHost(dev)}, near: loopback()}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if h.gateway, err = NewGateway(&s.port, s.guestMAC, s.guestIP, h.near, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.gateway.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// hardware reads an rxe device's own counters.
func (s *segment) hardware(ctx context.Context, t *testing.T) counters {
	t.Helper()
	fields := strings.Fields(run(ctx, t, "rdma", "statistic", "show", "link", s.device+"/1"))
	counters := counters{}
	for i := 2; i+1 < len(fields); i += 2 {
		n, err := strconv.ParseUint(fields[i+1], 10, 64)
		if err != nil {
			t.Fatalf("rdma statistic: %s is %q", fields[i], fields[i+1])
		}
		counters[fields[i]] = n
	}
	return counters
}

// counters are named totals.
type counters map[string]uint64

// since returns what was added since earlier.
func (c counters) since(earlier counters) counters {
	d := counters{}
	for name, n := range c {
		if n -= earlier[name]; n != 0 {
			d[name] = n
		}
	}
	return d
}

// add adds to each counter.
func (c counters) add(more counters) {
	for name, n := range more {
		c[name] += n
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
