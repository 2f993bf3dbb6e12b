// Package kerneltest makes kernels and modules for tests: right as far as anyone
// looks without running them.
package kerneltest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Release is the release of the kernels made here.
const Release = "6.1.0-test-arm64"

// headerBytes are the DOS and arm64 header, the COFF header and one section's.
const headerBytes = 64 + 4 + 20 + 40

// Image returns a kernel's image of size bytes (at least 256) that takes span
// bytes of memory: an arm64 header, and that of an EFI program with one section
// (Linux, Documentation/arm64/booting.rst; Microsoft, PE Format).
func Image(size, span int) []byte {
	b := make([]byte, size)
	le := binary.LittleEndian
	copy(b, "MZ")
	le.PutUint64(b[16:], uint64(span))
	le.PutUint64(b[24:], 0xa)
	copy(b[56:], "ARM\x64")
	le.PutUint32(b[60:], 64)
	pe := b[64:]
	copy(pe, "PE\x00\x00")
	le.PutUint16(pe[4:], 0xaa64)
	le.PutUint16(pe[6:], 1)
	section := pe[24:]
	copy(section, ".text")
	le.PutUint32(section[16:], uint32(size-headerBytes))
	le.PutUint32(section[20:], headerBytes)
	for i := headerBytes; i < size; i++ {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

// Module returns a kernel module with what it says about itself: "key=value".
func Module(machine elf.Machine, info ...string) []byte {
	text := strings.Join(info, "\x00") + "\x00"
	const names = "\x00.modinfo\x00.shstrtab\x00"
	var b bytes.Buffer
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		Shoff: uint64(64 + len(text) + len(names)),
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(text)), Addralign: 1},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + len(text)), Size: uint64(len(names)), Addralign: 1},
	}
	for _, v := range []any{h, []byte(text), []byte(names), sections} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err) // a buffer takes everything
		}
	}
	return b.Bytes()
}

// Modules are those of Tree, by the path below the release's folder: a network
// driver and what it depends on, some of it in other ways than others.
func Modules() map[string][]byte {
	magic := "vermagic=" + Release + " SMP mod_unload aarch64"
	module := func(info ...string) []byte { return Module(elf.EM_AARCH64, append(info, magic)...) }
	return map[string][]byte{
		"kernel/net/phy/libphy.ko":       module("depends="),
		"kernel/net/phy/fixed_phy.ko":    module("depends=libphy"),
		"kernel/net/mdio/fwnode-mdio.ko": module("depends=libphy"),
		"kernel/net/mdio/of_mdio.ko":     module("depends=fwnode_mdio,libphy,fixed_phy"),
		"kernel/net/phy/phylink.ko":      module("depends=libphy"),
		"kernel/net/macb.ko":             module("depends=phylink,libphy", "softdep=pre: ptp of_mdio post: later"),
		"kernel/watchdog/softdog.ko":     module("depends="),
		"kernel/circle/one.ko":           module("depends=two"),
		"kernel/circle/two.ko":           module("depends=one"),
		"kernel/alone/broken.ko":         module("depends=absent"),
		"kernel/alone/foreign.ko":        Module(elf.EM_X86_64, "depends=", magic),
		"kernel/alone/old.ko":            Module(elf.EM_AARCH64, "depends=", "vermagic=5.10.0 SMP"),
	}
}

// Tree puts a kernel with modules into a folder.
func Tree(dir string) error {
	files := map[string][]byte{
		"boot/vmlinuz-" + Release: Image(1<<20, 2<<20),
		"boot/config-" + Release:  []byte("CONFIG_RD_ZSTD=y\nCONFIG_RD_GZIP=y\nCONFIG_DEVMEM=y\nCONFIG_DEVTMPFS=y\nCONFIG_MACB=m\n# CONFIG_RD_XZ is not set\n"),
	}
	base := "lib/modules/" + Release + "/"
	files[base+"modules.builtin"] = []byte("kernel/drivers/ptp/ptp.ko\nkernel/lib/in-built.ko\n")
	for name, data := range Modules() {
		files[base+name] = data
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("kernel for tests: %w", err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("kernel for tests: %w", err)
		}
	}
	return nil
}
