package volume

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Mount mounts the volume with the label on a folder, and returns what unmounts
// it, which may be called twice. What a program that was killed left there is
// unmounted first.
func Mount(ctx context.Context, label, folder string, write bool) (unmount func() error, err error) {
	device, err := Find(ctx, label)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	_ = unix.Unmount(folder, unix.MNT_DETACH) // nothing there, as a rule
	flags := uintptr(unix.MS_NOEXEC | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOATIME)
	if !write {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(device, folder, "vfat", flags, ""); err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	return sync.OnceValue(func() error {
		if err := unix.Unmount(folder, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", device, err)
		}
		return nil
	}), nil
}
