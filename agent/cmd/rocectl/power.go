package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/stream"
)

func powerCommand(access *rocelink.Access) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:       "power BOARD reboot|off",
		Short:     "Restart a board, or switch it off",
		Long:      "power has a board close its streams and then restart or switch itself off. It is done with the board's\nreply, which comes before that happens; the board's events tell the rest.",
		Example:   "  rocectl power left reboot --reason \"new cable\"",
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"reboot", "off"},
		RunE: func(cmd *cobra.Command, args []string) error {
			action, ok := map[string]string{"reboot": rocelink.PowerReboot, "off": rocelink.PowerOff}[args[1]]
			if !ok {
				return fmt.Errorf("power: %.40q: want reboot or off", args[1])
			}
			nc, err := connect(access, "power", false)
			if err != nil {
				return err
			}
			defer nc.Close()
			var reply rocelink.PowerReply
			if err := stream.Request(cmd.Context(), nc, args[0], rocelink.EndpointPower,
				rocelink.PowerRequest{Version: rocelink.Version, Action: action, Reason: reason}, &reply); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s under way\n", args[0], reply.Action)
			return err
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`why`, for the board's events")
	return c
}
