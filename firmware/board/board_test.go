package board

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/bsp"
	"rocelink/firmware/fabrictest"
	"rocelink/firmware/link"
	"rocelink/fpga/regs"
)

// bench is a board on a played-back fabric, ticked by hand.
type bench struct {
	t     *testing.T
	f     *fabrictest.Fabric
	b     *Board
	now   time.Time
	opens int
	err   error // of opening the registers
}

type registers struct{ *fabrictest.Fabric }

func (registers) Close() error { return nil }

// demo is the board whose fabric is software.
func demo(t *testing.T) *boards.Board {
	t.Helper()
	d, err := boards.Load("demo")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// description is that board without its module.
func description(t *testing.T) *boards.Board {
	t.Helper()
	d := *demo(t)
	d.I2C, d.GPIO, d.Cages = nil, nil, nil
	return &d
}

func newBench(t *testing.T) *bench { return newBenchOf(t, nil) }

func newBenchOf(t *testing.T, change func(*Config)) *bench {
	x := &bench{t: t, f: fabrictest.New(), now: time.Unix(1e9, 0)}
	cfg := Config{
		Name: "b1", Description: description(t), MAC: boards.NameMAC("b1"), Address: netip.MustParseAddr("10.0.0.1"),
		Open: func(boards.Aperture) (Registers, error) {
			x.opens++
			if x.err != nil {
				return nil, x.err
			}
			return registers{x.f}, nil
		},
		Now: func() time.Time { return x.now }, Sleep: func(d time.Duration) { x.now = x.now.Add(d) },
		NATS: &rocelink.Access{}, // events are queued; nothing connects before Run
	}
	if change != nil {
		change(&cfg)
	}
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	x.b = b
	return x
}

// run ticks for a time of the clock.
func (x *bench) run(d time.Duration) {
	for until := x.now.Add(d); x.now.Before(until); x.now = x.now.Add(tickEvery) {
		x.b.tick()
	}
}

func (x *bench) up() *bench {
	x.t.Helper()
	x.run(2 * time.Second)
	if s := x.b.Status(); !s.Fabric.Present || !s.Link.Up {
		x.t.Fatalf("not up: %+v", s)
	}
	return x
}

func (x *bench) ask(endpoint string, req, reply any) error {
	x.t.Helper()
	data, err := json.Marshal(req)
	if err != nil {
		x.t.Fatal(err)
	}
	out, err := x.b.Handle(endpoint, data)
	if err != nil {
		return err
	}
	if err := rocelink.Decode(out, reply); err != nil {
		x.t.Fatalf("%s: %v: %s", endpoint, err, out)
	}
	return nil
}

func openRequest(stream string) rocelink.OpenRequest {
	return rocelink.OpenRequest{
		Version: 1, Host: "h", Stream: stream, Verb: rocelink.VerbSend, QPN: 5, Address: "10.0.0.2", MAC: "02:00:00:00:00:02", MTU: 4096,
		Region: rocelink.Region{Slots: 8, Stride: 4096, FrameBytes: 4096}, Source: rocelink.Source{Kind: rocelink.SourceCounter},
	}
}

func (x *bench) running(stream string) rocelink.SessionRequest {
	x.t.Helper()
	var r rocelink.OpenReply
	if err := x.ask(rocelink.EndpointOpen, openRequest(stream), &r); err != nil {
		x.t.Fatal(err)
	}
	req := rocelink.SessionRequest{Version: 1, Session: r.Session, Epoch: r.Epoch, Ready: true}
	var st rocelink.StreamStatus
	if err := x.ask(rocelink.EndpointStart, req, &st); err != nil {
		x.t.Fatal(err)
	}
	return req
}

func wantCode(t *testing.T, what string, err error, want rocelink.Code) {
	t.Helper()
	if rocelink.CodeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func TestComesUp(t *testing.T) {
	x := newBench(t).up()
	s := x.b.Status()
	if s.Board != "b1" || s.Model != "demo" || s.Fabric.Version != "1.0" || s.Fabric.QueuePairs != fabrictest.QueuePairs ||
		s.Fabric.MaxMTU != 4096 || s.Fabric.Problem != "" || s.Link.State != string(link.Up) || s.Link.Status != "0x3" || s.Epoch == 0 {
		t.Errorf("%+v", s)
	}
	if _, ok := s.Fabric.Counters["rx_bad_icrc"]; !ok {
		t.Errorf("counters %v", s.Fabric.Counters)
	}
	if _, ok := s.Link.Counters["rsfec_corrected"]; !ok {
		t.Errorf("counters %v", s.Link.Counters)
	}
	if next := x.b.Status(); next.Sequence <= s.Sequence || next.Epoch != s.Epoch {
		t.Errorf("sequence %d after %d", next.Sequence, s.Sequence)
	}
	// The identity reached the fabric.
	if v := x.f.Get(0, regs.CoreLocalIP3); v != 0x0A000001 {
		t.Errorf("address %#x", v)
	}
}

// What must not be touched is not touched, and looked for less and less often.
func TestFabricMissing(t *testing.T) {
	for _, v := range []uint32{0, 0xFFFFFFFF} {
		x := newBench(t)
		x.f.Dead = &v
		x.run(60 * time.Second)
		s := x.b.Status()
		if s.Fabric.Present || !strings.Contains(s.Fabric.Problem, "fabric missing") || s.Link.Up {
			t.Errorf("%#x: %+v", v, s.Fabric)
		}
		if x.opens < 12 || x.opens > 20 {
			t.Errorf("%#x: looked %d times in a minute", v, x.opens)
		}
		if w := x.f.Writes(); len(w) != 0 {
			t.Errorf("%#x: wrote %v", v, w)
		}
		wantCode(t, "open", x.ask(rocelink.EndpointOpen, openRequest("s"), &rocelink.OpenReply{}), rocelink.CodeNoFabric)
		wantCode(t, "reset", x.ask(rocelink.EndpointReset, rocelink.ResetRequest{Version: 1}, &s), rocelink.CodeNoFabric)
		// It appears.
		x.f.Dead = nil
		x.run(lastBackoff)
		x.up()
	}
}

func TestRegistersCannotBeOpened(t *testing.T) {
	x := newBench(t)
	x.err = fmt.Errorf("map: %w", bsp.ErrPermission)
	x.run(time.Second)
	if s := x.b.Status(); s.Fabric.Present || !strings.Contains(s.Fabric.Problem, "not permitted") {
		t.Errorf("%+v", s.Fabric)
	}
	x.err = nil
	x.run(lastBackoff)
	x.up()
}

// The fabric restarts, disappears, or stops answering in the middle of a run.
func TestFabricLost(t *testing.T) {
	zero := uint32(0)
	for _, c := range []struct {
		name string
		lose func(*bench)
		back func(*bench)
	}{
		{"restart", func(x *bench) { x.f.Restart(2) }, func(*bench) {}},
		{"restart without a boot identifier", func(x *bench) { x.f.Restart(1) }, func(*bench) {}},
		{"identity gone", func(x *bench) { x.f.Dead = &zero }, func(x *bench) { x.f.Dead = nil; x.f.Restart(2) }},
		{"bus error", func(x *bench) { x.f.Fault = errors.New("bus error") }, func(x *bench) { x.f.Fault = nil }},
		{"commands hang", func(x *bench) { x.f.Hang = func(string, uint32, uint32) bool { return true } },
			func(x *bench) { x.f.Hang = nil; x.f.Set(0, regs.CoreCommand, 0); x.f.Set(0x1000, regs.CoreCommand, 0) }},
	} {
		x := newBench(t).up()
		req := x.running("s")
		before := x.b.Status()
		c.lose(x)
		x.run(sampleEvery + tickEvery)
		c.back(x)
		x.run(lastBackoff)
		x.up()
		s := x.b.Status()
		if s.Fabric.Restarts != 1 || s.Epoch == before.Epoch {
			t.Errorf("%s: restarts %d, epoch %d after %d", c.name, s.Fabric.Restarts, s.Epoch, before.Epoch)
		}
		if len(s.Streams) != 1 || s.Streams[0].State != rocelink.StreamClosed || !strings.Contains(s.Streams[0].Problem, "lost") {
			t.Errorf("%s: %+v", c.name, s.Streams)
		}
		if s.Link.Losses != 1 {
			t.Errorf("%s: %d link losses", c.name, s.Link.Losses)
		}
		wantCode(t, c.name, x.ask(rocelink.EndpointRenew, req, &rocelink.StreamStatus{}), rocelink.CodeOldEpoch)
		var st rocelink.StreamStatus
		if err := x.ask(rocelink.EndpointClose, req, &st); err != nil || st.State != rocelink.StreamClosed {
			t.Errorf("%s: close: %+v, %v", c.name, st, err)
		}
		x.running("s")
	}
}

// A fabric that does not end a command is switched off: it may still send.
func TestHangingFabricIsSwitchedOff(t *testing.T) {
	x := newBench(t).up()
	x.running("s")
	x.f.Hang = func(string, uint32, uint32) bool { return true }
	x.run(sampleEvery + tickEvery)
	if x.f.Get(0, regs.CoreControl) != 0 {
		t.Error("the core is still enabled")
	}
}

func TestLinkLossAndRecovery(t *testing.T) {
	x := newBench(t)
	x.f.SetRx(0xC0)
	x.run(2 * time.Second)
	s := x.b.Status()
	if s.Link.Up || !strings.Contains(s.Link.Problem, "signal") || !s.Fabric.Present {
		t.Errorf("%+v", s.Link)
	}
	wantCode(t, "open", x.ask(rocelink.EndpointOpen, openRequest("s"), &rocelink.OpenReply{}), rocelink.CodeLinkDown)
	x.f.SetRx(fabrictest.GoodRx)
	x.up()
	x.f.SetRx(0x20)
	x.run(time.Second)
	if s := x.b.Status(); s.Link.Up || s.Link.Losses != 1 {
		t.Errorf("%+v", s.Link)
	}
	x.f.SetRx(fabrictest.GoodRx)
	x.up()
}

// A MAC that does not answer keeps the streams closed, not the board.
func TestMACMissing(t *testing.T) {
	x := newBench(t)
	x.f.Set(fabrictest.CMACBase, regs.CMACCoreVersion, 0)
	x.run(3 * time.Second)
	s := x.b.Status()
	if !s.Fabric.Present || s.Link.Up || !strings.Contains(s.Link.Problem, "CMAC missing") {
		t.Errorf("%+v %+v", s.Fabric, s.Link)
	}
	x.f.Set(fabrictest.CMACBase, regs.CMACCoreVersion, 0x0301)
	x.run(macRetry)
	x.up()
}

func TestLeaseLapsesOnTheBoard(t *testing.T) {
	x := newBench(t).up()
	x.running("s")
	x.run(rocelink.DefaultLeaseMillis*time.Millisecond + tickEvery)
	s := x.b.Status()
	if len(s.Streams) != 1 || s.Streams[0].State != rocelink.StreamClosed || !strings.Contains(s.Streams[0].Problem, "lease") {
		t.Errorf("%+v", s.Streams)
	}
	if qp, st := x.f.States(0); qp != 0 || st != 0 {
		t.Errorf("left in the fabric: %d, %d", qp, st)
	}
}

func TestReset(t *testing.T) {
	x := newBench(t).up()
	req := x.running("s")
	var s rocelink.BoardStatus
	if err := x.ask(rocelink.EndpointReset, rocelink.ResetRequest{Version: 1, Reason: "test"}, &s); err != nil {
		t.Fatal(err)
	}
	if s.Epoch == req.Epoch || s.Link.Up || !s.Fabric.Present || s.Fabric.Restarts != 0 {
		t.Errorf("%+v", s)
	}
	wantCode(t, "renew", x.ask(rocelink.EndpointRenew, req, &rocelink.StreamStatus{}), rocelink.CodeOldEpoch)
	x.up()
	x.running("s")
}

func TestReadRegister(t *testing.T) {
	x := newBench(t).up()
	for _, c := range []struct {
		block, reg string
		code       rocelink.Code
		value      rocelink.Count
	}{
		{"Core", "Ident", "", regs.IdentCore},
		{"Stream", "Ident", "", regs.IdentStream},
		{"Core", "LocalIP3", "", 0x0A000001},
		{"CMAC", "CoreVersion", "", 0x0301},
		{"CMAC", "RxPackets", "", 0},
		{"CMAC", "StatRx", rocelink.CodeUnsupported, 0},
		{"CMAC", "Tick", rocelink.CodeUnsupported, 0},
		{"CMAC", "GTReset", rocelink.CodeUnsupported, 0},
		{"Core", "Command", rocelink.CodeUnsupported, 0},
		{"Core", "Nothing", rocelink.CodeBadRequest, 0},
		{"MRMAC", "Ident", rocelink.CodeBadRequest, 0},
		{"", "", rocelink.CodeBadRequest, 0},
	} {
		reads := x.f.Reads(fabrictest.CMACBase, regs.CMACStatRx)
		var r rocelink.RegisterReply
		err := x.ask(rocelink.EndpointReadRegister, rocelink.RegisterRequest{Version: 1, Block: c.block, Register: c.reg}, &r)
		if rocelink.CodeOf(err) != c.code || r.Value != c.value {
			t.Errorf("%s.%s: %+v, %v", c.block, c.reg, r, err)
		}
		if x.f.Reads(fabrictest.CMACBase, regs.CMACStatRx) != reads {
			t.Errorf("%s.%s: read a register with side effects", c.block, c.reg)
		}
	}
	// Where the core has no RS-FEC its registers are a bus error.
	y := newBench(t)
	y.b.cfg.FEC = boards.FECNone
	y.f.HasFEC = false
	y.up()
	err := y.ask(rocelink.EndpointReadRegister, rocelink.RegisterRequest{Version: 1, Block: "CMAC", Register: "RSFECConfig"}, &rocelink.RegisterReply{})
	wantCode(t, "RS-FEC", err, rocelink.CodeUnsupported)
}

// Whatever arrives, the answer is a refusal with a code, and nothing is
// written.
func TestMalformedRequests(t *testing.T) {
	x := newBench(t).up()
	x.f.Writes()
	big := `{"version":1,"host":"` + strings.Repeat("x", rocelink.MaxRecord) + `"}`
	for _, data := range []string{
		"", "{", "null", "[]", "7", `"x"`, "{}", `{"version":0}`, `{"version":2}`, `{"version":"1"}`,
		`{"version":1,"session":"-1","qpn":-1,"reason":[],"block":7}`, `{"version":1,"session":1e99,"qpn":"2","reason":7,"register":{}}`, `{"version":1,"qpn":4294967296,"session":"x","reason":7,"block":[]}`,
		"\xff\xfe", big,
	} {
		for name := range endpoints {
			if name == rocelink.EndpointStatus && (data == "" || strings.HasPrefix(data, `{"version":1`) && len(data) < 1000) {
				continue
			}
			out, err := x.b.Handle(name, []byte(data))
			if rocelink.CodeOf(err) != rocelink.CodeBadRequest || out != nil {
				t.Errorf("%s %.60q: %s, %v", name, data, out, err)
			}
		}
	}
	if w := x.f.Writes(); len(w) != 0 {
		t.Errorf("wrote %v", w)
	}
	_, err := x.b.Handle("format-disk", nil)
	wantCode(t, "unknown endpoint", err, rocelink.CodeUnsupported)
}

func FuzzHandle(f *testing.F) {
	for _, r := range []any{openRequest("s"), rocelink.SessionRequest{Version: 1, Session: 1, Epoch: 1}, rocelink.ResetRequest{Version: 1}, rocelink.RegisterRequest{Version: 1, Block: "Core", Register: "Ident"}} {
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("{"))
	var names []string
	for n := range endpoints {
		names = append(names, n)
	}
	slices.Sort(names)
	f.Fuzz(func(t *testing.T, data []byte) {
		x := newBench(t).up()
		for _, n := range names {
			out, err := x.b.Handle(n, data)
			if (out == nil) == (err == nil) || err != nil && rocelink.CodeOf(err) == "" {
				t.Fatalf("%s: %s, %v", n, out, err)
			}
		}
		if err := x.b.hw.core.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestConfig(t *testing.T) {
	good := func() Config {
		return Config{Name: "b", Description: description(t), MAC: boards.NameMAC("b"), Address: netip.MustParseAddr("10.0.0.1")}
	}
	if _, err := New(good()); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"name":        func(c *Config) { c.Name = "" },
		"description": func(c *Config) { c.Description = nil },
		"MAC":         func(c *Config) { c.MAC[0] = 1 },
		"address":     func(c *Config) { c.Address = netip.Addr{} },
		"MTU":         func(c *Config) { c.MTU = 1500 },
		"FEC":         func(c *Config) { c.FEC = "hamming" },
		"MAC driver":  func(c *Config) { d := *c.Description; d.MAC.Driver = "none"; c.Description = &d },
	} {
		c := good()
		spoil(&c)
		if b, err := New(c); err == nil || b != nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
