package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/heard"
	"rocelink/agent/path"
)

// world publishes a board and a host with one stream into a store.
type world struct {
	t     testing.TB
	store *heard.Store
	begin time.Time

	mu     sync.Mutex
	board  rocelink.BoardStatus
	host   rocelink.HostStatus
	change func(*rocelink.BoardStatus, *rocelink.HostStatus)
}

func newWorld(t testing.TB, stream string) *world {
	return &world{
		t: t, store: heard.New(heard.Config{}), begin: time.Now(),
		board: rocelink.BoardStatus{
			Version: 1, Board: "demo", Epoch: 5, Model: "demo board", UptimeMS: 100_000,
			Fabric: rocelink.Fabric{Present: true, Version: "1.0"},
			Link: rocelink.Link{Up: true, State: "up", Status: "0x3", Counters: map[string]rocelink.Count{
				"tx_packets": 0, "rsfec_corrected": 17, "rsfec_uncorrected": 0}},
			Modules: []rocelink.Module{module()},
			Streams: []rocelink.StreamStatus{{Stream: stream, Host: "h", Session: 7, Verb: rocelink.VerbSend, State: rocelink.StreamRunning}},
		},
		host: rocelink.HostStatus{
			Version: 1, Host: "h", Epoch: 6, UptimeMS: 50_000,
			Device:  rocelink.Device{Active: true, Counters: map[string]rocelink.Count{"rx_packets": 0}},
			Streams: []rocelink.HostStream{{Stream: stream, Board: "demo", Session: 7, Verb: rocelink.VerbSend, State: "running", Opens: 1}},
		},
	}
}

// module is one with four lanes, and a vendor with ideas of its own.
func module() rocelink.Module {
	value := func(v float64) *float64 { return &v }
	m := rocelink.Module{Cage: "qsfp0", Phase: "ready", Vendor: `<img src=x onerror=alert(1)>`, Part: "SR4", TemperatureC: value(41.5)}
	for lane := 1; lane <= 4; lane++ {
		m.Lanes = append(m.Lanes, rocelink.ModuleLane{Lane: lane, RxPowerMW: value(0.79), TxPowerMW: value(1.12), TxBiasMA: value(6.8)})
	}
	return m
}

func (w *world) take(subject string, record any) {
	data, err := json.Marshal(record)
	if err == nil {
		err = w.store.Take(subject, data)
	}
	if err != nil {
		w.t.Error(err)
	}
}

// publish publishes both as of now: 1,000 frames of 64 KiB a second.
func (w *world) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	ms := time.Since(w.begin).Milliseconds()
	w.board.Time = time.Now()
	w.board.UptimeMS, w.board.SampledMS, w.host.UptimeMS = 100_000+ms, 100_000+ms, 50_000+ms
	n := rocelink.Count(ms)
	s, h := &w.board.Streams[0], &w.host.Streams[0]
	s.SourceFrames, s.FramesPosted, s.FramesDone, s.BytesDone, s.PacketsSent, s.PacketsAcked = n, n, n, n<<16, 16*n, 16*n
	h.Total = rocelink.Totals{Messages: n, Accepted: n, Verified: n, Bytes: n << 16}
	w.board.Link.Counters["tx_packets"], w.host.Device.Counters["rx_packets"] = 16*n, 16*n
	if w.change != nil {
		w.change(&w.board, &w.host)
	}
	w.take(rocelink.BoardStatusSubject("demo"), w.board)
	w.take(rocelink.HostStatusSubject("h"), w.host)
}

func (w *world) set(change func(*rocelink.BoardStatus, *rocelink.HostStatus)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change = change
}

// run publishes four times a second until the test ends.
func (w *world) run() {
	ended, stopped := make(chan struct{}), make(chan struct{})
	w.t.Cleanup(func() { close(ended); <-stopped })
	w.publish()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				w.publish()
			}
		}
	}()
}

// message is a state as the script reads it.
type message struct {
	Overview overview `json:"overview"`
	Detail   *detail  `json:"detail"`
}

// serve serves a page of a store.
func serve(t testing.TB, store *heard.Store, c Config) (*Page, string) {
	t.Helper()
	p := New(store, c)
	s := httptest.NewServer(p)
	t.Cleanup(func() { p.Close(); s.Close() })
	return p, s.URL
}

// events reads states until done says so.
func events(t *testing.T, address string, done func(message) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", response.Status, response.Header)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var m message
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatal(err)
		}
		if done(m) {
			return
		}
	}
	t.Fatalf("the states ended: %v", lines.Err())
}

func TestStates(t *testing.T) {
	w := newWorld(t, "raw")
	w.run()
	_, address := serve(t, w.store, Config{})
	events(t, address+"/live", func(m message) bool {
		return m.Detail != nil && m.Detail.Path.Diagnosis.Rule == "healthy" && len(m.Overview.Boards) == 1 && m.Overview.Boards[0].Severity == path.Healthy
	})
	var changed time.Time
	w.set(func(b *rocelink.BoardStatus, _ *rocelink.HostStatus) {
		if changed.IsZero() {
			changed = time.Now()
		}
		b.Link.Up, b.Link.State = false, "align"
	})
	events(t, address+"/live?path="+path.ID("demo", "h", "raw"), func(m message) bool {
		return m.Overview.Wrong == 1 && m.Detail.Path.Broken == path.MACOut && m.Detail.Path.Diagnosis.Rule == "link-down" && !m.Overview.Boards[0].LinkUp &&
			len(m.Detail.History.BPS) > 1
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := time.Since(changed); d > 3*time.Second {
		t.Errorf("the change was seen after %v", d)
	}
}

func TestWhatIsAskedFor(t *testing.T) {
	w := newWorld(t, "raw")
	w.publish()
	for i := range 30 {
		name := fmt.Sprintf("other%d", i)
		w.take(rocelink.BoardStatusSubject(name), rocelink.BoardStatus{Version: 1, Board: name, Fabric: rocelink.Fabric{Present: true}, Link: rocelink.Link{Up: i != 7}})
	}
	w.take(rocelink.BoardEventSubject("demo"), rocelink.Event{Version: 1, From: "demo", Kind: "link-up", Text: "first"})
	w.take(rocelink.BoardEventSubject("other1"), rocelink.Event{Version: 1, From: "other1", Kind: "link-up", Text: "of another"})
	w.take(rocelink.HostEventSubject("h"), rocelink.Event{Version: 1, From: "h", Kind: "stream-open", Stream: "raw", Text: "second"})
	w.take(rocelink.HostEventSubject("h"), rocelink.Event{Version: 1, From: "h", Kind: "stream-open", Stream: "else", Text: "of another"})
	_, address := serve(t, w.store, Config{MaxRows: 10})
	get := func(q string) (m message) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for {
			response, err := http.Get(address + "/state?" + q)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusServiceUnavailable && time.Now().Before(deadline) {
				continue // the first state is being made
			}
			if err := json.Unmarshal(data, &m); err != nil {
				t.Fatalf("%s: %v\n%s", response.Status, err, data)
			}
			return m
		}
	}
	m := get("")
	if o := m.Overview; len(o.Paths) != 10 || o.MorePaths != 21 || len(o.Boards) != 10 || o.MoreBoards != 21 || o.Wrong != 1 {
		t.Errorf("%d paths and %d more, %d boards and %d more, %d wrong", len(o.Paths), o.MorePaths, len(o.Boards), o.MoreBoards, o.Wrong)
	}
	if m.Overview.Paths[0].Board != "other7" || m.Overview.Boards[0].Name != "other7" {
		t.Errorf("the worst does not come first: %+v", m.Overview.Paths[0])
	}
	if m.Detail.Path.Stream != "raw" {
		t.Errorf("%+v is shown in place of the stream", m.Detail.Path)
	}
	var texts []string
	for _, e := range m.Detail.Events {
		texts = append(texts, e.Text)
	}
	if fmt.Sprint(texts) != "[second first]" {
		t.Errorf("events %v", texts)
	}
	if m := get("filter=OTHER2&path=" + path.ID("other7", "", "")); len(m.Overview.Paths) != 10 || m.Overview.MorePaths != 1 || m.Detail.Path.Board != "other7" {
		t.Errorf("%+v", m)
	}
	if m := get("path=nothing"); m.Detail != nil {
		t.Errorf("%+v", m.Detail)
	}
	for _, q := range []string{"/state?path=" + strings.Repeat("x", maxQuery), "/live?filter=" + strings.Repeat("x", maxQuery)} {
		response, err := http.Get(address + q)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("a query of %d bytes: %s", len(q), response.Status)
		}
	}
}

func TestHeaders(t *testing.T) {
	_, address := serve(t, heard.New(heard.Config{}), Config{})
	for _, tc := range []struct {
		method, path, kind string
		code               int
	}{
		{http.MethodGet, "/", "text/html", 200}, {http.MethodGet, "/page.js", "javascript", 200}, {http.MethodGet, "/page.css", "text/css", 200},
		{http.MethodGet, "/icon.svg", "image/svg+xml", 200}, {http.MethodHead, "/", "text/html", 200},
		{http.MethodGet, "/static/", "", 404}, {http.MethodGet, "/../page.go", "", 404}, {http.MethodPost, "/", "", 405}, {http.MethodDelete, "/live", "", 405},
	} {
		r, err := http.NewRequest(tc.method, address+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		h := response.Header
		if response.StatusCode != tc.code || !strings.Contains(h.Get("Content-Type"), tc.kind) {
			t.Errorf("%s %s: %s, %s", tc.method, tc.path, response.Status, h.Get("Content-Type"))
		}
		if c := h.Get("Content-Security-Policy"); !strings.Contains(c, "default-src 'none'") || strings.Contains(c, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", tc.path, h)
		}
		for _, s := range []string{"http://", "https://", "innerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick="} {
			if rest := bytes.ReplaceAll(body, []byte("http://www.w3.org/2000/svg"), nil); bytes.Contains(rest, []byte(s)) {
				t.Errorf("%s holds %s", tc.path, s)
			}
		}
	}
}

// One that does not read is dropped; it holds up nobody.
func TestABrowserThatNeverReads(t *testing.T) {
	store := heard.New(heard.Config{})
	for i := range 400 {
		name := fmt.Sprintf("board%d%s", i, strings.Repeat("x", 50))
		data, _ := json.Marshal(rocelink.BoardStatus{Version: 1, Board: name})
		if err := store.Take(rocelink.BoardStatusSubject(name), data); err != nil {
			t.Fatal(err)
		}
	}
	p, address := serve(t, store, Config{MaxRows: 1000, Interval: time.Millisecond, WriteLimit: 100 * time.Millisecond})
	u, _ := url.Parse(address)
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetReadBuffer(4096)
	if _, err := fmt.Fprintf(c, "GET /live HTTP/1.1\r\nHost: %s\r\n\r\n", u.Host); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				store.SetConnected(n%2 == 0) // a change
			}
		}
	})
	// Another one reads on until the first is gone.
	events(t, address+"/live", func(message) bool { return p.Dropped() > 0 })
	close(stop)
	done.Wait()
	if n := p.Dropped(); n != 1 {
		t.Errorf("%d dropped", n)
	}
}

func TestBrowsersAreBounded(t *testing.T) {
	w := newWorld(t, "raw")
	w.publish()
	p, address := serve(t, w.store, Config{MaxClients: 2})
	open := func() *http.Response {
		r, err := http.Get(address + "/live")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b, c := open(), open(), open()
	if c.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the third: %s", c.Status)
	}
	a.Body.Close()
	c.Body.Close()
	// A place is free as soon as the server notices.
	deadline := time.Now().Add(10 * time.Second)
	for {
		r := open()
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no place became free")
		}
	}
	p.Close()
	if _, err := io.ReadAll(b.Body); err != nil {
		t.Errorf("after Close: %v", err)
	}
	b.Body.Close()
}

func TestServeOnLoopbackAnswersToItsNames(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	}()
	for host, want := range map[string]int{"localhost": 200, "localhost:8471": 200, "127.0.0.1:1": 200, "[::1]:8471": 200, "evil.example": 421, "192.0.2.1": 421} {
		r, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%q: %s, want %d", host, response.Status, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Listen("nonsense"); err == nil {
		t.Error("an address without a port was accepted")
	}
	if l, err := Listen(":0"); err != nil || !strings.HasPrefix(l.Addr().String(), "127.0.0.1:") {
		t.Errorf("no host: %v, %v", l, err)
	} else {
		l.Close()
	}
}

func TestHistory(t *testing.T) {
	m := newMaker(10)
	now := time.Unix(1_700_000_000, 0)
	one := func(session, lost rocelink.Count, bps float64) []path.Path {
		return []path.Path{{ID: "a", Stream: "s", Session: session, Lost: lost, Resent: 10 * lost, BitsPerSecond: &bps}}
	}
	m.sample(now, one(1, 5, 100))                           // what was lost before is not lost now
	m.sample(now.Add(400*time.Millisecond), one(1, 99, 1))  // too soon
	m.sample(now.Add(1100*time.Millisecond), one(1, 8, 90)) // +3
	m.sample(now.Add(4100*time.Millisecond), one(1, 9, 80)) // two points are missing
	m.sample(now.Add(5100*time.Millisecond), one(2, 1, 70)) // another session
	h := m.history("a")
	var bps []string
	for _, v := range h.BPS {
		if v == nil {
			bps = append(bps, "-")
			continue
		}
		bps = append(bps, fmt.Sprint(*v))
	}
	if fmt.Sprint(bps) != "[100 90 - - 80 70]" || fmt.Sprint(h.Lost) != "[0 3 0 0 1 0]" || fmt.Sprint(h.Resent) != "[0 30 0 0 10 0]" {
		t.Errorf("%v, %v, %v", bps, h.Lost, h.Resent)
	}
	if h.EndMS != now.Add(5*time.Second).UnixMilli() {
		t.Errorf("ends at %d", h.EndMS)
	}
	for i := range 2 * points {
		m.sample(now.Add(time.Duration(i+6)*time.Second), one(2, 1, float64(i)))
	}
	if h := m.history("a"); len(h.BPS) != points || *h.BPS[points-1] != 2*points-1 || *h.BPS[0] != points {
		t.Errorf("%d points", len(h.BPS))
	}
	m.sample(now.Add(time.Hour), nil)
	if len(m.plots) != 0 {
		t.Error("a path that is gone is kept for ever")
	}
}

func BenchmarkThousandBoards(b *testing.B) {
	store := heard.New(heard.Config{})
	for i := range 1000 {
		name := fmt.Sprintf("board%d", i)
		data, _ := json.Marshal(rocelink.BoardStatus{Version: 1, Board: name, Fabric: rocelink.Fabric{Present: true}, Link: rocelink.Link{Up: true},
			Streams: []rocelink.StreamStatus{{Stream: "s", Host: "h", Session: 1, State: rocelink.StreamRunning}}})
		if err := store.Take(rocelink.BoardStatusSubject(name), data); err != nil {
			b.Fatal(err)
		}
	}
	m := newMaker(200)
	b.ReportAllocs()
	var size int
	for b.Loop() {
		data, err := m.snapshot(store.View()).message(wanted{})
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
	}
	b.ReportMetric(float64(size), "bytes/state")
}
