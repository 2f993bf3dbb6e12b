package boot

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// A new image that does not report in is left to the boot loader; one that does
// stays, however boardd fares afterwards.
func TestTrial(t *testing.T) {
	for _, c := range []struct {
		name, slot string
		confirm    bool
		reboots    bool
	}{
		{"not confirmed", "b,trial", false, true},
		{"confirmed", "b,trial", true, false},
		{"not on trial", "b", false, false},
		{"one slot", "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			if c.slot != "" {
				m.file("/proc/cmdline", goodLine+" rocelink.slot="+c.slot)
			}
			m.boot(func() {
				name, _, _ := strings.Cut(c.slot, ",")
				if got := m.env(daemonPath, "ROCELINK_SLOT"); got != name {
					t.Errorf("boardd was told slot %q, want %q", got, name)
				}
				m.pass(trialTime - time.Second)
				if m.count("reset") != 0 {
					t.Error("reset before its time")
				}
				if c.confirm {
					if got := m.ask("confirm"); got != "ok" {
						t.Errorf("confirm: %q", got)
					}
				}
				m.pass(time.Minute)
				if got := m.count("reset reboot") != 0; got != c.reboots {
					t.Errorf("reboot %v, want %v", got, c.reboots)
				}
			})
		})
	}
}

// What is wrong with the system does not keep the senders off; what is wrong
// with the configuration does.
func TestFaultsAreNoProblems(t *testing.T) {
	m := newMachine(t)
	m.fail["mount tmpfs on /tmp"] = errFake
	m.boot(func() {
		if p := m.env(daemonPath, "ROCELINK_PROBLEM"); p != "" {
			t.Errorf("problem %q", p)
		}
		if f := m.env(daemonPath, "ROCELINK_FAULTS"); !strings.Contains(f, "/tmp") {
			t.Errorf("faults %q", f)
		}
		if !m.regs.on() {
			t.Error("the sender is off")
		}
	})
	m = newMachine(t)
	m.file("/proc/cmdline", goodLine+" rocelink.colour=red")
	m.boot(func() {
		if p := m.env(daemonPath, "ROCELINK_PROBLEM"); !strings.Contains(p, "colour") {
			t.Errorf("problem %q", p)
		}
		if m.regs.on() {
			t.Error("the sender is on")
		}
	})
}

// The NATS server's time is taken for want of a better one, and within bounds.
func TestOfferedTime(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", goodLine+" rocelink.ntp=none")
	m.file("/etc/rocelink/build.json", `{"time":946684900}`)
	offer := func(at time.Time) string { return m.ask("time " + strconv.FormatInt(at.UnixMilli(), 10)) }
	m.boot(func() {
		floor := time.Unix(946684900, 0)
		for _, at := range []time.Time{floor.Add(-time.Second), floor.Add(maxOffer + time.Hour), {}} {
			if got := offer(at); !strings.HasPrefix(got, "error") {
				t.Errorf("%v: %s", at, got)
			}
		}
		if got := m.ask("time soon"); !strings.HasPrefix(got, "error") {
			t.Error(got)
		}
		if m.status().ClockSet {
			t.Error("the clock is said to be right")
		}
		right := floor.Add(1000 * time.Hour)
		if got := offer(right); got != "ok" || !m.status().ClockSet {
			t.Errorf("%s, %+v", got, m.status())
		}
		if n := len(m.set); n == 0 || m.set[n-1].Sub(right).Abs() > time.Second {
			t.Errorf("set to %v", m.set)
		}
		if got := offer(right.Add(time.Hour)); !strings.HasPrefix(got, "error") {
			t.Errorf("a second time: %s", got)
		}
	})
}
