package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/report"
	"rocelink/agent/stream"
	"rocelink/firmware/optics/sff"
)

// exitNoModule is optics' code for a file that cannot be read or holds no module.
const exitNoModule = 1

func opticsCommand(access *rocelink.Access) *cobra.Command {
	var asJSON bool
	var board string
	c := &cobra.Command{
		Use:   "optics FILE|CAGE",
		Short: "Decode a module, from a file or in a board's cage",
		Long: "optics decodes the memory of an optical module or copper cable from FILE, from standard input if FILE is -, or\n" +
			"from the module in a board's CAGE as the board read it last; without --board, of the one board that has such a cage.\n" +
			"QSFP+ and QSFP28 (SFF-8636), SFP+ and SFP28 (SFF-8472); of a CMIS module the identity.\n" +
			"FILE holds 256 bytes (lower memory and upper page 00h), or these and the pages 01h to 03h; of an SFP 256 bytes at\n" +
			"A0h and then those at A2h. It may be text, as ethtool -m with \"hex on\", i2cdump, hexdump -C and xxd print it.\n" +
			"A value beyond a warning threshold is marked with !, beyond an alarm threshold with !!. What the module does not\n" +
			"monitor is - (null in JSON).\n\n" +
			"Exit status: 0 decoded, 1 the file cannot be read or there is no module, 2 the board cannot be asked.",
		Example: "  rocectl optics module.bin\n  rocectl optics qsfp0 --board demo\n  ethtool -m eth0 raw on | rocectl optics -\n  rocectl optics --json module.bin | jq '.lanes[] | select(.no_light) | .lane'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			mem, state, err := moduleMemory(cmd, access, board, args[0])
			if err != nil {
				return err
			}
			m, failed := sff.Decode(mem)
			if state != "" {
				failed = errors.New(state) // nothing was read that could be decoded
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(m)
			} else if failed == nil {
				err = m.Text(cmd.OutOrStdout())
			}
			if err != nil {
				return fmt.Errorf("write module: %w", err)
			}
			if failed != nil {
				return exitError{exitNoModule, fmt.Sprintf("%s: %v", args[0], failed)}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON object")
	c.Flags().StringVar(&board, "board", "", "the module in a cage of this `board`")
	return c
}

// moduleMemory is what a file or a board has of a module. state says why there is
// no module in the cage.
func moduleMemory(cmd *cobra.Command, access *rocelink.Access, board, name string) (mem sff.Memory, state string, err error) {
	if board == "" {
		if _, err := os.Stat(name); name == "-" || err == nil {
			data, err := readDump(name, cmd.InOrStdin())
			if err != nil {
				return mem, "", exitError{exitNoModule, err.Error()}
			}
			if mem, err = sff.ParseDump(data); err != nil {
				return mem, "", exitError{exitNoModule, fmt.Sprintf("%s: %v", name, err)}
			}
			return mem, "", nil
		}
	}
	nc, err := connect(access, "optics", false)
	if err != nil {
		if board == "" {
			err = fmt.Errorf("%s is no file, and no board can be asked for a cage of that name: %w", name, err)
		}
		return mem, "", err
	}
	defer nc.Close()
	if board == "" {
		if board, err = boardWithCage(cmd.Context(), nc, name); err != nil {
			return mem, "", err
		}
	}
	var r rocelink.ModuleReply
	if err := stream.Request(cmd.Context(), nc, board, rocelink.EndpointModule, rocelink.ModuleRequest{Version: rocelink.Version, Cage: name}, &r); err != nil {
		return mem, "", err
	}
	if len(r.Lower) == 0 {
		state = "the cage is " + report.Printable(r.State.Phase)
		if r.State.Problem != "" {
			state += ": " + report.Printable(r.State.Problem)
		}
	}
	return sff.Memory{Lower: r.Lower, Upper: r.Upper, Diagnostics: r.Diagnostics}, state, nil
}

// boardWithCage is the one board that publishes a cage of that name.
func boardWithCage(ctx context.Context, nc *nats.Conn, cage string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listen)
	defer cancel()
	var s report.Snapshot
	if err := records(ctx, nc, []string{rocelink.AnyBoardStatus}, func(r any) error { s.Add(r); return nil }); err != nil {
		return "", err
	}
	var have, all []string
	for _, b := range s.Boards {
		for _, m := range b.Modules {
			if all = append(all, report.Printable(b.Board+" "+m.Cage)); m.Cage == cage {
				have = append(have, b.Board)
			}
		}
	}
	switch len(have) {
	case 1:
		return have[0], nil
	case 0:
		return "", fmt.Errorf("%s is no file, and no board that was heard has a cage of that name; heard: %s", cage, cmp.Or(strings.Join(all, ", "), "none"))
	}
	return "", fmt.Errorf("several boards have a cage %s: choose one with --board: %s", cage, report.Printable(strings.Join(have, ", ")))
}

// readDump reads a file, bounded by what a dump can be.
func readDump(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, sff.MaxDump+1))
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return data, nil
}
