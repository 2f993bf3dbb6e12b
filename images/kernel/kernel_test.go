package kernel

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"rocelink/images/kernel/kerneltest"
)

func tree(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := kerneltest.Tree(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpen(t *testing.T) {
	k, err := Open(tree(t))
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != kerneltest.Release || len(k.Image) != 1<<20 || k.Span != 2<<20 {
		t.Errorf("release %q, %d bytes that take %d", k.Release, len(k.Image), k.Span)
	}
	if has, known := k.Has("CONFIG_RD_XZ"); has || !known {
		t.Error("a symbol that is not set")
	}
	if has, known := k.Has("CONFIG_DEVMEM"); !has || !known {
		t.Error("a symbol that is set")
	}
	if has, _ := k.Has("CONFIG_MACB"); has {
		t.Error("a module is not built in")
	}
}

func TestOpenFile(t *testing.T) {
	image := kerneltest.Image(4096, 8192)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(image)
	_ = z.Close()
	for name, data := range map[string][]byte{"Image": image, "Image.gz": packed.Bytes()} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := Open(file)
		if err != nil || !bytes.Equal(k.Image, image) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, known := k.Has("CONFIG_DEVMEM"); known {
			t.Errorf("%s: nobody knows its configuration", name)
		}
		if _, err := k.Modules([]string{"macb"}); !errors.Is(err, ErrNoModule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImageRefused(t *testing.T) {
	good := kerneltest.Image(4096, 8192)
	change := func(at int, b ...byte) []byte {
		d := bytes.Clone(good)
		copy(d[at:], b)
		return d
	}
	for _, c := range []struct {
		name, text string
		data       []byte
	}{
		{"another file", "no arm64 header", []byte(strings.Repeat("kernel", 100))},
		{"empty", "0 bytes", nil},
		{"cut off", "cut off", good[:3000]},
		{"EFI zboot", "EFI_ZBOOT", change(4, []byte("zimg")...)},
		{"big-endian", "big-endian", change(24, 0xb)},
		{"text offset", "before 5.8", change(8, 0, 0, 8)},
		{"no size", "how much memory", change(16, make([]byte, 8)...)},
		{"absurd size", "memory", change(16, 0, 0, 0, 0, 1)},
		{"half of a gzip", "unpack", []byte{0x1f, 0x8b, 8, 0}},
	} {
		file := filepath.Join(t.TempDir(), "Image")
		if err := os.WriteFile(file, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(file)
		if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want one with %q and the file", c.name, err, c.text)
		}
		if c.text != "unpack" && !errors.Is(err, ErrImage) {
			t.Errorf("%s: %v, want ErrImage", c.name, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNoKernel) {
		t.Errorf("empty folder: %v", err)
	}
	dir := tree(t)
	if err := os.WriteFile(filepath.Join(dir, "boot/vmlinuz-other"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNoKernel) || !strings.Contains(err.Error(), "2 of") {
		t.Errorf("two kernels: %v", err)
	}
}

// order checks that each module comes after those it needs.
func TestModules(t *testing.T) {
	k, err := Open(tree(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.Modules([]string{"macb", "softdog", "ptp", "in_built", "fixed-phy"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range got {
		names = append(names, m.Name)
		if want := kerneltest.Modules()[strings.TrimPrefix(m.File, filepath.Dir(filepath.Dir(k.File))+"/lib/modules/"+kerneltest.Release+"/")]; !bytes.Equal(m.Data, want) {
			t.Errorf("%s is not the file %s", m.Name, m.File)
		}
	}
	want := []string{"libphy", "fwnode_mdio", "fixed_phy", "of_mdio", "phylink", "macb", "softdog"}
	if !slices.Equal(names, want) {
		t.Errorf("order %v, want %v", names, want)
	}
}

func TestModulesRefused(t *testing.T) {
	k, err := Open(tree(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"absent":  "absent: no such module",
		"broken":  "absent, which broken needs",
		"one":     "depend on each other",
		"foreign": "EM_X86_64",
		"old":     `of kernel "5.10.0"`,
	} {
		if _, err := k.Modules([]string{name}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want one with %q", name, err, text)
		}
	}
}

func TestPackedModules(t *testing.T) {
	dir := tree(t)
	base := filepath.Join(dir, "lib/modules", kerneltest.Release, "kernel")
	for name, pack := range map[string]func([]byte) []byte{
		"net/phy/libphy.ko": func(d []byte) []byte {
			var b bytes.Buffer
			z, _ := xz.NewWriter(&b)
			_, _ = z.Write(d)
			_ = z.Close()
			return b.Bytes()
		},
		"net/phy/fixed_phy.ko": func(d []byte) []byte {
			z, _ := zstd.NewWriter(nil)
			return z.EncodeAll(d, nil)
		},
		"watchdog/softdog.ko": func(d []byte) []byte { return d[:len(d)/2] },
	} {
		path := filepath.Join(base, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		suffix := map[string]string{"net/phy/libphy.ko": ".xz", "net/phy/fixed_phy.ko": ".zst", "watchdog/softdog.ko": ".gz"}[name]
		if err := os.WriteFile(path+suffix, pack(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.Modules([]string{"fixed_phy"})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d modules, %v", len(got), err)
	}
	for _, m := range got {
		if !bytes.HasPrefix(m.Data, []byte("\x7fELF")) {
			t.Errorf("%s is not unpacked", m.Name)
		}
	}
	if _, err := k.Modules([]string{"softdog"}); err == nil || !strings.Contains(err.Error(), "softdog.ko.gz") {
		t.Errorf("a damaged module: %v", err)
	}
}

// What a module says about itself comes from outside: no panic, no endless loop.
func FuzzModuleInfo(f *testing.F) {
	for _, m := range kerneltest.Modules() {
		f.Add(m)
	}
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = moduleInfo(data) })
}

// tools puts programs of the test's own in the place of apt's.
func tools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestDebian(t *testing.T) {
	kernel := tree(t)
	sources := filepath.Join(t.TempDir(), "sources")
	calls := filepath.Join(t.TempDir(), "calls")
	tools(t, map[string]string{
		"apt-get": `echo "$@" >>` + calls + `
case "$*" in *download*) case "$*" in *"download linux-image-6.1-arm64"*) echo deb >kernel.deb;; *) echo "no package" >&2; exit 100;; esac;; esac`,
		"apt-cache": `case "$*" in *"linux-image-arm64") echo "Package: linux-image-arm64"; echo "Depends: linux-image-6.1-arm64 (= 6.1.1-1)";; *) exit 100;; esac`,
		"dpkg-deb":  `test "$1" = -x && cp -r ` + kernel + `/. "$3"`,
	})
	cache := t.TempDir()
	var steps []string
	d := Debian{Cache: cache, Sources: sources, Progress: func(s string) { steps = append(steps, s) }}
	dir, err := d.Fetch(context.Background(), "linux-image-arm64")
	if err != nil {
		t.Fatal(err)
	}
	if k, err := Open(dir); err != nil || k.Release != kerneltest.Release {
		t.Errorf("what was fetched: %v", err)
	}
	if len(steps) != 3 || !strings.Contains(steps[1], "linux-image-6.1-arm64") {
		t.Errorf("steps %q", steps)
	}
	text, _ := os.ReadFile(calls)
	for _, want := range []string{"APT::Architecture=arm64", "Dir::Etc::SourceList=" + sources, "Dir::State::Lists=" + cache} {
		if !strings.Contains(string(text), want) {
			t.Errorf("apt-get was not told %s", want)
		}
	}
	if again, err := d.Fetch(context.Background(), "linux-image-arm64"); err != nil || again != dir {
		t.Errorf("from the cache: %s, %v", again, err)
	}
	if now, _ := os.ReadFile(calls); len(now) != len(text) {
		t.Error("what is in the cache was fetched again")
	}
	if _, err := d.Fetch(context.Background(), "linux-image-none"); err == nil || !strings.Contains(err.Error(), "linux-image-none") {
		t.Errorf("no such package: %v", err)
	}
	left, _ := os.ReadDir(filepath.Join(cache, "packages"))
	all, _ := os.ReadDir(cache)
	if len(left) != 1 || len(all) != 1 {
		t.Errorf("the cache has %v and %v", all, left)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := d.Fetch(context.Background(), "linux-image-other"); !errors.Is(err, ErrNoPackages) {
		t.Errorf("without apt: %v", err)
	}
}
