package images

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"
	"github.com/u-root/u-root/pkg/dt"

	"rocelink/boards"
	"rocelink/boards/slot"
	"rocelink/images/bootbin"
	"rocelink/images/devicetree"
	"rocelink/images/fit"
	"rocelink/images/initramfs"
	"rocelink/images/kernel"
	"rocelink/images/kernel/kerneltest"
	"rocelink/images/program"
	"rocelink/images/sdcard"
)

// executable is the file of what passes for a static program for 64-bit ARM: an
// ELF header and one segment.
func executable(t *testing.T) []byte {
	t.Helper()
	text := strings.Repeat("a program ", 600)
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_AARCH64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 120, Filesz: uint64(len(text)), Memsz: uint64(len(text))}
	var b bytes.Buffer
	for _, v := range []any{h, p, []byte(text)} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

const description = `
model: test
soc: zynqmp
device: xczu
apertures:
  - {name: fabric, file: /dev/mem, base: 0x70000000, size: 0x20000}
roce: {aperture: fabric, offset: 0x0}
mac: {driver: cmac, aperture: fabric, offset: 0x10000, fec: rs}
network:
  mac: {source: name}
  address: {source: flag}
boot:
  console: ttyPS0,115200
  modules: [macb, softdog]
  firmware: [vendor/optics.bin]
  arguments: [quiet]
  ip: 10.0.0.2/24,10.0.0.1
  load: {image: 0x20000000, kernel: 0x200000, devicetree: 0xf000000, ramdisk: 0x10000000}
`

// tree is a device tree of 2 GiB with the aperture reserved, unless changed.
func tree(t *testing.T, change func(n *dt.Node)) []byte {
	t.Helper()
	cells := dt.WithProperty(dt.PropertyU32("#address-cells", 2), dt.PropertyU32("#size-cells", 2))
	root := dt.NewNode("", cells, dt.WithChildren(
		dt.NewNode("memory@0", dt.WithProperty(dt.PropertyString("device_type", "memory"), dt.PropertyRegion("reg", 0, 0x80000000))),
		dt.NewNode("reserved-memory", cells, dt.WithChildren(
			dt.NewNode("fabric@70000000", dt.WithProperty(dt.PropertyRegion("reg", 0x70000000, 0x1000000))))),
	))
	if change != nil {
		change(root)
	}
	data, err := devicetree.Bytes(&dt.FDT{RootNode: root})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// config is that of a small image, from files of the test's own.
func config(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	k := filepath.Join(dir, "kernel")
	if err := kerneltest.Tree(k); err != nil {
		t.Fatal(err)
	}
	hello := write(t, filepath.Join(dir, "hello"), executable(t))
	write(t, filepath.Join(dir, "firmware/vendor/optics.bin"), []byte("optics"))
	return Config{
		Board: write(t, filepath.Join(dir, "unit.yaml"), []byte(description)),
		Out:   filepath.Join(dir, "out"), Init: hello, Boardd: hello, Kernel: k,
		DeviceTree: write(t, filepath.Join(dir, "unit.dtb"), tree(t, nil)),
		Firmware:   filepath.Join(dir, "firmware"),
		Settings:   []string{"nats=nats://10.0.0.1:4222", "address=192.168.0.2"},
		Arguments:  []string{"loglevel=4"},
		Time:       time.Unix(1_700_000_000, 0), Version: "v1", CardSize: 44 << 20,
	}
}

func read(t *testing.T, name ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unpack returns the files of an initramfs.
func unpack(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, r := range records {
		if r.Mode&cpio.S_IFMT != cpio.S_IFREG {
			continue
		}
		text, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		if err != nil {
			t.Fatal(err)
		}
		files[r.Name] = string(text)
	}
	return files
}

func TestBuild(t *testing.T) {
	c := config(t)
	bit := append(bytes.Repeat([]byte{0xff}, 32), 0xaa, 0x99, 0x55, 0x66, 9, 9)
	c.Bitstream = write(t, filepath.Join(t.TempDir(), "design.BIN"), bit)
	c.CardConfig = write(t, filepath.Join(t.TempDir(), "site.yaml"), []byte("name: left\n"))
	var steps []string
	c.Progress = func(s string) { steps = append(steps, s) }
	r, err := Build(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) == 0 {
		t.Error("no progress")
	}
	const line = "console=ttyPS0,115200 panic=5 quiet rocelink.ip=10.0.0.2/24,10.0.0.1 rocelink.nats=nats://10.0.0.1:4222 rocelink.address=192.168.0.2 loglevel=4"
	if r.Arguments != line || r.Kernel != kerneltest.Release {
		t.Errorf("arguments %q of kernel %s", r.Arguments, r.Kernel)
	}

	// The initramfs is what init and boardd expect.
	packed := read(t, c.Out, InitramfsFile+".zst")
	files := unpack(t, packed)
	program := string(executable(t))
	want := map[string]string{
		"init": program, "bin/boardd": program,
		"etc/rocelink/board.yaml":        description,
		"etc/rocelink/build.json":        `{"name":"unit","version":"v1","time":1700000000}` + "\n",
		"lib/firmware/vendor/optics.bin": "optics",
		"lib/modules-list":               "libphy.ko\nfwnode_mdio.ko\nfixed_phy.ko\nof_mdio.ko\nphylink.ko\nmacb.ko\nsoftdog.ko\n",
	}
	for path, data := range kerneltest.Modules() {
		name := strings.ReplaceAll(filepath.Base(path), "-", "_")
		if strings.Contains(want["lib/modules-list"], name+"\n") {
			want["lib/modules/"+name] = string(data)
		}
	}
	for name, text := range want {
		if files[name] != text {
			t.Errorf("initramfs: %s has %d bytes, want %d", name, len(files[name]), len(text))
		}
		delete(files, name)
	}
	if len(files) > 0 {
		t.Errorf("initramfs: what is %d files more?", len(files))
	}

	// The FIT image holds kernel, tree and that initramfs.
	data := read(t, c.Out, "unit.itb")
	m, err := fit.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel.Unpacked(1 << 20)
	if err != nil || !bytes.Equal(k, kerneltest.Image(1<<20, 2<<20)) || m.Kernel.Load != 0x200000 {
		t.Errorf("kernel of %d bytes at %#x, %v", len(k), m.Kernel.Load, err)
	}
	blob, err := devicetree.Parse(m.DeviceTree.Data)
	if err != nil || devicetree.Arguments(blob) != line {
		t.Errorf("device tree: %v, %q", err, devicetree.Arguments(blob))
	}
	if !bytes.Equal(m.Ramdisk.Data, packed) {
		t.Error("another initramfs in the FIT image")
	}

	// So does the card.
	card, err := sdcard.Read(filepath.Join(c.Out, CardFile))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for _, f := range card {
		got[f.Name] = f.Data
	}
	if !bytes.Equal(got["image-a.itb"], data) || !bytes.Equal(got["fabric.bin"], bit) || string(got["rocelink.yaml"]) != "name: left\n" {
		t.Error("the card's files are not those that were given")
	}
	if _, ok := got["extlinux/extlinux.conf"]; ok {
		t.Error("extlinux.conf is on the card: U-Boot would never come to boot.scr")
	}
	state, err := slot.DecodeState(got[slot.StateFile])
	if err != nil || state != (slot.State{Slot: slot.A}) || !bytes.Equal(got[slot.StateFile], got[slot.StateCopy]) || len(got[slot.TriesFile]) != slot.FileBytes {
		t.Errorf("state of the slots %+v, %v", state, err)
	}
	for _, want := range []string{"fabric.bin && fpga load 0 0x20000000 ${filesize}", "setenv bootargs '" + line + "'", "load ${devtype} ${devnum}:${distro_bootpart} 0x20000000 image-${rl_s}.itb", "bootm 0x20000000"} {
		if !bytes.Contains(got["boot.scr"], []byte(want)) {
			t.Errorf("boot.scr does not say %q:\n%s", want, got["boot.scr"])
		}
	}
	if tool, err := exec.LookPath("mkimage"); err == nil {
		file := write(t, filepath.Join(t.TempDir(), "boot.scr"), got["boot.scr"])
		out, err := exec.Command(tool, "-l", file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "AArch64 Linux Script") {
			t.Errorf("mkimage -l boot.scr: %v\n%s", err, out)
		}
	}

	var manifest Result
	if err := json.Unmarshal(read(t, c.Out, ManifestFile), &manifest); err != nil || len(manifest.Files) != 3 {
		t.Errorf("manifest: %v, %+v", err, manifest.Files)
	}
}

// hashes are the results by name.
func hashes(t *testing.T, r *Result) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, f := range r.Files {
		m[f.Name] = f.SHA256
	}
	return m
}

func TestReproducible(t *testing.T) {
	one, err := Build(context.Background(), config(t))
	if err != nil {
		t.Fatal(err)
	}
	two, err := Build(context.Background(), config(t)) // in other folders
	if err != nil {
		t.Fatal(err)
	}
	a, b := hashes(t, one), hashes(t, two)
	if len(a) != 3 {
		t.Fatalf("results %v", a)
	}
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s: two builds differ", name)
		}
	}
	// What the hash would not see proves nothing: another version is another image.
	c := config(t)
	c.Version = "v2"
	three, err := Build(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range hashes(t, three) {
		if a[name] == h {
			t.Errorf("%s: another version, the same bytes", name)
		}
	}
}

func TestSourceDate(t *testing.T) {
	c := config(t)
	c.Time = time.Time{}
	t.Setenv("SOURCE_DATE_EPOCH", "1600000000")
	r, err := Build(context.Background(), c)
	if err != nil || r.Time != 1600000000 {
		t.Errorf("%v, %v", r, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if _, err := Build(context.Background(), c); err == nil || !strings.Contains(err.Error(), "today") {
		t.Errorf("%v", err)
	}
}

func TestSigned(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t)
	c.SigningKey = write(t, filepath.Join(t.TempDir(), "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if _, err := Build(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if err := fit.Verify(public, read(t, c.Out, "unit.itb"), read(t, c.Out, "unit.itb.sig")); err != nil {
		t.Error(err)
	}
	// The next image without a signature does not keep this one's.
	c.SigningKey, c.Version = "", "v2"
	if _, err := Build(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.Out, "unit.itb.sig")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old signature stays: %v", err)
	}
}

func replace(t *testing.T, c *Config, from, to string) {
	t.Helper()
	text := string(read(t, c.Board))
	if !strings.Contains(text, from) {
		t.Fatalf("%q is not in the description", from)
	}
	write(t, c.Board, []byte(strings.Replace(text, from, to, 1)))
}

func TestRefused(t *testing.T) {
	reserve := func(base, size uint64) func(n *dt.Node) {
		return func(n *dt.Node) {
			r, _ := n.LookupChildByName("reserved-memory")
			r.Children[0].Update(dt.PropertyRegion("reg", base, size))
		}
	}
	for _, k := range []struct {
		name, text string
		is         error
		change     func(t *testing.T, c *Config)
	}{
		{"unknown board", "rfsoc4x2", boards.ErrUnknown, func(_ *testing.T, c *Config) { c.Board = "zcu999" }},
		{"no such description", "none.yaml", os.ErrNotExist, func(_ *testing.T, c *Config) { c.Board = "none.yaml" }},
		{"a board without image", "demo", ErrNoBoot, func(_ *testing.T, c *Config) { c.Board = "demo" }},
		{"a board without image that boots another Linux", "no section boot", ErrNoBoot, func(_ *testing.T, c *Config) { c.Board = "vck190" }},
		{"values to set", "device: ask the data sheet", boards.ErrUnset, func(t *testing.T, c *Config) {
			text := string(read(t, c.Board)) + "i2c: [{name: i2c1, driver: linux}]\nunknown: [{field: \"i2c[0].device\", ask: ask the data sheet}]\n"
			write(t, c.Board, []byte(text))
		}},
		{"no kernel", "none", os.ErrNotExist, func(_ *testing.T, c *Config) { c.Kernel += "/none" }},
		{"no kernel named", "names no kernel", nil, func(_ *testing.T, c *Config) { c.Kernel = "" }},
		{"empty kernel folder", "want one", kernel.ErrNoKernel, func(t *testing.T, c *Config) { c.Kernel = t.TempDir() }},
		{"kernel cut off", "cut off", kernel.ErrImage, func(t *testing.T, c *Config) {
			write(t, filepath.Join(c.Kernel, "boot/vmlinuz-"+kerneltest.Release), kerneltest.Image(1<<20, 2<<20)[:1000])
		}},
		{"kernel without zstd", "CONFIG_RD_ZSTD", ErrKernel, func(t *testing.T, c *Config) {
			write(t, filepath.Join(c.Kernel, "boot/config-"+kerneltest.Release), []byte("CONFIG_RD_GZIP=y\n"))
		}},
		{"missing module", "wifi", kernel.ErrNoModule, func(t *testing.T, c *Config) { replace(t, c, "softdog", "wifi") }},
		{"missing dependency", "libphy, which", kernel.ErrNoModule, func(t *testing.T, c *Config) {
			if err := os.Remove(filepath.Join(c.Kernel, "lib/modules", kerneltest.Release, "kernel/net/phy/libphy.ko")); err != nil {
				t.Fatal(err)
			}
		}},
		{"amd64 program", "EM_X86_64", program.ErrProgram, func(t *testing.T, c *Config) {
			d := executable(t)
			d[18] = byte(elf.EM_X86_64)
			c.Boardd = write(t, filepath.Join(t.TempDir(), "boardd"), d)
		}},
		{"init cut off", "cut off", program.ErrProgram, func(t *testing.T, c *Config) {
			c.Init = write(t, filepath.Join(t.TempDir(), "init"), executable(t)[:5000])
		}},
		{"no init", "none", os.ErrNotExist, func(_ *testing.T, c *Config) { c.Init += ".none" }},
		{"over budget", "bin/boardd", initramfs.ErrTooLarge, func(_ *testing.T, c *Config) { c.MaxInitramfs = 1000 }},
		{"no firmware folder", "vendor/optics.bin", nil, func(_ *testing.T, c *Config) { c.Firmware = "" }},
		{"no firmware file", "optics.bin", os.ErrNotExist, func(t *testing.T, c *Config) { c.Firmware = t.TempDir() }},
		{"no device tree", "device tree", nil, func(_ *testing.T, c *Config) { c.DeviceTree = "" }},
		{"damaged device tree", "unit.dtb", devicetree.ErrFormat, func(t *testing.T, c *Config) { write(t, c.DeviceTree, tree(t, nil)[:100]) }},
		{"Versal's console", "ttyAMA0", boards.ErrInvalid, func(_ *testing.T, c *Config) { c.Console = "ttyAMA0,115200" }},
		{"kernel over ramdisk", "overlaps", ErrLayout, func(t *testing.T, c *Config) { replace(t, c, "ramdisk: 0x10000000", "ramdisk: 0x300000") }},
		{"image over kernel", "overlaps", ErrLayout, func(t *testing.T, c *Config) { replace(t, c, "image: 0x20000000", "image: 0x3f0000") }},
		{"tree at the image's end", "overlaps", ErrLayout, func(t *testing.T, c *Config) { replace(t, c, "devicetree: 0xf000000", "devicetree: 0x20000100") }},
		{"over the fabric", "fabric@70000000", ErrLayout, func(t *testing.T, c *Config) { replace(t, c, "ramdisk: 0x10000000", "ramdisk: 0x70fff000") }},
		{"beyond memory", "not within memory", ErrLayout, func(t *testing.T, c *Config) { replace(t, c, "ramdisk: 0x10000000", "ramdisk: 0x90000000") }},
		{"registers in memory", "does not reserve", ErrLayout, func(t *testing.T, c *Config) {
			write(t, c.DeviceTree, tree(t, reserve(0x70000000, 0x10000)))
		}},
		{"setting without value", "nats", nil, func(_ *testing.T, c *Config) { c.Settings = []string{"nats"} }},
		{"setting of two words", "a b", nil, func(_ *testing.T, c *Config) { c.Settings = []string{"name=a b"} }},
		{"quote", "quotes", nil, func(_ *testing.T, c *Config) { c.Arguments = []string{`x="`} }},
		{"long command line", "2047", nil, func(_ *testing.T, c *Config) { c.Arguments = []string{strings.Repeat("x", 2000)} }},
		{"card too small", "need", sdcard.ErrTooSmall, func(_ *testing.T, c *Config) { c.CardSize = 1 << 20 }},
		{"half a BOOT.BIN", "BOOT.BIN: first stage", bootbin.ErrInput, func(_ *testing.T, c *Config) { c.Boot = bootbin.Inputs{FSBL: c.Init} }},
		{"PDI for ZynqMP", "versal", bootbin.ErrInput, func(_ *testing.T, c *Config) { c.DeviceImage = c.Init }},
		{"no bitstream", "none.bit", os.ErrNotExist, func(_ *testing.T, c *Config) { c.Bitstream = "none.bit" }},
		{"a program as bitstream", "sync word", bootbin.ErrInput, func(t *testing.T, c *Config) {
			c.Bitstream = write(t, filepath.Join(t.TempDir(), "x.bit"), executable(t))
		}},
		{"no key", "none.pem", os.ErrNotExist, func(_ *testing.T, c *Config) { c.SigningKey = "none.pem" }},
		{"a program as key", "PRIVATE KEY", nil, func(t *testing.T, c *Config) {
			c.SigningKey = write(t, filepath.Join(t.TempDir(), "key"), []byte("ssh-ed25519 AAAA"))
		}},
		{"name", "a/b", nil, func(_ *testing.T, c *Config) { c.Name = "a/b" }},
		{"time", "1980", nil, func(_ *testing.T, c *Config) { c.Time = time.Unix(1, 0) }},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := config(t)
			k.change(t, &c)
			r, err := Build(context.Background(), c)
			if err == nil || !strings.Contains(err.Error(), k.text) || k.is != nil && !errors.Is(err, k.is) {
				t.Errorf("%v, want one with %q", err, k.text)
			}
			if r != nil {
				t.Error("a result came with the error")
			}
			left, err := filepath.Glob(filepath.Join(c.Out, ".*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
			if _, err := os.Stat(filepath.Join(c.Out, ManifestFile)); err == nil {
				t.Error("there is a manifest")
			}
		})
	}
}

func TestBuiltInBoards(t *testing.T) {
	if _, err := exec.LookPath("dtc"); err != nil {
		if os.Getenv("ROCELINK_REQUIRE_IMAGE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs device-tree-compiler: %v", err)
	}
	for _, name := range boards.Names() {
		d, err := boards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if d.Boot == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := config(t)
			c.Board, c.DeviceTree = name, ""
			for _, m := range d.Boot.Modules {
				path := filepath.Join(c.Kernel, "lib/modules", kerneltest.Release, "kernel/more", m+".ko")
				write(t, path, kerneltest.Module(elf.EM_AARCH64, "depends=", "vermagic="+kerneltest.Release+" SMP"))
			}
			r, err := Build(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range d.Boot.Modules {
				if !slices.Contains(r.Modules, m) {
					t.Errorf("module %s is not in the image: %v", m, r.Modules)
				}
			}
			if _, err := fit.Read(read(t, c.Out, ImageFile(name))); err != nil {
				t.Error(err)
			}
		})
	}
}

// A kernel with its drivers built in is one file.
func TestNoModules(t *testing.T) {
	c := config(t)
	c.Kernel = write(t, filepath.Join(t.TempDir(), "Image"), kerneltest.Image(4096, 8192))
	if _, err := Build(context.Background(), c); !errors.Is(err, kernel.ErrNoModule) {
		t.Fatal(err)
	}
	c.NoModules = true
	r, err := Build(context.Background(), c)
	if err != nil || len(r.Modules) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	files := unpack(t, read(t, c.Out, InitramfsFile+".zst"))
	if list, ok := files["lib/modules-list"]; !ok || list != "" {
		t.Errorf("list of modules %q, %v", list, ok)
	}
}

func TestShell(t *testing.T) {
	c := config(t)
	c.Shell = c.Boardd
	c.ImageConfig = write(t, filepath.Join(t.TempDir(), "image.yaml"), []byte("shell: 1\n"))
	c.Settings = append(c.Settings, "shell=1")
	if _, err := Build(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, read(t, c.Out, InitramfsFile+".zst"))
	if files["bin/busybox"] != string(executable(t)) || files["etc/rocelink/rocelink.yaml"] != "shell: 1\n" {
		t.Error("shell or configuration are not in the image")
	}
	c.Shell = write(t, filepath.Join(t.TempDir(), "sh"), []byte("#!/bin/bash"))
	if _, err := Build(context.Background(), c); !errors.Is(err, program.ErrProgram) {
		t.Errorf("a script as shell: %v", err)
	}
}

func TestVersal(t *testing.T) {
	c := config(t)
	replace(t, &c, "soc: zynqmp", "soc: versal")
	replace(t, &c, "ttyPS0", "ttyAMA0")
	pdi := make([]byte, 4096)
	copy(pdi[16:], "\x66\x55\x99\xaaXNLX")
	c.DeviceImage = write(t, filepath.Join(t.TempDir(), "a.pdi"), pdi)
	if _, err := Build(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	card, err := sdcard.Read(filepath.Join(c.Out, CardFile))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(card, func(f sdcard.File) bool { return f.Name == BootFile && bytes.Equal(f.Data, pdi) }) {
		t.Error("the device image is not on the card")
	}
}

// A later build that fails leaves the earlier one's files whole.
func TestFailureKeeps(t *testing.T) {
	c := config(t)
	if _, err := Build(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	image, card := read(t, c.Out, "unit.itb"), read(t, c.Out, CardFile)
	c.Version, c.CardSize = "v2", 1<<20
	if _, err := Build(context.Background(), c); !errors.Is(err, sdcard.ErrTooSmall) {
		t.Fatal(err)
	}
	if _, err := fit.Read(read(t, c.Out, "unit.itb")); err != nil || bytes.Equal(image, read(t, c.Out, "unit.itb")) {
		t.Errorf("the image is not the new one, whole: %v", err)
	}
	if !bytes.Equal(card, read(t, c.Out, CardFile)) {
		t.Error("the card was changed by a build that failed")
	}
}

// A description over a built-in board takes that one's device tree, unless it has
// its own beside it.
func TestBoardOverAnother(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "mine.yaml"), []byte("base: rfsoc4x2\nmodel: Mine\n"))
	want, err := boards.DeviceTree("rfsoc4x2", "board.dts")
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadBoard(file)
	if err != nil || b.name != "mine" || b.Model != "Mine" || !bytes.Equal(b.tree, want) {
		t.Fatalf("%v, %+v", err, b)
	}
	write(t, filepath.Join(dir, "board.dts"), []byte("/dts-v1/;"))
	if b, err = loadBoard(file); err != nil || string(b.tree) != "/dts-v1/;" {
		t.Errorf("%v, %q", err, b.tree)
	}
}
