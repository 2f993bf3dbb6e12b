package update

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// forget drops a file's pages, so that what is read comes from the medium
// (posix_fadvise(2)). Where that cannot be done the check is the weaker for it.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Free is how many bytes a new file can have.
func (f *Folder) Free() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(f.Dir, &s); err != nil {
		return 0, fmt.Errorf("room on the card: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// Sync brings everything onto the medium (syncfs(2)).
func (f *Folder) Sync() error {
	d, err := os.Open(f.Dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync the card: %w", err)
	}
	return nil
}
