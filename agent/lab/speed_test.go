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
	"time"

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
		name  string
		size  uint32
		count uint64
		busy  bool // both receivers poll, or both sleep when nothing has come
	}{
		{"4096 bytes, polling", 4096, 3000, true},
		{"4096 bytes, sleeping", 4096, 3000, false},
		{"65536 bytes, polling", 65536, 300, true},
		{"65536 bytes, sleeping", 65536, 300, false},
	} {
		if *uml != "" {
			c.count *= 10 // it is that much quicker
		}
		t.Run(c.name, func(t *testing.T) {
			report(t)
			ctx := bounded(t)
			agent := startCommand(ctx, t, remote.Command{Args: onLast(s.agentArgs(), c.busy), TimerSlack: unitSlack})
			var ours, theirs, ratios []float64
			for i := range pairs {
				var a, b float64
				// Who goes first changes, so that neither has the warmer guest.
				if i%2 == 0 {
					a = s.sendToAgent(ctx, t, agent, c.size, c.count, c.busy)
					b = s.sendToPerftest(ctx, t, c.size, c.count, c.busy)
				} else {
					b = s.sendToPerftest(ctx, t, c.size, c.count, c.busy)
					a = s.sendToAgent(ctx, t, agent, c.size, c.count, c.busy)
				}
				ours, theirs, ratios = append(ours, a), append(theirs, b), append(ratios, a/b)
			}
			note("speed: ib_send_bw, %s, median of %d pairs: our receiver %.1f MB/s, its own %.1f MB/s, ratio %.2f (%.2f to %.2f)",
				c.name, pairs, median(ours), median(theirs), median(ratios), slices.Min(ratios), slices.Max(ratios))
		})
	}
}

// unitSlack is what rocelinkd's unit sets: while a loop polls, Go's monitor takes
// its processor away every 10 ms and then looks some fifty times in succession,
// 20 µs apart, which an emulated machine feels.
const unitSlack = time.Millisecond

// onLast has a receiver that polls keep to the last of the guest's processors, so
// that it does not take turns with the sender.
func onLast(args []string, busy bool) []string {
	if !busy || *uml != "" { // a user-mode machine has one
		return args
	}
	return append([]string{"taskset", "-c", "1"}, args...)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// sendToPerftest is ib_send_bw at both ends.
func (s *segment) sendToPerftest(ctx context.Context, t *testing.T, size uint32, count uint64, busy bool) float64 {
	t.Helper()
	const port = 18515
	w := bandwidths[0]
	args := w.args(s, size, count, port)
	if !busy {
		args = append(args, "-e")
	}
	server, err := guest.Start(remote.Command{Args: onLast(args, busy), Limit: caseTime})
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
