//go:build linux && cgo && ibverbs

package ibverbs

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memlock is what of this process's memory may be pinned, in bytes.
type memlock struct {
	limit  uint64 // math.MaxUint64: no limit
	pinned uint64
	exempt bool // CAP_IPC_LOCK
}

func readMemlock() (memlock, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return memlock{}, fmt.Errorf("memlock limit: %w", err)
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return memlock{}, err
	}
	m := parseStatus(string(b))
	m.limit = r.Cur
	return m, nil
}

// parseStatus finds in /proc/self/status what the kernel compares with the limit
// (drivers/infiniband/core/umem.c): VmPin, unless CAP_IPC_LOCK is effective.
func parseStatus(s string) (m memlock) {
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "VmPin":
			kb, _ := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64)
			m.pinned = kb << 10
		case "CapEff":
			caps, _ := strconv.ParseUint(value, 16, 64)
			m.exempt = caps>>unix.CAP_IPC_LOCK&1 == 1
		}
	}
	return m
}

// short reports whether the limit keeps so many bytes more from being pinned.
func (m memlock) short(need uint64) bool {
	return !m.exempt && m.limit != math.MaxUint64 && (m.pinned > m.limit || need > m.limit-m.pinned)
}

// remedy says what is missing and what to do.
func (m memlock) remedy(need uint64) string {
	return fmt.Sprintf("the limit of locked memory (memlock) is %d bytes, %d are in use, %d more are needed: raise it "+
		"(systemd: LimitMEMLOCK=infinity; shell: ulimit -l unlimited; login: memlock in /etc/security/limits.conf)", m.limit, m.pinned, need)
}
