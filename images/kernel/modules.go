package kernel

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Module is a module of a kernel, unpacked.
type Module struct {
	Name string // as lsmod shows it
	File string // where it was read
	Data []byte
}

const maxModule = 64 << 20

// index finds the modules below a folder.
func (t *Tree) index(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			t.modules[moduleName(path)] = path
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("kernel modules: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kernel modules: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		t.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return nil
}

// Modules returns modules and those they depend on, in the order in which to
// load them. Modules that the kernel has built in are left out. What a module
// depends on stands in the module itself, so that depmod is not needed.
func (t *Tree) Modules(names []string) ([]Module, error) {
	var out []Module
	state := map[string]int{} // 1: being visited, 2: done
	var visit func(name string, from string, soft bool) error
	visit = func(name, from string, soft bool) error {
		name = strings.ReplaceAll(name, "-", "_")
		switch {
		case state[name] == 2 || t.builtin[name]:
			return nil
		case state[name] == 1 && soft:
			return nil // softdep allows circles
		case state[name] == 1:
			return fmt.Errorf("kernel modules: %s and %s depend on each other", name, from)
		}
		file, ok := t.modules[name]
		if !ok && soft {
			return nil
		}
		if !ok {
			if from != "" {
				from = ", which " + from + " needs"
			}
			return fmt.Errorf("kernel %s: module %s%s: %w (%d modules are there; a kernel with all drivers built in needs none)", t.label(), name, from, ErrNoModule, len(t.modules))
		}
		state[name] = 1
		data, err := readModule(file)
		if err != nil {
			return fmt.Errorf("kernel module %s: %w", file, err)
		}
		info, err := moduleInfo(data)
		if err != nil {
			return fmt.Errorf("kernel module %s: %w", file, err)
		}
		if magic, _, _ := strings.Cut(info.vermagic, " "); t.Release != "" && magic != t.Release {
			return fmt.Errorf("kernel module %s is of kernel %q, want %s", file, magic, t.Release)
		}
		for _, d := range info.soft {
			if err := visit(d, name, true); err != nil {
				return err
			}
		}
		for _, d := range info.depends {
			if err := visit(d, name, false); err != nil {
				return err
			}
		}
		state[name] = 2
		out = append(out, Module{name, file, data})
		return nil
	}
	for _, n := range names {
		if err := visit(n, "", false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t *Tree) label() string {
	if t.Release == "" {
		return t.File
	}
	return t.Release
}

// readModule reads a module and unpacks it: a kernel need not be able to.
func readModule(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	switch filepath.Ext(name) {
	case ".ko":
	case ".xz":
		r, err = xz.NewReader(f)
	case ".gz":
		r, err = gzip.NewReader(f)
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
			r = z
		}
	default:
		return nil, errors.New("packed in an unknown way: want .ko, .ko.gz, .ko.xz or .ko.zst")
	}
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxModule+1))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	if len(data) > maxModule {
		return nil, fmt.Errorf("more than %d bytes", maxModule)
	}
	return data, nil
}

type moduleFacts struct {
	vermagic      string
	depends, soft []string
}

// moduleInfo reads the section .modinfo: strings "key=value", each with a
// zero behind it (Linux, include/linux/moduleparam.h).
func moduleInfo(data []byte) (moduleFacts, error) {
	var m moduleFacts
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return m, err
	}
	if f.Machine != elf.EM_AARCH64 || f.Class != elf.ELFCLASS64 {
		return m, fmt.Errorf("for %v, want a 64-bit ARM module", f.Machine)
	}
	s := f.Section(".modinfo")
	if s == nil {
		return m, errors.New("no section .modinfo: not a kernel module")
	}
	if s.Size > maxModule {
		return m, fmt.Errorf("section .modinfo of %d bytes", s.Size)
	}
	text, err := s.Data()
	if err != nil {
		return m, err
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case "vermagic":
			m.vermagic = value
		case "depends":
			m.depends = append(m.depends, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "softdep":
			pre := false
			for w := range strings.FieldsSeq(value) {
				switch {
				case strings.HasSuffix(w, ":"):
					pre = w == "pre:"
				case pre:
					m.soft = append(m.soft, w)
				}
			}
		}
	}
	return m, nil
}
