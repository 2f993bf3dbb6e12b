package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"rocelink/agent/doctor"
	"rocelink/agent/stream"
)

func doctorCommand() *cobra.Command {
	var c doctor.Config
	var asJSON bool
	var region string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell whether this host can receive, before the first packet",
		Long: "doctor looks at the RDMA devices of this host, their interfaces and addresses, and the limits of the system.\n" +
			"Each line is ok, warn (works, but not as it could) or FAIL (does not work), and says what to do.\n" +
			"It changes nothing. Run it as the user who will run rocelinkd.\n\n" +
			"Exit status: 0 nothing failed, 1 something did, 2 the command failed.",
		Example: "  rocectl doctor\n  rocectl doctor --device mlx5_0\n  rocectl doctor --device soft:192.0.2.10\n  rocectl doctor --json | jq '.checks[] | select(.state != \"ok\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if region != "" {
				var size stream.Size
				if err := size.Set(region); err != nil {
					return exitError{exitFailed, "--region " + err.Error()}
				}
				c.RegionBytes = size.Bytes
			}
			r, err := doctor.Examine(c)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				e.SetEscapeHTML(false)
				err = e.Encode(r)
			} else {
				err = r.Text(cmd.OutOrStdout(), colourful(os.Stdout))
			}
			if err == nil && r.Failed() {
				err = exitError{code: exitUnhealthy}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Device, "device", "", "RDMA device by `name`, address or subnet, or soft:ADDRESS (default all)")
	f.StringVar(&region, "region", "", "`size` of the memory a stream registers (default 16MiB)")
	f.BoolVar(&asJSON, "json", false, "write one JSON object")
	return cmd
}

// colourful reports whether a file is a terminal that wants colours
// (https://no-color.org).
func colourful(f *os.File) bool {
	i, err := f.Stat()
	return err == nil && i.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
