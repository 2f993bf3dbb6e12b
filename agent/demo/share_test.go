package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/stream"
)

// Three boards, each with its fabric, send into one share of one host, with
// frames of three sizes. One board's program is killed, then its fabric: it comes
// back by itself, and the others' sessions go on. Every frame is right.
func TestShareOfThreeBoards(t *testing.T) {
	dir := t.TempDir()
	listen, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	url := "nats://" + listen
	host, _ := addresses()
	summary := filepath.Join(dir, "summary.json")
	launch := func(log, program string, args ...string) *process {
		p := &process{name: program, path: filepath.Join(programs, program), args: args, log: logFile(dir, log)}
		again := func(_ *process, err error) bool { return exitCode(err) < 0 }
		if err := p.start(again); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.stop(stopLimit) })
		return p
	}
	args := []string{"--nats-listen", listen, "--device", "soft:" + host, "--name", "host", "--summary", summary}
	var fabrics, boards [3]*process
	frames := [3]int{4096, 65536, 0}
	for i := range boards {
		name := fmt.Sprint("b", i)
		registers := filepath.Join(dir, name+".regs")
		_, address := addresses()
		fabrics[i] = launch(name+"-fabric", "rocelink-fabric", "--registers", registers)
		boards[i] = launch(name+"-boardd", "boardd", "--board", "demo", "--registers", registers, "--name", name, "--nats", url, "--address", address)
		args = append(args, "--stream", fmt.Sprintf("name=%s,board=%s,verb=%s,frame=%d,rate=20M,share=all,slots=64",
			name, name, []rocelink.Verb{rocelink.VerbSend, rocelink.VerbSendImm}[i%2], frames[i]))
	}
	agent := launch("rocelinkd", "rocelinkd", args...)

	nc, err := rocelink.Connect(rocelink.Access{URL: url}, rocelink.Client{Name: "test", Retry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(rocelink.HostStatusSubject("host"))
	if err != nil {
		t.Fatal(err)
	}
	var is rocelink.HostStatus
	// until waits for a status in which every stream of the share is so.
	until := func(what string, good func(i int, s rocelink.HostStream) bool) {
		t.Helper()
		for deadline := time.Now().Add(40 * time.Second); ; {
			if m, err := sub.NextMsg(time.Until(deadline)); err != nil {
				t.Fatalf("waited in vain until %s: %+v", what, is.Streams)
			} else if is = (rocelink.HostStatus{}); rocelink.Decode(m.Data, &is) != nil {
				continue
			}
			n := 0
			for i, s := range is.Streams {
				if good(i, s) {
					n++
				}
			}
			if n == len(boards) {
				return
			}
		}
	}
	flowing := func(opens int) func(int, rocelink.HostStream) bool {
		return func(i int, s rocelink.HostStream) bool {
			want := rocelink.Count(1)
			if i == 1 {
				want = rocelink.Count(opens)
			}
			return s.State == stream.StateRunning && s.Opens >= want && s.Total.Messages > 20
		}
	}
	until("all boards send", flowing(1))
	for n, victim := range []*process{boards[1], fabrics[1]} {
		before := is.Streams
		victim.kill()
		until(fmt.Sprintf("board 1 sends again after %s was killed", victim.name), flowing(n+2))
		for _, i := range []int{0, 2} {
			if is.Streams[i].Session != before[i].Session || is.Streams[i].Total.Messages <= before[i].Total.Messages {
				t.Errorf("%s was killed, and %s went from %+v to %+v", victim.name, before[i].Stream, before[i], is.Streams[i])
			}
		}
	}

	if err := agent.stop(stopLimit); err != nil && exitCode(err) != 1 {
		t.Errorf("rocelinkd: %v", err)
	}
	data, err := os.ReadFile(summary)
	var results []stream.Result
	if err != nil || json.Unmarshal(data, &results) != nil || len(results) != len(boards) {
		t.Fatalf("summary %q: %v", data, err)
	}
	for i, r := range results {
		if r.Total.Messages == 0 || r.Total.Verified != r.Total.Messages || r.Total.Lost()+r.Total.Late+r.Total.Duplicate != 0 {
			t.Errorf("%s: %+v", r.Stream, r)
		}
		if sessions := []int{1, 3, 1}[i]; r.Sessions < sessions || i != 1 && (r.Sessions != 1 || r.Problem != "") {
			t.Errorf("%s: %d sessions, problem %q, interruptions %q", r.Stream, r.Sessions, r.Problem, r.Interruptions)
		}
	}
}
