package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"rocelink/bsp/bitstream"
)

// exitNoBitstream is bitstream's code for a file that is refused.
const exitNoBitstream = 1

func bitstreamCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "bitstream FILE",
		Short: "Tell what a .bit, .bin or .pdi is and for which part",
		Long: "bitstream reads a configuration file of the programmable logic, or standard input if FILE is -, and prints its\n" +
			"format, part, build, byte order, size and SHA-256; of a Versal PDI the images in it. It loads nothing.\n" +
			"Notes name what contradicts itself, as a header for another part than the data.\n\n" +
			"Exit status: 0 it is a bitstream, 1 it is none, is damaged or cannot be read.",
		Example: "  rocectl bitstream rocelink.bit\n  rocectl bitstream --json rocelink.pdi | jq -r .part",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var in io.Reader = cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return exitError{exitNoBitstream, fmt.Sprintf("read bitstream: %v", err)}
				}
				defer f.Close()
				in = f
			}
			info, err := bitstream.Inspect(in)
			if err != nil {
				return exitError{exitNoBitstream, fmt.Sprintf("%s: %v", args[0], err)}
			}
			if !asJSON {
				return info.Text(cmd.OutOrStdout())
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(info)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON object")
	return c
}
