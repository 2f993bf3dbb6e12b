package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rocelink/fpga/regs"
)

var errFake = errors.New("it does not work")

const goodBoard = `
model: m
soc: versal
device: xcvm1802
apertures:
  - {name: pl, file: /dev/mem, base: 0x70000000, size: 0x20000}
roce: {aperture: pl, offset: 0x1000}
mac: {driver: cmac, aperture: pl, offset: 0x10000, fec: none}
network:
  mac: {source: name}
  address: {source: flag}
`

const goodLine = "console=ttyAMA0 rocelink.nats=nats://10.0.2.2:4222 rocelink.address=10.9.0.2 rocelink.card=none rocelink.ip=10.0.2.15/24,10.0.2.2"

// machine is a System that plays a board. It runs in a bubble of synctest, so
// that its time is the test's.
type machine struct {
	t    *testing.T
	root string

	mu      sync.Mutex
	calls   []string         // what was asked of it, in order
	fail    map[string]error // by prefix of the call
	console bytes.Buffer
	kernel  bytes.Buffer
	card    map[string]string // nil: none
	behind  time.Duration     // of the clock
	askErr  error
	set     []time.Time
	regs    *registers
	dog     *dog
	started []startedProgram
	running map[int]bool
	exits   []Exit
	next    int
	// life decides how long a program runs; 0: until it is asked to end.
	life     func(Command) time.Duration
	stubborn bool          // programs ignore Terminate
	hang     chan struct{} // Start waits for it
	stuck    chan struct{} // Sync waits for it
	lease    func(ctx context.Context, before *Lease) (*Lease, error)
	leases   []time.Time
	ports    []Interface
	changes  []chan struct{}
	listener *listener
	events   chan Event
	ended    chan How
	began    time.Time
}

type startedProgram struct {
	pid int
	at  time.Duration
	Command
}

func newMachine(t *testing.T) *machine {
	m := &machine{
		t: t, root: t.TempDir(), fail: map[string]error{}, running: map[int]bool{}, next: 100,
		regs: newRegisters(),
		ports: []Interface{
			{Index: 1, Name: "lo", Loopback: true},
			{Index: 2, Name: "eth0", Ethernet: true, Carrier: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
		},
	}
	m.file("/proc/cmdline", goodLine)
	m.file("/etc/rocelink/board.yaml", goodBoard)
	// The bubble's clock starts in 2000.
	m.file("/etc/rocelink/build.json", `{"name":"alpha","version":"v9","time":946684700}`)
	return m
}

func (m *machine) file(name, text string) {
	m.t.Helper()
	name = filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// boot runs a board on the machine in a bubble, lets the test play, and powers
// the board off if the test did not.
func (m *machine) boot(play func()) {
	m.t.Helper()
	synctest.Test(m.t, func(t *testing.T) {
		// Channels of the bubble are what its time waits for.
		m.events, m.ended = make(chan Event, 8), make(chan How, 1)
		m.began = time.Now()
		i := New(Config{System: m, Root: m.root, Console: locked{&m.mu, &m.console}})
		go func() { m.ended <- i.Run() }()
		synctest.Wait()
		play()
		select {
		case <-m.ended:
			return
		default:
		}
		m.events <- EventPowerOff
		select {
		case <-m.ended:
		case <-time.After(time.Minute):
			t.Fatalf("does not go down; log:\n%s", m.text())
		}
	})
}

// change changes the machine while it runs.
func (m *machine) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// pass lets time pass.
func (m *machine) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (m *machine) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.console.String()
}

// did notes a call and returns the failure it shall have.
func (m *machine) did(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	call = strings.ReplaceAll(call, m.root, "")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
	for prefix, err := range m.fail {
		if strings.HasPrefix(call, prefix) {
			return err
		}
	}
	return nil
}

func (m *machine) log() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// count is how often a call with the prefix was made.
func (m *machine) count(prefix string) (n int) {
	for _, c := range m.log() {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func (m *machine) programs() []startedProgram {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.started)
}

// env returns a variable of the last program with the path.
func (m *machine) env(path, key string) string {
	p := m.programs()
	for n := len(p) - 1; n >= 0; n-- {
		if p[n].Path != path {
			continue
		}
		for _, e := range p[n].Env {
			if v, ok := strings.CutPrefix(e, key+"="); ok {
				return v
			}
		}
		return ""
	}
	return ""
}

// flag returns the value of a flag of the last boardd.
func (m *machine) flag(name string) string {
	p := m.programs()
	if len(p) == 0 {
		return ""
	}
	args := p[len(p)-1].Args
	if n := slices.Index(args, name); n >= 0 && n+1 < len(args) {
		return args[n+1]
	}
	return ""
}

func (m *machine) Mount(f Mount) error {
	if err := m.did("mount %s on %s", f.Type, f.Target); err != nil {
		return err
	}
	if f.Type == "vfat" {
		if !f.ReadOnly || !f.NoExec || !f.NoDevices || !f.NoSetUID {
			m.t.Errorf("the card is mounted %+v", f)
		}
		for name, text := range m.card {
			if err := os.WriteFile(filepath.Join(f.Target, name), []byte(text), 0o644); err != nil {
				m.t.Error(err)
			}
		}
	}
	return nil
}

func (m *machine) Unmount(target string) error {
	if strings.HasSuffix(target, cardMount) {
		for name := range m.card {
			if err := os.Remove(filepath.Join(target, name)); err != nil {
				m.t.Error(err)
			}
		}
	}
	return m.did("unmount %s", target)
}

func (m *machine) LoadModule(file string) error  { return m.did("module %s", file) }
func (m *machine) SetHostname(name string) error { return m.did("hostname %s", name) }

func (m *machine) SetTime(t time.Time) error {
	m.mu.Lock()
	m.set = append(m.set, t)
	m.mu.Unlock()
	return m.did("set time")
}

func (m *machine) Volume(ctx context.Context, label string) (string, error) {
	if err := m.did("volume %s", label); err != nil {
		return "", err
	}
	if m.card == nil {
		<-ctx.Done()
		return "", ErrNoVolume
	}
	return "/dev/mmcblk0p1", nil
}

func (m *machine) KernelLog() (io.WriteCloser, error) {
	return struct {
		io.Writer
		io.Closer
	}{locked{&m.mu, &m.kernel}, nil}, m.did("kernel log")
}

func (m *machine) Map(file string, base, size uint64) (Registers, error) {
	if err := m.did("map %s %#x %#x", file, base, size); err != nil {
		return nil, err
	}
	return m.regs, nil
}

func (m *machine) Listen(path string) (net.Listener, error) {
	if err := m.did("listen %s", path); err != nil {
		return nil, err
	}
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	m.listener = l
	m.mu.Unlock()
	return l, nil
}

func (m *machine) Watchdog(timeout time.Duration) (Watchdog, error) {
	if err := m.did("watchdog %v", timeout); err != nil {
		return nil, err
	}
	d := &dog{m: m, timeout: timeout}
	d.timer = time.AfterFunc(timeout, func() { m.did("watchdog fires") })
	m.mu.Lock()
	m.dog = d
	m.mu.Unlock()
	return d, nil
}

// dog is a watchdog that notes when it fires.
type dog struct {
	m       *machine
	timeout time.Duration
	timer   *time.Timer
	fed     int
}

func (d *dog) Timeout() time.Duration { return d.timeout }

func (d *dog) Feed() error {
	d.m.mu.Lock()
	d.fed++
	d.m.mu.Unlock()
	d.timer.Reset(d.timeout)
	return d.m.did("feed")
}

func (d *dog) Disarm() error {
	d.timer.Stop()
	return d.m.did("disarm")
}

func (m *machine) Start(c Command) (int, error) {
	if err := m.did("start %s", c.Path); err != nil {
		return 0, err
	}
	m.mu.Lock()
	hang, life := m.hang, m.life
	m.mu.Unlock()
	if hang != nil {
		<-hang
	}
	m.mu.Lock()
	m.next++
	pid := m.next
	m.running[pid] = true
	m.started = append(m.started, startedProgram{pid, time.Since(m.began), c})
	m.mu.Unlock()
	if life != nil {
		if d := life(c); d > 0 {
			time.AfterFunc(d, func() { m.exit(pid, Exit{PID: pid, Code: 2}) })
		}
	}
	return pid, nil
}

// exit ends a program.
func (m *machine) exit(pid int, e Exit) {
	m.mu.Lock()
	if !m.running[pid] {
		m.mu.Unlock()
		return
	}
	delete(m.running, pid)
	m.exits = append(m.exits, e)
	m.mu.Unlock()
	m.events <- EventChild
}

func (m *machine) Terminate(pid int) error {
	err := m.did("terminate %s", m.name(pid))
	m.mu.Lock()
	stubborn := m.stubborn
	m.mu.Unlock()
	if !stubborn {
		m.end(pid, "terminated")
	}
	return err
}

func (m *machine) Kill(pid int) error {
	err := m.did("kill %s", m.name(pid))
	m.end(pid, "killed")
	return err
}

func (m *machine) name(pid int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.started {
		if p.pid == pid {
			return p.Path
		}
	}
	return "all"
}

func (m *machine) end(pid int, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.running {
		if pid == p || pid == 0 {
			delete(m.running, p)
			m.exits = append(m.exits, Exit{PID: p, Signal: how})
		}
	}
	select {
	case m.events <- EventChild:
	default:
	}
}

func (m *machine) Reap() ([]Exit, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.exits
	m.exits = nil
	return e, len(m.running) > 0
}

func (m *machine) Events() <-chan Event { return m.events }

func (m *machine) Sync() {
	m.did("sync")
	m.mu.Lock()
	stuck := m.stuck
	m.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
}

func (m *machine) Reset(how How) error { return m.did("reset %v", how) }

func (m *machine) Interfaces() ([]Interface, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ports), m.fail["interfaces"]
}

func (m *machine) Changes(ctx context.Context) (<-chan struct{}, error) {
	if err := m.did("changes"); err != nil {
		return nil, err
	}
	c := make(chan struct{}, 1)
	m.mu.Lock()
	m.changes = append(m.changes, c)
	m.mu.Unlock()
	return c, nil
}

// carrier plugs a cable in or out.
func (m *machine) carrier(name string, on bool) {
	m.mu.Lock()
	for n := range m.ports {
		if m.ports[n].Name == name {
			m.ports[n].Carrier = on
		}
	}
	for _, c := range m.changes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	m.mu.Unlock()
	synctest.Wait()
}

func (m *machine) Up(index int) error {
	err := m.did("up %d", index)
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.ports {
		if m.ports[n].Index == index && err == nil {
			m.ports[n].Up = true
		}
	}
	return err
}

func (m *machine) AddAddress(index int, p netip.Prefix) error {
	return m.did("address %d %v", index, p)
}

func (m *machine) RemoveAddress(index int, p netip.Prefix) error {
	return m.did("no address %d %v", index, p)
}

func (m *machine) SetGateway(index int, g netip.Addr) error { return m.did("gateway %d %v", index, g) }

func (m *machine) Lease(ctx context.Context, on Interface, before *Lease) (*Lease, error) {
	m.mu.Lock()
	m.leases = append(m.leases, time.Now())
	m.mu.Unlock()
	if err := m.did("lease %s renew=%t", on.Name, before != nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	answer := m.lease
	m.mu.Unlock()
	if answer == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return answer(ctx, before)
}

func (m *machine) AskTime(ctx context.Context, server string) (time.Duration, error) {
	if err := m.did("ask time %s", server); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.behind, m.askErr
}

// listener hands out one end of a pipe.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{} }

// ask makes a request as boardd does.
func (m *machine) ask(request string) string {
	m.t.Helper()
	here, there := net.Pipe()
	select {
	case m.listener.conns <- there:
	case <-m.listener.closed:
		return "closed"
	}
	if _, err := io.WriteString(here, request+"\n"); err != nil {
		m.t.Fatal(err)
	}
	b, err := io.ReadAll(here)
	if err != nil && !errors.Is(err, io.EOF) {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// registers are an aperture with a core at 0x1000.
type registers struct {
	mu     sync.Mutex
	words  map[uint32]uint32
	stuck  bool // Control does not take a value
	writes []uint32
	bad    error
}

func newRegisters() *registers {
	return &registers{words: map[uint32]uint32{
		0x1000 + uint32(regs.CoreIdent):   regs.IdentCore,
		0x1000 + uint32(regs.CoreVersion): regs.CoreVersionMajor.Of(regs.VersionMajor),
		0x1000 + uint32(regs.CoreControl): 1,
	}}
}

func (r *registers) Read32(o uint32) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.words[o], r.bad
}

func (r *registers) Write32(o, v uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, o)
	if !r.stuck {
		r.words[o] = v
	}
	return nil
}

func (r *registers) Close() error { return nil }

func (r *registers) set(o, v uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.words[o] = v
}

func (r *registers) on() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.words[0x1000+uint32(regs.CoreControl)] == 1
}

func (r *registers) touched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.writes)
}
