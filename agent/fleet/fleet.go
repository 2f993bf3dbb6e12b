// Package fleet measures how the status of many boards travels: it plays their
// status planes against one rocelinkd that carries a stream meanwhile, and
// times what reaches a subscriber and the live page.
//
// The boards have no fabric; rocelinkd, the page, the metrics and the stream
// beside them are the real programs.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"rocelink"
	"rocelink/agent/demo"
)

// Config shapes a run. Programs and Dir must be set.
type Config struct {
	Programs string // folder of the programs
	Dir      string // logs
	// Boards that publish once a second; 0 is 1000.
	Boards int
	// Segment is how long the stream runs without the boards, and with them, in
	// turns; 0 is 10 s.
	Segment time.Duration
	// Turns of both; 0 is 3.
	Turns int
	// Rate of the stream's payload; "" is 2G.
	Rate string
	// Scrape is the time between two scrapes of the metrics; 0 is 5 s.
	Scrape   time.Duration
	Progress io.Writer // nil: nowhere
}

// Bounds that issue a verdict.
const (
	MaxToSubscriber = 50 * time.Millisecond
	MaxToPage       = time.Second
	MaxMemory       = 150 << 20
	MaxRecord       = 2 << 10
	// Goodput with boards may differ from that without by as much as noise does
	// between two seconds of a paced stream.
	MaxDeviation = 0.02
)

// Result is what a run measured.
type Result struct {
	Boards         int      `json:"boards"`
	Records        int      `json:"records"`        // status records a subscriber took
	RecordsWanted  int      `json:"records_wanted"` // those that were published
	RecordBytes    int      `json:"record_bytes"`   // largest
	ToSubscriberMS Latency  `json:"to_subscriber_ms"`
	ToPageMS       Latency  `json:"to_page_ms"`
	Changes        int      `json:"changes"`      // made
	ChangesSeen    int      `json:"changes_seen"` // on the page
	Scrapes        int      `json:"scrapes"`
	ScrapeMS       Latency  `json:"scrape_ms"`
	ScrapeBytes    int      `json:"scrape_bytes"`
	MemoryBytes    uint64   `json:"memory_bytes"`    // largest of rocelinkd
	CPUShare       float64  `json:"cpu_share"`       // of one CPU, rocelinkd, what the boards added
	GoodputWithout float64  `json:"goodput_without"` // bits a second
	GoodputWith    float64  `json:"goodput_with"`
	Lost           uint64   `json:"lost"`     // frames of the stream
	Problems       []string `json:"problems"` // bounds that were missed
}

// Latency is a distribution, in milliseconds.
type Latency struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

func (c Config) complete() Config {
	if c.Boards <= 0 {
		c.Boards = 1000
	}
	if c.Segment <= 0 {
		c.Segment = 10 * time.Second
	}
	if c.Turns <= 0 {
		c.Turns = 3
	}
	if c.Rate == "" {
		c.Rate = "2G"
	}
	if c.Scrape <= 0 {
		c.Scrape = 5 * time.Second
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

const startLimit = 30 * time.Second

// Run starts rocelinkd with a stream, lets the boards come and go, and measures.
func Run(ctx context.Context, c Config) (Result, error) {
	c = c.complete()
	natsAt, err := freeAddress()
	if err != nil {
		return Result{}, err
	}
	webAt, err := freeAddress()
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	// Addresses of this run alone, beside any other demo or test.
	third := 200 + os.Getpid()%50
	host := os.Getpid()/50%120*2 + 1
	go func() {
		_, err := demo.Run(ctx, demo.Config{
			Programs: c.Programs, Dir: filepath.Join(c.Dir, "stream"), Duration: time.Duration(2*c.Turns+2)*c.Segment + 2*startLimit,
			Verbs: []rocelink.Verb{rocelink.VerbWriteImm}, Rate: c.Rate, NATSListen: natsAt, HTTP: webAt,
			HostAddress: fmt.Sprintf("127.46.%d.%d", third, host), BoardAddress: fmt.Sprintf("127.46.%d.%d", third, host+1), Out: io.Discard,
		})
		ended <- err
	}()
	say := func(format string, args ...any) { fmt.Fprintf(c.Progress, format+"\n", args...) }
	say("fleet: %d boards without a fabric, one rocelinkd with page and metrics, one stream at %sb/s (software fabric, software verbs)", c.Boards, c.Rate)

	url := "nats://" + natsAt
	g, err := newGoodput(ctx, url, ended)
	if err != nil {
		return Result{}, err
	}
	defer g.close()
	daemon, err := findChild("rocelinkd")
	if err != nil {
		return Result{}, err
	}
	boards, err := connectBoards(ctx, url, c.Boards)
	if err != nil {
		return Result{}, err
	}
	defer boards.close()
	watch, err := newWatch(url, webAt, c.Scrape)
	if err != nil {
		return Result{}, err
	}
	defer watch.close()

	var r Result
	var without, with segmentSum
	for turn := range c.Turns {
		for _, on := range []bool{false, true} {
			stop := func() {}
			if on {
				stop = both(boards.publish(ctx, watch), watch.look(ctx))
			}
			s, err := measure(ctx, c.Segment, g, daemon)
			stop()
			if err != nil {
				return Result{}, err
			}
			if on {
				with.add(s)
			} else {
				without.add(s)
			}
			say("  turn %d, %-14s %s  rocelinkd %4.0f %% of a CPU, %3d MB", turn+1, map[bool]string{false: "stream alone", true: "with boards"}[on],
				gigabits(s.bps()), 100*s.cpuShare(), s.memory>>20)
		}
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		return Result{}, err
	}
	r = watch.result()
	r.Boards, r.RecordsWanted, r.RecordBytes, r.Changes = c.Boards, boards.published(), boards.largest(), boards.changes()
	r.GoodputWithout, r.GoodputWith = without.bps(), with.bps()
	r.MemoryBytes = max(without.memory, with.memory)
	r.CPUShare = with.cpuShare() - without.cpuShare()
	r.Lost = g.lost()
	r.judge()
	return r, nil
}

func both(a, b func()) func() { return func() { a(); b() } }

// judge notes the bounds that were missed.
func (r *Result) judge() {
	miss := func(bad bool, format string, args ...any) {
		if bad {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	r.Problems = []string{}
	miss(r.Records < r.RecordsWanted, "%d of %d records did not arrive", r.RecordsWanted-r.Records, r.RecordsWanted)
	miss(r.ToSubscriberMS.P99 > ms(MaxToSubscriber), "p99 to a subscriber %.1f ms, wanted %v", r.ToSubscriberMS.P99, MaxToSubscriber)
	miss(r.ChangesSeen < r.Changes, "%d of %d changes were not seen on the page", r.Changes-r.ChangesSeen, r.Changes)
	miss(r.ToPageMS.P99 > ms(MaxToPage), "p99 to the page %.0f ms, wanted %v", r.ToPageMS.P99, MaxToPage)
	miss(r.MemoryBytes > MaxMemory, "rocelinkd took %d MB, wanted %d", r.MemoryBytes>>20, MaxMemory>>20)
	miss(r.RecordBytes > MaxRecord, "a record of %d bytes, wanted %d", r.RecordBytes, MaxRecord)
	miss(r.Lost > 0, "the stream lost %d frames", r.Lost)
	d := r.GoodputWith/r.GoodputWithout - 1
	miss(d < -MaxDeviation, "the stream's goodput fell by %.1f %%", -100*d)
	miss(r.Scrapes == 0, "no scrape succeeded")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func gigabits(bps float64) string { return fmt.Sprintf("%6.3f Gb/s", bps/1e9) }

// Text writes the result as a table.
func (r Result) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\tmedian\tp99\tmax\twanted\n")
	line := func(name string, l Latency, wanted string) {
		fmt.Fprintf(t, "%s\t%.1f ms\t%.1f ms\t%.1f ms\t%s\n", name, l.Median, l.P99, l.Max, wanted)
	}
	line("status to a subscriber", r.ToSubscriberMS, "p99 < "+MaxToSubscriber.String())
	line("change to the page", r.ToPageMS, "p99 < "+MaxToPage.String())
	line("scrape of the metrics", r.ScrapeMS, "")
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "records      %d of %d, at most %d bytes (wanted %d)\n", r.Records, r.RecordsWanted, r.RecordBytes, MaxRecord)
	fmt.Fprintf(w, "changes      %d of %d seen on the page\n", r.ChangesSeen, r.Changes)
	fmt.Fprintf(w, "scrapes      %d of %d KB\n", r.Scrapes, r.ScrapeBytes>>10)
	fmt.Fprintf(w, "rocelinkd    %d MB (wanted %d), the boards cost it %.0f %% of a CPU\n", r.MemoryBytes>>20, MaxMemory>>20, 100*r.CPUShare)
	fmt.Fprintf(w, "goodput      %s alone, %s with the boards: ratio %.4f, %d frames lost\n", strings.TrimSpace(gigabits(r.GoodputWithout)), strings.TrimSpace(gigabits(r.GoodputWith)), r.GoodputWith/r.GoodputWithout, r.Lost)
	if len(r.Problems) == 0 {
		_, err := fmt.Fprintln(w, "PASS: within every bound")
		return err
	}
	_, err := fmt.Fprintf(w, "MISSED: %s\n", strings.Join(r.Problems, "; "))
	return err
}

// JSON writes the result.
func (r Result) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// findChild finds a child process of this one by the name of its program.
func findChild(name string) (int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		data, err := os.ReadFile(entry)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var state string
		open, shut := strings.IndexByte(string(data), '('), strings.LastIndexByte(string(data), ')')
		if open < 0 || shut < open {
			continue
		}
		if _, err := fmt.Sscan(string(data[:open]), &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(data[shut+1:]), &state, &parent); err != nil {
			continue
		}
		if parent == os.Getpid() && string(data[open+1:shut]) == name {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process %s was started by this one", name)
}
