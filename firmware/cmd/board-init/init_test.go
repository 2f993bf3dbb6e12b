//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"golang.org/x/sys/unix"

	"rocelink/firmware/boot/control"
)

// The test binary is also the first stage of the namespace.
const role = "ROCELINK_TEST_ROLE"

const staticIP = "rocelink.ip=10.77.0.2/24"

const commonLine = "rocelink.nats=none rocelink.address=10.9.0.2 rocelink.registers=/registers " +
	"rocelink.watchdog=none rocelink.card=none rocelink.ntp=none rocelink.name=alpha rocelink.interface=eth0 "

func TestMain(m *testing.M) {
	if os.Getenv(role) == "stage" {
		fmt.Fprintln(os.Stderr, "stage:", stage(os.Args[1]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// stage prepares a root for the real program and becomes it, still process 1.
func stage(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	for _, m := range []struct{ source, target, kind string }{{"proc", "proc", "proc"}, {"tmpfs", "dev", "tmpfs"}} {
		if err := unix.Mount(m.source, filepath.Join(root, m.target), m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	// The machine's own settings are not ours to change, its command line not
	// ours to read.
	sys := filepath.Join(root, "proc/sys")
	if err := unix.Mount(sys, sys, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /proc/sys: %w", err)
	}
	if err := unix.Mount("", sys, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("protect /proc/sys: %w", err)
	}
	if err := unix.Mount(filepath.Join(root, "cmdline"), filepath.Join(root, "proc/cmdline"), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the command line: %w", err)
	}
	if err := unix.Mknod(filepath.Join(root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return fmt.Errorf("make /dev/null: %w", err)
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Exec("/init", []string{"/init"}, []string{"HOME=/"})
}

// must skips, or fails where the tools are required.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
		t.Fatalf("%s: %v, and ROCELINK_REQUIRE_TOOLS is 1", what, err)
	}
	t.Skipf("skipped: %s: %v (ROCELINK_REQUIRE_TOOLS=1 makes this a failure)", what, err)
}

// board is the real program as process 1 of namespaces of its own.
type board struct {
	t     *testing.T
	root  string
	cmd   *exec.Cmd
	lines chan string
	seen  []string
}

func start(t *testing.T, ip string) *board {
	t.Helper()
	t.Parallel() // lease times are long
	if os.Geteuid() != 0 {
		must(t, "namespaces", fmt.Errorf("not root"))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, d := range []string{"bin", "proc", "dev", "sys", "run", "tmp", "etc/rocelink"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range map[string]string{"init": ".", "bin/boardd": "./testdata/boardd"} {
		build := exec.Command("go", "build", "-o", filepath.Join(root, to), from)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for name, data := range map[string][]byte{
		"cmdline":                 []byte(commonLine + ip + "\n"),
		"registers":               make([]byte, 0x20000),
		"etc/rocelink/board.yaml": []byte(description),
		"etc/rocelink/build.json": []byte(`{"name":"beta","version":"v1","time":1}`),
	} {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := &board{t: t, root: root, lines: make(chan string, 1024)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd = exec.Command(self, root)
	b.cmd.Env = append(os.Environ(), role+"=stage")
	b.cmd.Stdout, b.cmd.Stderr = w, w
	b.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
	}
	// The death signal follows the thread, and threads end when a goroutine ends
	// that is locked to them, as others here are: this one has its own.
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		started <- b.cmd.Start()
		<-over
	}()
	err = <-started
	w.Close()
	t.Cleanup(func() { close(over) })
	must(t, "new namespaces", err)
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill() // process 1 takes all others with it
		_ = b.cmd.Wait()
		_ = r.Close()
	})
	go func() {
		defer close(b.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			b.lines <- s.Text()
		}
	}()
	return b
}

// until returns the next console line with the text.
func (b *board) until(text string) string {
	b.t.Helper()
	limit := time.After(40 * time.Second)
	for {
		select {
		case line, ok := <-b.lines:
			b.seen = append(b.seen, line)
			if strings.Contains(line, "stage:") {
				must(b.t, "prepare the namespace", fmt.Errorf("%s", line))
			}
			if strings.Contains(line, text) {
				return line
			}
			if !ok {
				b.t.Fatalf("%q never came:\n%s", text, strings.Join(b.seen, "\n"))
			}
		case <-limit:
			b.t.Fatalf("%q did not come in time:\n%s", text, strings.Join(b.seen, "\n"))
		}
	}
}

// inside is a file as the board sees it.
func (b *board) inside(name string) string {
	return fmt.Sprintf("/proc/%d/root%s", b.cmd.Process.Pid, name)
}

// ended waits for the end and returns the signal by which the kernel tells how
// (pid_namespaces(7): SIGHUP for a restart, SIGINT for halt and power-off).
func (b *board) ended() syscall.Signal {
	b.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); _ = b.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		b.t.Fatal("the board does not end")
	}
	for line := range b.lines {
		b.seen = append(b.seen, line)
	}
	return b.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

const description = `
model: m
soc: none
apertures: [{name: fabric, file: "", base: 0, size: 0x20000}]
roce: {aperture: fabric, offset: 0}
mac: {driver: cmac, aperture: fabric, offset: 0x10000, fec: none}
network:
  mac: {source: name}
  address: {source: flag}
`

// zombies are the processes of the board that nobody has reaped.
func (b *board) zombies() (names []string) {
	stats, _ := filepath.Glob(b.inside("/proc/[0-9]*/stat"))
	for _, s := range stats {
		data, err := os.ReadFile(s)
		if err != nil {
			continue
		}
		text := string(data)
		if rest := text[strings.LastIndexByte(text, ')')+1:]; strings.HasPrefix(strings.TrimSpace(rest), "Z") {
			names = append(names, text)
		}
	}
	return names
}

func TestProcess1(t *testing.T) {
	b := start(t, staticIP)
	if line := b.until("standin args"); !strings.Contains(line, "--board /etc/rocelink/board.yaml --name alpha --nats none --address 10.9.0.2 --registers /registers") {
		t.Errorf("boardd's command line: %s", line)
	}
	if line := b.until("standin problem"); !strings.HasSuffix(line, "problem ") {
		t.Errorf("%s", line)
	}
	if line := b.until("standin host"); !strings.HasSuffix(line, "alpha") {
		t.Errorf("%s", line)
	}
	first := b.until("standin ready")

	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", b.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" /sys sysfs ", " /dev devtmpfs ", " /run tmpfs ", " /tmp tmpfs ", " /proc proc "} {
		if strings.Count(string(mounts), want) != 1 {
			t.Errorf("mount %q %d times in:\n%s", want, strings.Count(string(mounts), want), mounts)
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	socket := b.inside("/run/rocelink/init.sock")
	s, err := control.Query(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "alpha" || s.Version != "v1" || len(s.Problems) != 0 {
		t.Errorf("status %+v", s)
	}

	// A killed boardd comes back; what it left behind is reaped.
	kill(t, b, first)
	second := b.until("standin ready")
	if second == first {
		t.Error("the same process")
	}
	kill(t, b, second)
	b.until("standin ready")
	for deadline := time.Now().Add(10 * time.Second); len(b.zombies()) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("zombies: %q", b.zombies())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if s, err = control.Query(ctx, socket); err != nil || s.Restarts != 2 {
		t.Errorf("status %+v, %v", s, err)
	}

	if err := control.Ask(ctx, socket, "dance"); err == nil {
		t.Error("an unknown request was accepted")
	}
	if err := control.Ask(ctx, socket, control.PowerOff); err != nil {
		t.Fatal(err)
	}
	if got := b.ended(); got != unix.SIGINT {
		t.Errorf("the kernel says %v, want %v for power-off", got, unix.SIGINT)
	}
	all := strings.Join(b.seen, "\n")
	// The last words of boardd come over a pipe of their own, in any order to
	// those of init.
	if !strings.Contains(all, "standin ended in order") {
		t.Errorf("boardd was not ended in order:\n%s", all)
	}
	for _, want := range []string{"going down", "boardd ended", "msg=end"} {
		n := strings.Index(all, want)
		if n < 0 {
			t.Fatalf("%q is missing or out of order in:\n%s", want, strings.Join(b.seen, "\n"))
		}
		all = all[n:]
	}
}

func kill(t *testing.T, b *board, ready string) {
	t.Helper()
	f := strings.Fields(ready)
	inner := f[len(f)-1]
	// The process as this namespace knows it.
	stats, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, s := range stats {
		data, err := os.ReadFile(s)
		if err != nil || !strings.Contains(string(data), "Name:\tboardd\n") {
			continue
		}
		for line := range strings.Lines(string(data)) {
			ids := strings.Fields(line)
			if len(ids) < 3 || ids[0] != "NSpid:" || ids[len(ids)-1] != inner {
				continue
			}
			pid, err := strconv.Atoi(ids[1])
			if err != nil {
				t.Fatal(err)
			}
			root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", pid))
			if err != nil || root != b.root {
				continue // another test's
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process %s", inner)
}

// plug gives the board a network port with a cable in.
func (b *board) plug() {
	b.t.Helper()
	// Both run beside each other.
	b.until("standin ready")
	if !strings.Contains(strings.Join(b.seen, "\n"), "no interface has a carrier") {
		b.until("no interface has a carrier")
	}
	b.ip("link", "add", "eth0", "type", "veth", "peer", "name", "far")
}

// ip runs ip in the board's network.
func (b *board) ip(args ...string) string {
	b.t.Helper()
	args = append([]string{"-t", strconv.Itoa(b.cmd.Process.Pid), "-n", "ip"}, args...)
	out, err := exec.Command("nsenter", args...).CombinedOutput()
	if err != nil {
		must(b.t, "nsenter ip", fmt.Errorf("%w: %s", err, out))
	}
	return string(out)
}

// A static address is set when the cable comes, and signals end the run.
func TestProcess1NetworkAndSignal(t *testing.T) {
	b := start(t, staticIP+",10.77.0.1")
	b.plug()
	b.ip("link", "set", "far", "up")
	b.until("network: up")
	if out := b.ip("-br", "address"); !strings.Contains(out, "10.77.0.2/24") || !strings.Contains(out, "127.0.0.1/8") {
		t.Errorf("addresses:\n%s", out)
	}
	if out := b.ip("route"); !strings.Contains(out, "default via 10.77.0.1 dev eth0") {
		t.Errorf("routes:\n%s", out)
	}
	if err := b.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := b.ended(); got != unix.SIGHUP {
		t.Errorf("the kernel says %v, want %v for reboot", got, unix.SIGHUP)
	}
}

// A real server's lease is taken and renewed, and given up when refused.
func TestProcess1DHCP(t *testing.T) {
	b := start(t, "rocelink.ip=dhcp")
	b.plug()
	b.ip("address", "add", "10.77.0.1/24", "dev", "far")
	var renewals atomic.Int32
	serveDHCP(t, b.cmd.Process.Pid, func(q *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
		kind, ip := dhcpv4.MessageTypeOffer, net.IPv4(10, 77, 0, 50)
		if q.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
			if !q.ClientIPAddr.IsUnspecified() && renewals.Add(1) == 2 {
				kind = dhcpv4.MessageTypeNak
			}
			if renewals.Load() >= 2 {
				ip = net.IPv4(10, 77, 0, 51)
			}
		}
		r, err := dhcpv4.NewReplyFromRequest(q,
			dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(ip), dhcpv4.WithServerIP(net.IPv4(10, 77, 0, 1)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 77, 0, 1))),
			dhcpv4.WithNetmask(net.IPv4Mask(255, 255, 255, 0)), dhcpv4.WithRouter(net.IPv4(10, 77, 0, 254)),
			// The least time between renewals is ten seconds.
			dhcpv4.WithDNS(net.IPv4(10, 77, 0, 3)), dhcpv4.WithLeaseTime(60), dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(time.Second)))
		if err != nil {
			t.Error(err)
		}
		return r
	})
	b.ip("link", "set", "far", "up")
	if line := b.until("network: up"); !strings.Contains(line, "10.77.0.50/24") {
		t.Errorf("%s", line)
	}
	if out := b.ip("route"); !strings.Contains(out, "default via 10.77.0.254 dev eth0") {
		t.Errorf("routes:\n%s", out)
	}
	if data, err := os.ReadFile(filepath.Join(b.root, "etc/resolv.conf")); err != nil || string(data) != "nameserver 10.77.0.3\n" {
		t.Errorf("resolv.conf: %q, %v", data, err)
	}
	if line := b.until("refused the lease"); renewals.Load() != 2 {
		t.Errorf("%d renewals: %s", renewals.Load(), line)
	}
	if line := b.until("network: up"); !strings.Contains(line, "10.77.0.51/24") {
		t.Errorf("%s", line)
	}
	if out := b.ip("-br", "address"); strings.Contains(out, "10.77.0.50") {
		t.Errorf("the refused address is kept:\n%s", out)
	}
}

// serveDHCP plays a server in the board's network.
func serveDHCP(t *testing.T, pid int, answer func(*dhcpv4.DHCPv4) *dhcpv4.DHCPv4) {
	t.Helper()
	made := make(chan error)
	go func() {
		// The thread stays in the board's network, so it ends with this
		// goroutine.
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			made <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			made <- err
			return
		}
		s, err := server4.NewServer("far", &net.UDPAddr{Port: dhcpv4.ServerPort}, func(c net.PacketConn, peer net.Addr, q *dhcpv4.DHCPv4) {
			_, _ = c.WriteTo(answer(q).ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
		})
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
			go s.Serve()
		}
		made <- err
	}()
	must(t, "DHCP server in the board's network", <-made)
}

// Anybody else who starts the program is told what it is, and nothing happens.
func TestOnlyAsProcess1(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "board-init")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(bin).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not process 1") {
		t.Errorf("%v: %s", err, out)
	}
}
