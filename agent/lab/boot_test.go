//go:build lab

package lab

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"rocelink/agent/lab/remote"
	"rocelink/fpga/roce"
)

var (
	cache   = flag.String("cache", "../../build/lab", "folder with the kernel, for what the lab builds")
	verbose = flag.Bool("console", false, "show the guest's console")
)

// guest is the machine that all cases use: one boot, many cases.
var guest *Machine

// The guest's ports towards us.
var cables = []Cable{
	{MAC: roce.MAC{2, 0, 0, 0x44, 0, 0x11}, MTU: 1500},
	{MAC: roce.MAC{2, 0, 0, 0x44, 0, 0x12}, MTU: 4200},
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runLab(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

func progress(format string, args ...any) { fmt.Printf("lab: "+format+"\n", args...) }

func runLab(m *testing.M) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	kernel, err := OpenKernel(filepath.Join(*cache, "kernel"))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	image, err := buildImage(ctx, kernel)
	if err != nil {
		return 0, fmt.Errorf("build the image: %w", err)
	}
	info, err := os.Stat(image)
	if err != nil {
		return 0, err
	}
	progress("image of %.1f MB built in %v", float64(info.Size())/1e6, time.Since(began).Round(time.Millisecond))
	cfg := Config{Kernel: kernel, Image: image, Cables: cables, Console: io.Discard}
	if *verbose {
		cfg.Console = os.Stdout
	}
	guest, err = Start(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { _ = guest.Close() }()
	progress("Linux %s up after %v", guest.Hello(), guest.Booted.Round(time.Millisecond))
	return m.Run(), nil
}

func buildImage(ctx context.Context, k *Kernel) (string, error) {
	bin, err := filepath.Abs(filepath.Join(*cache, "bin"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin, "rocelink/agent/lab/cmd/guest-init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", build, err, out)
	}
	img := &Image{
		Init:    filepath.Join(bin, "guest-init"),
		Kernel:  k,
		Modules: []string{"virtio_pci", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"},
		Files:   map[string]string{},
	}
	for _, p := range []string{"ip", "rdma", "ibv_devinfo", "ibv_rc_pingpong", "rping",
		"ib_send_bw", "ib_write_bw", "ib_read_bw"} {
		at, err := exec.LookPath(p)
		if err != nil {
			return "", err
		}
		img.Programs = append(img.Programs, at)
	}
	providers, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-*.so")
	if err != nil || len(providers) == 0 {
		return "", fmt.Errorf("libibverbs has no provider for rxe: install the package ibverbs-providers")
	}
	img.Libraries = providers
	img.Files["/etc/libibverbs.d/rxe.driver"] = "/etc/libibverbs.d/rxe.driver"
	out := filepath.Join(*cache, "initramfs.gz")
	return out, img.WriteFile(out)
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := guest.Run(t.Context(), remote.Command{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBoot(t *testing.T) {
	t.Log(run(t, "ip", "addr"))
	for i := range cables {
		dev := fmt.Sprintf("eth%d", i+1)
		run(t, "ip", "link", "set", dev, "mtu", fmt.Sprint(cables[i].MTU), "up")
		run(t, "ip", "addr", "add", fmt.Sprintf("10.44.%d.2/24", i+1), "dev", dev)
		run(t, "rdma", "link", "add", fmt.Sprintf("rxe%d", i+1), "type", "rxe", "netdev", dev)
	}
	t.Log(run(t, "rdma", "link"))
	t.Log(run(t, "ibv_devinfo", "-v", "-d", "rxe1"))
}
