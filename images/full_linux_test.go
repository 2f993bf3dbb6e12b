package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that fills up at every step: an error with the file and the reason, and
// no half of a file.
func TestFullDisk(t *testing.T) {
	c := config(t)
	if _, err := Build(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	whole := map[string]int64{}
	for _, name := range []string{InitramfsFile + ".zst", "unit.itb", CardFile, ManifestFile} {
		info, err := os.Stat(filepath.Join(c.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		whole[name] = info.Size()
	}
	failed := 0
	for kib := int64(64); ; kib *= 2 {
		c.Out = t.TempDir()
		if err := unix.Mount("none", c.Out, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
			if errors.Is(err, unix.EPERM) {
				t.Skip("needs root for a small file system")
			}
			t.Fatal(err)
		}
		_, err := Build(context.Background(), c)
		entries, readErr := os.ReadDir(c.Out)
		for _, e := range entries {
			info, statErr := e.Info()
			if statErr != nil || info.Size() != whole[e.Name()] {
				t.Errorf("disk of %d KiB: %s has %d bytes of %d, %v", kib, e.Name(), info.Size(), whole[e.Name()], statErr)
			}
		}
		if err := errors.Join(readErr, unix.Unmount(c.Out, 0)); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			break
		}
		if failed++; !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), c.Out) {
			t.Errorf("disk of %d KiB: %v", kib, err)
		}
		if kib > 1<<20 {
			t.Fatal("no disk is large enough")
		}
	}
	if failed < 3 {
		t.Errorf("only %d disks were too small", failed)
	}
}
