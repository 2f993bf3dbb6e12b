package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Find returns the block device of the FAT volume with the label. The kernel
// finds cards in its own time and tells by an event: it waits for one as long as
// ctx lasts and there is a slot for one.
func Find(ctx context.Context, label string) (string, error) {
	events, err := deviceEvents()
	if err != nil {
		return "", err
	}
	defer events.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := events.SetReadDeadline(deadline); err != nil {
			return "", fmt.Errorf("watch devices: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	defer stop()
	buf := make([]byte, 8<<10)
	for {
		if device, ok := findVolume(label); ok {
			return device, nil
		}
		if hosts, err := os.ReadDir("/sys/class/mmc_host"); err != nil || len(hosts) == 0 {
			return "", fmt.Errorf("label %s, and no card slot: %w", label, ErrNone)
		}
		// Whatever happened, it is looked again. An overflow is an event, too.
		if _, err := events.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return "", fmt.Errorf("label %s: %w", label, ErrNone)
		}
	}
}

// deviceEvents opens the kernel's own events about devices (netlink(7),
// NETLINK_KOBJECT_UEVENT, group 1).
func deviceEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	return os.NewFile(uintptr(fd), "device events"), nil
}

// findVolume looks at all block devices in the order of their names.
func findVolume(label string) (string, bool) {
	entries, err := os.ReadDir("/sys/class/block")
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		// The kernel writes "/" in a name as "!".
		device := "/dev/" + strings.ReplaceAll(e.Name(), "!", "/")
		if l, ok := fatLabel(firstSector(device)); ok && l == label {
			return device, true
		}
	}
	return "", false
}

func firstSector(device string) []byte {
	f, err := os.Open(device)
	if err != nil {
		return nil
	}
	defer f.Close()
	sector := make([]byte, bootSector)
	if _, err := io.ReadFull(f, sector); err != nil {
		return nil
	}
	return sector
}
