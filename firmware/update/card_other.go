//go:build !linux

package update

import (
	"errors"
	"os"
)

func forget(*os.File) {}

func noRoom(error) bool { return false }

// Free is supported on Linux only.
func (f *Folder) Free() (int64, error) { return 0, errors.ErrUnsupported }

// Sync is supported on Linux only.
func (f *Folder) Sync() error { return errors.ErrUnsupported }
