package lab

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
	"github.com/u-root/u-root/pkg/ldd"
)

// ModuleList is the file of the image that names the modules to load, a path a
// line.
const ModuleList = "/etc/modules"

// Image says what the guest finds at start.
type Image struct {
	// Init is a static program of this machine: the guest's first.
	Init    string
	Kernel  *Kernel
	Modules []string // by name, those they depend on come along
	// Programs are copied to the same paths, with the shared libraries they
	// are linked with.
	Programs []string
	// Libraries are shared objects that programs load by themselves; they
	// are treated as programs are.
	Libraries []string
	// Files are further files of the guest, by path: where they are here.
	Files map[string]string
}

// Write writes the image as a gzip-compressed cpio archive. The same content
// makes the same bytes.
func (m *Image) Write(w io.Writer) (err error) {
	files := map[string]string{"/init": m.Init}
	for to, from := range m.Files {
		files[to] = from
	}
	list, err := m.Kernel.Modules(m.Modules...)
	if err != nil {
		return err
	}
	var order strings.Builder
	for _, from := range list {
		r, err := m.Kernel.relative(from)
		if err != nil {
			return err
		}
		to := path.Join("/lib/modules", m.Kernel.Release, r)
		files[to] = from
		fmt.Fprintln(&order, to)
	}
	linked, err := ldd.FList(slices.Concat(m.Programs, m.Libraries)...)
	if err != nil {
		return fmt.Errorf("shared libraries: %w", err)
	}
	for _, p := range slices.Concat(m.Programs, m.Libraries, linked) {
		if p, err = filepath.Abs(p); err != nil {
			return err
		}
		files[filepath.ToSlash(p)] = p
	}

	out := bufio.NewWriter(w)
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	records := cpio.Newc.Writer(z)
	write := func(r cpio.Record) {
		if err == nil {
			err = records.WriteRecord(r)
		}
	}
	// The kernel opens /dev/console for init before devtmpfs is there.
	for _, d := range []string{"dev", "etc", "proc", "sys", "tmp", "run", "var", "var/tmp"} {
		write(cpio.Directory(d, 0o755))
	}
	write(cpio.CharDev("dev/console", 0o600, 5, 1))
	write(cpio.CharDev("dev/null", 0o666, 1, 3))
	write(cpio.StaticFile(strings.TrimPrefix(ModuleList, "/"), order.String(), 0o644))
	made := map[string]bool{}
	for _, to := range sortedKeys(files) {
		for _, d := range parents(to) {
			if !made[d] {
				made[d] = true
				write(cpio.Directory(d, 0o755))
			}
		}
		if err == nil {
			err = writeFile(records, strings.TrimPrefix(to, "/"), files[to])
		}
	}
	write(cpio.TrailerRecord)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return errors.Join(z.Close(), out.Flush())
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// parents are the folders above a path, outermost first.
func parents(p string) []string {
	var out []string
	for d := path.Dir(strings.TrimPrefix(p, "/")); d != "."; d = path.Dir(d) {
		out = append([]string{d}, out...)
	}
	return out
}

func writeFile(w cpio.RecordWriter, to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	mode := uint64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return w.WriteRecord(cpio.StaticRecord(b, cpio.Info{Name: to, Mode: cpio.S_IFREG | mode}))
}

// WriteFile writes the image to a file, in one piece or not at all.
func (m *Image) WriteFile(name string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".image-*")
	if err != nil {
		return err
	}
	err = errors.Join(m.Write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
