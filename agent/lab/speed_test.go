//go:build lab

package lab

import (
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	"rocelink/agent/lab/remote"
)

// Our receive loop beside that of ib_send_bw, with ib_send_bw as the sender of
// both, on one rxe device of the guest. It reports and asserts nothing but that
// all arrived: an emulated guest is no measure of a host, a user-mode one on a
// machine with other work hardly better.
func TestSpeedBesidePerftest(t *testing.T) {
	if *strict {
		return // it would measure the checks
	}
	const pairs = 5
	s := segments[1]
	for _, c := range []struct {
		name    string
		size    uint32
		count   uint64
		options []string // of ib_send_bw as receiver
	}{
		{"4096 bytes", 4096, 3000, nil},
		{"65536 bytes", 65536, 300, nil},
		{"65536 bytes, sleeping", 65536, 300, []string{"-e"}},
	} {
		if *uml != "" {
			c.count *= 10 // it is that much quicker
		}
		t.Run(c.name, func(t *testing.T) {
			report(t)
			ctx := bounded(t)
			agent := s.startAgent(ctx, t)
			var ours, theirs, ratios []float64
			for i := range pairs {
				var a, b float64
				// Who goes first changes, so that neither has the warmer guest.
				if i%2 == 0 {
					a = s.sendToAgent(ctx, t, agent, c.size, c.count)
					b = s.sendToPerftest(ctx, t, c.size, c.count, c.options)
				} else {
					b = s.sendToPerftest(ctx, t, c.size, c.count, c.options)
					a = s.sendToAgent(ctx, t, agent, c.size, c.count)
				}
				ours, theirs, ratios = append(ours, a), append(theirs, b), append(ratios, a/b)
			}
			note("speed: ib_send_bw, %s, median of %d pairs: our receiver %.1f MB/s, its own %.1f MB/s, ratio %.2f (%.2f to %.2f)",
				c.name, pairs, median(ours), median(theirs), median(ratios), slices.Min(ratios), slices.Max(ratios))
		})
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// sendToPerftest is ib_send_bw at both ends.
func (s *segment) sendToPerftest(ctx context.Context, t *testing.T, size uint32, count uint64, options []string) float64 {
	t.Helper()
	const port = 18515
	w := bandwidths[0]
	server, err := guest.Start(remote.Command{Args: append(w.args(s, size, count, port), options...), Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	// The client does not wait for its server: we do.
	at, accept := listen(ctx, t)
	to, err := guest.DialGuest(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	keep(ctx, t, to)
	client, err := guest.Start(remote.Command{Args: w.args(s, size, count, at, hostFromGuest), Limit: caseTime})
	if err != nil {
		t.Fatal(err)
	}
	from := &stopwatch{Conn: accept(), after: w.said()}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		})
	}
	ended(ctx, t, client)
	ended(ctx, t, server)
	both.Wait()
	return from.rate(t, size, count)
}
