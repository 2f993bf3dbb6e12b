//go:build linux

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestArguments(t *testing.T) {
	args := arguments(&Config{Kernel: &Kernel{Image: "/k"}, Image: "/i", MemoryMB: 512,
		Cables: []Cable{{MAC: portMAC}, {MAC: farMAC, MTU: 4200}}}, 4711)
	for _, want := range [][]string{
		{"-kernel", "/k"}, {"-initrd", "/i"}, {"-m", "512"}, {"-smp", "2"},
		{"-netdev", "dgram,id=wire0,local.type=fd,local.str=3"}, {"-netdev", "dgram,id=wire1,local.type=fd,local.str=4"},
		{"-device", "virtio-net-pci,netdev=wire0,mac=02:00:00:00:00:01,host_mtu=1500,romfile="},
		{"-device", "virtio-net-pci,netdev=wire1,mac=02:00:00:00:00:02,host_mtu=4200,romfile="},
	} {
		found := false
		for i := range args[:len(args)-1] {
			found = found || args[i] == want[0] && args[i+1] == want[1]
		}
		if !found {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if i := slices.Index(args, "-append"); !strings.HasSuffix(args[i+1], " lab.host=10.0.2.2:4711") {
		t.Errorf("kernel arguments %q", args[i+1])
	}
}

// An emulator that is missing, fails at once, or never lets the guest speak is
// an error that shows the console, and nothing of it stays.
func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	cfg := Config{Kernel: &Kernel{}, Cables: []Cable{{}}}
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrNoEmulator) {
		t.Error(err)
	}
	fake := filepath.Join(dir, Emulator)
	script := func(s string) {
		if err := os.WriteFile(fake, []byte("#!/bin/sh\n"+s+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("echo the reason; exit 1")
	if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Error(err)
	}
	script("echo still booting; while :; do /bin/sleep 1; done")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Start(ctx, cfg); err == nil || !strings.Contains(err.Error(), "still booting") {
		t.Error(err)
	}
	if d := time.Since(began); d > BootTime/2 {
		t.Errorf("it took %v to give up", d)
	}
}

func TestConsoleKeepsItsEnd(t *testing.T) {
	var c console
	for range 5000 {
		if _, err := c.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("the last\xff\n")); err != nil {
		t.Fatal(err)
	}
	if s := c.last(2); s != "a line\nthe last?" {
		t.Errorf("%q", s)
	}
	if len(c.tail) > 16<<10 {
		t.Errorf("%d bytes are kept", len(c.tail))
	}
}

func TestUserModeArguments(t *testing.T) {
	cfg := &Config{Kernel: &Kernel{UserMode: true}, Image: "/i", Cables: []Cable{{MAC: portMAC}, {MAC: farMAC, MTU: 4200}}}
	args := userModeArguments(cfg, 4711)
	for _, want := range []string{"mem=768M", "initrd=/i", "lab.host=10.0.2.2:4711", "vec0:transport=tap,ifname=lab0",
		"vec1:transport=fd,fd=3,mac=02:00:00:00:00:01,mtu=1500,depth=64", "vec2:transport=fd,fd=4,mac=02:00:00:00:00:02,mtu=4200,depth=64"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	seed := func(args []string) string {
		i := slices.IndexFunc(args, func(s string) bool { return strings.HasPrefix(s, "lab.seed=") })
		return args[i]
	}
	if a, b := seed(args), seed(userModeArguments(cfg, 1)); len(a) != len("lab.seed=")+2*seedBytes || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

func TestOpenUserMode(t *testing.T) {
	image := filepath.Join(t.TempDir(), "linux")
	if _, err := OpenUserMode(image); !errors.Is(err, ErrNoKernel) {
		t.Error(err)
	}
	if err := os.WriteFile(image, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	k, err := OpenUserMode(image)
	if err != nil || !k.UserMode || k.Image != image {
		t.Errorf("%+v, %v", k, err)
	}
	if m, err := k.Modules(); err != nil || len(m) > 0 {
		t.Errorf("modules %v, %v", m, err)
	}
}
