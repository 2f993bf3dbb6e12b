// Package page serves a live page of boards, hosts and streams: what is wrong
// at a glance, the path of a stream with the figure of each stage, goodput and
// loss over the last minutes, events.
//
// Everything is embedded; nothing is loaded from elsewhere. A browser is sent
// whole states, of which only the newest counts: one that reads slowly misses
// some, one that does not read is dropped. The page reads the store and nothing
// else, so it never holds up who writes to it.
package page

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rocelink/agent/heard"
)

//go:embed static
var static embed.FS

// Config shapes a Page. The zero value works.
type Config struct {
	// MaxClients is how many browsers are served at once; 0 is 32.
	MaxClients int
	// Interval is the least time between two states sent; 0 is 400 ms.
	Interval time.Duration
	// WriteLimit is how long a browser may take for a state; 0 is 5 s.
	WriteLimit time.Duration
	// MaxRows is how many streams, the worst first, and how many boards a state
	// lists; 0 is 200.
	MaxRows int
}

// Page is an http.Handler. Close it to end what it runs.
type Page struct {
	cfg    Config
	store  *heard.Store
	files  http.Handler
	cancel context.CancelFunc
	done   sync.WaitGroup

	newest atomic.Pointer[snapshot]
	mu     sync.Mutex
	wake   map[chan struct{}]bool // one for each browser
	ended  chan struct{}
	// dropped counts browsers that did not read.
	dropped atomic.Uint64
}

// New starts to follow a store.
func New(store *heard.Store, c Config) *Page {
	if c.MaxClients <= 0 {
		c.MaxClients = 32
	}
	if c.Interval <= 0 {
		c.Interval = 400 * time.Millisecond
	}
	if c.WriteLimit <= 0 {
		c.WriteLimit = 5 * time.Second
	}
	if c.MaxRows <= 0 {
		c.MaxRows = 200
	}
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // embedded: cannot fail
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Page{cfg: c, store: store, files: http.FileServerFS(files), cancel: cancel, wake: map[chan struct{}]bool{}, ended: make(chan struct{})}
	p.done.Go(func() { p.run(ctx) })
	return p
}

// Close ends the page; browsers that are connected are let go.
func (p *Page) Close() {
	p.cancel()
	p.done.Wait()
}

// Dropped is how many browsers were let go since they did not read.
func (p *Page) Dropped() uint64 { return p.dropped.Load() }

// run makes a snapshot after each change, and each second, but no more often
// than the interval.
func (p *Page) run(ctx context.Context) {
	defer close(p.ended)
	changed, unwatch := p.store.Watch()
	defer unwatch()
	m := newMaker(p.cfg.MaxRows)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		p.newest.Store(m.snapshot(p.store.View()))
		p.mu.Lock()
		for c := range p.wake {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		p.mu.Unlock()
		pause.Reset(p.cfg.Interval)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-second.C:
		}
		pause.Reset(0)
	}
}

// policy lets the page load its own script and style and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page and its states.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/live":
		p.live(w, r)
	case "/state":
		p.state(w, r)
	case "/", "/page.css", "/page.js", "/icon.svg":
		p.files.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

// maxQuery bounds what a browser may ask for.
const maxQuery = 800

// wanted is what a browser looks at.
type wanted struct {
	path   string // ID of the selected path; "": the worst
	filter string // in the names of the rows
}

func wantedOf(r *http.Request) (wanted, error) {
	if len(r.URL.RawQuery) > maxQuery {
		return wanted{}, fmt.Errorf("query of %d bytes, at most %d are taken", len(r.URL.RawQuery), maxQuery)
	}
	q := r.URL.Query()
	return wanted{q.Get("path"), strings.ToLower(q.Get("filter"))}, nil
}

// state answers with one state.
func (p *Page) state(w http.ResponseWriter, r *http.Request) {
	want, err := wantedOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := p.newest.Load()
	if s == nil {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	data, err := s.message(want)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// live sends states as they come, as server-sent events.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	want, err := wantedOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wake := make(chan struct{}, 1)
	p.mu.Lock()
	full := len(p.wake) >= p.cfg.MaxClients
	if !full {
		p.wake[wake] = true
	}
	p.mu.Unlock()
	if full {
		http.Error(w, fmt.Sprintf("%d browsers are served already", p.cfg.MaxClients), http.StatusServiceUnavailable)
		return
	}
	defer func() {
		p.mu.Lock()
		delete(p.wake, wake)
		p.mu.Unlock()
	}()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if p.newest.Load() != nil {
		wake <- struct{}{}
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-wake:
		}
		// What was made meanwhile is skipped: the newest wins.
		s := p.newest.Load()
		data, err := s.message(want)
		if err == nil {
			err = control.SetWriteDeadline(time.Now().Add(p.cfg.WriteLimit))
		}
		if err == nil || errors.Is(err, http.ErrNotSupported) {
			if _, err = fmt.Fprintf(w, "event: state\nid: %d\ndata: %s\n\n", s.number, data); err == nil {
				err = control.Flush()
			}
		}
		if err != nil {
			if isTimeout(err) {
				p.dropped.Add(1)
			}
			return
		}
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// DefaultAddress is where Listen listens if it is not told.
const DefaultAddress = "127.0.0.1:8471"

// Listen listens at an address, on loopback if it names no host.
func Listen(address string) (net.Listener, error) {
	if address == "" {
		address = DefaultAddress
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen for browsers at %q: %w: write ADDRESS:PORT", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen for browsers at %s: %w", address, err)
	}
	return l, nil
}

// Serve serves a handler until ctx ends. What listens on loopback answers only
// to loopback's names: no web site can read it by pointing its own name here.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	if a, err := netip.ParseAddrPort(l.Addr().String()); err == nil && a.Addr().IsLoopback() {
		handler = onlyLoopback(handler)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	err := s.Serve(l)
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve browsers: %w", err)
}

func onlyLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !a.IsLoopback()) {
			http.Error(w, "this server answers to localhost only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
