package qemu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/dt"
	"golang.org/x/sys/unix"

	"rocelink/boards"
	"rocelink/images/devicetree"
	"rocelink/images/fit"
)

// The test's own programs, in place of QEMU and the fabric: scripts that look at
// what they were given.
func script(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func image(t testing.TB) []byte {
	t.Helper()
	tree := &dt.FDT{RootNode: dt.NewNode("")}
	devicetree.SetArguments(tree, "console=ttyPS0")
	blob, err := devicetree.Bytes(tree)
	if err != nil {
		t.Fatal(err)
	}
	m := fit.Image{
		Time:   time.Unix(1, 0),
		Kernel: fit.Part{Data: []byte("a kernel")}, DeviceTree: fit.Part{Data: blob}, Ramdisk: fit.Part{Data: []byte("a ramdisk")},
	}
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func config(t testing.TB, emulator string) Config {
	t.Helper()
	b, err := boards.Load("qemu-zcu102")
	if err != nil {
		t.Fatal(err)
	}
	return Config{Board: b, Image: image(t), QEMU: script(t, "emulator", emulator)}
}

// text collects what is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// The emulator gets kernel, tree and ramdisk, and shares its memory with the
// fabric, whose registers are where the board's description says.
func TestGiven(t *testing.T) {
	c := config(t, `echo "args: $*"
for n in 4 6; do cat /proc/self/fd/$n; echo; done
tr -d '\0' </proc/self/fd/5 | tr -c 'a-zA-Z0-9=.:/' ' '; echo
stat -L -c 'memory %s' /proc/self/fd/3
until dd if=/proc/self/fd/3 bs=4096 skip=458752 count=1 2>/dev/null | grep -q registers; do sleep 0.02; done
echo shared
echo complaint >&2
`)
	c.Fabric = []string{script(t, "fabric", `echo "fabric: $*"
printf registers | dd of=/proc/self/fd/3 bs=1 seek=1879048192 conv=notrunc 2>/dev/null
exec sleep 60
`), "--drop", "1"}
	var console, messages text
	c.Console, c.Messages = &console, &messages
	c.Arguments = []string{"rocelink.nats=nats://10.0.2.2:4222"}
	m, err := Start(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, console.String(), messages.String())
	}
	for _, want := range []string{
		"-machine xlnx-zcu102,memory-backend=memory", "size=2147483648,mem-path=/proc/self/fd/3,share=on",
		"-kernel /proc/self/fd/4", "-dtb /proc/self/fd/5", "-initrd /proc/self/fd/6", "-no-reboot", "-audiodev none,id=none",
		"-nic hubport,hubid=1 -nic hubport,hubid=1 -nic hubport,hubid=1 -nic user",
		"a kernel\n", "a ramdisk\n", "console=ttyPS0 rocelink.card=none rocelink.nats=nats://10.0.2.2:4222", "memory 2147483648", "shared",
	} {
		if !strings.Contains(console.String(), want) {
			t.Errorf("the emulator was not given %q:\n%s", want, console.String())
		}
	}
	for _, want := range []string{"fabric: --drop 1 --registers /proc/self/fd/3 --registers-offset 1879048192", "complaint"} {
		if !strings.Contains(messages.String(), want) {
			t.Errorf("messages do not have %q:\n%s", want, messages.String())
		}
	}
	gone(t, m)
}

// gone fails unless both programs have ended.
func gone(t testing.TB, m *Machine) {
	t.Helper()
	emulator, fabric := m.Processes()
	for name, pid := range map[string]int{"emulator": emulator, "fabric": fabric} {
		if pid != 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			t.Errorf("the %s runs on as %d", name, pid)
		}
	}
}

// running waits until both say that they run.
func running(t testing.TB, out *text, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for strings.Count(out.String(), "running") < n {
		if time.Now().After(deadline) {
			t.Fatalf("they do not run: %q", out.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// What is typed reaches the console.
func TestTyped(t *testing.T) {
	var console text
	c := config(t, `read line; echo "got $line"`)
	c.Console = &console
	m, err := Start(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Write([]byte("power off\n")); err != nil {
		t.Error(err)
	}
	if err := m.Wait(); err != nil || console.String() != "got power off\n" {
		t.Errorf("%v, %q", err, console.String())
	}
	if _, err := m.Write([]byte("x")); err == nil {
		t.Error("typed at a board that ended")
	}
}

func TestCancelled(t *testing.T) {
	var out text
	c := config(t, "echo running; exec sleep 60")
	c.Fabric = []string{script(t, "fabric", "echo running; exec sleep 60")}
	c.Console, c.Messages = &out, &out
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(bounded(t))
	m, err := Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	running(t, &out, 2)
	cancel(why)
	if err := m.Wait(); !errors.Is(err, why) {
		t.Errorf("%v, want the cause", err)
	}
	gone(t, m)
}

func TestOneEnds(t *testing.T) {
	for _, k := range []struct{ name, emulator, fabric, text string }{
		{"the board fails", "exit 3", "exec sleep 60", "exit status 3"},
		{"the fabric fails", "exec sleep 60", "exit 4", "exit status 4"},
	} {
		c := config(t, k.emulator)
		c.Fabric = []string{script(t, "fabric", k.fabric)}
		m, err := Start(bounded(t), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(); err == nil || !strings.Contains(err.Error(), k.text) {
			t.Errorf("%s: %v, want one with %q", k.name, err, k.text)
		}
		gone(t, m)
	}
}

func TestRefused(t *testing.T) {
	for _, k := range []struct {
		name, text string
		is         error
		change     func(c *Config)
	}{
		{"no emulator installed", "qemu-none", ErrNoEmulator, func(c *Config) { c.QEMU = "qemu-none" }},
		{"a board of hardware", "RFSoC", ErrNoEmulator, func(c *Config) {
			c.Board, _ = boards.Load("rfsoc4x2")
		}},
		{"a truncated image", "cut off", devicetree.ErrFormat, func(c *Config) { c.Image = c.Image[:len(c.Image)-1] }},
		{"a changed image", "kernel", fit.ErrHash, func(c *Config) {
			c.Image = bytes.Replace(c.Image, []byte("a kernel"), []byte("a colonel")[:8], 1)
		}},
		{"a bad argument", "quotes", nil, func(c *Config) { c.Arguments = []string{`a "b`} }},
		{"no card", "none.img", os.ErrNotExist, func(c *Config) { c.Card = "none.img" }},
		{"a card of odd size", "power of two", nil, func(c *Config) { c.Card = c.QEMU }},
		{"no fabric", "fabric: ", os.ErrNotExist, func(c *Config) { c.Fabric = []string{"/nowhere/fabric"} }},
	} {
		c := config(t, "exec sleep 60")
		k.change(&c)
		m, err := Start(bounded(t), c)
		if err == nil || m != nil || !strings.Contains(err.Error(), k.text) || k.is != nil && !errors.Is(err, k.is) {
			t.Errorf("%s: %v, want one with %q", k.name, err, k.text)
		}
	}
	c := config(t, "")
	c.QEMU = "/dev/null" // cannot be started
	c.Fabric = []string{script(t, "fabric", "exec sleep 60")}
	if _, err := Start(bounded(t), c); err == nil {
		t.Error("what is no program was started")
	}
}

const helper = "ROCELINK_TEST_MACHINE"

// TestHelper is the process that TestKilled kills.
func TestHelper(t *testing.T) {
	if os.Getenv(helper) == "" {
		t.Skip("only for TestKilled")
	}
	c := config(t, "exec sleep 60")
	c.Fabric = []string{script(t, "fabric", "exec sleep 60")}
	m, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	emulator, fabric := m.Processes()
	fmt.Printf("processes %d %d\n", emulator, fabric)
	<-m.Done()
}

// Whoever is killed leaves nothing running.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(t), self, "-test.run", "^TestHelper$", "-test.v")
	cmd.Env = append(os.Environ(), helper+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	form := regexp.MustCompile(`^processes (\d+) (\d+)$`)
	for s := bufio.NewScanner(out); pids == nil && s.Scan(); {
		if m := form.FindStringSubmatch(s.Text()); m != nil {
			for _, x := range m[1:] {
				n, _ := strconv.Atoi(x)
				pids = append(pids, n)
			}
		}
	}
	if len(pids) != 2 {
		t.Fatalf("the helper started %v", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d runs on", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// alive says whether a process runs; one that waits for its parent to notice does
// not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}
