package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"rocelink/agent/capture"
)

// exitNoCapture is decode's code for a file that could not be read to its end.
const exitNoCapture = 1

func decodeCommand() *cobra.Command {
	var o capture.Options
	c := &cobra.Command{
		Use:   "decode FILE",
		Short: "Show the RoCE v2 packets of a capture",
		Long: "decode prints the RoCE v2 packets of a pcap or pcapng FILE, or of standard input if FILE is -, one line each,\n" +
			"checks their ICRC and structure, follows the PSNs of every flow, and ends with a summary.\n" +
			"With --json it prints an object a line for each packet and nothing else.\n\n" +
			"Exit status: 0 the file was read to its end, whatever was wrong with packets in it; 1 it could not be read,\n" +
			"is no capture, or ends inside a record.",
		Example: "  rocectl decode capture.pcapng\n  tcpdump -i eth0 -U -w - udp port 4791 | rocectl decode -\n  rocectl decode --json capture.pcap | jq 'select(.icrc == \"bad\")'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			var in io.Reader = cmd.InOrStdin()
			if name == "-" {
				name = "standard input"
			} else {
				f, err := os.Open(name)
				if err != nil {
					return exitError{exitNoCapture, fmt.Sprintf("read capture: %v", err)}
				}
				defer f.Close()
				in = f
			}
			s, err := capture.Decode(cmd.OutOrStdout(), in, o)
			if s.UnknownLink > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "rocectl: %s: %d frames left out: link type %d is not supported\n", name, s.UnknownLink, s.UnknownLinkType)
			}
			if err != nil {
				return exitError{exitNoCapture, fmt.Sprintf("%s: %v", name, err)}
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&o.JSON, "json", false, "write a JSON object a line for each packet")
	f.BoolVar(&o.Summary, "summary", false, "with --json: end with one object {\"summary\": ...}")
	f.IntVar(&o.MaxFlows, "max-flows", 0, fmt.Sprintf("flows told apart in summary and PSN tracking (default %d)", capture.DefaultMaxFlows))
	return c
}
