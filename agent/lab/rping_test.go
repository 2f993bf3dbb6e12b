//go:build lab

package lab

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"rocelink/agent/lab/remote"
	"rocelink/agent/lab/rping"
)

// rpingPort is where servers listen, of the connection manager's TCP port space.
const rpingPort = 7174

// rpings is how many pings a case has: the first character of the text comes
// around.
const rpings = 60

// rpingSizes are lengths of texts: the least, rping's own, around a packet, and the most.
func (s *segment) rpingSizes() []int {
	return []int{rping.MinText, 64, int(s.mtu), int(s.mtu) + 1, rping.MaxText}
}

// rping is the command line of either part; -v tells the texts.
func (s *segment) rping(part string, more ...string) []string {
	return append([]string{"rping", part, "-v", "-a", s.guestIP.String(), "-p", fmt.Sprint(rpingPort)}, more...)
}

// guestRping is the command line of our part.
func (s *segment) guestRping(part string, more ...string) []string {
	return append([]string{"guest-rping", "-device", s.device, part, fmt.Sprintf("%v:%d", s.guestIP, rpingPort)}, more...)
}

// rping in the guest, connected through the kernel's connection manager to a queue
// pair of the agent's provider, on the same device. Both ends compare the text.
func TestRping(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		for _, size := range s.rpingSizes() {
			t.Run(fmt.Sprintf("server/%d", size), func(t *testing.T) {
				report(t)
				s.pingRping(bounded(t), t, size)
			})
			t.Run(fmt.Sprintf("client/%d", size), func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				ours := start(ctx, t, s.guestRping("-listen")...)
				ours.rpingReport() // it listens
				p, err := guest.Start(remote.Command{Args: s.rping("-c", "-V", "-S", fmt.Sprint(size), "-C", fmt.Sprint(rpings)), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				out := ended(ctx, t, p)
				s.rpingAgrees(t, ours.rpingReport(), "ping data: ", size, out)
			})
		}
	})
}

// pingRping has our client ping rping's server.
func (s *segment) pingRping(ctx context.Context, t *testing.T, size int) {
	t.Helper()
	p, err := guest.Start(remote.Command{Args: s.rping("-s", "-S", fmt.Sprint(size)), Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	ours := start(ctx, t, s.guestRping("-connect", "-size", fmt.Sprint(size), "-count", fmt.Sprint(rpings))...)
	r := ours.rpingReport()
	s.rpingAgrees(t, r, "server ping data: ", size, ended(ctx, t, p))
}

// rping's server is killed among pings: our client must end by itself and say so,
// and the next connection must be as good as the first.
func TestRpingKilled(t *testing.T) {
	report(t)
	ctx := bounded(t)
	s := segments[0]
	p, err := guest.Start(remote.Command{Args: s.rping("-s"), Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := guest.Start(remote.Command{Args: s.guestRping("-connect", "-count", "1000000000"), Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = ours.Finish(ctx)
	e, _ := ours.Wait()
	said := ours.Stderr()
	t.Logf("after %v: %s", e.Elapsed, said)
	// In which step it ends is chance.
	if e.Code != 1 || !strings.HasPrefix(said, "guest-rping: ping ") {
		t.Errorf("exit code %d, %q", e.Code, said)
	}
	s.pingRping(ctx, t, 64)
}

// Nobody listens: our client gives up when its time is over, and says why.
func TestRpingWithoutServer(t *testing.T) {
	report(t)
	_, err := guest.Run(bounded(t), remote.Command{Args: segments[0].guestRping("-connect", "-within", "2s"), Limit: caseTime})
	if err == nil || !strings.Contains(err.Error(), "nobody listens there") {
		t.Error(err)
	}
}

func (p *program) rpingReport() (r rping.Report) {
	p.t.Helper()
	p.decode(&r)
	return r
}

// rpingAgrees compares what our side counted with what rping printed: the text of
// each ping, in a line of its own.
func (s *segment) rpingAgrees(t *testing.T, r rping.Report, heading string, size int, out string) {
	t.Helper()
	equal(t, "pings", r.Pings, rpings)
	equal(t, "messages that the receive loop took", r.Messages, 2*rpings)
	equal(t, "bytes that the receive loop took", r.Bytes, 2*rpings*rping.MessageBytes)
	equal(t, "path MTU of the connection", r.MTU, s.mtu)
	var want strings.Builder
	text := make([]byte, size)
	for n := range rpings {
		rping.Text(text, n)
		fmt.Fprintf(&want, "%s%s\n", heading, text[:size-1])
	}
	if got := strings.TrimRight(out, "\n") + "\n"; got != want.String() {
		t.Errorf("rping printed %d bytes, want %d; %.200q", len(got), want.Len(), got)
	}
}
