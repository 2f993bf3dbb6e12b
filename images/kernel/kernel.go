// Package kernel finds a 64-bit ARM kernel and its modules, in a folder of the
// user's or in Debian's package, and says which modules to load in which order.
package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Errors of Open and Modules.
var (
	// ErrNoKernel means that there is no kernel, or more than one.
	ErrNoKernel = errors.New("no kernel")
	// ErrImage means that a file is no 64-bit ARM kernel image.
	ErrImage = errors.New("not a 64-bit ARM kernel image")
	// ErrNoModule means that neither the kernel nor its modules have a name.
	ErrNoModule = errors.New("no such module")
)

// maxImage is the largest kernel that is read, unpacked.
const maxImage = 256 << 20

// Tree is a kernel with its modules.
type Tree struct {
	File    string // of the image
	Image   []byte // unpacked
	Release string // such as 6.1.0-57-arm64; "" without modules
	// Span is how much memory the kernel takes from where it is loaded, with
	// what the file does not hold.
	Span uint64

	config  map[string]string // by symbol; nil: not known
	modules map[string]string // file by name
	builtin map[string]bool
}

// Open reads a kernel. Path is an image file, or a folder with boot/vmlinuz-* or
// Image, and, if any, lib/modules/RELEASE.
func Open(path string) (*Tree, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	t := &Tree{File: path, modules: map[string]string{}, builtin: map[string]bool{}}
	if info.IsDir() {
		if err := t.find(path); err != nil {
			return nil, err
		}
	}
	if err := t.readImage(); err != nil {
		return nil, err
	}
	return t, nil
}

// find looks for image and modules in a folder.
func (t *Tree) find(dir string) error {
	var images []string
	for _, pattern := range []string{"boot/vmlinuz-*", "boot/Image*", "Image", "Image.gz"} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		images = append(images, m...)
	}
	if len(images) != 1 {
		return fmt.Errorf("kernel: folder %s has %d of boot/vmlinuz-*, boot/Image* and Image, want one: %w", dir, len(images), ErrNoKernel)
	}
	t.File = images[0]
	if configs, err := filepath.Glob(filepath.Join(dir, "boot/config-*")); err == nil && len(configs) == 1 {
		text, err := readFile(configs[0], 4<<20)
		if err != nil {
			return fmt.Errorf("kernel: %w", err)
		}
		t.config = map[string]string{}
		for line := range strings.Lines(string(text)) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(k, "CONFIG_") {
				t.config[k] = v
			}
		}
	}
	for _, place := range []string{"lib/modules", "usr/lib/modules"} {
		releases, err := os.ReadDir(filepath.Join(dir, place))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("kernel: %w", err)
		}
		if len(releases) != 1 {
			return fmt.Errorf("kernel: %s has the modules of %d kernels, want one", filepath.Join(dir, place), len(releases))
		}
		t.Release = releases[0].Name()
		return t.index(filepath.Join(dir, place, t.Release))
	}
	return nil
}

// readImage reads the image and checks its header (Linux,
// Documentation/arm64/booting.rst, "Call the kernel image").
func (t *Tree) readImage() error {
	data, err := readFile(t.File, maxImage)
	if err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	switch {
	case len(data) < 64:
		return fmt.Errorf("kernel %s: %d bytes: %w", t.File, len(data), ErrImage)
	case string(data[4:8]) == "zimg":
		return fmt.Errorf("kernel %s packs itself (EFI_ZBOOT), which only EFI unpacks: build the kernel without: %w", t.File, ErrImage)
	case string(data[56:60]) != "ARM\x64":
		return fmt.Errorf("kernel %s: no arm64 header: %w", t.File, ErrImage)
	}
	offset := binary.LittleEndian.Uint64(data[8:])
	span := binary.LittleEndian.Uint64(data[16:])
	switch {
	case binary.LittleEndian.Uint64(data[24:])&1 != 0:
		return fmt.Errorf("kernel %s is big-endian: %w", t.File, ErrImage)
	case offset != 0:
		return fmt.Errorf("kernel %s wants to begin %#x behind a multiple of 2 MiB, as kernels before 5.8 did: %w", t.File, offset, ErrImage)
	case span > maxImage:
		return fmt.Errorf("kernel %s says that it takes %d bytes of memory: %w", t.File, span, ErrImage)
	case span == 0:
		return fmt.Errorf("kernel %s does not say how much memory it takes: %w", t.File, ErrImage)
	}
	if end := fileEnd(data); uint64(len(data)) < end {
		return fmt.Errorf("kernel %s has %d bytes of %d: cut off: %w", t.File, len(data), end, ErrImage)
	}
	t.Image, t.Span = data, max(span, uint64(len(data)))
	return nil
}

// fileEnd is where the image's data end in its file. The arm64 header does not
// tell; the sections of the EFI program that the image also is do.
func fileEnd(data []byte) (end uint64) {
	if string(data[:2]) != "MZ" {
		return 0
	}
	f, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		return 0
	}
	for _, s := range f.Sections {
		end = max(end, uint64(s.Offset)+uint64(s.Size))
	}
	return end
}

// readFile reads a file, unpacked if it is packed by gzip.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	magic := make([]byte, 2)
	if _, err := f.ReadAt(magic, 0); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", name, err)
		}
		r = z
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, limit)
	}
	return data, nil
}

// Has says whether the kernel was built with a symbol of its configuration, and
// whether that is known.
func (t *Tree) Has(symbol string) (has, known bool) {
	return t.config[symbol] == "y", t.config != nil
}

// moduleName is a module's name in the kernel: hyphens are underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// ModuleNames lists the modules of the tree in order.
func (t *Tree) ModuleNames() []string {
	names := make([]string, 0, len(t.modules))
	for n := range t.modules {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
