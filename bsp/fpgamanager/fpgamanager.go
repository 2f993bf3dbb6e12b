// Package fpgamanager loads bitstreams through Linux's fpga_manager: nothing
// counts as loaded until the kernel says "operating". Whether the right logic
// runs is for the fabric's own identity to tell.
//
// There are two ways. The vendor kernel (linux-xlnx) has the files firmware and
// flags in sysfs, which Load uses. A kernel that takes device tree overlays by
// configfs loads the image an overlay of an fpga-region names: LoadRegion. A
// kernel with neither gives ErrNoInterface; there the boot loader has to load.
package fpgamanager

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rocelink/bsp/bitstream"
)

// Errors of the package.
var (
	// ErrNoManager: the kernel has no such fpga_manager.
	ErrNoManager = errors.New("no fpga_manager")
	// ErrNoInterface: the kernel offers no way to load an image from here.
	ErrNoInterface = errors.New("the kernel has no interface to load an image")
	// ErrRefused: the kernel, or the firmware below it, refused the image.
	ErrRefused = errors.New("image refused")
	// ErrNotOperating: the logic does not operate after the load.
	ErrNotOperating = errors.New("programmable logic not operating")
	// ErrName: this cannot be the name of a firmware file or an overlay.
	ErrName = errors.New("invalid name")
)

// Operating is the state of a manager whose logic runs
// (Documentation/ABI/testing/sysfs-class-fpga-manager).
const Operating = "operating"

// Flags of an image (include/linux/fpga/fpga-mgr.h).
const (
	flagPartial   = 1 << 0
	flagEncrypted = 1 << 2
)

// Files are the files of a system; tests give their own.
type Files interface {
	ReadFile(name string) ([]byte, error)
	// WriteFile writes a file that exists, at once.
	WriteFile(name string, data []byte) error
	// Store writes a new file from a stream, complete or not at all.
	Store(name string, r io.Reader) error
	Exists(name string) bool
	Mkdir(name string) error
	Remove(name string) error
}

// Manager is one fpga_manager. The zero value is the first one of this system.
type Manager struct {
	Name     string // "" is fpga0
	Sys      string // "" is /sys
	Firmware string // where the kernel looks for images; "" is /lib/firmware
	Files    Files  // nil is the system's

	// Timeout bounds the wait for "operating" after a load; 0 is 5 s. The load
	// itself is bounded by the kernel.
	Timeout time.Duration
	Now     func() time.Time    // nil is time.Now
	Sleep   func(time.Duration) // nil is time.Sleep
}

func (m Manager) defaults() Manager {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&m.Name, "fpga0")
	def(&m.Sys, "/sys")
	def(&m.Firmware, "/lib/firmware")
	if m.Files == nil {
		m.Files = osFiles{}
	}
	if m.Timeout <= 0 {
		m.Timeout = 5 * time.Second
	}
	if m.Now == nil {
		m.Now = time.Now
	}
	if m.Sleep == nil {
		m.Sleep = time.Sleep
	}
	return m
}

func (m Manager) path(file string) string {
	return filepath.Join(m.Sys, "class/fpga_manager", m.Name, file)
}

// State is what the manager says of the logic.
func (m Manager) State() (string, error) {
	m = m.defaults()
	b, err := m.Files.ReadFile(m.path("state"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", m.path("state"), ErrNoManager)
	}
	if err != nil {
		return "", fmt.Errorf("read state of %s: %w", m.Name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Options say what an image is. The zero value is a full, plain one.
type Options struct {
	Partial   bool
	Encrypted bool // with the key in the device
}

// Load converts an image to what the kernel takes, stores it as a firmware file
// of that name and loads it. A file that is no bitstream is refused before
// anything is changed.
func (m Manager) Load(name string, image io.Reader, o Options) error {
	m = m.defaults()
	if err := checkName(name); err != nil {
		return err
	}
	if _, err := m.State(); err != nil {
		return err
	}
	if !m.Files.Exists(m.path("firmware")) {
		return fmt.Errorf("load %s: %s is missing, as in every kernel but linux-xlnx: %w", name, m.path("firmware"), ErrNoInterface)
	}
	r, err := bitstream.NewReader(image)
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	if err := m.Files.Store(filepath.Join(m.Firmware, name), r); err != nil {
		return fmt.Errorf("load %s: store it in %s: %w", name, m.Firmware, err)
	}
	flags := 0
	if o.Partial {
		flags |= flagPartial
	}
	if o.Encrypted {
		flags |= flagEncrypted
	}
	// The kernel reads flags as hexadecimal.
	if err := m.Files.WriteFile(m.path("flags"), fmt.Appendf(nil, "%x\n", flags)); err != nil {
		return fmt.Errorf("load %s: set flags %#x: %w", name, flags, err)
	}
	if err := m.Files.WriteFile(m.path("firmware"), []byte(name+"\n")); err != nil {
		state, _ := m.State()
		return fmt.Errorf("load %s: %w, the state is %q: %w", name, ErrRefused, state, err)
	}
	return m.wait("load " + name)
}

// LoadRegion applies a device tree overlay, whose fpga-region names the image
// among the firmware files. An overlay of that name is replaced. It is removed
// again if the logic does not operate.
func (m Manager) LoadRegion(name string, overlay []byte) error {
	m = m.defaults()
	if err := checkName(name); err != nil {
		return err
	}
	if _, err := m.State(); err != nil {
		return err
	}
	all := filepath.Join(m.Sys, "kernel/config/device-tree/overlays")
	if !m.Files.Exists(all) {
		return fmt.Errorf("apply overlay %s: %s is missing: %w", name, all, ErrNoInterface)
	}
	dir := filepath.Join(all, name)
	if m.Files.Exists(dir) {
		if err := m.Files.Remove(dir); err != nil {
			return fmt.Errorf("apply overlay %s: remove the one before: %w", name, err)
		}
	}
	if err := m.Files.Mkdir(dir); err != nil {
		return fmt.Errorf("apply overlay %s: %w", name, err)
	}
	err := m.apply(name, dir, overlay)
	if err != nil {
		if e := m.Files.Remove(dir); e != nil {
			err = errors.Join(err, fmt.Errorf("remove overlay %s: %w", name, e))
		}
	}
	return err
}

func (m Manager) apply(name, dir string, overlay []byte) error {
	if err := m.Files.WriteFile(filepath.Join(dir, "dtbo"), overlay); err != nil {
		return fmt.Errorf("apply overlay %s: %w: %w", name, ErrRefused, err)
	}
	b, err := m.Files.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return fmt.Errorf("apply overlay %s: read status: %w", name, err)
	}
	if s := strings.TrimSpace(string(b)); s != "applied" {
		return fmt.Errorf("apply overlay %s: its status is %q: %w", name, s, ErrRefused)
	}
	return m.wait("apply overlay " + name)
}

// look is how often the state is looked at; a load takes some 100 ms.
const look = 10 * time.Millisecond

// wait waits until the logic operates.
func (m Manager) wait(step string) error {
	for start := m.Now(); ; m.Sleep(look) {
		late := m.Now().Sub(start) >= m.Timeout
		state, err := m.State()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", step, err)
		case state == Operating:
			return nil
		case strings.HasSuffix(state, "error"), late:
			return fmt.Errorf("%s: the state is %q: %w", step, state, ErrNotOperating)
		}
	}
}

// maxName is NAME_MAX: the vendor's driver copies the name into a buffer of it.
const maxName = 255

func checkName(name string) error {
	if name == "" || len(name) >= maxName || name[0] == '.' || strings.ContainsAny(name, "/\n\x00") {
		return fmt.Errorf("%q: %w: want a file name without a path", name, ErrName)
	}
	return nil
}

// osFiles are the files of this system.
type osFiles struct{}

func (osFiles) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }
func (osFiles) Mkdir(name string) error              { return os.Mkdir(name, 0o755) }
func (osFiles) Remove(name string) error             { return os.Remove(name) }

func (osFiles) Exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (osFiles) WriteFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// One write: each is a command of its own.
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (osFiles) Store(name string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".image-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
