package boot

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// mounts are the file systems of a running system, in order. The modes are
// those that systemd and busybox use.
var mounts = []Mount{
	{Source: "proc", Target: "/proc", Type: "proc", NoSetUID: true, NoDevices: true, NoExec: true},
	{Source: "sysfs", Target: "/sys", Type: "sysfs", NoSetUID: true, NoDevices: true, NoExec: true},
	{Source: "devtmpfs", Target: "/dev", Type: "devtmpfs", NoSetUID: true, Data: "mode=0755"},
	{Source: "devpts", Target: "/dev/pts", Type: "devpts", NoSetUID: true, NoExec: true, Data: "mode=0620,ptmxmode=0666"},
	{Source: "tmpfs", Target: "/dev/shm", Type: "tmpfs", NoSetUID: true, NoDevices: true, Data: "mode=1777"},
	{Source: "tmpfs", Target: "/run", Type: "tmpfs", NoSetUID: true, NoDevices: true, Data: "mode=0755"},
	{Source: "tmpfs", Target: "/tmp", Type: "tmpfs", NoSetUID: true, NoDevices: true, Data: "mode=1777"},
}

// mountAll mounts what is not mounted yet. What fails is reported and does not
// stop the rest: a board without /tmp is better than none.
func (i *Init) mountAll() {
	for _, m := range mounts {
		if i.mounted(m) {
			continue
		}
		err := os.MkdirAll(i.path(m.Target), 0o755)
		if err == nil {
			target := m.Target
			m.Target = i.path(target)
			err = i.sys.Mount(m)
			m.Target = target
		}
		switch {
		case err == nil:
			i.undo = append(i.undo, m.Target)
		case !errors.Is(err, ErrPresent):
			i.fault("mount %s: %v", m.Target, err)
		}
	}
}

// mounted looks into the kernel's table, which exists once /proc does. A second
// tmpfs would be mounted over the first and hide it.
func (i *Init) mounted(m Mount) bool {
	table, err := os.ReadFile(i.path("/proc/self/mounts"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 2 && f[1] == m.Target && f[2] == m.Type {
			return true
		}
	}
	return false
}

// unmountAll unmounts in reverse.
func (i *Init) unmountAll() {
	for n := len(i.undo) - 1; n >= 0; n-- {
		if err := i.sys.Unmount(i.path(i.undo[n])); err != nil {
			i.log.Warn("unmount", "target", i.undo[n], "err", err)
		}
	}
	i.undo = nil
}

// fault reports what went wrong with the system itself.
func (i *Init) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	i.log.Error(text)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.faults = appendText(i.faults, text)
}
