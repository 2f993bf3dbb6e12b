package fleet

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rocelink"
)

// programs are built once for the tests, from the tree as it is.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fleet-programs-")
	if err == nil {
		programs = dir
		build := exec.Command("go", "build", "-o", dir+"/", "rocelink/agent/cmd/rocelinkd", "rocelink/firmware/cmd/boardd", "rocelink/fpga/model/cmd/rocelink-fabric")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// A small fleet goes the whole way: every record and change arrives. How fast
// is for the real run to say.
func TestFleet(t *testing.T) {
	var progress bytes.Buffer
	r, err := Run(t.Context(), Config{Programs: programs, Dir: t.TempDir(), Boards: 20, Segment: 2 * time.Second, Turns: 1, Rate: "200M", Scrape: time.Second, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if r.Boards != 20 || r.Records < 20 || r.Records != r.RecordsWanted || r.Changes == 0 || r.ChangesSeen != r.Changes || r.Scrapes == 0 || r.Lost != 0 {
		t.Errorf("%+v", r)
	}
	if r.GoodputWith <= 0 || r.GoodputWithout <= 0 || r.MemoryBytes < 1<<20 || r.ToPageMS.Median <= 0 {
		t.Errorf("%+v", r)
	}
	var text, js bytes.Buffer
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "status to a subscriber") {
		t.Errorf("%v\n%s", err, &text)
	}
	var back Result
	if err := r.JSON(&js); err != nil || json.Unmarshal(js.Bytes(), &back) != nil || back.Records != r.Records {
		t.Errorf("%v\n%s", err, &js)
	}
}

func TestJudge(t *testing.T) {
	good := Result{Records: 10, RecordsWanted: 10, RecordBytes: 100, Changes: 1, ChangesSeen: 1, Scrapes: 1, GoodputWith: 1, GoodputWithout: 1}
	good.judge()
	if len(good.Problems) != 0 {
		t.Errorf("%v", good.Problems)
	}
	for want, spoil := range map[string]func(*Result){
		"did not arrive": func(r *Result) { r.Records = 9 },
		"bytes":          func(r *Result) { r.RecordBytes = MaxRecord + 1 },
		"subscriber":     func(r *Result) { r.ToSubscriberMS.P99 = 51 },
		"seen":           func(r *Result) { r.ChangesSeen = 0 },
		"to the page":    func(r *Result) { r.ToPageMS.P99 = 1001 },
		"MB":             func(r *Result) { r.MemoryBytes = MaxMemory + 1 },
		"lost":           func(r *Result) { r.Lost = 1 },
		"goodput":        func(r *Result) { r.GoodputWith = 0.9 },
		"scrape":         func(r *Result) { r.Scrapes = 0 },
	} {
		r := good
		spoil(&r)
		if r.judge(); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], want) {
			t.Errorf("%s: %v", want, r.Problems)
		}
	}
}

func TestDistribution(t *testing.T) {
	var v []float64
	for i := range 101 {
		v = append(v, float64(100-i))
	}
	if got := distribution(v); got != (Latency{Median: 50, P99: 99, Max: 100}) {
		t.Errorf("%+v", got)
	}
	if got := distribution(nil); got != (Latency{}) {
		t.Errorf("%+v", got)
	}
}

// A board with a module of four lanes and a stream that has run for days.
func TestRecordIsSmall(t *testing.T) {
	r := record("rfsoc-0001")
	r.Streams = append(r.Streams, rocelink.StreamStatus{
		Stream: "adc0", Host: "daq-host-1", Session: 1234567890123, Verb: rocelink.VerbWriteImm, State: rocelink.StreamRunning, QPState: "Ready",
		QPN: 0xB2172A, PeerQPN: 0x3F56F5, NextPSN: 1234567, UnackedPSN: 1234500,
		SourceFrames: 19_108_000, SourceBytes: 1_252_261_888_000, FramesPosted: 19_108_000, FramesDone: 19_108_000, BytesDone: 1_252_261_888_000,
		PacketsSent: 305_728_000, PacketsAcked: 305_728_000,
	})
	data, err := json.Marshal(r)
	if err != nil || len(data) > MaxRecord {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestProcess(t *testing.T) {
	if _, err := findChild("no such program"); err == nil {
		t.Error("found what is not there")
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip("no sleep here")
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	end := time.Now().Add(10 * time.Second)
	pid, err := 0, error(nil)
	for pid, err = findChild("sleep"); err != nil && time.Now().Before(end); pid, err = findChild("sleep") {
	}
	if err != nil || pid != cmd.Process.Pid {
		t.Fatalf("%d, %v", pid, err)
	}
	if _, memory, err := usage(pid); err != nil || memory == 0 {
		t.Errorf("%d, %v", memory, err)
	}
	if _, _, err := usage(-1); err == nil {
		t.Error("usage of nobody")
	}
}
