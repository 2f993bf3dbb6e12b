// Package soc tells which chip a board has and what clocks its logic gets, by what
// the kernel says of it. What the kernel does not offer is empty; what it offers
// and cannot be read is an error beside what can.
package soc

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	// devices are those of Linux' soc bus (Documentation/ABI/testing/sysfs-devices-soc).
	devices = "bus/soc/devices"
	// memories are those of Linux' nvmem (Documentation/ABI/stable/sysfs-bus-nvmem).
	memories = "bus/nvmem/devices"
	// platform holds the devices of the device tree.
	platform = "bus/platform/devices"

	// dnaOffset and dnaSize are where the driver zynqmp_nvmem shows the 96 bits of
	// the device DNA (AMD UG1085, DNA_0 to DNA_2 of the eFUSE registers; Linux,
	// zynqmp.dtsi, efuse-dna).
	dnaOffset = 0x0C
	dnaSize   = 12

	maxText = 128
)

// Info is what the kernel says of the chip.
type Info struct {
	Machine  string // the board, as the device tree calls it
	Family   string
	ID       string // of the chip's kind
	Revision string // of the silicon
	Serial   string
	DNA      string  // 24 hexadecimal digits, the highest first; ZynqMP only
	Clocks   []Clock // of the logic, by name
}

// Clock is one that the processor gives to the logic.
type Clock struct {
	Name string
	Hz   uint64
}

// String is one line of what is known; empty when nothing is.
func (i Info) String() string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"", i.Family}, {"id ", i.ID}, {"revision ", i.Revision}, {"serial ", i.Serial}, {"DNA ", i.DNA},
	} {
		if p.value != "" {
			parts = append(parts, p.name+p.value)
		}
	}
	for _, c := range i.Clocks {
		parts = append(parts, fmt.Sprintf("%s %.3f MHz", c.Name, float64(c.Hz)/1e6))
	}
	return strings.Join(parts, ", ")
}

// Read reads what there is. sys is /sys.
func Read(sys fs.FS) (Info, error) {
	var i Info
	return i, errors.Join(i.readChip(sys), i.readDNA(sys), i.readClocks(sys))
}

// list lists a folder, which need not be there.
func list(sys fs.FS, dir string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(sys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// text reads one line, which need not be there.
func text(sys fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(sys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(data))
	if len(s) > maxText || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds %.40q, want a line of text", name, s)
	}
	return s, nil
}

func (i *Info) readChip(sys fs.FS) error {
	chips, err := list(sys, devices)
	if err != nil || len(chips) == 0 {
		return err
	}
	var errs []error
	for _, f := range []struct {
		to   *string
		name string
	}{
		{&i.Machine, "machine"}, {&i.Family, "family"}, {&i.ID, "soc_id"}, {&i.Revision, "revision"}, {&i.Serial, "serial_number"},
	} {
		s, err := text(sys, path.Join(devices, chips[0].Name(), f.name))
		*f.to = s
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (i *Info) readDNA(sys fs.FS) error {
	chips, err := list(sys, memories)
	if err != nil {
		return err
	}
	for _, c := range chips {
		if !strings.HasPrefix(c.Name(), "zynqmp-nvmem") {
			continue
		}
		b, err := dna(sys, path.Join(memories, c.Name(), "nvmem"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("device DNA: %w", err)
		}
		// Without access to the fuses the firmware answers zeros.
		if slices.ContainsFunc(b, func(v byte) bool { return v != 0 }) {
			slices.Reverse(b)
			i.DNA = hex.EncodeToString(b)
		}
	}
	return nil
}

// dna reads the DNA and nothing else: beside it are fuses whose reading the
// firmware may refuse.
func dna(sys fs.FS, name string) ([]byte, error) {
	f, err := sys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, ok := f.(io.ReaderAt)
	if !ok {
		return nil, fmt.Errorf("%s: cannot be read from an offset", name)
	}
	b := make([]byte, dnaSize)
	if n, err := r.ReadAt(b, dnaOffset); n < dnaSize {
		return nil, fmt.Errorf("%s: %d bytes at %#x, want %d: %w", name, n, dnaOffset, dnaSize, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return b, nil
}

// readClocks reads the rates that the vendor kernel's fclk driver shows.
func (i *Info) readClocks(sys fs.FS) error {
	all, err := list(sys, platform)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		dir := path.Join(platform, d.Name())
		kind, err := fs.ReadFile(sys, path.Join(dir, "of_node/compatible"))
		if err != nil || !slices.Contains(strings.Split(string(kind), "\x00"), "xlnx,fclk") {
			continue
		}
		s, err := text(sys, path.Join(dir, "set_rate"))
		if err != nil || s == "" {
			errs = append(errs, err)
			continue
		}
		hz, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/set_rate holds %.40q, want a rate in Hz", dir, s))
			continue
		}
		i.Clocks = append(i.Clocks, Clock{Name: d.Name(), Hz: hz})
	}
	slices.SortFunc(i.Clocks, func(a, b Clock) int { return strings.Compare(a.Name, b.Name) })
	return errors.Join(errs...)
}
