package bsp

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rocelink/fpga/regs"
)

var _ regs.Bus = (*Registers)(nil)

// file makes a register file of n bytes whose words hold their own offset.
func file(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n)
	for i := 0; i+4 <= n; i += 4 {
		binary.NativeEndian.PutUint32(b[i:], uint32(i))
	}
	path := filepath.Join(t.TempDir(), "registers")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAccess(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, base := range []uint64{0, 4, page - 4, page, page + 0x7F4} {
		path := file(t, int(4*page))
		r, err := Map(path, base, page)
		if err != nil {
			t.Fatal(err)
		}
		// Only whole pages that hold the range.
		if want := (base%page + page + page - 1) / page * page; uint64(len(r.mem)) != want {
			t.Errorf("base %#x: %d bytes mapped, want %d", base, len(r.mem), want)
		}
		for _, o := range []uint32{0, 4, uint32(page) - 4} {
			if v, err := r.Read32(o); err != nil || uint64(v) != base+uint64(o) {
				t.Errorf("base %#x offset %#x: read %#x, %v", base, o, v, err)
			}
			if err := r.Write32(o, 0xCAFE0000|o); err != nil {
				t.Error(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if v := binary.NativeEndian.Uint32(b[base+4:]); v != 0xCAFE0004 {
			t.Errorf("base %#x: the file holds %#x", base, v)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedAccesses(t *testing.T) {
	r, err := Map(file(t, 8192), 0x10, 0x100)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset uint32
		want   error
	}{
		{1, ErrAlignment}, {2, ErrAlignment}, {0xFE, ErrAlignment},
		{0x100, ErrRange}, {0xFFFFFFFC, ErrRange},
	} {
		if _, err := r.Read32(c.offset); !errors.Is(err, c.want) {
			t.Errorf("read %#x: %v, want %v", c.offset, err, c.want)
		}
		if err := r.Write32(c.offset, 1); !errors.Is(err, c.want) {
			t.Errorf("write %#x: %v, want %v", c.offset, err, c.want)
		}
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := r.Read32(0); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := r.Write32(0, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func TestRefusedMappings(t *testing.T) {
	path := file(t, 4096)
	for _, c := range []struct {
		name       string
		file       string
		base, size uint64
		want       error
	}{
		{"odd base", path, 2, 16, ErrAlignment},
		{"odd size", path, 0, 15, ErrAlignment},
		{"nothing", path, 0, 0, ErrRange},
		{"too large", path, 0, 1<<32 + 4, ErrRange},
		{"wraps", path, 1<<64 - 8, 16, ErrRange},
		{"short file", path, 0, 4100, ErrShort},
		{"starts past the end", path, 8192, 4, ErrShort},
		{"missing", path + "-none", 0, 16, ErrMissing},
		{"a directory", filepath.Dir(path), 0, 16, unix.EISDIR},
	} {
		r, err := Map(c.file, c.base, c.size)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if r != nil {
			t.Errorf("%s: a mapping came with the error", c.name)
		}
	}
}

func TestPermissionErrorSaysWhatToDo(t *testing.T) {
	for _, cause := range []error{unix.EPERM, unix.EACCES} {
		err := openError("/dev/mem", 0xA0000000, 0x2000, &os.PathError{Op: "open", Path: "/dev/mem", Err: cause})
		if !errors.Is(err, ErrPermission) || !errors.Is(err, cause) {
			t.Errorf("%v matches neither", err)
		}
		for _, word := range []string{"0xa0000000", "0xa0001fff", "CONFIG_STRICT_DEVMEM", "iomem=relaxed", "root"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not name %s", err, word)
			}
		}
	}
}

// A file that shrinks under the mapping raises SIGBUS, which would end the
// program.
func TestShrunkenFileIsAnError(t *testing.T) {
	page := uint64(os.Getpagesize())
	path := file(t, int(2*page))
	r, err := Map(path, 0, 2*page)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Truncate(path, int64(page)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read32(uint32(page)); !errors.Is(err, ErrFault) {
		t.Errorf("read: %v", err)
	}
	if err := r.Write32(uint32(page), 1); !errors.Is(err, ErrFault) {
		t.Errorf("write: %v", err)
	}
	if v, err := r.Read32(8); err != nil || v != 8 {
		t.Errorf("the rest still works: %#x, %v", v, err)
	}
}

func TestCloseDuringAccess(t *testing.T) {
	r, err := Map(file(t, 4096), 0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	var started, done sync.WaitGroup
	for range 4 {
		started.Add(1)
		done.Go(func() {
			for i := 0; ; i++ {
				if _, err := r.Read32(0); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
				if i == 0 {
					started.Done()
				}
			}
		})
	}
	started.Wait()
	r.Close()
	done.Wait()
}

func BenchmarkRead32(b *testing.B) {
	path := filepath.Join(b.TempDir(), "registers")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		b.Fatal(err)
	}
	r, err := Map(path, 0, 4096)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Read32(16); err != nil {
			b.Fatal(err)
		}
	}
}
