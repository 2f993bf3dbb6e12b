// Package initramfs writes the file system a board starts with: a packed cpio
// archive. The same files give the same bytes, in whatever order they came.
package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"
)

// Errors of Add and Write.
var (
	// ErrConflict means that two entries want the same name, or one wants to be
	// a folder that is a file.
	ErrConflict = errors.New("two files of the same name")
	// ErrLink means that a symbolic link leads nowhere, or in circles.
	ErrLink = errors.New("link leads nowhere")
	// ErrTooLarge means that the packed archive exceeds its budget.
	ErrTooLarge = errors.New("larger than its budget")
)

// Archive collects what is in the file system. The zero value holds what a
// program needs before its first line: /dev with console and null, without which
// the kernel gives /init no files to write to and a Go program ends at once.
type Archive struct {
	entries map[string]entry
}

type entry struct {
	mode         uint64
	data         []byte
	link         string
	major, minor uint64
}

// Device numbers (Linux, Documentation/admin-guide/devices.txt).
var basic = map[string]entry{
	"dev":         {mode: cpio.S_IFDIR | 0o755},
	"dev/console": {mode: cpio.S_IFCHR | 0o600, major: 5, minor: 1},
	"dev/null":    {mode: cpio.S_IFCHR | 0o666, major: 1, minor: 3},
	"dev/kmsg":    {mode: cpio.S_IFCHR | 0o600, major: 1, minor: 11},
	"proc":        {mode: cpio.S_IFDIR | 0o755},
	"sys":         {mode: cpio.S_IFDIR | 0o755},
	"run":         {mode: cpio.S_IFDIR | 0o755},
	"tmp":         {mode: cpio.S_IFDIR | 0o1777},
}

func (a *Archive) add(name string, e entry) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("initramfs: %q is no name, want one such as bin/boardd", name)
	}
	if a.entries == nil {
		a.entries = map[string]entry{}
		for n, e := range basic {
			a.entries[n] = e
		}
	}
	if _, ok := a.entries[name]; ok {
		return fmt.Errorf("initramfs: %s: %w", name, ErrConflict)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		d, ok := a.entries[dir]
		if ok && d.mode&cpio.S_IFMT != cpio.S_IFDIR {
			return fmt.Errorf("initramfs: %s: %s is not a folder: %w", name, dir, ErrConflict)
		}
		if !ok {
			a.entries[dir] = entry{mode: cpio.S_IFDIR | 0o755}
		}
	}
	a.entries[name] = e
	return nil
}

// File adds a file.
func (a *Archive) File(name string, data []byte, mode fs.FileMode) error {
	if len(data) > math.MaxUint32 {
		return fmt.Errorf("initramfs: %s has %d bytes, the format takes %d", name, len(data), uint32(math.MaxUint32))
	}
	return a.add(name, entry{mode: cpio.S_IFREG | uint64(mode.Perm()), data: data})
}

// Link adds a symbolic link; target is as in symlink(2).
func (a *Archive) Link(name, target string) error {
	return a.add(name, entry{mode: cpio.S_IFLNK | 0o777, link: target})
}

// names are the entries in order, folders before what is in them.
func (a *Archive) names() []string {
	names := make([]string, 0, len(a.entries))
	for n := range a.entries {
		names = append(names, n)
	}
	slices.SortFunc(names, func(x, y string) int {
		return slices.Compare(strings.Split(x, "/"), strings.Split(y, "/"))
	})
	return names
}

// check follows every link.
func (a *Archive) check() error {
	for _, name := range a.names() {
		if _, err := a.follow(name); err != nil {
			return err
		}
	}
	return nil
}

// follow resolves a name as the kernel would.
func (a *Archive) follow(name string) (string, error) {
	const limit = 40 // of the kernel (Linux, fs/namei.c, MAXSYMLINKS)
	at, rest, links := "", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		step := rest[0]
		rest = rest[1:]
		switch step {
		case "", ".":
			continue
		case "..":
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, step)
		e, ok := a.entries[next]
		if !ok {
			return "", fmt.Errorf("initramfs: %s: %s is not in the archive: %w", name, next, ErrLink)
		}
		if e.mode&cpio.S_IFMT != cpio.S_IFLNK {
			at = next
			continue
		}
		if links++; links > limit {
			return "", fmt.Errorf("initramfs: %s: links in circles: %w", name, ErrLink)
		}
		if strings.HasPrefix(e.link, "/") {
			at = ""
		}
		rest = append(strings.Split(e.link, "/"), rest...)
	}
	return at, nil
}

// Write writes the archive, not packed. Every file has the time given.
func (a *Archive) Write(w io.Writer, t time.Time) error {
	if init, err := a.follow("init"); err != nil {
		return err
	} else if e := a.entries[init]; e.mode&cpio.S_IFMT != cpio.S_IFREG || e.mode&0o111 == 0 {
		return fmt.Errorf("initramfs: init is no program: %w", ErrLink)
	}
	if err := a.check(); err != nil {
		return err
	}
	out := cpio.Newc.Writer(w)
	for i, name := range a.names() {
		e := a.entries[name]
		info := cpio.Info{
			Name: name, Mode: e.mode, Ino: uint64(i + 1), NLink: 1, MTime: uint64(max(t.Unix(), 0)),
			Rmajor: e.major, Rminor: e.minor,
		}
		content := e.data
		if e.link != "" {
			content = []byte(e.link)
		}
		if err := out.WriteRecord(cpio.StaticRecord(content, info)); err != nil {
			return fmt.Errorf("initramfs: %s: %w", name, err)
		}
	}
	if err := cpio.WriteTrailer(out); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	return nil
}

// Compression is how an archive is packed.
type Compression string

// Compressions. Zstd needs a kernel of 5.9 or later with CONFIG_RD_ZSTD and gives
// the smaller archive, which the kernel unpacks faster; every kernel has gzip.
const (
	Zstd Compression = "zstd"
	Gzip Compression = "gzip"
)

// Suffix is that of a file's name.
func (c Compression) Suffix() string {
	if c == Gzip {
		return ".gz"
	}
	return ".zst"
}

// Symbol is the kernel's configuration that unpacks it.
func (c Compression) Symbol() string {
	if c == Gzip {
		return "CONFIG_RD_GZIP"
	}
	return "CONFIG_RD_ZSTD"
}

// window lets what the programs have in common be kept once.
const window = 8 << 20

// Packed returns the archive packed, of at most limit bytes; a limit of 0 is
// none.
func (a *Archive) Packed(c Compression, t time.Time, limit int64) ([]byte, error) {
	var b bytes.Buffer
	var z io.WriteCloser
	var err error
	switch c {
	case Zstd:
		// One at a time: the bytes must not depend on the processors.
		z, err = zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
			zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	case Gzip:
		z, err = gzip.NewWriterLevel(&b, gzip.BestCompression)
	default:
		return nil, fmt.Errorf("initramfs: compression %q, want %s or %s", c, Zstd, Gzip)
	}
	if err != nil {
		return nil, err
	}
	if err := a.Write(z, t); err != nil {
		return nil, errors.Join(err, z.Close())
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	if limit > 0 && int64(b.Len()) > limit {
		return nil, fmt.Errorf("initramfs: %d bytes packed, want at most %d; the largest files are %s: %w", b.Len(), limit, a.largest(), ErrTooLarge)
	}
	return b.Bytes(), nil
}

// largest names the three largest files.
func (a *Archive) largest() string {
	names := a.names()
	slices.SortStableFunc(names, func(x, y string) int { return len(a.entries[y].data) - len(a.entries[x].data) })
	var s []string
	for _, n := range names[:min(3, len(names))] {
		s = append(s, fmt.Sprintf("%s (%d)", n, len(a.entries[n].data)))
	}
	return strings.Join(s, ", ")
}
