// Package artifact writes files that are whole or absent: a file gets its name
// only after all of it is on the disk.
package artifact

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write makes the file at path of what fill writes. Whatever goes wrong, an
// older file of that name stays as it was, and nothing is left behind.
func Write(path string, fill func(f *os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := fill(f); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// A full disk may show only here.
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteBytes makes the file at path of data.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(f *os.File) error {
		n, err := f.Write(data)
		if err == nil && n < len(data) {
			err = io.ErrShortWrite
		}
		return err
	})
}

// Folder makes the folder at path of what fill puts into it, where there is
// none yet. It may take long: another program's folder wins if it came first.
func Folder(path string, fill func(dir string) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("make folder %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fill(dir); err != nil {
		return fmt.Errorf("make folder %s: %w", path, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("make folder %s: %w", path, err)
	}
	if err := os.Rename(dir, path); err != nil {
		if _, there := os.Stat(path); there == nil {
			return nil
		}
		return fmt.Errorf("make folder %s: %w", path, err)
	}
	return nil
}
