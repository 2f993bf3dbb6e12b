package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rocelink/fpga/model"
	"rocelink/fpga/model/program"
	"rocelink/fpga/regs"
)

var quiet = slog.New(slog.DiscardHandler)

func TestUsage(t *testing.T) {
	var help bytes.Buffer
	if err := newProgram().Run(t.Context(), []string{"--help"}, io.Discard, &help, quiet); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
	for _, want := range []string{"Example:", "-registers", "-source", "-pcap", "-drop", "-duplicate", "-reorder", "-corrupt", "-delay", "-seed", "-queue-pairs", "-link-delay"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("--help does not tell %q", want)
		}
	}
	file := filepath.Join(t.TempDir(), "registers")
	for _, args := range [][]string{{}, {"--registers", file, "more"}, {"--registers"}, {"--drop", "x"}, {"--link-fec", "maybe"}, {"--link-dark-lane", "5"}} {
		var said bytes.Buffer
		if err := newProgram().Run(t.Context(), args, io.Discard, &said, quiet); !errors.Is(err, program.ErrUsage) || said.Len() == 0 {
			t.Errorf("%q: %v, said %q", args, err, said.String())
		}
	}
	for _, args := range [][]string{{"--drop", "101"}, {"--queue-pairs", "17"}, {"--source", "no/such/file"}, {"--window", "-1"}} {
		err := newProgram().Run(t.Context(), append(args, "--registers", file), io.Discard, io.Discard, quiet)
		if err == nil || errors.Is(err, program.ErrUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The program says when it is ready, the registers are there then, and are gone
// when it has ended.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	registers, source, pcap := filepath.Join(dir, "registers"), filepath.Join(dir, "source"), filepath.Join(dir, "pcap")
	if err := os.WriteFile(source, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // on a new file, and on an old one
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- newProgram().Run(ctx, []string{"--registers", registers, "--queue-pairs", "3", "--source", "2=" + source, "--pcap", pcap}, w, io.Discard, quiet)
		}()
		line := make([]byte, 200)
		n, err := r.Read(line)
		if err != nil || !bytes.Contains(line[:n], []byte("ready")) {
			t.Fatalf("said %q: %v", line[:n], err)
		}
		if got := word(t, registers, uint32(regs.CoreIdent)); got != regs.IdentCore {
			t.Errorf("identity %#x", got)
		}
		caps := word(t, registers, uint32(regs.CoreCaps))
		if regs.CoreCapsQueuePairs.Get(caps) != 3 || regs.CoreCapsExternal.Get(caps) != 1 || regs.CoreCapsEmulated.Get(caps) != 1 {
			t.Errorf("capabilities %#x", caps)
		}
		if err := newProgram().Run(t.Context(), []string{"--registers", registers}, io.Discard, io.Discard, quiet); !errors.Is(err, model.ErrServed) {
			t.Errorf("a second program on the same file: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
		if got := word(t, registers, uint32(regs.CoreIdent)); got != 0 {
			t.Errorf("identity %#x after the end", got)
		}
		if b, err := os.ReadFile(pcap); err != nil || len(b) != 24 {
			t.Errorf("capture of %d bytes: %v", len(b), err)
		}
	}
}

func word(t *testing.T, path string, offset uint32) uint32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint32(b[offset:])
}
