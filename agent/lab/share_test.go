//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"testing"

	"rocelink"
	hoststream "rocelink/agent/stream"
)

// Three streams share a receive queue of the kernel's device, with frames of
// three sizes. Each frame arrives once, in order and right.
func TestShareOfStreams(t *testing.T) {
	report(t)
	ctx := bounded(t)
	w := newWhole(ctx, t, segments[0])
	const (
		summary = "/tmp/summary.json"
		count   = 200
	)
	frames := []rocelink.Count{8192, 1000, 0}
	args := []string{"--once", "--summary", summary}
	for i, frame := range frames {
		args = append(args, "--stream", fmt.Sprintf("name=s%d,board=%s,verb=%s,share=x,slots=64,frame=%d,rate=4M,count=%d,timeout=18",
			i, labBoard, []rocelink.Verb{rocelink.VerbSend, rocelink.VerbSendImm}[i%2], frame, count))
	}
	w.start(args...)
	w.ended()
	var results []hoststream.Result
	out := run(w.ctx, t, "cat", summary)
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	equal(t, "streams", len(results), len(frames))
	for i, r := range results {
		equal(t, r.Stream+": problem", r.Problem, "")
		equal(t, r.Stream+": sessions", r.Sessions, 1)
		equal(t, r.Stream+": frames acknowledged to the board", r.Board.FramesDone, count)
		equal(t, r.Stream+": frames verified", r.Verified(), count)
		equal(t, r.Stream+": bytes received", r.Total.Bytes, count*frames[i])
	}
	t.Logf("rxe %v", w.fabric.settled(w.ctx, t, w.before))
}
