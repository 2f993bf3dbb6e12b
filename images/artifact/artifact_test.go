package artifact

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// names are what a folder holds.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range entries {
		s = append(s, e.Name())
	}
	return strings.Join(s, " ")
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "image")
	if err := WriteBytes(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(path, []byte("two")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, func(f *os.File) error {
		if _, err := f.WriteString("half"); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "two" {
			t.Errorf("while it is written the name holds %q, %v", data, err)
		}
		return broken
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want the cause and the file", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "two" {
		t.Errorf("after a failure: %q", data)
	}
	if got := names(t, dir); got != "image" {
		t.Errorf("left behind: %s", got)
	}
}

func TestWriteNowhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "image")
	if err := WriteBytes(path, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache", "kernel")
	broken := errors.New("broken")
	fill := func(err error) func(string) error {
		return func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return err
		}
	}
	if err := Folder(path, fill(broken)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if got := names(t, filepath.Dir(path)); got != "" {
		t.Errorf("a failure left %s", got)
	}
	for range 2 { // the second finds the first's
		if err := Folder(path, fill(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, filepath.Dir(path)); got != "kernel" {
		t.Errorf("left %s", got)
	}
}
