// Package program builds the programs of a board with the Go command and checks
// that a file is what a board can run: a static program for 64-bit ARM.
package program

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrProgram means that a file cannot run on the board.
var ErrProgram = errors.New("not a static program for 64-bit ARM")

// Build is one call of the Go command.
type Build struct {
	Go     string // the command; default "go"
	Source string // folder within the module; default the current one
	// Environ is the environment; nil is that of this process.
	Environ []string
}

// Program builds a package as the file out: for linux/arm64, without cgo, and
// the same source gives the same bytes wherever it lies.
func (b *Build) Program(ctx context.Context, pkg, out string) error {
	name := b.Go
	if name == "" {
		name = "go"
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, name, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out, pkg)
	c.Dir = b.Source
	c.Env = b.Environ
	if c.Env == nil {
		c.Env = os.Environ()
	}
	c.Env = append(slices.Clone(c.Env), "GOOS=linux", "GOARCH=arm64", "GOARM64=v8.0", "CGO_ENABLED=0")
	var messages bytes.Buffer
	c.Stderr = &messages
	if err := c.Run(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, strings.TrimSpace(messages.String()))
	}
	return Check(out)
}

// Check reads the file's header. The error matches ErrProgram when the file is
// something else, and says what.
func Check(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) {
			return fmt.Errorf("%s: %w: %w", file, ErrProgram, err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%s: cut off: %w", file, ErrProgram)
		}
		return fmt.Errorf("program: %w", err)
	}
	defer f.Close()
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s: %w", file, fmt.Sprintf(format, args...), ErrProgram)
	}
	switch {
	case f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB:
		return refuse("%v, %v", f.Class, f.Data)
	case f.Machine != elf.EM_AARCH64:
		return refuse("made for %v", f.Machine)
	case f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN:
		return refuse("%v", f.Type)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_INTERP:
			return refuse("linked dynamically: build it with CGO_ENABLED=0")
		case p.Type == elf.PT_LOAD && p.Off+p.Filesz > uint64(info.Size()):
			return refuse("%d bytes of at least %d are there: cut off", info.Size(), p.Off+p.Filesz)
		}
	}
	return nil
}
