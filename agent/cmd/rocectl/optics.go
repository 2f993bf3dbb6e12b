package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"rocelink/firmware/optics/sff"
)

// exitNoModule is optics' code for a file that cannot be read or holds no module.
const exitNoModule = 1

func opticsCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "optics FILE",
		Short: "Decode a module's EEPROM",
		Long: "optics decodes the memory of an optical module or copper cable from FILE, or from standard input if FILE is -:\n" +
			"QSFP+ and QSFP28 (SFF-8636), SFP+ and SFP28 (SFF-8472); of a CMIS module the identity.\n" +
			"FILE holds 256 bytes (lower memory and upper page 00h), or these and the pages 01h to 03h; of an SFP 256 bytes at\n" +
			"A0h and then those at A2h. It may be text, as ethtool -m with \"hex on\", i2cdump, hexdump -C and xxd print it.\n" +
			"A value beyond a warning threshold is marked with !, beyond an alarm threshold with !!. What the module does not\n" +
			"monitor is - (null in JSON).\n\n" +
			"Exit status: 0 decoded, 1 the file cannot be read or holds no module.",
		Example: "  rocectl optics module.bin\n  ethtool -m eth0 raw on | rocectl optics -\n  rocectl optics --json module.bin | jq '.lanes[] | select(.no_light) | .lane'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readDump(args[0], cmd.InOrStdin())
			if err != nil {
				return exitError{exitNoModule, err.Error()}
			}
			mem, err := sff.ParseDump(data)
			if err != nil {
				return exitError{exitNoModule, fmt.Sprintf("%s: %v", args[0], err)}
			}
			m, failed := sff.Decode(mem)
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
	return c
}

// readDump reads a file, bounded by what a dump can be.
func readDump(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is no file, and the modules in a board's cages cannot be read from here yet: give the dump of a module's EEPROM", name)
		}
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
