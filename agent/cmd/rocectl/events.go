package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/report"
)

// pastLimit bounds reading what is past; following has no end.
const pastLimit = 30 * time.Second

func eventsCommand(server *rocelink.Access) *cobra.Command {
	var since time.Duration
	var follow, asJSON bool
	var kinds, from []string
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happened, from the server's history",
		Long: "events shows the events of boards and hosts that the NATS server has kept: links, streams, modules, refusals, restarts.\n" +
			"The server keeps them where it has JetStream (rocelinkd --nats-store). rocectl watch shows them as they come without.\n\n" +
			"Exit status: 0 shown, 2 the server cannot be reached or has no history.",
		Example: "  rocectl events --since 24h\n  rocectl events --from rfsoc1 --kind link-down --json\n  rocectl events --follow",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since < 0 {
				return fmt.Errorf("--since %v: give how long ago, as 1h", since)
			}
			nc, err := connect(server, "events", follow)
			if err != nil {
				return err
			}
			defer nc.Close()
			ctx := cmd.Context()
			if !follow {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, pastLimit)
				defer cancel()
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			err = rocelink.Events(ctx, nc, time.Now().Add(-since), follow, func(e rocelink.Event) error {
				if len(kinds) > 0 && !slices.Contains(kinds, e.Kind) || len(from) > 0 && !slices.Contains(from, e.From) {
					return nil
				}
				if asJSON {
					return out.Encode(e)
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), report.EventLine(e))
				return err
			})
			if err != nil {
				return fmt.Errorf("%w: does the server have JetStream (rocelinkd --nats-store)? rocectl watch works without", err)
			}
			return nil
		},
	}
	f := c.Flags()
	f.DurationVar(&since, "since", time.Hour, "how long ago to begin")
	f.BoolVar(&follow, "follow", false, "go on with what comes, until interrupted")
	f.StringArrayVar(&kinds, "kind", nil, "only events of this `kind`; may be repeated")
	f.StringArrayVar(&from, "from", nil, "only events of this board or host; may be repeated")
	f.BoolVar(&asJSON, "json", false, "write one JSON object a line")
	return c
}
