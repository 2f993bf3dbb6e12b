package fpgamanager_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink/bsp/bitstream"
	"rocelink/bsp/bitstream/bitstreamtest"
	"rocelink/bsp/fpgamanager"
)

// kernel behaves as fpga_manager does behind its files.
type kernel struct {
	files  map[string]string
	writes []string
	refuse error    // what writing firmware or an overlay gives
	states []string // what state shows after a load, one a look
	status string
}

const (
	dir      = "/sys/class/fpga_manager/fpga0/"
	overlays = "/sys/kernel/config/device-tree/overlays"
)

func newKernel(vendor, configfs bool) *kernel {
	k := &kernel{files: map[string]string{dir + "state": "unknown\n"}, states: []string{"operating"}, status: "applied\n"}
	if vendor {
		k.files[dir+"firmware"], k.files[dir+"flags"] = "", ""
	}
	if configfs {
		k.files[overlays] = ""
	}
	return k
}

func (k *kernel) ReadFile(name string) ([]byte, error) {
	v, ok := k.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if name == dir+"state" && k.loaded() && len(k.states) > 0 {
		v = k.states[0]
		if len(k.states) > 1 {
			k.states = k.states[1:]
		}
	}
	return []byte(v), nil
}

func (k *kernel) loaded() bool {
	return slices.ContainsFunc(k.writes, func(w string) bool { return strings.Contains(w, "firmware") || strings.Contains(w, "dtbo") })
}

func (k *kernel) WriteFile(name string, data []byte) error {
	if _, ok := k.files[name]; !ok {
		return fs.ErrNotExist
	}
	k.writes = append(k.writes, filepath.Base(name)+"="+string(data))
	if b := filepath.Base(name); b == "firmware" || b == "dtbo" {
		return k.refuse
	}
	return nil
}

func (k *kernel) Store(name string, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err == nil {
		k.files[name] = string(b)
	}
	return err
}

func (k *kernel) Exists(name string) bool { _, ok := k.files[name]; return ok }

func (k *kernel) Mkdir(name string) error {
	k.files[name], k.files[name+"/dtbo"], k.files[name+"/status"] = "", "", k.status
	return nil
}

func (k *kernel) Remove(name string) error {
	for _, f := range []string{name, name + "/dtbo", name + "/status"} {
		delete(k.files, f)
	}
	return nil
}

func manager(k *kernel) fpgamanager.Manager {
	now := time.Unix(1e9, 0)
	return fpgamanager.Manager{Files: k, Now: func() time.Time { return now }, Sleep: func(d time.Duration) { now = now.Add(d) }}
}

func TestLoad(t *testing.T) {
	c := bitstreamtest.Config{IDCode: 0x147FB093}
	bit := bitstreamtest.Bit("top", "xczu48dr-ffvg1517-2-e", c.Data(false))
	k := newKernel(true, false)
	k.states = []string{"write", "write complete", "operating"}
	if err := manager(k).Load("rocelink.bin", bytes.NewReader(bit), fpgamanager.Options{Partial: true, Encrypted: true}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"flags=5\n", "firmware=rocelink.bin\n"}; !slices.Equal(k.writes, want) {
		t.Errorf("wrote %q, want %q", k.writes, want)
	}
	if k.files["/lib/firmware/rocelink.bin"] != string(c.Data(true)) {
		t.Error("the firmware file is not the swapped data")
	}
}

func TestLoadFails(t *testing.T) {
	image := bitstreamtest.Config{IDCode: 0x147FB093}.Data(true)
	for _, c := range []struct {
		name   string
		set    func(k *kernel)
		file   string
		image  []byte
		want   error
		writes int
	}{
		{"no manager", func(k *kernel) { delete(k.files, dir+"state") }, "a.bin", image, fpgamanager.ErrNoManager, 0},
		{"mainline kernel", func(k *kernel) { delete(k.files, dir+"firmware") }, "a.bin", image, fpgamanager.ErrNoInterface, 0},
		{"no bitstream", nil, "a.bin", []byte("text"), bitstream.ErrNoSync, 0},
		{"short .bit", nil, "a.bin", bitstreamtest.Bit("t", "p", image)[:200], bitstream.ErrTruncated, 0},
		{"path", nil, "../a.bin", image, fpgamanager.ErrName, 0},
		{"no name", nil, "", image, fpgamanager.ErrName, 0},
		{"long name", nil, strings.Repeat("a", 255), image, fpgamanager.ErrName, 0},
		{"refused", func(k *kernel) { k.refuse = errors.New("input/output error") }, "a.bin", image, fpgamanager.ErrRefused, 2},
		{"error state", func(k *kernel) { k.states = []string{"write error"} }, "a.bin", image, fpgamanager.ErrNotOperating, 2},
		{"never operating", func(k *kernel) { k.states = []string{"write"} }, "a.bin", image, fpgamanager.ErrNotOperating, 2},
	} {
		k := newKernel(true, false)
		if c.set != nil {
			c.set(k)
		}
		err := manager(k).Load(c.file, bytes.NewReader(c.image), fpgamanager.Options{})
		if !errors.Is(err, c.want) || len(k.writes) != c.writes {
			t.Errorf("%s: %v after %q, want %v", c.name, err, k.writes, c.want)
		}
	}
}

func TestLoadRegion(t *testing.T) {
	k := newKernel(false, true)
	k.states = []string{"write", "operating"}
	for range 2 { // the second replaces the first
		if err := manager(k).LoadRegion("rocelink", []byte("dtbo")); err != nil {
			t.Fatal(err)
		}
	}
	if !k.Exists(overlays + "/rocelink") {
		t.Error("the overlay was removed")
	}
	for name, c := range map[string]struct {
		set  func(k *kernel)
		want error
	}{
		"no configfs":     {func(k *kernel) { delete(k.files, overlays) }, fpgamanager.ErrNoInterface},
		"refused":         {func(k *kernel) { k.refuse = errors.New("invalid argument") }, fpgamanager.ErrRefused},
		"not applied":     {func(k *kernel) { k.status = "unapplied\n" }, fpgamanager.ErrRefused},
		"never operating": {func(k *kernel) { k.states = []string{"unknown"} }, fpgamanager.ErrNotOperating},
	} {
		k := newKernel(false, true)
		c.set(k)
		if err := manager(k).LoadRegion("rocelink", []byte("dtbo")); !errors.Is(err, c.want) || k.Exists(overlays+"/rocelink") {
			t.Errorf("%s: %v, overlay left %v", name, err, k.Exists(overlays+"/rocelink"))
		}
	}
}

// On real files: only what exists is written, images are whole or absent.
func TestSystemFiles(t *testing.T) {
	root := t.TempDir()
	at := filepath.Join(root, "sys/class/fpga_manager/fpga0")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"state": "operating\n", "firmware": "", "flags": ""} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(v), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := fpgamanager.Manager{Sys: filepath.Join(root, "sys"), Firmware: filepath.Join(root, "firmware")}
	image := bitstreamtest.Config{IDCode: 0x147FB093}.Data(true)
	if err := m.Load("a.bin", bytes.NewReader(image), fpgamanager.Options{}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "firmware/a.bin")); err != nil || !bytes.Equal(got, image) {
		t.Errorf("%v", err)
	}
	if got, err := os.ReadFile(filepath.Join(at, "firmware")); err != nil || string(got) != "a.bin\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := m.Load("b.bin", bytes.NewReader(image[:len(image)-1]), fpgamanager.Options{}); !errors.Is(err, bitstream.ErrTruncated) {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(root, "firmware"))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
