//go:build lab

package lab

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rocelink/agent/lab/remote"
	"rocelink/fpga/roce"
)

var (
	cache   = flag.String("cache", "../../build/lab", "folder that holds the unpacked kernel and takes what the lab builds")
	uml     = flag.String("uml", "", "user-mode `kernel` to run in place of QEMU; see .ci/lab-uml")
	verbose = flag.Bool("console", false, "show the guest's console")
	strict  = flag.Bool("strict", false, "build our programs for the guest with the race detector and cgocheck2, and run them with GOGC=1")
)

// buildTime bounds what is compiled before: minutes on two processors that have
// other work, without a cache.
const buildTime = 15 * time.Minute

// labTime bounds boot and cases: several times what they take where nothing else
// runs.
func labTime() time.Duration {
	if *strict {
		return 20 * time.Minute
	}
	return 10 * time.Minute
}

// guest is the machine that all cases use: one boot, many cases.
var guest *Machine

// segment is a cable with a host at our end and an rxe device at the guest's.
type segment struct {
	port
	device, netdev string // of the guest
	guestIP        netip.Addr
	guestMAC       roce.MAC
	mtu            roce.MTU

	// take gets the frames to our host; cases put theirs in.
	take atomic.Pointer[func([]byte)]
}

// port is embedded under a name of its own because Port has a method Run.
type port = Port

// segments are one for each path MTU that the interface MTUs give.
var segments = []*segment{
	{device: "rxe1", netdev: "eth1", mtu: 1024},
	{device: "rxe2", netdev: "eth2", mtu: 4096},
}

var netdevMTU = map[roce.MTU]int{1024: 1500, 4096: 4200}

// attach has a case take the frames of a segment until it ends.
func (s *segment) attach(t *testing.T, take func([]byte)) {
	t.Helper()
	if !s.take.CompareAndSwap(nil, &take) {
		t.Fatalf("%s is in use", s.netdev)
	}
	t.Cleanup(func() { s.take.Store(nil) })
}

func (s *segment) dispatch(frame []byte) {
	if f := s.take.Load(); f != nil {
		(*f)(frame)
	}
}

// onEach runs a case on every segment.
func onEach(t *testing.T, run func(*testing.T, *segment)) {
	for _, s := range segments {
		t.Run(fmt.Sprintf("MTU=%d", s.mtu), func(t *testing.T) { run(t, s) })
	}
}

// results are what is told at the end.
var results struct {
	sync.Mutex
	passed, failed, notRun int
	leftOut                int // cannot be had here
	notes                  []string
}

// report tells of a case when it ends. Every leaf calls it.
func report(t *testing.T) {
	t.Helper()
	began := time.Now()
	t.Cleanup(func() {
		verdict := "passed"
		results.Lock()
		defer results.Unlock()
		switch {
		case t.Failed():
			verdict = "FAILED"
			results.failed++
			t.Logf("the guest's console ends:\n%s", guest.ConsoleTail())
		case t.Skipped():
			verdict = "NOT RUN"
			results.notRun++
		default:
			results.passed++
		}
		progress("%-7s %5.1fs  %s", verdict, time.Since(began).Seconds(), strings.TrimPrefix(t.Name(), "Test"))
	})
}

// needsQEMU says that a case cannot be had on a user-mode kernel, and why.
func needsQEMU(t *testing.T, why string) {
	t.Helper()
	if *uml != "" {
		leaveOut(t, why)
	}
}

// leaveOut tells of a case that cannot be had here, and why.
func leaveOut(t *testing.T, why string) {
	t.Helper()
	results.Lock()
	results.leftOut++
	results.Unlock()
	progress("left out        %s: %s", strings.TrimPrefix(t.Name(), "Test"), why)
	t.SkipNow()
}

// note keeps a figure for the end.
func note(format string, args ...any) {
	results.Lock()
	defer results.Unlock()
	results.notes = append(results.notes, fmt.Sprintf(format, args...))
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *strict {
		caseTime *= 2
	}
	code, err := runLab(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

func progress(format string, args ...any) { fmt.Printf("lab: "+format+"\n", args...) }

func runLab(m *testing.M) (int, error) {
	open := func() (*Kernel, error) { return OpenKernel(filepath.Join(*cache, "kernel")) }
	if *uml != "" {
		open = func() (*Kernel, error) { return OpenUserMode(*uml) }
	}
	kernel, err := open()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	progress("building the image for Linux %s%s", kernel.Release, under(kernel))
	building, built := context.WithTimeout(context.Background(), buildTime)
	defer built()
	image, err := buildImage(building, kernel)
	if err != nil {
		return 0, fmt.Errorf("build the image: %w", err)
	}
	info, err := os.Stat(image)
	if err != nil {
		return 0, err
	}
	progress("%.1f MB built in %v; booting", float64(info.Size())/1e6, time.Since(began).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), labTime())
	defer cancel()
	cfg := Config{Kernel: kernel, Image: image, Console: io.Discard}
	if *verbose {
		cfg.Console = os.Stdout
	}
	for i, s := range segments {
		s.guestMAC = roce.MAC{2, 0, 0, 0x44, byte(i + 1), 2}
		s.MAC = roce.MAC{2, 0, 0, 0x44, byte(i + 1), 1}
		s.guestIP = netip.AddrFrom4([4]byte{10, 44, byte(i + 1), 2})
		s.Address = netip.AddrFrom4([4]byte{10, 44, byte(i + 1), 1})
		cfg.Cables = append(cfg.Cables, Cable{MAC: s.guestMAC, MTU: netdevMTU[s.mtu]})
	}
	guest, err = Start(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { _ = guest.Close() }()
	progress("guest is up after %v", guest.Booted.Round(time.Millisecond))
	for i, s := range segments {
		s.Wire = guest.Wires[i]
		go func() {
			if err := s.Run(s.dispatch); err != nil {
				progress("%s: %v", s.netdev, err)
			}
		}()
		if err := s.configure(ctx); err != nil {
			return 0, fmt.Errorf("set up %s: %w", s.netdev, err)
		}
	}
	code := m.Run()
	results.Lock()
	defer results.Unlock()
	for _, n := range results.notes {
		progress("%s", n)
	}
	progress("rdma_rxe of Linux %s%s: %d cases passed, %d failed, %d not run, %d left out; boot %v, all %v", guest.Hello(), under(kernel), results.passed, results.failed,
		results.notRun, results.leftOut, guest.Booted.Round(time.Millisecond), time.Since(began).Round(time.Second))
	if code == 0 && (results.notRun > 0 || results.passed == 0) {
		code = 1 // what did not run was not shown
	}
	return code, nil
}

// under says what the guest runs on.
func under(k *Kernel) string {
	if k.UserMode {
		return " (user mode)"
	}
	return " (QEMU)"
}

// configure makes the guest's interface and RDMA device.
func (s *segment) configure(ctx context.Context) error {
	for _, c := range []string{
		// The queue has room for all READ responses that can be asked for.
		fmt.Sprintf("ip link set %s mtu %d txqueuelen 20000", s.netdev, netdevMTU[s.mtu]),
		fmt.Sprintf("ip link set %s up", s.netdev),
		fmt.Sprintf("ip addr add %v/24 dev %s", s.guestIP, s.netdev),
		fmt.Sprintf("rdma link add %s type rxe netdev %s", s.device, s.netdev),
	} {
		if _, err := guest.Run(ctx, remote.Command{Args: strings.Fields(c)}); err != nil {
			return err
		}
	}
	return nil
}

// tools are the programs of others that run in the guest.
var tools = []string{"ip", "rdma", "ibv_devinfo", "ibv_rc_pingpong", "ib_send_bw", "ib_write_bw", "ib_read_bw", "rping", "cat", "ls", "prlimit", "setpriv", "taskset"}

// programs are ours, by how they are built.
var programs = []struct {
	cgo, tags string
	guest     bool // runs there
	races     bool // built with the race detector if strict
	paths     []string
}{
	{cgo: "0", guest: true, paths: []string{"rocelink/agent/lab/cmd/guest-init"}}, // alone in the image when it starts
	{cgo: "1", paths: []string{"rocelink/firmware/cmd/boardd"}},
	{cgo: "1", tags: "ibverbs,rdmacm", guest: true, races: true, paths: []string{"rocelink/agent/lab/cmd/guest-receive",
		"rocelink/agent/lab/cmd/guest-request", "rocelink/agent/lab/cmd/guest-rping", "rocelink/agent/cmd/rocelinkd"}},
	// Started again and again by who waits: with the race detector it would be
	// most of what the guest does.
	{cgo: "1", tags: "ibverbs,rdmacm", guest: true, paths: []string{"rocelink/agent/cmd/rocectl"}},
}

// loaded are what programs load by themselves.
var loaded = []struct{ path, of string }{
	{"/usr/lib/*/libibverbs/librxe-*.so", "ibverbs-providers"},
	{"/usr/lib/*/libgcc_s.so.1", "libgcc-s1"}, // pthread_exit of rping
}

func buildImage(ctx context.Context, k *Kernel) (string, error) {
	goTool := os.Getenv("GO")
	if goTool == "" {
		goTool = "go"
	}
	bin, err := filepath.Abs(filepath.Join(*cache, "bin"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	for _, p := range programs {
		// With the flags of this program itself most of it is compiled already.
		args := []string{"build", "-ldflags", "-s -w", "-tags", p.tags, "-o", bin}
		env := append(os.Environ(), "CGO_ENABLED="+p.cgo)
		if *strict && p.races {
			args = append(args, "-race")
			env = append(env, "GOEXPERIMENT=cgocheck2")
		}
		build := exec.CommandContext(ctx, goTool, append(args, p.paths...)...)
		build.Env = env
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", build, err, out)
		}
	}
	img := &Image{
		Init:    filepath.Join(bin, "guest-init"),
		Kernel:  k,
		Modules: []string{"virtio_pci", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"},
		Files:   map[string]string{"/etc/libibverbs.d/rxe.driver": "/etc/libibverbs.d/rxe.driver"},
	}
	if k.UserMode {
		img.Modules = nil
	}
	for _, p := range tools {
		at, err := exec.LookPath(p)
		if err != nil {
			return "", err
		}
		img.Programs = append(img.Programs, at)
	}
	for _, p := range programs {
		for _, name := range p.paths {
			if name = path.Base(name); p.guest && name != "guest-init" {
				img.Files["/bin/"+name] = filepath.Join(bin, name)
			}
		}
	}
	for _, l := range loaded {
		at, err := filepath.Glob(l.path)
		if err != nil || len(at) == 0 {
			return "", fmt.Errorf("no %s: install the package %s", l.path, l.of)
		}
		img.Libraries = append(img.Libraries, at...)
	}
	out := filepath.Join(*cache, "initramfs.gz")
	return out, img.WriteFile(out)
}
