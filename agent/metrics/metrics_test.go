package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"rocelink"
	"rocelink/agent/heard"
)

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func take(t *testing.T, s *heard.Store, subject string, record any) {
	t.Helper()
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Take(subject, data); err != nil {
		t.Fatal(err)
	}
}

// full is a store in which every metric has a value.
func full(t *testing.T) (*heard.Store, *clock) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	s := heard.New(heard.Config{Now: c.now})
	counters := map[string]rocelink.Count{"surprise": 1}
	for i, p := range portCounters {
		counters[p.name] = rocelink.Count(i + 1)
	}
	b := rocelink.BoardStatus{Version: 1, Board: "demo", Epoch: 1, Model: "m", UptimeMS: 12_500,
		Fabric: rocelink.Fabric{Present: true, Version: "1.0", Counters: counters}, Link: rocelink.Link{Up: false, Losses: 3, Cause: "no-light", Counters: counters},
		Modules: []rocelink.Module{{Cage: "q", Phase: "ready", Vendor: "V", TemperatureC: value(40), VccV: value(3.3), Alarms: []string{"hot"},
			Lanes: []rocelink.ModuleLane{{Lane: 1, RxPowerMW: value(0.5), TxPowerMW: value(1), TxBiasMA: value(7)}, {Lane: 2, NoLight: true}, {Lane: 2}}}, {Cage: "q"}, {Cage: "empty", Phase: "empty"}},
		Clocks:  []rocelink.Clock{{Name: "ref", Locked: new(bool)}, {Name: "ref", Locked: new(bool)}, {Name: "unknown"}},
		Sensors: []rocelink.Sensor{{Name: "ps", Unit: "C", Value: 50}, {Name: "ps", Unit: "V", Value: 0.85}, {Name: "ps", Unit: "C"}, {Name: "x", Unit: "furlong"}},
		Streams: []rocelink.StreamStatus{
			{Stream: "s", Host: "h", Session: 7, State: rocelink.StreamRunning, SourceFrames: 1 << 60, PacketsResent: 42},
			{Stream: "s", Host: "h", Session: 6, State: rocelink.StreamClosed, SourceFrames: 5},
		}}
	take(t, s, rocelink.BoardStatusSubject("demo"), b)
	take(t, s, rocelink.HostStatusSubject("h"), rocelink.HostStatus{Version: 1, Host: "h", Epoch: 2,
		Device:  rocelink.Device{Active: true, Name: "mlx5_0", Provider: "ibverbs", Counters: map[string]rocelink.Count{"rx_packets": 9, "Not A Name": 1, "": 1}},
		Streams: []rocelink.HostStream{{Stream: "s", Board: "demo", Session: 7, State: "running", Opens: 2, Total: rocelink.Totals{Messages: 11}}}})
	take(t, s, rocelink.WindowSubject("h", "s"), rocelink.Window{Version: 1, Host: "h", Board: "demo", Stream: "s", Session: 7, HeldSlots: 3, Slots: 8})
	return s, c
}

func value(v float64) *float64 { return &v }

func get(t *testing.T, h http.Handler, path string) (string, *http.Response) {
	t.Helper()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Body.String(), r.Result()
}

func TestEveryMetricIsShown(t *testing.T) {
	s, _ := full(t)
	text, response := get(t, New(s, Config{}), Path)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s\n%s", response.Status, text)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := NewCollector(s, Config{})
	all := make(chan *prometheus.Desc, 1000)
	c.Describe(all)
	close(all)
	for d := range all {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]
		if families[name] == nil {
			t.Errorf("%s has no value", name)
		}
	}
	for _, want := range []string{
		`rocelink_board_up{board="demo"} 1`, `rocelink_link_up{board="demo"} 0`, `rocelink_board_uptime_seconds{board="demo"} 12.5`,
		`rocelink_stream_source_frames_total{board="demo",host="h",stream="s"} 1.152921504606847e+18`,
		`rocelink_stream_resent_packets_total{board="demo",host="h",stream="s"} 42`,
		`rocelink_stream_received_messages_total{board="demo",host="h",stream="s"} 11`,
		`rocelink_path_fault{board="demo",host="h",rule="lane-dark",stream="s"} 1`, `rocelink_path_severity{board="demo",host="h",stream="s"} 3`,
		`rocelink_device_events_total{counter="rx_packets",device="mlx5_0",host="h"} 9`,
		`rocelink_module_lane_receive_watts{board="demo",cage="q",lane="1"} 0.0005`, `rocelink_module_lane_dark{board="demo",cage="q",lane="2"} 1`,
		`rocelink_module_ready{board="demo",cage="empty"} 0`, `rocelink_clock_locked{board="demo",clock="ref"} 0`, `rocelink_board_temperature_celsius{board="demo",sensor="ps"} 50`,
		`rocelink_link_cause{board="demo",cause="no-light"} 1`,
		`rocelink_fec_codewords_total{board="demo",outcome="corrected"} `, `rocelink_stream_held_slots{board="demo",host="h",stream="s"} 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not shown: %s", want)
		}
	}
	for _, strange := range []string{"Not A Name", "surprise"} {
		if strings.Contains(text, strange) {
			t.Errorf("shown: %s", strange)
		}
	}
}

func TestStaleCountersAreNotShown(t *testing.T) {
	s, c := full(t)
	h := New(s, Config{})
	c.t = c.t.Add(heard.DefaultStale + time.Second)
	text, _ := get(t, h, Path)
	for _, want := range []string{`rocelink_board_up{board="demo"} 0`, `rocelink_host_up{host="h"} 0`, `rocelink_board_last_heard_timestamp_seconds{board="demo"} 1.7e+09`, `rule="board-stale"`} {
		if !strings.Contains(text, want) {
			t.Errorf("not shown: %s", want)
		}
	}
	for _, old := range []string{"rocelink_stream_sent", "rocelink_link_up{", "rocelink_stream_received", "rocelink_stream_slots{", "rocelink_mac_"} {
		if strings.Contains(text, old) {
			t.Errorf("shown though old: %s", old)
		}
	}
}

func TestHostileNamesMakeNoSeriesWithoutEnd(t *testing.T) {
	s, c := full(t)
	h := New(s, Config{MaxNames: 5, MaxStreams: 7})
	most := 0
	for round := range 50 {
		for i := range 10 {
			name := fmt.Sprintf("x\"} 1 \\ {%d-%d", round, i)
			streams := []rocelink.StreamStatus{}
			for k := range 20 {
				streams = append(streams, rocelink.StreamStatus{Host: fmt.Sprintf("h%d", k), Stream: name, State: rocelink.StreamRunning})
			}
			take(t, s, rocelink.BoardStatusSubject(name), rocelink.BoardStatus{Version: 1, Board: name, Model: strings.Repeat("ö", 200), Streams: streams})
		}
		c.t = c.t.Add(30 * time.Second)
		text, _ := get(t, h, Path)
		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(families["rocelink_board_up"].GetMetric()); n > 5 {
			t.Fatalf("%d boards", n)
		}
		if n := len(families["rocelink_path_severity"].GetMetric()); n > 7 {
			t.Fatalf("%d streams", n)
		}
		most = max(most, int(families["rocelink_left_out_names"].GetMetric()[0].GetGauge().GetValue()))
	}
	if most == 0 {
		t.Error("nothing says that names are left out")
	}
	// An hour later there is room for others.
	c.t = c.t.Add(2 * time.Hour)
	take(t, s, rocelink.BoardStatusSubject("new"), rocelink.BoardStatus{Version: 1, Board: "new"})
	if text, _ := get(t, h, Path); !strings.Contains(text, `rocelink_board_up{board="new"} 1`) {
		t.Error("a new board finds no room")
	}
}

var metricName = regexp.MustCompile(`\brocelink_[a-z_]+`)

func TestDashboardAndAlertsNameMetricsThatExist(t *testing.T) {
	s, _ := full(t)
	h := New(s, Config{})
	text, _ := get(t, h, Path)
	exists := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "TYPE" {
			exists[f[2]] = true
		}
	}
	for _, path := range []string{DashboardPath, AlertsPath} {
		body, response := get(t, h, path)
		if response.StatusCode != http.StatusOK || !strings.Contains(response.Header.Get("Content-Disposition"), "attachment") {
			t.Fatalf("%s: %s", path, response.Status)
		}
		names := metricName.FindAllString(body, -1)
		if len(names) < 10 {
			t.Errorf("%s names %d metrics", path, len(names))
		}
		for _, n := range names {
			if !exists[n] {
				t.Errorf("%s names %s, which does not exist", path, n)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(Dashboard, &dashboard); err != nil || len(dashboard.Panels) < 10 {
		t.Errorf("%d panels, %v", len(dashboard.Panels), err)
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || len(p.Targets) == 0 || p.Title == "" {
			t.Errorf("panel %d %q", p.ID, p.Title)
		}
		ids[p.ID] = true
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(Alerts, &alerts); err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts.Groups[0].Rules {
		if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || !metricName.MatchString(r.Expr) {
			t.Errorf("%+v", r)
		}
	}
}

func promtool(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatal("promtool is missing and ROCELINK_REQUIRE_TOOLS is 1")
		}
		t.Skip("promtool is not installed (Debian: prometheus): its checks of metrics and rules did not run")
	}
	c := exec.Command(tool, args...)
	c.Stdin = stdin
	if out, err := c.CombinedOutput(); err != nil || bytes.Contains(out, []byte("rocelink_")) && args[1] == "metrics" {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolCheckMetrics(t *testing.T) {
	s, _ := full(t)
	text, _ := get(t, New(s, Config{Process: true}), Path)
	promtool(t, strings.NewReader(text), "check", "metrics")
}

func TestPromtoolRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	if err := os.WriteFile(file, Alerts, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, nil, "check", "rules", file)
	promtool(t, nil, "test", "rules", filepath.Join("testdata", "alerts_test.yaml"))
}

func TestOnlyGet(t *testing.T) {
	h := New(heard.New(heard.Config{}), Config{})
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodPost, Path, nil))
	if r.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.Code)
	}
	if _, response := get(t, h, "/else"); response.StatusCode != http.StatusNotFound {
		t.Errorf("%s", response.Status)
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, boards := range []int{1, 1000} {
		b.Run(fmt.Sprint(boards), func(b *testing.B) {
			s := heard.New(heard.Config{})
			for i := range boards {
				name := fmt.Sprintf("board%d", i)
				data, _ := json.Marshal(rocelink.BoardStatus{Version: 1, Board: name, Fabric: rocelink.Fabric{Present: true},
					Streams: []rocelink.StreamStatus{{Stream: "s", Host: "h", Session: 1, State: rocelink.StreamRunning}}})
				if err := s.Take(rocelink.BoardStatusSubject(name), data); err != nil {
					b.Fatal(err)
				}
			}
			h := New(s, Config{})
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRecorder()
				h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, Path, nil))
			}
		})
	}
}
