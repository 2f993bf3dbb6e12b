package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rocelink/firmware/boot"
)

const watchdogDevice = "/dev/watchdog"

// watchdog is the kernel's watchdog device (Linux,
// Documentation/watchdog/watchdog-api.rst).
type watchdog struct {
	f       *os.File
	timeout time.Duration
}

// Watchdog opens /dev/watchdog, which arms it.
func (k *Kernel) Watchdog(timeout time.Duration) (boot.Watchdog, error) {
	f, err := os.OpenFile(watchdogDevice, os.O_WRONLY, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%w: %w", boot.ErrNoWatchdog, err)
	}
	if err != nil {
		return nil, err
	}
	// A driver with a fixed time refuses another; what counts is what it has.
	seconds := int((timeout + time.Second - 1) / time.Second)
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.WDIOC_SETTIMEOUT, seconds)
	got, err := unix.IoctlGetInt(int(f.Fd()), unix.WDIOC_GETTIMEOUT)
	if err != nil || got < 1 {
		got = seconds
	}
	return &watchdog{f: f, timeout: time.Duration(got) * time.Second}, nil
}

// Timeout is the time the hardware gives.
func (w *watchdog) Timeout() time.Duration { return w.timeout }

// Feed starts the time anew.
func (w *watchdog) Feed() error {
	_, err := w.f.Write([]byte{0})
	return err
}

// Disarm writes the letter that tells an orderly close from a crash. A driver
// built with "nowayout" goes on all the same.
func (w *watchdog) Disarm() error {
	_, err := w.f.Write([]byte("V"))
	return errors.Join(err, w.f.Close())
}
