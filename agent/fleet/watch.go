package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
)

// watch is everyone who looks: a subscriber, a browser and a scraper.
type watch struct {
	nc     *nats.Conn
	web    string
	scrape time.Duration

	mu        sync.Mutex
	toSub     []float64 // ms
	toPage    []float64
	scrapes   []float64
	bytes     int                  // of a scrape
	unseen    map[string]time.Time // when it was changed; gone when seen
	pageError error
}

func newWatch(url, web string, scrape time.Duration) (*watch, error) {
	w := &watch{web: "http://" + web, scrape: scrape, unseen: map[string]time.Time{}}
	nc, err := rocelink.Connect(rocelink.Access{URL: url}, rocelink.Client{Name: "fleet subscriber"})
	if err != nil {
		return nil, err
	}
	sub, err := nc.Subscribe(rocelink.AnyBoardStatus, w.status)
	if err == nil {
		err = sub.SetPendingLimits(1<<20, 1<<30)
	}
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	w.nc = nc
	return w, nil
}

func (w *watch) status(m *nats.Msg) {
	now := time.Now()
	var s rocelink.BoardStatus
	if rocelink.Decode(m.Data, &s) != nil || s.Board == "demo" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.toSub = append(w.toSub, ms(now.Sub(s.Time)))
}

// expect notes that a link goes to a state now.
func (w *watch) expect(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unseen[state] = time.Now()
}

// look reads the page and scrapes until the returned function is called.
func (w *watch) look(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := w.browse(ctx); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.pageError = err
			w.mu.Unlock()
		}
	})
	done.Go(func() {
		tick := time.NewTicker(w.scrape)
		defer tick.Stop()
		for {
			w.scrapeOnce(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		// The last change of a turn has its second to be seen.
		end := time.NewTimer(2 * MaxToPage)
		defer end.Stop()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
	wait:
		for {
			w.mu.Lock()
			left := len(w.unseen)
			w.mu.Unlock()
			if left == 0 {
				break
			}
			select {
			case <-end.C:
				break wait
			case <-tick.C:
			}
		}
		cancel()
		done.Wait()
	}
}

// browse reads the page's events as a browser does.
func (w *watch) browse(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.web+"/live?filter="+changing, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("page: %s", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		now := time.Now()
		var state struct {
			Overview struct {
				Boards []struct {
					Link string `json:"link"`
				} `json:"boards"`
			} `json:"overview"`
			Boards []struct {
				Link string `json:"link"`
			} `json:"boards"`
		}
		if err := json.Unmarshal([]byte(data), &state); err != nil {
			return fmt.Errorf("page: %w", err)
		}
		w.mu.Lock()
		for _, b := range append(state.Boards, state.Overview.Boards...) {
			if at, ok := w.unseen[b.Link]; ok {
				delete(w.unseen, b.Link)
				w.toPage = append(w.toPage, ms(now.Sub(at)))
			}
		}
		w.mu.Unlock()
	}
	return lines.Err()
}

func (w *watch) scrapeOnce(ctx context.Context) {
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.web+"/metrics", nil)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scrapes, w.bytes = append(w.scrapes, ms(time.Since(began))), int(n)
}

func (w *watch) result() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Result{
		Records: len(w.toSub), ToSubscriberMS: distribution(w.toSub),
		ChangesSeen: len(w.toPage), ToPageMS: distribution(w.toPage),
		Scrapes: len(w.scrapes), ScrapeMS: distribution(w.scrapes), ScrapeBytes: w.bytes,
	}
}

func (w *watch) close() { w.nc.Close() }

// distribution sorts values.
func distribution(values []float64) Latency {
	if len(values) == 0 {
		return Latency{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	at := func(p float64) float64 { return v[int(p*float64(len(v)-1)+0.5)] }
	return Latency{Median: at(0.5), P99: at(0.99), Max: v[len(v)-1]}
}
