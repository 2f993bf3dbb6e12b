package doctor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"rocelink/agent/report"
)

// Folders of sysfs.
const (
	classInfiniband = "sys/class/infiniband"
	classVerbs      = "sys/class/infiniband_verbs"
	classNet        = "sys/class/net"
)

// Bounds of what is read. An attribute of sysfs has at most a page; /proc/modules
// and a table of GIDs are the longest there are.
const (
	maxFile    = 256 << 10
	maxEntries = 4096
	maxShown   = 160 // characters of a file that are shown
)

// tree reads below a root that symbolic links cannot leave.
type tree struct{ root *os.Root }

func openTree(dir string) (tree, error) {
	if dir == "" {
		dir = "/"
	}
	root, err := os.OpenRoot(dir)
	return tree{root}, err
}

func (t tree) close() { _ = t.root.Close() }

// read returns the text of a regular file, trimmed and with what cannot be
// printed replaced.
func (t tree) read(elem ...string) (string, error) {
	name := path.Join(elem...)
	// Without O_NONBLOCK opening a FIFO would wait for its other end.
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("%s: %w", name, errLong)
	}
	return strings.TrimSpace(string(b)), nil
}

// text is read for a value of one line that may be absent: "" if it is.
func (t tree) text(elem ...string) string {
	s, err := t.read(elem...)
	if err != nil {
		return ""
	}
	s, _, _ = strings.Cut(s, "\n")
	return clean(s)
}

// number is a decimal number that may be absent.
func (t tree) number(elem ...string) (v int64, ok bool) {
	v, err := strconv.ParseInt(t.text(elem...), 10, 64)
	return v, err == nil
}

// list returns the names in a folder, sorted; none if it cannot be read.
func (t tree) list(elem ...string) []string {
	f, err := t.root.OpenFile(path.Join(elem...), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxEntries)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

func (t tree) exists(elem ...string) bool {
	_, err := t.root.Stat(path.Join(elem...))
	return err == nil
}

// target is the last element of what a symbolic link points to.
func (t tree) target(elem ...string) string {
	s, err := t.root.Readlink(path.Join(elem...))
	if err != nil {
		return ""
	}
	return clean(path.Base(s))
}

// clean makes text from anywhere fit for a line of output.
func clean(s string) string {
	long := len(s) > maxShown
	if long {
		s = s[:maxShown]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
	}
	s = report.Printable(s)
	if long {
		s += "..."
	}
	return s
}
