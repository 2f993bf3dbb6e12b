package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rocelink"
)

// browser drives a headless Chromium over its DevTools pipe: messages of JSON,
// each ended by a zero byte, to descriptor 3 and from descriptor 4.
type browser struct {
	t       *testing.T
	to      io.Writer
	session string

	mu      sync.Mutex
	number  int
	waiting map[int]chan reply
	errors  []string // of the console, and exceptions
	ended   error
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

const browserLimit = 30 * time.Second

func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := os.Getenv("ROCELINK_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if program == "" {
			program, _ = exec.LookPath(name)
		}
	}
	if program == "" {
		if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatal("chromium is missing and ROCELINK_REQUIRE_TOOLS is 1")
		}
		t.Skip("chromium is not installed (Debian: chromium): the page was not tried in a browser")
	}
	fromUs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	c.ExtraFiles = []*os.File{fromUs, toUs}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	fromUs.Close()
	toUs.Close()
	b := &browser{t: t, to: to, waiting: map[int]chan reply{}}
	done := make(chan struct{})
	go func() { defer close(done); b.read(from) }()
	t.Cleanup(func() {
		_ = b.send("Browser.close", nil, nil)
		to.Close()
		kill := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		defer kill.Stop()
		_ = c.Wait()
		from.Close()
		<-done
	})
	var target struct{ TargetID string }
	b.must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.must(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		data, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.ended = fmt.Errorf("the browser ended: %w", err)
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		var m struct {
			ID     int
			Method string
			Params struct {
				Type, Message    string
				ExceptionDetails json.RawMessage
				Args             json.RawMessage
				Entry            struct{ Level, Text, URL string }
			}
			reply
		}
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			if c := b.waiting[m.ID]; c != nil {
				delete(b.waiting, m.ID)
				c <- m.reply
			}
		case m.Method == "Runtime.exceptionThrown":
			b.errors = append(b.errors, string(m.Params.ExceptionDetails))
		case m.Method == "Runtime.consoleAPICalled" && (m.Params.Type == "error" || m.Params.Type == "warning"):
			b.errors = append(b.errors, string(m.Params.Args))
		case m.Method == "Log.entryAdded" && (m.Params.Entry.Level == "error" || m.Params.Entry.Level == "warning"):
			b.errors = append(b.errors, m.Params.Entry.Text+" "+m.Params.Entry.URL)
		case m.Method == "Page.javascriptDialogOpening":
			b.errors = append(b.errors, "a dialog opened: "+m.Params.Message)
		}
		b.mu.Unlock()
	}
}

func (b *browser) send(method string, params any, result any) error {
	c := make(chan reply, 1)
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return b.ended
	}
	b.number++
	m := map[string]any{"id": b.number, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") && !strings.HasPrefix(method, "Target.") {
		m["sessionId"] = b.session
	}
	b.waiting[b.number] = c
	data, err := json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r, ok := <-c:
		switch {
		case !ok:
			return b.ended
		case r.Error != nil:
			return errors.New(method + ": " + r.Error.Message)
		case result != nil:
			return json.Unmarshal(r.Result, result)
		}
		return nil
	case <-time.After(browserLimit):
		return fmt.Errorf("%s: no answer for %v", method, browserLimit)
	}
}

func (b *browser) must(method string, params any, result any) {
	b.t.Helper()
	if err := b.send(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates an expression, or what its promise becomes.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.must("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	if into != nil {
		if err := json.Unmarshal(r.Result.Value, into); err != nil {
			b.t.Fatalf("%s: %v: %s", expression, err, r.Result.Value)
		}
	}
}

// until waits for a condition, which is tried after each change of the page.
func (b *browser) until(condition string) {
	b.t.Helper()
	var held bool
	b.eval(`new Promise((done) => {
		const holds = () => { try { return Boolean(`+condition+`); } catch { return false; } };
		if (holds()) return done(true);
		const watch = new MutationObserver(() => { if (holds()) { watch.disconnect(); clearTimeout(limit); done(true); } });
		watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
		const limit = setTimeout(() => { watch.disconnect(); done(false); }, 15000);
	})`, &held)
	if !held {
		var text string
		b.eval("document.body.innerText", &text)
		b.t.Fatalf("never: %s\n%s\n%q", condition, text, b.complaints())
	}
}

func (b *browser) size(width, height int, scheme string) {
	b.t.Helper()
	b.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// shoot keeps a picture in the folder ROCELINK_SCREENSHOTS, if there is one.
func (b *browser) shoot(name string) {
	b.t.Helper()
	folder := os.Getenv("ROCELINK_SCREENSHOTS")
	if folder == "" {
		return
	}
	b.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))", nil)
	var shot struct{ Data string }
	b.must("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), data, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.errors
	b.errors = nil
	return list
}

// hostile would do something if it were ever read as markup or script.
const hostile = `<img src=x onerror=alert(1)>'"&`

func TestInChromium(t *testing.T) {
	b := startBrowser(t)
	w := newWorld(t, "raw")
	w.board.Streams = append(w.board.Streams, rocelink.StreamStatus{Stream: hostile, Host: "h", Session: 8, Verb: rocelink.VerbWrite, State: rocelink.StreamRunning})
	w.host.Streams = append(w.host.Streams, rocelink.HostStream{Stream: hostile, Board: "demo", Session: 8, Verb: rocelink.VerbWrite, State: "running", Opens: 1})
	quiet := "<script>alert(2)</script>"
	sound := func(b *rocelink.BoardStatus, h *rocelink.HostStatus) {
		w.take(rocelink.BoardStatusSubject(quiet), rocelink.BoardStatus{Version: 1, Board: quiet, Model: hostile, Fabric: rocelink.Fabric{Present: true, Version: "1.0"}, Link: rocelink.Link{Up: true}})
		id, name, hid, hname := b.Streams[1].Session, b.Streams[1].Stream, h.Streams[1].Session, h.Streams[1].Stream
		b.Streams[1], h.Streams[1] = b.Streams[0], h.Streams[0]
		b.Streams[1].RNRMessages, b.Streams[1].RNRNAKs, b.Streams[1].PacketsResent = 0, 0, 0
		b.Streams[1].Session, b.Streams[1].Stream, b.Streams[1].Verb = id, name, rocelink.VerbWrite
		h.Streams[1].Session, h.Streams[1].Stream, h.Streams[1].Verb = hid, hname, rocelink.VerbWrite
	}
	w.set(sound)
	w.run()
	w.take(rocelink.BoardEventSubject("demo"), rocelink.Event{Version: 1, From: "demo", Kind: "link-up", Text: "receiver aligned, " + hostile})
	p := New(w.store, Config{})
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close()

	b.size(1280, 900, "light")
	b.must("Page.navigate", map[string]any{"url": server.URL}, nil)
	b.until(`document.querySelector("#diagnosis").className === "ok" && document.querySelectorAll("#paths > li").length === 3`)
	b.until(`document.querySelectorAll("#boards > li").length === 2`)
	b.until(`document.querySelectorAll("#optics .lane").length === 4 && document.querySelectorAll("#optics .bad").length === 0 && document.querySelector("#optics").textContent.includes("onerror")`)

	// It updates by itself, and draws what it is sent.
	var before int
	b.eval(`Number(document.documentElement.dataset.drawn)`, &before)
	b.until(fmt.Sprintf(`Number(document.documentElement.dataset.drawn) >= %d`, before+5))
	b.until(`document.querySelectorAll("#stages > li").length === 11 && document.querySelectorAll("#stages .broken").length === 0`)
	b.until(`document.querySelector("#goodput .curve").getAttribute("d").split("L").length >= 3`)
	b.until(`/^\d+ Mb\/s$/.test(document.querySelector("#goodput-now").textContent)`)
	b.until(`document.querySelectorAll("#events > li").length === 1`)

	// A hostile name is text wherever it is shown.
	b.eval(`[...document.querySelectorAll("#paths button")].find((r) => r.textContent.includes("onerror")).click()`, nil)
	b.until(`document.querySelector("#title").textContent === ` + quoted(hostile))
	var strange int
	b.eval(`document.querySelectorAll("img, main script, [onerror]").length`, &strange)
	if strange != 0 {
		t.Errorf("%d elements were made of a name", strange)
	}
	b.until(`document.querySelector('#paths [aria-current="true"] .name').textContent.includes("onerror")`)
	b.eval(`[...document.querySelectorAll("#paths .name")].find((n) => n.textContent.startsWith("raw")).click()`, nil)
	b.until(`document.querySelector("#title").textContent === "raw"`)
	b.shoot("light-healthy")

	// A fault is marked at its stage.
	n := rocelink.Count(0)
	w.set(func(board *rocelink.BoardStatus, host *rocelink.HostStatus) {
		sound(board, host)
		n++
		s := &board.Streams[0]
		s.RNRMessages, s.RNRNAKs = 80*n, 100*n
		s.PacketsResent = 400 * n
	})
	w.take(rocelink.WindowSubject("h", "raw"), rocelink.Window{Version: 1, Host: "h", Board: "demo", Stream: "raw", Session: 7, HeldSlots: 508, Slots: 512})
	b.until(`document.querySelector("#rule").textContent === "rnr-storm" && document.querySelector("#sentence").textContent.includes("consumer holds 508 of 512 slots")`)
	b.until(`document.querySelectorAll("#stages .broken").length === 1 && document.querySelector("#stages .broken .what").textContent === "accepted"`)
	b.until(`document.querySelectorAll("#loss rect.resent").length > 0`)
	b.until(`document.querySelector("#summary").textContent === "1 path is not in order"`)
	b.eval(`document.querySelector("#goodput").dispatchEvent(new PointerEvent("pointermove", { clientX: document.querySelector("#goodput").getBoundingClientRect().right - 12 }))`, nil)
	b.until(`document.querySelector("#goodput-read").textContent.includes("b/s")`)
	b.shoot("light-fault")
	b.size(1280, 900, "dark")
	b.shoot("dark-fault")

	w.set(func(board *rocelink.BoardStatus, host *rocelink.HostStatus) {
		sound(board, host)
		for i := range board.Streams {
			s := &board.Streams[i]
			s.PacketsAcked, s.FramesDone, s.BytesDone = s.PacketsSent-4096, s.SourceFrames-256, s.BytesDone-256<<16
		}
		if board.Link.Up {
			board.Link.Up, board.Link.State, board.Link.Since, board.Link.Losses = false, "align", board.Time, 1
			board.Link.Cause, board.Link.Cage, board.Link.Lane = rocelink.CauseNoLight, "qsfp0", 3
			board.Link.Problem = "cage qsfp0 receives no light on lane 3"
			board.Link.Status = "0xc0"
			board.Modules[0].Lanes[2].NoLight, *board.Modules[0].Lanes[2].RxPowerMW = true, 0
		}
	})
	b.until(`document.querySelector("#rule").textContent === "lane-dark" && document.querySelector("#sentence").textContent.startsWith("lane 3 dark since ")`)
	b.until(`document.querySelectorAll("#optics .lane").length === 4 && document.querySelectorAll("#optics .lane.bad").length === 1 && document.querySelector("#optics .lane.bad").textContent.includes("lane 3")`)
	b.until(`document.querySelector("#stages .broken .what").textContent === "MAC out" && document.querySelector("#stages .broken").matches(".critical")`)
	b.shoot("dark-link")
	b.size(390, 844, "light")
	b.until(`document.documentElement.scrollWidth <= 390`)
	b.shoot("phone-light")
	b.eval(`document.querySelector("#detail").scrollIntoView()`, nil)
	b.shoot("phone-light-path")
	b.size(390, 844, "dark")
	b.shoot("phone-dark-path")

	// Filtering, and a server that is gone.
	b.eval(`{ const f = document.querySelector("#filter"); f.value = "SCRIPT"; f.dispatchEvent(new Event("input")); }`, nil)
	b.until(`document.querySelectorAll("#paths > li").length === 1 && document.querySelectorAll("#boards > li").length === 1`)
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("the browser complains: %q", c)
	}
	p.Close()
	server.Close()
	b.until(`document.querySelector("#connection").matches(".bad")`)
}

func quoted(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}
