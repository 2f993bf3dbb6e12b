package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
)

// boards are the status planes: one connection and one goroutine each.
type boards struct {
	list    []*board
	records atomic.Int64
	changed atomic.Int64
	bytes   atomic.Int64 // largest record
}

// board publishes once a second and at each change.
type board struct {
	all    *boards
	nc     *nats.Conn
	record rocelink.BoardStatus
	change chan string // a new state of the link
}

const (
	// changing boards are those whose link changes; the page is asked for them.
	changing    = "changing"
	changers    = 8
	changeEvery = 250 * time.Millisecond
	dialers     = 16
)

func connectBoards(ctx context.Context, url string, n int) (*boards, error) {
	bs := &boards{list: make([]*board, n)}
	errs := make(chan error, dialers)
	var next atomic.Int64
	for range dialers {
		go func() {
			for i := next.Add(1) - 1; int(i) < n && ctx.Err() == nil; i = next.Add(1) - 1 {
				b, err := newBoard(bs, url, int(i))
				if err != nil {
					errs <- err
					return
				}
				bs.list[i] = b
			}
			errs <- nil
		}()
	}
	var failed error
	for range dialers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	if failed == nil {
		failed = ctx.Err()
	}
	if failed != nil {
		bs.close()
		return nil, failed
	}
	return bs, nil
}

func newBoard(all *boards, url string, i int) (*board, error) {
	name := fmt.Sprintf("fleet-%04d", i)
	if i < changers {
		name = fmt.Sprintf("%s-%d", changing, i)
	}
	nc, err := rocelink.Connect(rocelink.Access{URL: url}, rocelink.Client{Name: "boardd " + name, Retry: true, Options: []nats.Option{nats.NoEcho()}})
	if err != nil {
		return nil, fmt.Errorf("board %d: %w", i, err)
	}
	return &board{all: all, nc: nc, change: make(chan string, 4), record: record(name)}, nil
}

// record is a status with all that an idle board with one module and sensors
// says.
func record(name string) rocelink.BoardStatus {
	rnd := rand.New(rand.NewPCG(1, 2))
	value := func(v float64) *float64 { return &v }
	r := rocelink.BoardStatus{
		Version: rocelink.Version, Board: name, Epoch: rocelink.Count(rand.Uint64()), Model: "RFSoC4x2",
		Fabric: rocelink.Fabric{Present: true, Version: "1.0", Build: "0x5f3a21c9", QueuePairs: 8, MaxMTU: 4096, Counters: map[string]rocelink.Count{
			"rx_acks": 81234567, "rx_bad_icrc": 0, "rx_packets": 81234599, "tx_packets": 1987654321,
		}},
		Link: rocelink.Link{Driver: "cmac", State: "up", Up: true, Since: time.Now().UTC(), Status: "0x3", FEC: "rs", Cages: []string{"qsfp0"}, Counters: map[string]rocelink.Count{
			"tx_packets": 1987654399, "tx_bytes": 8234567890123, "rx_packets": 81234620, "rx_bytes": 6234567890, "rx_bad_fcs": 0, "fec_corrected": 1234, "fec_uncorrected": 0,
		}},
		Modules: []rocelink.Module{{
			Cage: "qsfp0", Phase: "ready", Since: time.Now().UTC(), Insertions: 1, Identifier: "QSFP28", Vendor: "EXAMPLE OPTICS", Part: "EX-100G-SR4", Serial: "EX1234567890",
			TemperatureC: value(41.2), VccV: value(3.29),
		}},
		Clocks:  []rocelink.Clock{{Name: "gt-ref", Hz: 156.25e6}},
		Sensors: []rocelink.Sensor{{Name: "ps_temp", Unit: "C", Value: 52.4}, {Name: "pl_temp", Unit: "C", Value: 55.1}},
		Streams: []rocelink.StreamStatus{},
	}
	for lane := 1; lane <= 4; lane++ {
		r.Modules[0].Lanes = append(r.Modules[0].Lanes, rocelink.ModuleLane{Lane: lane, RxPowerMW: value(0.8 + float64(rnd.IntN(100))/1e3), TxPowerMW: value(1.1), TxBiasMA: value(6.75)})
	}
	return r
}

// publish begins and returns what ends it. Each board begins at another time of
// the second, as boards do.
func (bs *boards) publish(ctx context.Context, w *watch) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	for i, b := range bs.list {
		done.Go(func() { b.run(ctx, time.Second*time.Duration(i)/time.Duration(len(bs.list))) })
	}
	altering, calm := context.WithCancel(ctx)
	altered := make(chan struct{})
	go func() { defer close(altered); bs.alter(altering, w) }()
	return func() {
		// Every change that was made is published before the boards fall silent.
		calm()
		<-altered
		cancel()
		done.Wait()
	}
}

// alter changes one link after the other: down under a name of its own, then up.
func (bs *boards) alter(ctx context.Context, w *watch) {
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	some := bs.list[:min(changers, len(bs.list))]
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		state := "step-" + strconv.Itoa(int(bs.changed.Add(1)))
		w.expect(state)
		some[n%len(some)].change <- state
	}
}

func (b *board) run(ctx context.Context, phase time.Duration) {
	start := time.Now()
	wait := time.NewTimer(phase)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			for len(b.change) > 0 {
				b.alter(<-b.change)
				b.send(time.Since(start))
			}
			return
		case state := <-b.change:
			b.alter(state)
		case <-wait.C:
			wait.Reset(time.Second)
		}
		b.send(time.Since(start))
	}
}

func (b *board) alter(state string) {
	b.record.Link.State, b.record.Link.Up, b.record.Link.Problem = state, false, "no signal on any lane"
}

func (b *board) send(up time.Duration) {
	r := &b.record
	r.Sequence++
	r.UptimeMS, r.SampledMS = up.Milliseconds(), up.Milliseconds()
	r.Link.Counters["tx_packets"] += 1000
	r.Time = time.Now().UTC()
	data, err := json.Marshal(r)
	if err == nil {
		err = b.nc.Publish(rocelink.BoardStatusSubject(r.Board), data)
	}
	if err != nil {
		return // counted as not arrived
	}
	b.all.records.Add(1)
	for {
		n := b.all.bytes.Load()
		if int64(len(data)) <= n || b.all.bytes.CompareAndSwap(n, int64(len(data))) {
			return
		}
	}
}

func (bs *boards) published() int { return int(bs.records.Load()) }
func (bs *boards) changes() int   { return int(bs.changed.Load()) }
func (bs *boards) largest() int   { return int(bs.bytes.Load()) }

func (bs *boards) close() {
	for _, b := range bs.list {
		if b != nil {
			b.nc.Close()
		}
	}
}
