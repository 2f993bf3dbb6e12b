// Package metrics shows what was heard of boards and hosts to Prometheus.
//
// Figures come from the last records. A board or host that is silent shows only
// that it is down and when it was heard last: old counters are not passed off
// as new. Names come from the network, so the number of series is bounded, and
// so is how many new ones an hour can bring.
package metrics

import (
	_ "embed"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rocelink"
	"rocelink/agent/heard"
	"rocelink/agent/path"
)

// Dashboard is a Grafana dashboard over these metrics, as JSON.
//
//go:embed dashboard.json
var Dashboard []byte

// Alerts are Prometheus alerting rules over these metrics, as YAML.
//
//go:embed alerts.yaml
var Alerts []byte

// Config bounds the series. The zero value works.
type Config struct {
	// MaxNames is how many boards, and how many hosts, are shown; 0 is 2048.
	MaxNames int
	// MaxStreams is how many streams are shown; 0 is 4096.
	MaxStreams int
	// Process adds the metrics of this program and of the Go runtime.
	Process bool
}

const (
	// remembered is how long a name that is gone keeps its place, so that names
	// that change all the time do not make series without end.
	remembered  = time.Hour
	maxCounters = 64 // of one device
	maxLabel    = 64 // bytes of a label that is no name
	// scrapeLimit and scrapes bound what scrapers cost.
	scrapeLimit = 10 * time.Second
	scrapes     = 4
)

// Paths of the handler.
const (
	Path          = "/metrics"
	DashboardPath = "/metrics/dashboard.json"
	AlertsPath    = "/metrics/alerts.yaml"
)

// New returns a handler of Path, DashboardPath and AlertsPath.
func New(store *heard.Store, c Config) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(store, c))
	if c.Process {
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes, Timeout: scrapeLimit}))
	mux.HandleFunc("GET "+DashboardPath, download("application/json", "rocelink-dashboard.json", Dashboard))
	mux.HandleFunc("GET "+AlertsPath, download("application/yaml", "rocelink-alerts.yaml", Alerts))
	return mux
}

func download(kind, name string, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(data)
	}
}

// Collector is a prometheus.Collector over a store.
type Collector struct {
	store   *heard.Store
	boards  admission
	hosts   admission
	streams admission
}

// NewCollector returns a collector for a registry of the caller's.
func NewCollector(store *heard.Store, c Config) *Collector {
	if c.MaxNames <= 0 {
		c.MaxNames = 2048
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = 4096
	}
	return &Collector{store: store, boards: admit(c.MaxNames), hosts: admit(c.MaxNames), streams: admit(c.MaxStreams)}
}

// admission bounds the names in use, over time and not only at once.
type admission struct {
	mu    sync.Mutex
	most  int
	seen  map[string]time.Time
	swept time.Time
}

func admit(most int) admission { return admission{most: most, seen: map[string]time.Time{}} }

// let reports whether a name may be shown.
func (a *admission) let(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.seen[name]; !known && len(a.seen) >= a.most {
		if now.Sub(a.swept) > remembered/60 {
			a.swept = now
			for n, t := range a.seen {
				if now.Sub(t) > remembered {
					delete(a.seen, n)
				}
			}
		}
		if len(a.seen) >= a.most {
			return false
		}
	}
	a.seen[name] = now
	return true
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	v := c.store.View()
	s := scrape{out: out, view: v}
	leftOut := 0.0
	s.gauge(natsConnected, truth(v.Connected))
	s.gauge(knownBoards, float64(len(v.Boards)))
	s.gauge(knownHosts, float64(len(v.Hosts)))
	for _, r := range heard.Reasons {
		s.counter(refusedRecords, float64(v.Refused[r]), string(r))
	}
	boards, hosts := map[string]heard.Board{}, map[string]heard.Host{} // not stale
	for _, b := range v.Boards {
		if !c.boards.let(b.Name, v.Now) {
			leftOut++
			continue
		}
		if s.board(b) {
			boards[b.Name] = b
		}
	}
	for _, h := range v.Hosts {
		if !c.hosts.let(h.Name, v.Now) {
			leftOut++
			continue
		}
		if s.host(h) {
			hosts[h.Name] = h
		}
	}
	windows := map[[3]string]heard.Window{}
	for _, w := range v.Windows {
		windows[[3]string{w.Board, w.Host, w.Stream}] = w
	}
	for _, p := range path.Analyse(v) {
		if p.Stream == "" {
			continue
		}
		if !c.streams.let(p.ID, v.Now) {
			leftOut++
			continue
		}
		labels := []string{p.Board, p.Host, p.Stream}
		s.gauge(pathSeverity, float64(p.Diagnosis.Severity.Rank()), labels...)
		if !p.InOrder() {
			s.gauge(pathFault, 1, append(labels, p.Diagnosis.Rule)...)
		}
		if b, ok := boards[p.Board]; ok {
			s.boardStream(b, p, labels)
		}
		if h, ok := hosts[p.Host]; ok {
			s.hostStream(h, p, labels)
		}
		if w, ok := windows[[3]string{p.Board, p.Host, p.Stream}]; ok && v.Now.Sub(w.At) < v.Stale {
			s.gauge(heldSlots, float64(w.HeldSlots), labels...)
			s.gauge(slots, float64(w.Slots), labels...)
		}
	}
	s.gauge(leftOutNames, leftOut)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// scrape sends the metrics of one view.
type scrape struct {
	out  chan<- prometheus.Metric
	view heard.View
}

func (s scrape) send(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	m, err := prometheus.NewConstMetric(d, kind, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	s.out <- m
}

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.send(d, prometheus.GaugeValue, v, labels)
}

func (s scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.send(d, prometheus.CounterValue, v, labels)
}

// count sends a counter of a record.
func (s scrape) count(d *prometheus.Desc, v rocelink.Count, labels []string) {
	s.counter(d, float64(v), labels...)
}

// label bounds text that becomes a label.
func label(text string) string {
	if len(text) <= maxLabel {
		return text
	}
	end := maxLabel
	for end > 0 && text[end]&0xC0 == 0x80 { // not within a character
		end--
	}
	return text[:end]
}
