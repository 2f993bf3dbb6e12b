package boot

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func TestClockFloor(t *testing.T) {
	for _, c := range []struct {
		build string
		set   int64 // 0: the clock is left alone
	}{
		{`{"time":946684900}`, 946684900}, // the bubble's clock is at 946684800
		{`{"time":946684700}`, 0},
		{`{}`, 0},
		{`{"time":-1}`, 0},
		{`{"time":99999999999999}`, 0},
		{`nonsense`, 0},
	} {
		m := newMachine(t)
		m.file("/proc/cmdline", goodLine+" rocelink.ntp=none")
		m.file("/etc/rocelink/build.json", c.build)
		m.boot(func() {
			if c.set == 0 && len(m.set) != 0 || c.set != 0 && (len(m.set) != 1 || m.set[0].Unix() != c.set) {
				t.Errorf("%s: set to %v", c.build, m.set)
			}
			if len(m.programs()) != 1 {
				t.Errorf("%s: no boardd", c.build)
			}
		})
	}
}

func TestClockIsSetOnceThereIsANetwork(t *testing.T) {
	m := newMachine(t)
	m.ports[1].Carrier = false
	m.behind = 26 * 365 * 24 * time.Hour
	m.boot(func() {
		m.pass(time.Hour)
		if m.count("ask time") != 0 || m.status().ClockSet {
			t.Error("asked without a network")
		}
		if _, err := os.Stat(m.root + clockFile); err == nil {
			t.Error("the clock is said to be right")
		}
		m.carrier("eth0", true)
		if m.count("ask time 10.0.2.2") != 1 || len(m.set) != 1 || !m.status().ClockSet {
			t.Errorf("asked %d times, set %v", m.count("ask time"), m.set)
		}
		if d := m.set[0].Sub(m.began); d < m.behind || d > m.behind+2*time.Hour {
			t.Errorf("set to %v", m.set[0])
		}
		if _, err := os.Stat(m.root + clockFile); err != nil {
			t.Error(err)
		}
		// Small differences are left alone, and looked at rarely.
		m.mu.Lock()
		m.behind = time.Millisecond
		m.mu.Unlock()
		m.pass(time.Hour)
		if n := m.count("ask time"); n != 7 || len(m.set) != 1 {
			t.Errorf("asked %d times, set %d times", n, len(m.set))
		}
	})
}

func TestTimeThatCannotBe(t *testing.T) {
	m := newMachine(t)
	m.behind = -time.Hour // before the image was made
	m.boot(func() {
		m.pass(time.Minute)
		if len(m.set) != 0 || m.status().ClockSet {
			t.Errorf("set to %v", m.set)
		}
		if !strings.Contains(m.text(), "before this image was made") {
			t.Errorf("console:\n%s", m.text())
		}
	})
}

func TestTimeServers(t *testing.T) {
	for line, want := range map[string][]string{
		"":                            {"ask time 10.0.2.2"},
		" rocelink.ntp=a,b":           {"ask time a", "ask time b"},
		" rocelink.ntp=none":          nil,
		" rocelink.nats=none":         nil,
		" rocelink.nats=x:1,nats://y": {"ask time x", "ask time y"},
	} {
		m := newMachine(t)
		m.file("/proc/cmdline", goodLine+line)
		m.fail["ask time"] = errFake
		m.boot(func() { m.pass(time.Second) })
		if len(want) != m.count("ask time") {
			t.Errorf("%q: %q", line, m.log())
		}
		inOrder(t, m.log(), want...)
	}
	m := newMachine(t)
	m.file("/proc/cmdline", dhcpLine)
	m.fail["ask time 10.0.2.2"] = errFake
	l := lease("10.0.2.15/24", time.Hour, 2*time.Hour)
	m.lease = func(context.Context, *Lease) (*Lease, error) { return l, nil }
	m.boot(func() { m.pass(time.Second) })
	if m.count("ask time 10.0.2.4") != 1 || m.count("ask time 10.0.2.2") != 0 {
		t.Errorf("%q", m.log())
	}
}

// Tries are bounded in number, too.
func TestTimeServerThatIsAway(t *testing.T) {
	m := newMachine(t)
	m.fail["ask time"] = errFake
	m.boot(func() {
		m.pass(10 * time.Minute)
		if n := m.count("ask time"); n < 8 || n > 20 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		if n := strings.Count(m.text(), "clock err"); n > 1 {
			t.Errorf("told %d times", n)
		}
	})
}
