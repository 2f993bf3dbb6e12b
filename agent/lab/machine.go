//go:build linux

package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rocelink/agent/lab/remote"
	"rocelink/fpga/roce"
)

// Emulator is the program that a Machine runs.
const Emulator = "qemu-system-x86_64"

const (
	// BootTime bounds the time from the start of QEMU to the guest's first
	// word.
	BootTime        = 4 * time.Minute
	defaultMemoryMB = 768
	// powerOffTime is how long a guest may take to power off before QEMU is
	// killed.
	powerOffTime = 5 * time.Second
	// hostFromGuest is this process as the guest sees it: through QEMU's user
	// network, or at the other end of controlTAP.
	hostFromGuest = "10.0.2.2"
	// controlTAP is the control port of a user-mode guest here. It has address
	// hostFromGuest; whoever starts the machine has made it.
	controlTAP = "lab0"
)

// ErrNoEmulator means that QEMU is not installed.
var ErrNoEmulator = errors.New(Emulator + " is not installed: install the package qemu-system-x86")

// Config shapes a Machine. Kernel and Image are needed.
type Config struct {
	Kernel *Kernel
	Image  string // file that Image.WriteFile made

	CPUs     int // 0 is 2; a user-mode guest has one
	MemoryMB int // 0 is defaultMemoryMB
	// Cables are the guest's network ports eth1, eth2 and so on; eth0 is the
	// control port.
	Cables []Cable
	// Console takes what the guest prints on its serial port; nil discards it.
	// The end of it is in the error of a machine that fails.
	Console io.Writer
}

// Cable is a network port of the guest.
type Cable struct {
	MAC roce.MAC // the guest's
	MTU int      // largest packet of the interface; 0 is 1500
}

func (c Cable) mtu() int {
	if c.MTU == 0 {
		return 1500
	}
	return c.MTU
}

// Machine is a guest that runs.
type Machine struct {
	*remote.Client
	// Wires are our ends of the cables.
	Wires []*Wire
	// Booted is how long it took to the guest's first word.
	Booted time.Duration

	listen  net.IP // where the guest reaches us
	console *console
	ended   chan struct{} // closed after err is set
	err     error
	kill    func()
}

// console keeps the end of what the guest prints.
type console struct {
	mu   sync.Mutex
	tail []byte
	to   io.Writer
}

func (c *console) Write(b []byte) (int, error) {
	const most = 16 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = append(c.tail, b...)
	if n := len(c.tail) - most; n > 0 {
		c.tail = append(c.tail[:0], c.tail[n:]...)
	}
	if c.to != nil {
		_, _ = c.to.Write(b)
	}
	return len(b), nil
}

func (c *console) last(lines int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(c.tail, []byte("?")))), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Start boots a machine and returns when its programs can be run. The machine
// ends with Close, when ctx is done, and with this process.
func Start(ctx context.Context, cfg Config) (_ *Machine, err error) {
	m := &Machine{console: &console{to: cfg.Console}, ended: make(chan struct{}), listen: net.IPv4(127, 0, 0, 1)}
	emulator, words := cfg.Kernel.Image, userModeArguments
	if cfg.Kernel.UserMode {
		m.listen = net.ParseIP(hostFromGuest)
	} else if emulator, err = exec.LookPath(Emulator); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoEmulator, err)
	} else {
		words = arguments
	}
	began := time.Now()
	ln, err := m.Listen()
	if err != nil {
		return nil, fmt.Errorf("listen for the guest: %w", err)
	}
	defer func() { _ = ln.Close() }()

	cables, err := m.plug(cfg.Cables)
	defer func() {
		for _, f := range cables {
			_ = f.Close()
		}
		if err != nil {
			_ = m.Close()
		}
	}()
	if err != nil {
		close(m.ended)
		return nil, err
	}
	ctx, m.kill = context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, emulator, words(&cfg, ln.Addr().(*net.TCPAddr).Port)...)
	cmd.ExtraFiles = cables
	cmd.Stdout, cmd.Stderr = m.console, m.console
	// A user-mode kernel has a process for each of its guest's.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = powerOffTime
	started := make(chan error, 1)
	go m.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", emulator, err)
	}

	boot, cancel := context.WithTimeout(ctx, BootTime)
	defer cancel()
	go func() {
		select {
		case <-m.ended:
			cancel()
		case <-boot.Done():
		}
		_ = ln.Close()
	}()
	conn, err := ln.Accept()
	if err == nil {
		m.Client, err = remote.NewClient(boot, conn)
	}
	if err != nil {
		return nil, fmt.Errorf("the guest did not come up within %v: %w; its console ends:\n%s",
			time.Since(began).Round(time.Second), err, m.console.last(30))
	}
	m.Booted = time.Since(began)
	return m, nil
}

// run is the life of QEMU. Its thread is locked because the kernel sends the
// death signal when the thread that started a process ends, not the process.
func (m *Machine) run(cmd *exec.Cmd, started chan<- error) {
	defer close(m.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	if err := cmd.Wait(); err != nil {
		m.err = fmt.Errorf("%s: %w", cmd.Path, err)
	}
}

// plug makes the cables and returns QEMU's ends.
func (m *Machine) plug(cables []Cable) (theirs []*os.File, err error) {
	for i := range cables {
		w, f, err := newWire()
		if err != nil {
			return theirs, fmt.Errorf("cable %d: %w", i, err)
		}
		m.Wires = append(m.Wires, w)
		theirs = append(theirs, f)
	}
	return theirs, nil
}

// seedBytes are as many as the kernel's generator wants (Linux,
// drivers/char/random.c, POOL_READY_BITS).
const seedBytes = 32

// firstExtraFile is behind the standard three, see exec.Cmd.
const firstExtraFile = 3

// userModeArguments is the command line of a user-mode kernel (Linux,
// Documentation/virt/uml/user_mode_linux_howto_v2.rst): vec0 is the control
// port, the cables follow.
func userModeArguments(cfg *Config, port int) []string {
	memory := cfg.MemoryMB
	if memory == 0 {
		memory = defaultMemoryMB
	}
	seed := make([]byte, seedBytes)
	_, _ = rand.Read(seed) // never fails (crypto/rand)
	args := []string{
		fmt.Sprintf("mem=%dM", memory), "initrd=" + cfg.Image, "con=null", "ssl=null", "con0=null,fd:1", "loglevel=4", "panic=-1",
		fmt.Sprintf("lab.host=%s:%d", hostFromGuest, port),
		// It has no source of entropy of its own.
		"lab.seed=" + hex.EncodeToString(seed),
		"vec0:transport=tap,ifname=" + controlTAP,
	}
	for i, c := range cfg.Cables {
		args = append(args, fmt.Sprintf("vec%d:transport=fd,fd=%d,mac=%v,mtu=%d,depth=64", i+1, firstExtraFile+i, c.MAC, c.mtu()))
	}
	return args
}

// arguments is QEMU's command line.
func arguments(cfg *Config, port int) []string {
	cpus, memory := cfg.CPUs, cfg.MemoryMB
	if cpus == 0 {
		cpus = 2
	}
	if memory == 0 {
		memory = defaultMemoryMB
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", strconv.Itoa(cpus), "-m", strconv.Itoa(memory),
		"-serial", "stdio",
		"-kernel", cfg.Kernel.Image, "-initrd", cfg.Image,
		// A guest that panics must end, not hang.
		"-append", fmt.Sprintf("console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on lab.host=%s:%d",
			hostFromGuest, port),
		"-netdev", "user,id=control",
		"-device", "virtio-net-pci,netdev=control,romfile=",
	}
	for i, c := range cfg.Cables {
		args = append(args,
			"-netdev", fmt.Sprintf("dgram,id=wire%d,local.type=fd,local.str=%d", i, firstExtraFile+i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=wire%d,mac=%v,host_mtu=%d,romfile=", i, c.MAC, c.mtu()))
	}
	return args
}

// Ended is closed when the machine has.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// ConsoleTail is the end of what the guest printed.
func (m *Machine) ConsoleTail() string { return m.console.last(40) }

// DialGuest connects to a TCP address that the guest reaches, for instance a
// server on its loopback interface. It tries until ctx ends.
func (m *Machine) DialGuest(ctx context.Context, address string) (net.Conn, error) {
	ln, err := m.Listen()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ln.Close() }()
	return m.Dial(ctx, address, ln, fromGuest(ln))
}

// Listen listens for one of the guest's programs, which finds it at
// hostFromGuest and the same port.
func (m *Machine) Listen() (*net.TCPListener, error) {
	return net.ListenTCP("tcp4", &net.TCPAddr{IP: m.listen})
}

// fromGuest is a listener of this process as the guest reaches it.
func fromGuest(ln net.Listener) string {
	return net.JoinHostPort(hostFromGuest, strconv.Itoa(ln.Addr().(*net.TCPAddr).Port))
}

// Close powers the guest off and returns when QEMU has ended, which it is made
// to if it takes too long. It may be called more than once.
func (m *Machine) Close() error {
	if m.Client != nil {
		_ = m.PowerOff()
	}
	if m.kill != nil {
		patience := time.NewTimer(powerOffTime)
		defer patience.Stop()
		if m.Client != nil {
			select {
			case <-m.ended:
			case <-patience.C:
			}
		}
		m.kill()
	}
	<-m.ended
	if m.Client != nil {
		_ = m.Client.Close()
	}
	for _, w := range m.Wires {
		_ = w.Close()
	}
	return m.err
}
