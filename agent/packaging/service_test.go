package packaging_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// confined tells the test binary to do as the unit does to a service, and then
// to become the program named by its arguments.
const confined = "ROCELINK_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confined) != "" {
		fmt.Fprintln(os.Stderr, become(os.Args[1:]))
		os.Exit(127)
	}
	os.Exit(m.Run())
}

// nobody is a user without any rights.
const nobody = 65534

// become gives up what the unit takes away (NoNewPrivileges, User, capabilities,
// MemoryDenyWriteExecute) and executes a program. It returns only if it cannot.
func become(args []string) error {
	runtime.LockOSThread()
	// prctl(2), linux/prctl.h: PR_SET_MDWE 65, PR_MDWE_REFUSE_EXEC_GAIN 1; Linux
	// 6.3 has it.
	if err := unix.Prctl(65, 1, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("deny memory that is writable and executable: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return fmt.Errorf("become nobody: %w", err)
		}
	}
	if err := os.Unsetenv(confined); err != nil {
		return err
	}
	return fmt.Errorf("execute %s: %w", args[0], syscall.Exec(args[0], args, os.Environ()))
}

// TestService starts and stops the installed rocelinkd with its own settings, as
// the unit does, and listens in the service manager's place.
func TestService(t *testing.T) {
	deb := built(t, "*.deb")
	need(t, "dpkg-deb")
	root := t.TempDir()
	run(t, "dpkg-deb", "-x", deb, root)
	// The folder that holds those of the tests is the tester's alone.
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	command := execStart(t, root)

	name := filepath.Join(root, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if err := os.Chmod(name, 0o777); err != nil {
		t.Fatal(err)
	}

	pid := os.Getpid()
	address := fmt.Sprintf("127.41.%d.%d", pid>>8&0xFF, pid&0xFF)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append(command, "--device", "soft:"+address, "--nats-listen", "127.0.0.1:0")...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Dir = root
	cmd.Env = []string{confined + "=1", "NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=4000000"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		if t.Failed() {
			_ = cmd.Process.Kill()
			<-ended
			t.Logf("%s", output.Bytes())
		}
	}()

	// expect reads messages up to a certain one.
	expect := func(want string, limit time.Duration) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		for seen := []string{}; ; {
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("no %s within %v, but %q: %v", want, limit, seen, err)
			}
			message := string(b[:n])
			if seen = append(seen, message); strings.Split(message, "\n")[0] == want {
				return
			}
		}
	}
	expect("READY=1", 20*time.Second)
	for range 3 {
		expect("WATCHDOG=1", 4*time.Second)
	}

	// rocectl sees whose port it is.
	doctor := exec.Command(filepath.Join(root, "usr/bin/rocectl"), "doctor", "--device", "soft:"+address)
	out, err := doctor.CombinedOutput()
	if code := doctor.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "4791 is taken") {
		t.Errorf("rocectl doctor beside rocelinkd: exit status %d, %v\n%s", code, err, out)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("STOPPING=1", 5*time.Second)
	select {
	case err := <-ended:
		ended <- err
		if err != nil {
			t.Errorf("rocelinkd ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("rocelinkd does not end")
	}
	out, err = exec.Command(filepath.Join(root, "usr/bin/rocectl"), "doctor", "--device", "soft:"+address).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "4791 is free") {
		t.Errorf("rocectl doctor after rocelinkd: %v\n%s", err, out)
	}
}

// execStart is the unit's command, with its paths below root.
func execStart(t *testing.T, root string) []string {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/rocelinkd.service"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(unit)) {
		if text, ok := strings.CutPrefix(line, "ExecStart="); ok {
			args := strings.Fields(text)
			for i, a := range args {
				if strings.HasPrefix(a, "/") {
					args[i] = filepath.Join(root, a)
				}
			}
			return args
		}
	}
	t.Fatal("the unit has no ExecStart")
	return nil
}

// TestWrongSettingEndsForGood: the unit does not restart after this status.
func TestWrongSettingEndsForGood(t *testing.T) {
	deb := built(t, "*.deb")
	need(t, "dpkg-deb")
	root := t.TempDir()
	run(t, "dpkg-deb", "-x", deb, root)
	file := filepath.Join(root, "etc/rocelink/rocelinkd.yaml")
	if err := os.WriteFile(file, []byte("devcie: mlx5_0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "usr/bin/rocelinkd"), "--config", file)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "devcie") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}
