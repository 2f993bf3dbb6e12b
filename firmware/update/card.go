package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"rocelink/boards/slot"
)

// ErrFull means that the card has no room for an image.
var ErrFull = errors.New("the card is full")

// Opener opens the card, for reading only unless write is set.
type Opener func(ctx context.Context, write bool) (Card, error)

// Card is the file system that the boot loader reads. What a method has done
// survives a loss of power once Sync or, where it says so, the method returned.
type Card interface {
	// Read returns a small file.
	Read(name string) ([]byte, error)
	// Overwrite writes one of the state's files in place, and onto the medium.
	Overwrite(name string, data []byte) error
	// Create makes an empty file. The error of a write matches ErrFull when
	// there is no room.
	Create(name string) (File, error)
	// Open opens a file as it is on the medium.
	Open(name string) (Reader, error)
	Rename(from, to string) error
	// Remove removes a file; that there is none is no error.
	Remove(name string) error
	// Size is that of a file, 0 when there is none.
	Size(name string) int64
	// Free is how many bytes a new file can have.
	Free() (int64, error)
	Sync() error
	// Close gives the card back.
	Close() error
}

// File is written from its begin to its end.
type File interface {
	io.Writer
	// Sync brings what was written onto the medium.
	Sync() error
	Close() error
}

// Reader is a file that is read.
type Reader interface {
	io.ReaderAt
	io.Closer
}

// Folder is a Card in a folder, where one is mounted.
type Folder struct {
	Dir string
	// Unmount is what Close does; nil: nothing.
	Unmount func() error
}

func (f *Folder) path(name string) string { return filepath.Join(f.Dir, name) }

// Read returns a small file.
func (f *Folder) Read(name string) ([]byte, error) {
	r, err := os.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, 4*slot.FileBytes))
}

// Overwrite writes in place; a file that is not there is made.
func (f *Folder) Overwrite(name string, data []byte) error {
	w, err := os.OpenFile(f.path(name), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = w.WriteAt(data, 0)
	if err == nil {
		err = w.Truncate(int64(len(data)))
	}
	if err == nil {
		err = w.Sync()
	}
	return full(errors.Join(err, w.Close()))
}

// Create makes an empty file.
func (f *Folder) Create(name string) (File, error) {
	w, err := os.OpenFile(f.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, full(err)
	}
	return file{w}, nil
}

type file struct{ *os.File }

func (f file) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, full(err)
}

func (f file) Sync() error { return full(f.File.Sync()) }

// Open opens a file and has the kernel forget what it remembers of it.
func (f *Folder) Open(name string) (Reader, error) {
	r, err := os.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	forget(r)
	return r, nil
}

// Rename renames a file.
func (f *Folder) Rename(from, to string) error { return os.Rename(f.path(from), f.path(to)) }

// Remove removes a file.
func (f *Folder) Remove(name string) error {
	if err := os.Remove(f.path(name)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Size is that of a file.
func (f *Folder) Size(name string) int64 {
	info, err := os.Stat(f.path(name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// Close gives the card back.
func (f *Folder) Close() error {
	if f.Unmount == nil {
		return nil
	}
	return f.Unmount()
}

// full makes an error of a disk without room one that matches ErrFull.
func full(err error) error {
	if noRoom(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
