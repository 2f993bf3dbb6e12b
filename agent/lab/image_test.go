package lab

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

func TestImage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	img := &Image{Init: file("init", "first", 0o755), Kernel: &Kernel{},
		Files: map[string]string{"/etc/deep/er/conf": file("conf", "x=1", 0o600), "/bin/tool": file("tool", "#!", 0o711)}}
	out := filepath.Join(dir, "image.gz")
	var last []byte
	for range 2 {
		if err := img.WriteFile(out); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && !bytes.Equal(b, last) {
			t.Error("the same content made other bytes")
		}
		last = b
	}
	z, err := gzip.NewReader(bytes.NewReader(last))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	a, err := cpio.ArchiveFromReader(cpio.Newc.Reader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint64{"init": cpio.S_IFREG | 0o755, "dev/console": cpio.S_IFCHR | 0o600, "dev/null": cpio.S_IFCHR | 0o666,
		"etc/deep": cpio.S_IFDIR | 0o755, "etc/deep/er/conf": cpio.S_IFREG | 0o644, "bin/tool": cpio.S_IFREG | 0o755, "etc/modules": cpio.S_IFREG | 0o644} {
		if r, ok := a.Get(name); !ok || r.Mode != mode {
			t.Errorf("%s: there: %v, mode %o, want %o", name, ok, r.Mode, mode)
		}
	}
	img.Files["/gone"] = filepath.Join(dir, "gone")
	if err := img.WriteFile(out); err == nil {
		t.Error("a missing file was no error")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".image-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if b, err := os.ReadFile(out); err != nil || !bytes.Equal(b, last) {
		t.Errorf("the failure spoilt the image that was there: %v", err)
	}
}
