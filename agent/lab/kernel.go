package lab

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoKernel means that a folder holds no kernel with modules.
var ErrNoKernel = errors.New("no kernel")

// Kernel is a kernel package that was unpacked into a folder, not installed.
type Kernel struct {
	Release string // as in 6.1.0-57-amd64; "" of a user-mode kernel
	Image   string // path of what QEMU boots, or of the user-mode kernel
	// UserMode: Image is a program of this machine, with all that it needs
	// built in.
	UserMode bool

	modules map[string]string // path by name
	folder  string
}

// OpenKernel finds the kernel in a folder that a distribution's linux-image
// package was unpacked into: boot/vmlinuz-RELEASE and lib/modules/RELEASE. With
// several it takes the last by name.
func OpenKernel(folder string) (*Kernel, error) {
	images, err := filepath.Glob(filepath.Join(folder, "boot", "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%w: %s has no boot/vmlinuz-*: unpack a linux-image package there", ErrNoKernel, folder)
	}
	k := &Kernel{Image: images[len(images)-1], modules: map[string]string{}}
	k.Release = strings.TrimPrefix(filepath.Base(k.Image), "vmlinuz-")
	k.folder = filepath.Join(folder, "lib", "modules", k.Release)
	err = filepath.WalkDir(k.folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko") {
			k.modules[moduleName(d.Name())] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	if len(k.modules) == 0 {
		return nil, fmt.Errorf("%w: %s has no uncompressed modules", ErrNoKernel, k.folder)
	}
	return k, nil
}

// OpenUserMode returns the kernel that is the program image.
func OpenUserMode(image string) (*Kernel, error) {
	path, err := filepath.Abs(image)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKernel, err)
	}
	return &Kernel{Image: path, UserMode: true}, nil
}

// moduleName is the name the kernel knows a module by: a file may be spelt with
// hyphens.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(file, ".ko"), "-", "_")
}

// Modules returns the files of the named modules and of all they depend on, in
// the order in which they load.
func (k *Kernel) Modules(names ...string) ([]string, error) {
	order, err := loadOrder(names, func(name string) ([]string, error) {
		path := k.modules[name]
		if path == "" {
			return nil, fmt.Errorf("module %s: not in kernel %s", name, k.Release)
		}
		return dependencies(path)
	})
	if err != nil {
		return nil, err
	}
	for i, name := range order {
		order[i] = k.modules[name]
	}
	return order, nil
}

// loadOrder returns the named modules and all that they need, each once and
// after what it needs.
func loadOrder(names []string, needs func(name string) ([]string, error)) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		deps, err := needs(name)
		if err != nil {
			return err
		}
		for _, n := range deps {
			if err := add(n); err != nil {
				return fmt.Errorf("%w (for %s)", err, name)
			}
		}
		order = append(order, name)
		return nil
	}
	for _, n := range names {
		if err := add(moduleName(n)); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// dependencies reads a module's own list: section .modinfo holds NUL-terminated
// key=value strings (Linux, include/linux/moduleparam.h, MODULE_INFO).
func dependencies(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("module %s: no .modinfo section: not a kernel module", path)
	}
	info, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("module %s: read .modinfo: %w", path, err)
	}
	return parseModinfo(info), nil
}

// parseModinfo returns what a module needs loaded before it: depends, and the
// "pre:" part of softdep.
func parseModinfo(info []byte) []string {
	var needs []string
	for field := range bytes.SplitSeq(info, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					needs = append(needs, moduleName(name))
				}
			}
		case "softdep":
			pre := false
			for _, word := range strings.Fields(value) {
				switch {
				case word == "pre:":
					pre = true
				case strings.HasSuffix(word, ":"):
					pre = false
				case pre:
					needs = append(needs, moduleName(word))
				}
			}
		}
	}
	return needs
}

// relative is a module's path below /lib/modules/RELEASE.
func (k *Kernel) relative(path string) (string, error) {
	r, err := filepath.Rel(k.folder, path)
	return filepath.ToSlash(r), err
}
