package bootbin

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// elfFile is a program with one section to load.
func elfFile(machine elf.Machine, class elf.Class, text string) []byte {
	const names = "\x00.text\x00.shstrtab\x00"
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	if class == elf.ELFCLASS64 {
		h := elf.Header64{
			Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Entry: 0x1000, Phoff: 64, Ehsize: 64,
			Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 3, Shstrndx: 2, Shoff: uint64(64 + 56 + len(text) + len(names)),
		}
		copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(class), 1, 1})
		put(h)
		put(elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 64 + 56, Vaddr: 0x1000, Filesz: uint64(len(text)), Memsz: uint64(len(text))})
		b.WriteString(text + names)
		put([]elf.Section64{{}, {
			Name: 1, Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Addr: 0x1000, Off: 64 + 56, Size: uint64(len(text)), Addralign: 1,
		}, {Name: 7, Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + 56 + len(text)), Size: uint64(len(names)), Addralign: 1}})
		return b.Bytes()
	}
	h := elf.Header32{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Entry: 0x1000, Phoff: 52, Ehsize: 52,
		Phentsize: 32, Phnum: 1, Shentsize: 40, Shnum: 3, Shstrndx: 2, Shoff: uint32(52 + 32 + len(text) + len(names)),
	}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(class), 1, 1})
	put(h)
	put(elf.Prog32{Type: uint32(elf.PT_LOAD), Off: 52 + 32, Vaddr: 0x1000, Filesz: uint32(len(text)), Memsz: uint32(len(text))})
	b.WriteString(text + names)
	put([]elf.Section32{{}, {
		Name: 1, Type: uint32(elf.SHT_PROGBITS), Flags: uint32(elf.SHF_ALLOC), Addr: 0x1000, Off: 52 + 32, Size: uint32(len(text)), Addralign: 1,
	}, {Name: 7, Type: uint32(elf.SHT_STRTAB), Off: uint32(52 + 32 + len(text)), Size: uint32(len(names)), Addralign: 1}})
	return b.Bytes()
}

// bitFile is a .bit file as the vendor's tool writes it.
func bitFile(data []byte) []byte {
	b := bytes.Clone(bitHeader)
	field := func(key byte, text string) {
		if key != 'a' {
			b = append(b, key)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)+1))
		b = append(append(b, text...), 0)
	}
	field('a', "top")
	field('b', "xczu48dr")
	field('c', "2024/01/01")
	field('d', "12:00:00")
	b = binary.BigEndian.AppendUint32(append(b, 'e'), uint32(len(data)))
	return append(b, data...)
}

var sync = append(bytes.Repeat([]byte{0xff}, 64), 0xaa, 0x99, 0x55, 0x66, 1, 2, 3, 4)

func text(s string) string { return strings.Repeat(s+" ", 1200)[:1200] }

// write puts a file into the test's folder, with a name that mkimage's own
// description file could not hold.
func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a ["+name+"]")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func inputs(t *testing.T) Inputs {
	return Inputs{
		FSBL:      write(t, "fsbl", elfFile(elf.EM_AARCH64, elf.ELFCLASS64, text("fsbl"))),
		PMUFW:     write(t, "pmufw", elfFile(microblaze, elf.ELFCLASS32, text("pmufw"))),
		Bitstream: write(t, "fabric.bit", bitFile(sync)),
		Firmware:  write(t, "bl31", elfFile(elf.EM_AARCH64, elf.ELFCLASS64, text("bl31"))),
		UBoot:     write(t, "u-boot", elfFile(elf.EM_AARCH64, elf.ELFCLASS64, text("u-boot"))),
	}
}

func TestWrite(t *testing.T) {
	if _, err := exec.LookPath("mkimage"); err != nil {
		if os.Getenv("ROCELINK_REQUIRE_IMAGE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs u-boot-tools: %v", err)
	}
	in := inputs(t)
	dir := t.TempDir()
	var files [2][]byte
	for i := range files {
		path := filepath.Join(dir, "BOOT.BIN")
		if err := in.Write(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		files[i], _ = os.ReadFile(path)
	}
	data := files[0]
	if !bytes.Equal(data, files[1]) {
		t.Error("the same inputs, other bytes")
	}
	for _, want := range []string{text("fsbl"), text("pmufw"), text("bl31"), text("u-boot")} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("%.8q is not in the file", want)
		}
	}
	// The boot ROM wants the words of a bitstream the other way round.
	if !bytes.Contains(data, []byte{0x66, 0x55, 0x99, 0xaa, 4, 3, 2, 1}) {
		t.Error("the bitstream is not in the file")
	}
	if out, err := exec.Command("mkimage", "-T", "zynqmpimage", "-l", filepath.Join(dir, "BOOT.BIN")).CombinedOutput(); err != nil || !strings.Contains(string(out), "ZynqMP") {
		t.Errorf("mkimage -l: %v\n%s", err, out)
	}
	for n := range 0x8b8 {
		if CheckBoot(data[:n]) == nil {
			t.Fatalf("%d bytes pass", n)
		}
	}
	for at := widthDetection; at < checksum+4; at++ {
		bad := bytes.Clone(data)
		bad[at] ^= 0x40
		if err := CheckBoot(bad); !errors.Is(err, ErrInput) {
			t.Errorf("byte %#x changed: %v", at, err)
		}
	}
}

func TestRefused(t *testing.T) {
	arm := elfFile(elf.EM_AARCH64, elf.ELFCLASS64, text("x"))
	for _, c := range []struct {
		name, text string
		change     func(n *Inputs)
	}{
		{"no FSBL", "first stage", func(n *Inputs) { n.FSBL = "" }},
		{"no PMU firmware", "PMU firmware", func(n *Inputs) { n.PMUFW = "" }},
		{"no U-Boot", "U-Boot", func(n *Inputs) { n.UBoot = "" }},
		{"missing file", "Trusted Firmware-A", func(n *Inputs) { n.Firmware = n.Firmware + ".none" }},
		{"a PMU firmware for ARM", "EM_AARCH64", func(n *Inputs) { n.PMUFW = n.UBoot }},
		{"a U-Boot for x86", "EM_X86_64", func(n *Inputs) { n.UBoot = write(t, "x", elfFile(elf.EM_X86_64, elf.ELFCLASS64, text("x"))) }},
		{"cut off", "ELF", func(n *Inputs) { n.UBoot = write(t, "x", arm[:700]) }},
		{"no ELF", "ELF", func(n *Inputs) { n.UBoot = write(t, "x", []byte("u-boot")) }},
		{"nothing to load", "nothing to load", func(n *Inputs) { n.UBoot = write(t, "x", elfFile(elf.EM_AARCH64, elf.ELFCLASS64, "")) }},
		{"bitstream without header", ".bit", func(n *Inputs) { n.Bitstream = write(t, "x", sync) }},
		{"bitstream cut off", "bytes of", func(n *Inputs) { n.Bitstream = write(t, "x", bitFile(sync)[:len(bitFile(sync))-2]) }},
		{"no sync word", "sync word", func(n *Inputs) { n.Bitstream = write(t, "x", bitFile(make([]byte, 64))) }},
	} {
		in := inputs(t)
		c.change(&in)
		dir := t.TempDir()
		err := in.Write(context.Background(), filepath.Join(dir, "BOOT.BIN"))
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want one with %q", c.name, err, c.text)
		} else if !errors.Is(err, ErrInput) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v", c.name, left)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := inputs(t).Write(context.Background(), filepath.Join(t.TempDir(), "BOOT.BIN")); !errors.Is(err, ErrNoTool) {
		t.Errorf("without mkimage: %v", err)
	}
}

func TestBitstream(t *testing.T) {
	swapped := append(bytes.Repeat([]byte{0xff}, 64), 0x66, 0x55, 0x99, 0xaa)
	for name, data := range map[string][]byte{"a .bit": bitFile(sync), "a .bin": sync, "a swapped .bin": swapped} {
		if err := CheckBitstream(name, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := bitFile(sync)
	for n := range good {
		if err := CheckBitstream("short", good[:n]); !errors.Is(err, ErrInput) {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
	}
}

func TestPDI(t *testing.T) {
	good := make([]byte, 4096)
	binary.LittleEndian.PutUint32(good[16:], 0xaa995566)
	copy(good[20:], "XNLX")
	if err := CheckPDI("x.pdi", good); err != nil {
		t.Error(err)
	}
	for name, data := range map[string][]byte{"empty": nil, "zeros": make([]byte, 4096), "a bitstream": sync, "cut off": good[:20]} {
		if err := CheckPDI("x.pdi", data); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "x.pdi") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzBitstream(f *testing.F) {
	f.Add(bitFile(sync))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = CheckBitstream("x", data)
		_ = CheckBoot(data)
		_ = CheckPDI("x", data)
	})
}
