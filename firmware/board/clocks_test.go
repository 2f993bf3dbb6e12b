package board

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/i2c"

	"rocelink/boards"
	"rocelink/firmware/wiring"
)

// level is a GPIO chip whose lines are all at one level.
type level struct {
	gpio.PinIO
	is gpio.Level
}

func (l *level) Read() gpio.Level              { return l.is }
func (l *level) Pin(int) (gpio.PinIO, error)   { return l, nil }
func (l *level) In(gpio.Pull, gpio.Edge) error { return nil }

func si570Bus() *clockBus {
	b := &clockBus{there: true}
	copy(b.regs[7:], []byte{0x01, 0xC2, 0xBC, 0x01, 0x1E, 0xB8}) // see TestClockComesFirst
	return b
}

// From the description to the status, the lock line is inverted once, and a loss of
// lock is seen and mended.
func TestClockLockLine(t *testing.T) {
	for _, low := range []bool{false, true} {
		bus, line := si570Bus(), &level{is: gpio.Level(!low)}
		d := *description(t)
		d.I2C, d.GPIO = []boards.I2C{{Name: "i2c0"}}, []boards.GPIO{{Name: "g"}}
		d.Clocks = []boards.Clock{{
			Name: "ref", Driver: "si570", I2C: "i2c0", Address: 0x5D, Hz: 156.25e6, Factory: 156.25e6,
			Lock: &boards.Line{GPIO: "g", ActiveLow: low},
		}}
		x := newBenchOf(t, func(c *Config) {
			c.Description, c.Run = &d, t.TempDir()
			c.Wiring = wiring.Config{
				I2C:  func(boards.I2C) (i2c.Bus, error) { return bus, nil },
				GPIO: func(boards.GPIO) (wiring.Lines, error) { return line, nil },
			}
		})
		locked := func(want bool) {
			t.Helper()
			c := x.b.Status().Clocks[0]
			if c.Locked == nil || *c.Locked != want || (c.Problem == "") != want {
				t.Errorf("active low %v: %+v, want locked %v", low, c, want)
			}
		}
		x.run(time.Second)
		locked(true)
		line.is = !line.is
		x.run(2 * time.Second)
		locked(false)
		line.is = !line.is
		x.run(10 * time.Second)
		locked(true)
	}
}

// A board whose program starts again leaves a clock that runs alone.
func TestClockOutlivesTheProgram(t *testing.T) {
	bus, run := si570Bus(), t.TempDir()
	d := *description(t)
	d.I2C = []boards.I2C{{Name: "i2c0"}}
	d.Clocks = []boards.Clock{{Name: "ref", Driver: "si570", I2C: "i2c0", Address: 0x5D, Hz: 156.25e6, Factory: 156.25e6}}
	for n := range 2 {
		bus.writes = 0
		x := newBenchOf(t, func(c *Config) {
			c.Description, c.Run = &d, run
			c.Wiring = wiring.Config{I2C: func(boards.I2C) (i2c.Bus, error) { return bus, nil }}
		})
		x.run(2 * time.Second)
		if c := x.b.Status().Clocks[0]; c.Problem != "" || c.Hz != 156.25e6 || (bus.writes == 0) != (n == 1) {
			t.Errorf("start %d: %+v after %d writes", n, c, bus.writes)
		}
	}
	if _, err := os.Stat(filepath.Join(run, "clock-ref")); err != nil {
		t.Error(err)
	}
}

// Clocks are set in the order of the description, and one that fails does not keep
// the next from being set. The status says which.
func TestClockOrder(t *testing.T) {
	var order []string
	buses := map[string]*clockBus{"a": {}, "b": si570Bus()}
	d := *description(t)
	d.I2C = []boards.I2C{{Name: "a"}, {Name: "b"}}
	for _, name := range []string{"a", "b"} {
		d.Clocks = append(d.Clocks, boards.Clock{Name: name, Driver: "si570", I2C: name, Address: 0x5D, Hz: 156.25e6, Factory: 156.25e6})
	}
	x := newBenchOf(t, func(c *Config) {
		c.Description = &d
		c.Wiring = wiring.Config{I2C: func(i boards.I2C) (i2c.Bus, error) {
			order = append(order, i.Name)
			if buses[i.Name] == nil {
				return nil, errors.New("no such bus")
			}
			return buses[i.Name], nil
		}}
	})
	x.run(2 * time.Second)
	s := x.b.Status()
	if strings.Join(order, "") != "ab" || len(s.Clocks) != 2 || s.Clocks[0].Problem == "" || s.Clocks[1].Problem != "" || !strings.Contains(s.Link.Problem, "clock a") {
		t.Errorf("opened %q: %+v, %q", order, s.Clocks, s.Link.Problem)
	}
}
