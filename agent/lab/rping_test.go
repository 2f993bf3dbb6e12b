//go:build lab

package lab

import (
	"fmt"
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

// rping in the guest, connected through the kernel's connection manager to a queue
// pair of the agent's provider, on the same device. Both ends compare the text.
func TestRping(t *testing.T) {
	onEach(t, func(t *testing.T, s *segment) {
		at := fmt.Sprintf("%v:%d", s.guestIP, rpingPort)
		// -v tells the texts.
		foreign := func(part string, more ...string) []string {
			return append([]string{"rping", part, "-v", "-a", s.guestIP.String(), "-p", fmt.Sprint(rpingPort)}, more...)
		}
		for _, size := range s.rpingSizes() {
			t.Run(fmt.Sprintf("server/%d", size), func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				p, err := guest.Start(remote.Command{Args: foreign("-s", "-S", fmt.Sprint(size)), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				ours := start(ctx, t, "guest-rping", "-device", s.device, "-connect", at, "-size", fmt.Sprint(size), "-count", fmt.Sprint(rpings))
				r := ours.rpingReport()
				s.rpingAgrees(t, r, "server ping data: ", size, ended(ctx, t, p))
			})
			t.Run(fmt.Sprintf("client/%d", size), func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				ours := start(ctx, t, "guest-rping", "-device", s.device, "-listen", at)
				ours.rpingReport() // it listens
				p, err := guest.Start(remote.Command{Args: foreign("-c", "-V", "-S", fmt.Sprint(size), "-C", fmt.Sprint(rpings)), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				out := ended(ctx, t, p)
				s.rpingAgrees(t, ours.rpingReport(), "ping data: ", size, out)
			})
		}
	})
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
