// Package bootbin makes BOOT.BIN, what a Zynq UltraScale+ reads first, from the
// vendor's and the boot loader's files, and checks boot images of Versal. What a
// boot ROM would refuse is refused here, by file.
package bootbin

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"rocelink/images/artifact"
)

// Errors of Write and CheckPDI.
var (
	// ErrInput means that an input is missing or is not what it should be.
	ErrInput = errors.New("not what a boot image needs")
	// ErrNoTool means that mkimage is not installed.
	ErrNoTool = errors.New("mkimage is not installed: install u-boot-tools")
)

// Inputs are the files of a BOOT.BIN.
type Inputs struct {
	FSBL      string // first stage boot loader, ELF
	PMUFW     string // firmware of the platform management unit, ELF
	Bitstream string // .bit; may be left out
	Firmware  string // Trusted Firmware-A (bl31), ELF
	UBoot     string // U-Boot, ELF
}

// None says that no file is given.
func (n Inputs) None() bool { return n == Inputs{} }

// elf machine of the PMU's processor.
const microblaze = elf.Machine(189)

const maxInput = 256 << 20

// Check opens every file.
func (n Inputs) Check() error {
	for _, f := range []struct {
		name, file string
		machines   []elf.Machine
	}{
		{"first stage boot loader", n.FSBL, []elf.Machine{elf.EM_AARCH64, elf.EM_ARM}},
		{"PMU firmware", n.PMUFW, []elf.Machine{microblaze}},
		{"Trusted Firmware-A", n.Firmware, []elf.Machine{elf.EM_AARCH64}},
		{"U-Boot", n.UBoot, []elf.Machine{elf.EM_AARCH64}},
	} {
		if err := checkELF(f.name, f.file, f.machines); err != nil {
			return err
		}
	}
	if n.Bitstream == "" {
		return nil
	}
	data, err := readInput(n.Bitstream)
	if err != nil {
		return fmt.Errorf("bitstream: %w", err)
	}
	if !bytes.HasPrefix(data, bitHeader) {
		return fmt.Errorf("bitstream %s: no .bit file: %w", n.Bitstream, ErrInput)
	}
	return CheckBitstream(n.Bitstream, data)
}

func checkELF(name, file string, machines []elf.Machine) error {
	if file == "" {
		return fmt.Errorf("%s: no file is given; a BOOT.BIN needs FSBL, PMU firmware, Trusted Firmware-A and U-Boot: %w", name, ErrInput)
	}
	f, err := elf.Open(file)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: no whole ELF file (%w): %w", name, file, err, ErrInput)
	}
	defer f.Close()
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	right := false
	for _, m := range machines {
		right = right || f.Machine == m
	}
	if !right {
		return fmt.Errorf("%s %s is made for %v, want %v: %w", name, file, f.Machine, machines, ErrInput)
	}
	loaded := false
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		loaded = loaded || p.Filesz > 0
		if p.Off+p.Filesz > uint64(info.Size()) {
			return fmt.Errorf("%s %s has %d bytes of at least %d: cut off: %w", name, file, info.Size(), p.Off+p.Filesz, ErrInput)
		}
	}
	// mkimage goes by sections: a file stripped of them would give nothing.
	if !loaded || len(f.Sections) == 0 {
		return fmt.Errorf("%s %s has nothing to load: %w", name, file, ErrInput)
	}
	return nil
}

// bitHeader begins every .bit file.
var bitHeader = []byte{0x00, 0x09, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x00, 0x00, 0x01, 'a'}

// CheckBitstream looks for the word that begins a configuration, in either byte
// order (UG570, "Configuration Packets"), and for the length that a .bit file
// names.
func CheckBitstream(name string, data []byte) error {
	head := data[:min(len(data), 4096)]
	if !bytes.Contains(head, []byte{0xaa, 0x99, 0x55, 0x66}) && !bytes.Contains(head, []byte{0x66, 0x55, 0x99, 0xaa}) {
		return fmt.Errorf("bitstream %s: no sync word: %w", name, ErrInput)
	}
	if !bytes.HasPrefix(data, bitHeader) {
		return nil
	}
	at := len(bitHeader) // behind the key "a"
	for key := byte('a'); ; key++ {
		if key > 'a' {
			if at >= len(data) || data[at] != key {
				return fmt.Errorf("bitstream %s: field %q is not there: %w", name, key, ErrInput)
			}
			at++
		}
		if key == 'e' {
			break
		}
		if at+2 > len(data) {
			return fmt.Errorf("bitstream %s: cut off: %w", name, ErrInput)
		}
		at += 2 + int(binary.BigEndian.Uint16(data[at:]))
	}
	if at+4 > len(data) {
		return fmt.Errorf("bitstream %s: cut off: %w", name, ErrInput)
	}
	want := uint64(binary.BigEndian.Uint32(data[at:]))
	if got := uint64(len(data) - at - 4); got != want {
		return fmt.Errorf("bitstream %s has %d bytes of %d: %w", name, got, want, ErrInput)
	}
	return nil
}

func readInput(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxInput {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, maxInput)
	}
	return data, nil
}

// Write makes a BOOT.BIN at path.
func (n Inputs) Write(ctx context.Context, path string) error {
	if err := n.Check(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	tool, err := exec.LookPath("mkimage")
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), ErrNoTool)
	}
	dir, err := os.MkdirTemp("", "bootbin")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// In the order in which they are loaded. The names are ours: mkimage's
	// description file cannot hold every name.
	var bif strings.Builder
	bif.WriteString("image : {\n")
	for _, p := range []struct{ attributes, name, file string }{
		{"[pmufw_image]", "pmufw.elf", n.PMUFW},
		{"[bootloader,destination_cpu=a53-0]", "fsbl.elf", n.FSBL},
		{"", "fabric.bit", n.Bitstream},
		{"[destination_cpu=a53-0,exception_level=el-3,trustzone]", "bl31.elf", n.Firmware},
		{"[destination_cpu=a53-0,exception_level=el-2]", "u-boot.elf", n.UBoot},
	} {
		if p.file == "" {
			continue
		}
		target, err := filepath.Abs(p.file)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(dir, p.name)); err != nil {
			return err
		}
		fmt.Fprintf(&bif, "\t%s %s\n", p.attributes, p.name)
	}
	bif.WriteString("}\n")
	if err := os.WriteFile(filepath.Join(dir, "boot.bif"), []byte(bif.String()), 0o600); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, tool, "-A", "arm64", "-T", "zynqmpbif", "-d", "boot.bif", "BOOT.BIN")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: mkimage: %w: %s", filepath.Base(path), err, bytes.TrimSpace(out))
	}
	data, err := os.ReadFile(filepath.Join(dir, "BOOT.BIN"))
	if err != nil {
		return fmt.Errorf("%s: mkimage made no file: %w", filepath.Base(path), err)
	}
	if err := CheckBoot(data); err != nil {
		return fmt.Errorf("%s as mkimage made it: %w", filepath.Base(path), err)
	}
	return artifact.WriteBytes(path, data)
}

// Header of a boot image (UG1085, "Boot Image Format", table "Boot Header").
const (
	widthDetection = 0x20
	identification = 0x24
	pmufwLength    = 0x34
	fsblLength     = 0x3c
	checksum       = 0x48
	partitionTable = 0x98
)

// CheckBoot checks the header of a BOOT.BIN: what the boot ROM looks at.
func CheckBoot(data []byte) error {
	if len(data) < 0x8b8 {
		return fmt.Errorf("%d bytes, the header alone has %d: %w", len(data), 0x8b8, ErrInput)
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
	if word(widthDetection) != 0xaa995566 || string(data[identification:identification+4]) != "XNLX" {
		return fmt.Errorf("no boot header: %w", ErrInput)
	}
	sum := uint32(0)
	for at := widthDetection; at < checksum; at += 4 {
		sum += word(at)
	}
	if ^sum != word(checksum) {
		return fmt.Errorf("checksum of the header %#x, want %#x: %w", word(checksum), ^sum, ErrInput)
	}
	switch {
	case word(fsblLength) == 0:
		return fmt.Errorf("the boot loader is empty: %w", ErrInput)
	case word(pmufwLength) == 0:
		return fmt.Errorf("the PMU firmware is empty: %w", ErrInput)
	case word(partitionTable) == 0 || uint64(word(partitionTable))+64 > uint64(len(data)):
		return fmt.Errorf("the table of partitions at %#x is not within %d bytes: %w", word(partitionTable), len(data), ErrInput)
	}
	return nil
}

// CheckPDI checks that data begin as a programmable device image of Versal does,
// which only the vendor's tool makes: it is passed through as it is.
func CheckPDI(name string, data []byte) error {
	// UG1304, "Boot Header": the width detection words, then "XLNX".
	for at := 0; at+16 <= min(len(data), 4096); at += 4 {
		if binary.LittleEndian.Uint32(data[at:]) == 0xaa995566 && string(data[at+4:at+8]) == "XNLX" {
			return nil
		}
	}
	return fmt.Errorf("device image %s: no boot header: %w", name, ErrInput)
}
