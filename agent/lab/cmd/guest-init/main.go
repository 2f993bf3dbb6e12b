//go:build linux

// Command guest-init is the first program of a lab guest. It mounts, loads the
// modules of the image, brings up the control port, connects to the host and
// runs what package remote asks for, until the host says to power off or is
// gone.
//
// The kernel's command line names the host: lab.host=10.0.2.2:PORT. It may have
// random bytes for the kernel: lab.seed=HEX.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocelink/agent/lab/remote"
)

const (
	moduleList = "/etc/modules"
	// QEMU's user network gives its first guest this address and is itself
	// at .2 (QEMU, "Using the user mode network stack").
	controlAddress = "10.0.2.15/24"
	control        = "eth0"
	// patience is for the network to come up.
	patience = 30 * time.Second
)

func main() {
	err := run()
	if err != nil && !errors.Is(err, remote.ErrPowerOff) {
		say("failed: %v", err)
	}
	say("power off")
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func say(format string, args ...any) { fmt.Printf("guest-init: "+format+"\n", args...) }

func run() error {
	if os.Getpid() != 1 {
		return errors.New("not the first program of a machine")
	}
	if err := mount(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	// The default drops what has waited for long. What rxe sends shall arrive,
	// so that counts can be compared.
	if err := os.WriteFile("/proc/sys/net/core/default_qdisc", []byte("pfifo_fast"), 0); err != nil {
		return err
	}
	_ = os.Setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
	_ = os.Setenv("HOME", "/tmp")
	if err := rename(); err != nil {
		return err
	}
	if err := seed(); err != nil {
		return err
	}
	for _, c := range []string{
		"ip link set lo up",
		"ip link set " + control + " up",
		"ip address add " + controlAddress + " dev " + control,
	} {
		args := strings.Fields(c)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	host, err := argument("lab.host")
	if err != nil {
		return err
	}
	conn, err := connect(host)
	if err != nil {
		return err
	}
	say("connected to %s", host)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	return remote.Serve(context.Background(), conn, unix.ByteSliceToString(u.Release[:]))
}

func mount() error {
	for _, m := range []struct{ source, target, kind string }{
		{"devtmpfs", "/dev", "devtmpfs"},
		{"proc", "/proc", "proc"},
		{"sysfs", "/sys", "sysfs"},
		{"tmpfs", "/tmp", "tmpfs"},
		{"tmpfs", "/run", "tmpfs"},
		{"tmpfs", "/dev/shm", "tmpfs"},
		{"debugfs", "/sys/kernel/debug", "debugfs"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		// The kernel may have mounted devtmpfs already.
		if err := unix.Mount(m.source, m.target, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// loadModules loads what the image lists, in that order.
func loadModules() error {
	b, err := os.ReadFile(moduleList)
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(b)) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// seed gives the kernel the random bytes of its command line, if it has any.
func seed() error {
	text, err := argument("lab.seed")
	if err != nil {
		return nil
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("lab.seed: %w", err)
	}
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// struct rand_pool_info (Linux, include/uapi/linux/random.h).
	var pool struct {
		bits, bytes int32
		buffer      [64]byte
	}
	pool.bytes = int32(copy(pool.buffer[:], b))
	pool.bits = 8 * pool.bytes
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))); e != 0 {
		return fmt.Errorf("add entropy: %w", e)
	}
	return nil
}

// rename gives the ports of a user-mode kernel the names they have elsewhere.
func rename() error {
	const here, elsewhere = "vec", "eth"
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		number, ok := strings.CutPrefix(i.Name, here)
		if !ok {
			continue
		}
		if out, err := exec.Command("ip", "link", "set", i.Name, "name", elsewhere+number).CombinedOutput(); err != nil {
			return fmt.Errorf("rename %s: %w: %s", i.Name, err, out)
		}
	}
	return nil
}

// argument returns the value of a word of the kernel's command line.
func argument(name string) (string, error) {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for _, word := range strings.Fields(string(b)) {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("the kernel's command line has no %s=", name)
}

// connect tries until the network is there.
func connect(host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", host)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to the host at %s: %w", host, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
