package qemu

import (
	"runtime"
	"syscall"
	"time"
)

// attributes make a program end with the thread that started it, and keep it
// from a terminal's signals: the one who started it ends it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func lockThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// within waits for done, and says whether it came in time.
func within(done <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
