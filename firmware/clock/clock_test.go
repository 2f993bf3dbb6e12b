package clock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/i2c/i2ctest"
	"periph.io/x/conn/v3/physic"

	"rocelink/boards"
)

// part is a Si570 with a life: dividers, freeze and bits that clear themselves.
type part struct {
	factory, held [6]byte
	control       byte
	frozen, stuck bool
	writes        int
	fail          int // fails this write; 0: none
}

func (p *part) String() string                  { return "part" }
func (p *part) SetSpeed(physic.Frequency) error { return nil }
func (p *part) Tx(addr uint16, w, r []byte) error {
	if addr != 0x5D || len(w) == 0 {
		return errors.New("no acknowledge")
	}
	if len(r) > 0 {
		switch w[0] {
		case 7:
			copy(r, p.held[:])
		case 135:
			r[0] = p.control
		case 137:
			if p.frozen {
				r[0] = si570FreezeIt
			}
		}
		return nil
	}
	if p.writes++; p.writes == p.fail {
		return errors.New("no acknowledge")
	}
	switch w[0] {
	case 7:
		if !p.frozen {
			return errors.New("written while it oscillates")
		}
		copy(p.held[:], w[1:])
	case 135:
		if w[1]&si570Recall != 0 {
			p.held = p.factory
		}
		if p.control = 0; p.stuck {
			p.control = w[1]
		}
	case 137:
		p.frozen = w[1]&si570FreezeIt != 0
	}
	return nil
}

func newPart(fxtal, hz float64) *part {
	d, err := choose(hz, fxtal)
	if err != nil {
		panic(err)
	}
	return &part{factory: d.encode(), held: [6]byte{0xFF}}
}

// life is a clock that only Sleep moves.
func life() Config {
	now := time.Unix(1, 0)
	return Config{Now: func() time.Time { return now }, Sleep: func(d time.Duration) { now = now.Add(d) }}
}

// The crystal differs from part to part; what comes out must not.
func TestSi570(t *testing.T) {
	for _, fxtal := range []float64{114.285e6, 114.2e6, 114.37e6} {
		for _, hz := range []float64{156.25e6, 322.265625e6, 148.5e6, 10e6, 945e6} {
			p := newPart(fxtal, 300e6)
			c, err := New(boards.Clock{Name: "mgt", Driver: "si570", Address: 0x5D, Hz: hz, Factory: 300e6}, p, life())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Configure(t.Context()); err != nil {
				t.Fatalf("%g with a crystal of %g: %v", hz, fxtal, err)
			}
			d, err := decode(p.held)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.output(fxtal); math.Abs(got/hz-1) > 1e-8 {
				t.Errorf("%g: %g comes out", hz, got)
			}
			if dco := d.output(fxtal) * float64(d.hs*d.n1); dco < dcoMin || dco > dcoMax*(1+1e-9) {
				t.Errorf("%g: oscillator at %g", hz, dco)
			}
			if s := c.State(); p.frozen || s.Hz != hz || s.Locked != nil || s.Problem != "" {
				t.Errorf("%g: %+v, frozen %v", hz, s, p.frozen)
			}
		}
	}
}

func TestSi570Refuses(t *testing.T) {
	desc := boards.Clock{Name: "mgt", Driver: "si570", Address: 0x5D, Hz: 156.25e6, Factory: 300e6}
	for name, c := range map[string]struct {
		change func(*part, *boards.Clock)
		want   string
	}{
		"another default":  {func(_ *part, d *boards.Clock) { d.Factory = 148.5e6 }, "not that of this part"},
		"no part":          {func(_ *part, d *boards.Clock) { d.Address = 0x5E }, "no acknowledge"},
		"stuck":            {func(p *part, _ *boards.Clock) { p.stuck = true }, "still set"},
		"nothing sensible": {func(p *part, _ *boards.Clock) { p.factory = [6]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF} }, "want 114.285"},
		"out of reach":     {func(_ *part, d *boards.Clock) { d.Hz = 1e6 }, "cannot be reached"},
	} {
		p, d := newPart(crystal, 300e6), desc
		c.change(p, &d)
		k, err := New(d, p, life())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Configure(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || k.State().Problem != err.Error() {
			t.Errorf("%s: %v, state %+v", name, err, k.State())
		}
		if p.frozen {
			t.Errorf("%s: left without a clock", name)
		}
	}
	// Whichever write fails, the oscillator is not left frozen, unless letting
	// go of it is what fails.
	for n := 1; n <= 5; n++ {
		p := newPart(crystal, 300e6)
		p.fail = n
		k, _ := New(desc, p, life())
		if err := k.Configure(t.Context()); err == nil {
			t.Errorf("write %d failed without an error", n)
		}
		if p.frozen && n != 4 {
			t.Errorf("write %d failed and left the oscillator frozen", n)
		}
	}
}

// A part that runs as it was set is left alone, whoever looks: this Clock or one of
// a program that was started again. Anything else sets it anew.
func TestSi570RunsAlready(t *testing.T) {
	desc := boards.Clock{Name: "mgt", Driver: "si570", Address: 0x5D, Hz: 156.25e6, Factory: 300e6}
	record := filepath.Join(t.TempDir(), "run", "mgt")
	p := newPart(crystal, 300e6)
	again := func(d boards.Clock, record string) int {
		t.Helper()
		cfg := life()
		cfg.Record = record
		c, err := New(d, p, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.writes = 0
		if err := c.Configure(t.Context()); err != nil || c.State().Hz != d.Hz {
			t.Fatalf("%v, %+v", err, c.State())
		}
		first := p.writes
		if err := c.Configure(t.Context()); err != nil || p.writes != first {
			t.Errorf("%v, %d writes to a clock that runs", err, p.writes-first)
		}
		return first
	}
	if again(desc, record) == 0 {
		t.Error("a part just powered was not set")
	}
	if n := again(desc, record); n != 0 {
		t.Errorf("%d writes after a restart of the program", n)
	}
	other := desc
	other.Hz = 322.265625e6
	for name, f := range map[string]func() int{
		"another frequency": func() int { return again(other, record) },
		"no record":         func() int { return again(desc, "") },
		"a broken record": func() int {
			if err := os.WriteFile(record, []byte("si570"), 0o600); err != nil {
				t.Fatal(err)
			}
			return again(desc, record)
		},
		"power cycled": func() int { p.held = p.factory; return again(desc, record) },
		"frozen":       func() int { p.frozen = true; return again(desc, record) },
	} {
		again(desc, record)
		if f() == 0 || p.frozen {
			t.Errorf("%s: not set anew", name)
		}
	}
	// One that failed half way is not believed.
	p.held, p.writes, p.fail = p.factory, 0, 3
	cfg := life()
	cfg.Record = record
	c, _ := New(desc, p, cfg)
	if err := c.Configure(t.Context()); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record stays: %v", err)
	}
}

// pin is an input at a level.
type pin struct {
	gpio.PinIn
	level gpio.Level
}

func (p pin) Read() gpio.Level { return p.level }

// The lock line is inverted once: by its own polarity, from the level of the pin.
func TestLockLine(t *testing.T) {
	for _, low := range []bool{false, true} {
		for _, level := range []gpio.Level{gpio.Low, gpio.High} {
			cfg := life()
			cfg.Lock = pin{level: level}
			d := boards.Clock{Name: "mgt", Driver: "si570", Address: 0x5D, Hz: 156.25e6, Factory: 300e6, Lock: &boards.Line{GPIO: "g", ActiveLow: low}}
			c, err := New(d, newPart(crystal, 300e6), cfg)
			if err != nil {
				t.Fatal(err)
			}
			want := bool(level) != low
			err = c.Configure(t.Context())
			if s := c.State(); s.Locked == nil || *s.Locked != want || (err == nil) != want {
				t.Errorf("active low %v, level %v: %v, %+v", low, level, err, s)
			}
		}
	}
}

// Waits of any length end with the context.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, d := range map[string]boards.Clock{
			"delay of a script": {Name: "a", Driver: "script", Part: "si5345", Address: 0x68, Script: "/s"},
			"lock":              {Name: "a", Driver: "si570", Address: 0x5D, Hz: 156.25e6, Factory: 300e6},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			start := time.Now()
			var bus i2c.Bus = newPart(crystal, 300e6)
			if d.Part != "" {
				bus = &i2ctest.Record{}
			}
			c, err := New(d, bus, Config{
				ReadFile: func(string) ([]byte, error) { return []byte("# Delay 300 msec\n0x0006,0x00\n"), nil },
				Lock:     pin{},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Configure(ctx); !errors.Is(err, context.Canceled) || time.Since(start) != 100*time.Millisecond {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
		}
	})
}

const silabsCSV = "# Part: Si5345\n# Start configuration preamble\n0x0B24,0xC0\n0x0B25,0x00\n# End configuration preamble\n# Delay 300 msec\n0x0006,0x00\n# Start configuration postamble\n0x001C,0x01\n# End configuration postamble\n"

const silabsHeader = "/*\n * Part:  Si5345 Rev D\n */\n#define N 4\ntypedef struct\n{\n\tunsigned int address;\n} x_t;\n\nx_t const x[N] =\n{\n\n\t/* Start configuration preamble */\n\t{ 0x0B24, 0xC0 },\n\t{ 0x0B25, 0x00 },\n\t/* Delay 300 msec */\n\t/* more words */\n\t{ 0x0006, 0x00 },\n\t{ 0x001C, 0x01 }\n\t/* End configuration postamble */\n};\n/* a report\n 0x1234 in words\n*/\n"

func TestScripts(t *testing.T) {
	for name, text := range map[string]string{"CSV": silabsCSV, "header": silabsHeader} {
		steps, err := parse("si5345", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := fmt.Sprint(steps); got != "[{2852 [192] 0} {2853 [0] 0} {0 [] 300000000} {6 [0] 0} {28 [1] 0}]" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, c := range []struct{ part, text, want string }{
		{"si5341", silabsCSV, "line 1: is for Si5345"},
		{"si5345", strings.Split(silabsCSV, "# End configuration post")[0], "cut off"},
		{"si5345", strings.Split(silabsHeader, "};\n/*")[0], "cut off"},
		{"si5345", "0x0B24,0xC0\n0x0B25;0x00", "line 2"},
		{"si5345", "0x0B24,0x1C0", "line 1"},
		{"si5345", "0x0001,0x02", "page register"},
		{"si5345", "# Delay 3 sec", "line 1: waits 3s"},
		{"si5345", "", "no register"},
		{"8a34001", "Size: 0x2, Offset: C010, Data: 0x01", "line 1: size 2"},
		{"8a34001", "Size: 0x2, Offset: 00FF, Data: 0x0102", "end of a page"},
		{"lmx2594", "R0\t0x802410", "reads a register"},
		{"lmx2594", "R0\t0x01002410", "24 bits"},
		{"lmk04828", "R0 (INIT) 90", "line 1"},
	} {
		if _, err := parse(c.part, []byte(c.text)); !errors.Is(err, ErrScript) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.part, c.text, err, c.want)
		}
	}
}

func playback(t *testing.T, d boards.Clock, text string, ops ...i2ctest.IO) (*Clock, error) {
	t.Helper()
	bus := &i2ctest.Playback{Ops: ops, DontPanic: true}
	cfg := life()
	cfg.ReadFile = func(string) ([]byte, error) { return []byte(text), nil }
	c, err := New(d, bus, cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Configure(t.Context())
	if e := bus.Close(); e != nil {
		t.Error(e)
	}
	return c, err
}

func w(addr uint16, b ...byte) i2ctest.IO { return i2ctest.IO{Addr: addr, W: b} }
func rd(addr uint16, reg, v byte) i2ctest.IO {
	return i2ctest.IO{Addr: addr, W: []byte{reg}, R: []byte{v}}
}

func TestLoad(t *testing.T) {
	si := boards.Clock{Name: "a", Driver: "script", Part: "si5345", Address: 0x68, Script: "/s", Hz: 156.25e6}
	c, err := playback(t, si, silabsCSV,
		w(0x68, 1, 0x0B), w(0x68, 0x24, 0xC0), w(0x68, 0x25, 0), w(0x68, 1, 0), w(0x68, 6, 0), w(0x68, 0x1C, 1),
		w(0x68, 1, 0), rd(0x68, 0x0C, 1), // still calibrating
		w(0x68, 1, 0), rd(0x68, 0x0C, 0), w(0x68, 1, 0), rd(0x68, 0x0E, 0))
	if s := c.State(); err != nil || s.Locked == nil || !*s.Locked || s.Hz != 156.25e6 {
		t.Errorf("%v, %+v", err, s)
	}
	// A script with a fault in its last line writes nothing.
	if c, err := playback(t, si, silabsCSV+"rubbish"); !errors.Is(err, ErrScript) || c.State().Problem == "" {
		t.Error(err)
	}
	re := boards.Clock{Name: "b", Driver: "script", Part: "8a34001", Address: 0x5B, Script: "/s"}
	if c, err := playback(t, re, "Size: 0x2, Offset: C010, Data: 0x0102\n",
		w(0x5B, 0xFC, 0, 0xC0, 0x10, 0x20), w(0x5B, 0x10, 1, 2)); err != nil || c.State().Locked != nil {
		t.Error(err)
	}
	ti := boards.Clock{Name: "c", Driver: "script", Part: "lmk04208", Bridge: 0x2F, Select: 2, Script: "/s"}
	if _, err := playback(t, ti, "R0 (INIT)\t0x00160040\n", w(0x2F, 0xF0, 0), w(0x2F, 2, 0, 0x16, 0, 0x40)); err != nil {
		t.Error(err)
	}
}

func TestNoLock(t *testing.T) {
	d := boards.Clock{Name: "a", Driver: "script", Part: "si5341", Address: 0x36, Script: "/s"}
	ops := []i2ctest.IO{w(0x36, 1, 0), w(0x36, 6, 0)}
	for range 201 {
		ops = append(ops, w(0x36, 1, 0), rd(0x36, 0x0C, 8))
	}
	c, err := playback(t, d, "0x0006,0x00", ops...)
	if s := c.State(); !errors.Is(err, ErrLock) || s.Locked == nil || *s.Locked || s.Problem == "" {
		t.Errorf("%v, %+v", err, s)
	}
}

// Whatever a script holds, it is refused or can be written: registers within
// their width, bounded waits.
func FuzzScript(f *testing.F) {
	for _, s := range []string{silabsCSV, silabsHeader, "Size: 0x2, Offset: C010, Data: 0x0102", "R0 (INIT)\t0x000090\nR383\t0x017F0B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for part := range drivers {
			steps, err := parse(part, []byte(text))
			if (err == nil) == (len(steps) == 0) {
				t.Fatalf("%d steps with %v", len(steps), err)
			}
			for _, s := range steps {
				if s.register > 0xFFFF || s.wait > maxDelay || (len(s.data) == 0) == (s.wait == 0) && s.register != 0 {
					t.Fatalf("%+v", s)
				}
			}
		}
	})
}
