package program

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = "./testdata/hello"

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	var b Build
	for _, out := range []string{one, two} {
		if err := b.Program(context.Background(), source, out); err != nil {
			t.Fatal(err)
		}
	}
	x, _ := os.ReadFile(one)
	y, _ := os.ReadFile(two)
	if len(x) == 0 || !bytes.Equal(x, y) {
		t.Error("two builds differ")
	}
	err := b.Program(context.Background(), "./testdata/none", filepath.Join(dir, "none"))
	if err == nil || !strings.Contains(err.Error(), "testdata/none") {
		t.Errorf("no such package: %v", err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	var b Build
	if err := b.Program(context.Background(), source, good); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	// Offsets in the header (ELF-64 Object File Format 1.5, figure 2).
	change := func(at int, v byte) []byte {
		d := bytes.Clone(data)
		d[at] = v
		return d
	}
	phoff := 0x20
	for _, c := range []struct {
		name, text string
		data       []byte
	}{
		{"amd64", "EM_X86_64", change(18, byte(elf.EM_X86_64))},
		{"interpreter", "dynamically", change(int(data[phoff]), byte(elf.PT_INTERP))},
		{"object file", "ET_REL", change(16, byte(elf.ET_REL))},
		{"big-endian 32 bit", "", change(4, byte(elf.ELFCLASS32))},
		{"cut off", "cut off", data[:len(data)/2]},
		{"a script", "bad magic", []byte("#!/bin/sh\nexec /bin/boardd\n")},
		{"empty", "cut off", nil},
	} {
		file := filepath.Join(dir, "bad")
		if err := os.WriteFile(file, c.data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Check(file); err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want one with %q", c.name, err, c.text)
		} else if !errors.Is(err, ErrProgram) {
			t.Errorf("%s: %v, want ErrProgram", c.name, err)
		}
	}
	if err := Check(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	// The program that runs this test is no board's, wherever it runs.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := elf.Open(self); err == nil {
		native := f.Machine
		f.Close()
		if err := Check(self); native != elf.EM_AARCH64 && !errors.Is(err, ErrProgram) {
			t.Errorf("%v: %v", native, err)
		}
	}
}
