package boot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink/boards"
	"rocelink/firmware/boot/control"
)

// inOrder checks that the calls happened in that order, others between.
func inOrder(t *testing.T, log []string, want ...string) {
	t.Helper()
	at := 0
	for _, c := range log {
		if at < len(want) && strings.HasPrefix(c, want[at]) {
			at++
		}
	}
	if at < len(want) {
		t.Errorf("%q is missing or out of order in:\n%s", want[at], strings.Join(log, "\n"))
	}
}

func TestOrder(t *testing.T) {
	m := newMachine(t)
	m.file(moduleList, "# in order\nkernel/drivers/net/phy/libphy.ko\n\nkernel/fs/fat/vfat.ko\n")
	m.file("/proc/cmdline", strings.Replace(goodLine, "card=none", "card=2s", 1))
	m.card = map[string]string{}
	m.boot(func() {
		if !m.regs.on() {
			t.Error("the sender was switched off although nothing is wrong")
		}
		for flag, want := range map[string]string{
			"--board": boardFile, "--name": "alpha", "--nats": "nats://10.0.2.2:4222", "--address": "10.9.0.2", "--registers": "",
		} {
			if got := m.flag(flag); got != want {
				t.Errorf("boardd %s %q, want %q", flag, got, want)
			}
		}
		if p := m.told(); p != "" {
			t.Errorf("problem: %s", p)
		}
		if m.env(daemonPath, "ROCELINK_INIT") != socketPath || m.env(daemonPath, "ROCELINK_CLOCK") != clockFile {
			t.Errorf("environment: %v", m.programs()[0].Env)
		}
	})
	inOrder(t, m.log(),
		"mount proc on /proc", "mount sysfs on /sys", "mount devtmpfs on /dev", "mount devpts on /dev/pts",
		"mount tmpfs on /dev/shm", "mount tmpfs on /run", "mount tmpfs on /tmp",
		"kernel log", "module /lib/modules/kernel/drivers/net/phy/libphy.ko", "module /lib/modules/kernel/fs/fat/vfat.ko",
		"volume ROCELINK", "mount vfat on /run/rocelink/card", "unmount /run/rocelink/card",
		"hostname alpha", "watchdog 15s", "listen /run/rocelink/init.sock", "start /bin/boardd",
		"terminate /bin/boardd", "map /dev/mem 0x70000000 0x20000", "sync",
		"unmount /tmp", "unmount /run", "unmount /dev/shm", "unmount /dev/pts", "unmount /dev", "unmount /sys", "unmount /proc",
		"disarm", "reset power-off")
	inOrder(t, m.log(), "up 1", "up 2", "address 2 10.0.2.15/24", "gateway 2 10.0.2.2")
	if log := m.log(); log[len(log)-1] != "reset power-off" {
		t.Errorf("the last call was %q", log[len(log)-1])
	}
	if m.regs.on() {
		t.Error("the sender is on after the end")
	}
	if !strings.Contains(m.kernel.String(), "boardd started") || !strings.Contains(m.console.String(), "boardd started") {
		t.Errorf("kernel log:\n%s\nconsole:\n%s", &m.kernel, &m.console)
	}
}

// Whatever fails, boardd runs, the failure is told to it, and the end is
// orderly.
func TestEveryStepMayFail(t *testing.T) {
	for _, c := range []struct {
		step string
		told string // in ROCELINK_PROBLEM; "" when it is told on the console only
	}{
		{"mount proc", "mount /proc"},
		{"mount sysfs", "mount /sys"},
		{"mount devtmpfs", "mount /dev"},
		{"mount devpts", "mount /dev/pts"},
		{"mount tmpfs on /run", "mount /run"},
		{"mount tmpfs on /tmp", "mount /tmp"},
		{"kernel log", "kernel's log"},
		{"module /lib/modules/a.ko", "module a.ko"},
		{"volume", "volume labelled ROCELINK"},
		{"mount vfat", "mount /dev/mmcblk0p1"},
		{"unmount /run/rocelink/card", "unmount the card"},
		{"hostname", "host name"},
		{"set time", "clock"},
		{"watchdog", "watchdog"},
		{"listen", "init.sock"},
		{"changes", ""},
		{"up", ""},
		{"address", ""},
		{"gateway", ""},
		{"ask time", ""},
		{"feed", ""},
		{"map", ""},
		{"terminate", ""},
		{"unmount /tmp", ""},
		{"disarm", ""},
	} {
		t.Run(c.step, func(t *testing.T) {
			m := newMachine(t)
			m.file("/proc/cmdline", strings.Replace(goodLine, "card=none", "card=2s", 1))
			m.file("/etc/rocelink/build.json", `{"name":"alpha","version":"v9","time":946684900}`)
			m.file(moduleList, "a.ko\nb.ko\n")
			m.card = map[string]string{}
			m.fail[c.step] = errFake
			m.boot(func() {
				m.pass(20 * time.Second)
				if n := len(m.programs()); n != 1 || m.programs()[0].at > 0 {
					t.Errorf("boardd started %d times", n)
				}
				if p := m.told(); !strings.Contains(p, c.told) || (p == "") != (c.told == "") {
					t.Errorf("boardd was told %q, want %q", p, c.told)
				}
			})
			if !strings.Contains(m.text(), errFake.Error()) {
				t.Errorf("not told on the console:\n%s", m.text())
			}
			if m.count("module /lib/modules/b.ko") != 1 {
				t.Error("the module after it was not loaded")
			}
			if log := m.log(); log[len(log)-1] != "reset power-off" {
				t.Errorf("the last call was %q", log[len(log)-1])
			}
		})
	}
}

func TestPresentAlreadyIsFine(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/self/mounts", "tmpfs /run tmpfs rw 0 0\nproc /proc proc rw 0 0\n")
	m.file(moduleList, "a.ko\n")
	m.fail["mount devtmpfs"] = fmt.Errorf("busy: %w", ErrPresent)
	m.fail["module"] = fmt.Errorf("exists: %w", ErrPresent)
	m.fail["watchdog"] = ErrNoWatchdog
	m.boot(func() {
		if p := m.told(); p != "" {
			t.Errorf("problem: %s", p)
		}
	})
	if m.count("mount tmpfs on /run")+m.count("mount proc") != 0 {
		t.Errorf("mounted over what was there: %q", m.log())
	}
	// Only what Init mounted is unmounted.
	if m.count("unmount /dev\x00")+m.count("unmount /run") != 0 || m.count("unmount /tmp") != 1 {
		t.Errorf("%q", m.log())
	}
}

func TestBadModuleList(t *testing.T) {
	m := newMachine(t)
	m.file(moduleList, "../../etc/passwd\n/abs.ko\nok.ko")
	m.boot(func() {
		p := m.told()
		if !strings.Contains(p, "../../etc/passwd") || !strings.Contains(p, "/abs.ko") {
			t.Errorf("problem: %s", p)
		}
	})
	if m.count("module") != 1 || m.count("module /lib/modules/ok.ko") != 1 {
		t.Errorf("%q", m.log())
	}
}

// starts are the times at which boardd was started.
func (m *machine) starts() (at []time.Duration) {
	for _, p := range m.programs() {
		at = append(at, p.at)
	}
	return at
}

func TestCrashes(t *testing.T) {
	m := newMachine(t)
	m.life = func(Command) time.Duration { return time.Millisecond }
	m.boot(func() {
		// Up to the tenth end.
		m.pass(30 * time.Second)
		ms := time.Millisecond
		waits := []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms, 5000 * ms}
		starts := m.starts()
		if len(starts) != len(waits) {
			t.Fatalf("started %d times, want %d: %v", len(starts), len(waits), starts)
		}
		for n := 1; n < len(starts); n++ {
			if got := starts[n] - starts[n-1] - ms; got != waits[n] {
				t.Errorf("wait %d: %v, want %v", n, got, waits[n])
			}
		}
		if m.regs.on() {
			t.Error("the sender is on after ten crashes")
		}
		if !strings.Contains(m.text(), "safe state") {
			t.Errorf("console:\n%s", m.text())
		}
		if s := m.status(); !s.Safe || s.Restarts != 10 {
			t.Errorf("status %+v", s)
		}

		// One try a minute, the sender off again before each.
		m.regs.set(0x1000+0x40, 1)
		before := len(starts)
		m.pass(2 * time.Minute)
		if n := len(m.starts()) - before; n != 2 {
			t.Errorf("%d tries in two minutes", n)
		}
		if m.regs.on() {
			t.Error("the sender is on after a crash in the safe state")
		}
		if p := m.told(); !strings.Contains(p, "ended 10 times") || !strings.Contains(p, "exit code 2") {
			t.Errorf("boardd was told %q", p)
		}

		// A run of a minute ends the safe state; then the first wait is short.
		m.change(func() { m.life = nil })
		m.pass(3 * time.Minute)
		if s := m.status(); s.Safe {
			t.Errorf("status %+v", s)
		}
		p := m.programs()
		m.exit(p[len(p)-1].pid, Exit{PID: p[len(p)-1].pid, Signal: "killed"})
		m.pass(100 * time.Millisecond)
		if len(m.programs()) != len(p)+1 {
			t.Error("not started again within 100 ms")
		}
		if e := m.told(); e != "" {
			t.Errorf("still told %q", e)
		}
	})
}

// told is everything that boardd is told to be wrong.
func (m *machine) told() string {
	return m.env(daemonPath, "ROCELINK_PROBLEM") + m.env(daemonPath, "ROCELINK_FAULTS")
}

func (m *machine) status() (s control.Status) {
	m.t.Helper()
	text, ok := strings.CutPrefix(m.ask("status"), "ok ")
	if err := json.Unmarshal([]byte(text), &s); !ok || err != nil {
		m.t.Errorf("status %q: %v", text, err)
	}
	return s
}

func TestMissingDaemonIsACrash(t *testing.T) {
	m := newMachine(t)
	m.fail["start /bin/boardd"] = errFake
	m.boot(func() {
		m.pass(25 * time.Second)
		if n := m.count("start"); n != crashLimit {
			t.Errorf("%d attempts", n)
		}
		if m.regs.on() {
			t.Error("the sender is on")
		}
	})
}

// Crashes that are rarer than the limit never lead to the safe state.
func TestRareCrashes(t *testing.T) {
	var c child
	now := time.Unix(0, 0)
	for range 100 {
		c.start(1, now)
		now = now.Add(crashWindow/crashLimit + 100*time.Millisecond)
		if wait := c.end(now); wait == safeRetry {
			t.Fatal("safe state")
		} else {
			now = now.Add(wait)
		}
		if len(c.ends) > crashLimit {
			t.Fatalf("%d ends are remembered", len(c.ends))
		}
	}
}

func TestFabricThatIsNotOursIsLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*machine)
		maps int
	}{
		{"identity 0", func(m *machine) { m.regs.set(0x1000, 0) }, 1},
		{"identity all ones", func(m *machine) { m.regs.set(0x1000, 0xFFFFFFFF) }, 1},
		{"another version", func(m *machine) { m.regs.set(0x1004, 0x7FFF7FFF) }, 1},
		{"bus error", func(m *machine) { m.regs.bad = errFake }, 1},
		{"cannot be mapped", func(m *machine) { m.fail["map"] = errFake }, 1},
		{"off already", func(m *machine) { m.regs.set(0x1040, 0) }, 1},
		{"no bitstream", func(m *machine) { m.file("/sys/class/fpga_manager/fpga0/state", "power off\n") }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			c.do(m)
			m.boot(func() {})
			if m.regs.touched() != 0 {
				t.Errorf("%d writes", m.regs.touched())
			}
			if n := m.count("map"); n != c.maps {
				t.Errorf("mapped %d times, want %d", n, c.maps)
			}
			if log := m.log(); log[len(log)-1] != "reset power-off" {
				t.Errorf("the last call was %q", log[len(log)-1])
			}
		})
	}
	t.Run("a manager that cannot tell", func(t *testing.T) {
		m := newMachine(t)
		m.file("/sys/class/fpga_manager/fpga0/state", "unknown\n") // the board is a Versal
		m.boot(func() {})
		if m.regs.on() {
			t.Error("the sender is on")
		}
	})
	t.Run("a bit that sticks", func(t *testing.T) {
		m := newMachine(t)
		m.regs.stuck = true
		m.boot(func() {})
		if !strings.Contains(m.text(), "after Enable was cleared") {
			t.Errorf("console:\n%s", m.text())
		}
	})
}

func TestWatchdogIsFed(t *testing.T) {
	m := newMachine(t)
	m.stubborn = true // the end takes its time, too
	m.boot(func() { m.pass(10 * time.Minute) })
	if m.count("watchdog fires") != 0 {
		t.Error("the watchdog fired")
	}
	if n := m.count("feed"); n < 110 || n > 140 {
		t.Errorf("fed %d times in ten minutes", n)
	}
}

func TestWatchdogStarvesWhenTheLoopHangs(t *testing.T) {
	m := newMachine(t)
	m.boot(func() {
		m.pass(time.Minute)
		if m.count("watchdog fires") != 0 {
			t.Fatal("the watchdog fired before")
		}
		m.mu.Lock()
		m.hang = make(chan struct{})
		pid := m.started[0].pid
		m.mu.Unlock()
		m.exit(pid, Exit{PID: pid, Code: 1}) // the next start hangs
		m.pass(time.Minute)
		if m.count("watchdog fires") != 1 {
			t.Error("the watchdog did not fire")
		}
		close(m.hang)
	})
}

func TestWatchdogSettings(t *testing.T) {
	for line, call := range map[string]string{" rocelink.watchdog=none": "", " rocelink.watchdog=40s": "watchdog 40s", "": "watchdog 15s"} {
		m := newMachine(t)
		m.file("/proc/cmdline", goodLine+line)
		m.boot(func() {})
		n := m.count("watchdog")
		if (call == "") != (n == 0) || call != "" && m.count(call) != 1 {
			t.Errorf("%q: %q", line, m.log())
		}
	}
}

func TestEvents(t *testing.T) {
	for e, how := range map[Event]string{EventReboot: "reboot", EventHalt: "halt", EventPowerOff: "power-off"} {
		m := newMachine(t)
		m.boot(func() {
			m.events <- e
			m.pass(10 * time.Second)
		})
		if log := m.log(); log[len(log)-1] != "reset "+how {
			t.Errorf("event %d: the last call was %q", e, log[len(log)-1])
		}
	}
}

func TestRequests(t *testing.T) {
	m := newMachine(t)
	m.boot(func() {
		for request, want := range map[string]string{
			"dance": "error unknown request", "": "error unknown request", "reboot now": "error unknown request",
		} {
			if got := m.ask(request); got != want {
				t.Errorf("%q: %q", request, got)
			}
		}
		s := m.status()
		if s.Name != "alpha" || s.Version != "v9" || s.Interface != "eth0" || s.Address != "10.0.2.15/24" || s.Safe {
			t.Errorf("status %+v", s)
		}
		if m.count("reset") != 0 {
			t.Error("reset by a request that is none")
		}
		m.change(func() { m.stubborn = true })
		if got := m.ask("reboot"); got != "ok" {
			t.Errorf("reboot: %q", got)
		}
		m.pass(time.Second)
		if got := m.ask("halt"); got != "closed" {
			t.Errorf("a request during the end: %q", got)
		}
		m.pass(30 * time.Second)
	})
	if log := m.log(); log[len(log)-1] != "reset reboot" {
		t.Errorf("the last call was %q", log[len(log)-1])
	}
}

// boardd that does not end is killed; so is everybody else.
func TestStubbornPrograms(t *testing.T) {
	m := newMachine(t)
	m.file("/bin/sh", "")
	m.file("/proc/cmdline", goodLine+" rocelink.shell=1")
	m.stubborn = true
	m.boot(func() {
		begin := time.Now()
		m.events <- EventReboot
		<-m.ended
		m.ended <- Reboot
		if d := time.Since(begin); d > 12*time.Second {
			t.Errorf("the end took %v", d)
		}
	})
	inOrder(t, m.log(), "terminate /bin/boardd", "kill /bin/boardd", "terminate all", "kill all", "sync", "reset reboot")
}

func TestShell(t *testing.T) {
	m := newMachine(t)
	m.file("/bin/sh", "")
	m.file("/proc/cmdline", goodLine+" rocelink.shell")
	m.life = func(c Command) time.Duration {
		if c.Path == shellPath {
			if c.Output != nil {
				t.Error("the shell is not on the console")
			}
			return time.Second
		}
		return 0
	}
	m.boot(func() {
		m.pass(5500 * time.Millisecond)
		if n := m.count("start /bin/sh"); n != 3 {
			t.Errorf("%d shells", n)
		}
		if m.count("start /bin/boardd") != 1 || m.status().Restarts != 0 {
			t.Error("a shell that ended counts as a crash of boardd")
		}
	})
	m = newMachine(t)
	m.file("/proc/cmdline", goodLine+" rocelink.shell=1")
	m.boot(func() { m.pass(time.Minute) })
	if m.count("start /bin/sh") != 0 || !strings.Contains(m.text(), "the image has no /bin/sh") {
		t.Errorf("console:\n%s", m.text())
	}
}

// A fault of the program itself ends in a reset with the sender off.
func TestPanic(t *testing.T) {
	m := newMachine(t)
	m.life = func(c Command) time.Duration {
		if len(m.started) == 2 {
			panic("a bug")
		}
		return 20 * time.Second
	}
	m.boot(func() { m.pass(time.Minute) })
	if log := m.log(); log[len(log)-1] != "reset reboot" || m.regs.on() || !strings.Contains(m.text(), "a bug") {
		t.Errorf("the last call was %q, console:\n%s", log[len(log)-1], m.text())
	}
}

// When the machine does not reset, the watchdog does it.
func TestResetThatFails(t *testing.T) {
	m := newMachine(t)
	m.fail["reset"] = errFake
	m.boot(func() {
		m.events <- EventReboot
		m.pass(30 * time.Second)
	})
	inOrder(t, m.log(), "disarm", "reset reboot", "watchdog 15s", "watchdog fires")
}

// A disk that hangs does not keep the machine from going down.
func TestSyncThatHangs(t *testing.T) {
	m := newMachine(t)
	m.boot(func() {
		m.change(func() { m.stuck = make(chan struct{}) })
		m.events <- EventReboot
		m.pass(30 * time.Second)
		close(m.stuck)
	})
	inOrder(t, m.log(), "sync", "unmount /proc", "reset reboot")
	if m.count("watchdog fires") != 0 {
		t.Error("the watchdog fired")
	}
}

func TestBrokenConfiguration(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		told             string
		nats             string
	}{
		{"card is no YAML", "card", "nats: [", "not YAML", "nats://10.0.2.2:4222"},
		{"card has an unknown key", "card", "natz: nats://1.2.3.4\nname: beta", "natz", "nats://10.0.2.2:4222"},
		{"card has a wrong value", "card", "mtu: 1500", "mtu", "nats://10.0.2.2:4222"},
		{"card names a file that is not there", "card", "creds: x.creds", "creds", "nats://10.0.2.2:4222"},
		{"card is a list", "card", "- a\n- b", "mapping", "nats://10.0.2.2:4222"},
		{"card is too long", "card", strings.Repeat("# comment\n", 2000), "16384", "nats://10.0.2.2:4222"},
		{"half a certificate", "card", "tls-key: k", "go together", "nats://10.0.2.2:4222"},
		{"image is broken", imageFile, "{", "rocelink.yaml", "nats://10.0.2.2:4222"},
		{"command line", "/proc/cmdline", "rocelink.nats=nats://10.0.2.2:4222 rocelink.mtu=9", "mtu", "nats://10.0.2.2:4222"},
		{"no address", "/proc/cmdline", "rocelink.nats=nats://10.0.2.2:4222", "no address", "nats://10.0.2.2:4222"},
		{"board description", boardFile, "model: [", "board", "nats://10.0.2.2:4222"},
		{"values to set", boardFile, "base: vck190", "i2c[0].device", "nats://10.0.2.2:4222"},
		{"no board description", boardFile, "", "board", "nats://10.0.2.2:4222"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.file("/proc/cmdline", strings.Replace(goodLine, "card=none", "card=1s", 1))
			m.card = map[string]string{}
			if c.file == "card" {
				m.card[cardFile] = c.text
			} else {
				m.file(c.file, c.text)
			}
			m.boot(func() {
				p := m.told()
				if !strings.Contains(p, c.told) {
					t.Errorf("boardd was told %q, want %q", p, c.told)
				}
				if m.flag("--nats") != c.nats || m.flag("--address") == "" || m.flag("--registers") != "" {
					t.Errorf("boardd %q", m.programs()[0].Args)
				}
				if c.file != boardFile && m.regs.on() {
					t.Error("the sender is on")
				}
				b, err := boards.LoadFile(m.root + m.flag("--board"))
				if err != nil {
					t.Fatalf("the description boardd is given: %v", err)
				}
				for _, a := range b.Apertures {
					if a.File != withheld {
						t.Errorf("boardd may touch %s", a.File)
					}
				}
				if s := m.status(); len(s.Problems) == 0 {
					t.Error("the status tells no problem")
				}
				// A crash must not undo it.
				pid := m.programs()[0].pid
				m.exit(pid, Exit{PID: pid, Code: 1})
				m.pass(time.Second)
				if m.flag("--board") == boardFile {
					t.Error("boardd has the fabric after a restart")
				}
			})
		})
	}
}

func TestCardFiles(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", strings.Replace(goodLine, "card=none", "card=1s", 1)+" rocelink.tls-ca=ca.pem")
	m.card = map[string]string{cardFile: "creds: board.creds\nname: 007\n", "board.creds": "secret", "ca.pem": "pem"}
	m.boot(func() {
		if p := m.told(); p != "" {
			t.Errorf("problem: %s", p)
		}
		if got := m.flag("--name"); got != "007" {
			t.Errorf("name %q", got)
		}
		for flag, want := range map[string]string{"--creds": "secret", "--tls-ca": "pem"} {
			data, err := readLimited(m.root+m.flag(flag), 100)
			if err != nil || string(data) != want {
				t.Errorf("%s %s: %q, %v", flag, m.flag(flag), data, err)
			}
		}
	})
}

func TestSecretsAreNotLogged(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", "rocelink.nats=nats://u:hunter2@10.0.2.2:4222,nats://u:hunter2@ rocelink.ip=none rocelink.card=1s rocelink.address=10.9.0.2")
	m.card = map[string]string{cardFile: "nats: [nats://u:hunter2@x]\nname: a\nname: b\n nats: hunter2"}
	m.boot(func() {
		if strings.Contains(m.told(), "hunter2") {
			t.Error("in the problem")
		}
	})
	if strings.Contains(m.text(), "hunter2") {
		t.Errorf("console:\n%s", m.text())
	}
}

func TestProblemsAreBounded(t *testing.T) {
	m := newMachine(t)
	m.file("/proc/cmdline", goodLine+strings.Repeat(" rocelink.k", 1)+strings.Repeat(" rocelink.mtu="+strings.Repeat("é", 500), 50))
	m.boot(func() {
		p := m.told()
		if len(p) == 0 || len(p) > maxProblem+4 || !slices.Contains([]rune(p), 'k') {
			t.Errorf("%d bytes: %.100s", len(p), p)
		}
	})
}
