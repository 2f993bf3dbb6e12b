package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"rocelink"
)

// BenchmarkMemory runs two streams at full rate for a minute and reports the
// resident memory of each program after 10 s and what it grew by until the end.
// It also reports the rate of the whole path.
func BenchmarkMemory(b *testing.B) {
	const settle, minute = 10 * time.Second, 60 * time.Second
	for range b.N {
		listen, err := freePort()
		if err != nil {
			b.Fatal(err)
		}
		host, board := addresses()
		ctx, cancel := context.WithCancel(b.Context())
		var out, progress bytes.Buffer
		var bits float64
		code, err := Run(ctx, Config{
			Programs: programs, Dir: b.TempDir(), Out: &out, Progress: &progress, JSON: true, NATSListen: listen, HostAddress: host, BoardAddress: board,
			Rate: "0", Verbs: []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWriteImm}, Duration: time.Hour,
			onRunning: func(r *run) {
				defer cancel()
				time.Sleep(settle) // what is measured is time passing
				before, began := r.resident(b), time.Now()
				bytes := r.watch.total().Bytes
				time.Sleep(minute - settle)
				bits = float64(r.watch.total().Bytes-bytes) * 8 / time.Since(began).Seconds()
				for name, now := range r.resident(b) {
					b.ReportMetric(float64(before[name])/1e6, name+"-MB")
					b.ReportMetric(float64(now-before[name])/1e6, name+"-growth-MB")
				}
			},
		})
		cancel()
		if err != nil || code != ExitOK {
			b.Fatalf("exit code %d, %v\n%s%s", code, err, progress.String(), out.String())
		}
		b.ReportMetric(bits/1e9, "Gb/s")
	}
}

// resident is the resident memory of each program in bytes.
func (r *run) resident(b *testing.B) map[string]int64 {
	sizes := map[string]int64{}
	for _, p := range []*process{r.fabric, r.boardd, r.hostd} {
		p.mu.Lock()
		pid := p.cmd.Process.Pid
		p.mu.Unlock()
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			b.Error(err)
			continue
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				if err != nil {
					b.Error(err)
				}
				sizes[p.name] = kib << 10
			}
		}
	}
	return sizes
}
