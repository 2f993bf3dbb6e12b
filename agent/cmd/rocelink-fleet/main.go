// Command rocelink-fleet plays the status planes of many boards against one
// rocelinkd and measures how they travel.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"rocelink/agent/fleet"
)

const (
	exitMissed = 1 // a bound was missed
	exitFailed = 2 // could not be run
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed := false
	if err := command(&missed).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rocelink-fleet:", err)
		os.Exit(exitFailed)
	}
	if missed {
		os.Exit(exitMissed)
	}
}

func command(missed *bool) *cobra.Command {
	c := fleet.Config{Progress: os.Stderr}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rocelink-fleet",
		Short: "Measure how the status of many boards travels",
		Long: "rocelink-fleet starts rocelinkd with a stream, the live page and the metrics, and plays the status of many boards in\n" +
			"turns: the stream alone, then with the boards, a browser, a subscriber and a scraper.\n\n" +
			"Exit status: 0 within every bound, 1 a bound was missed, 2 it could not be run.",
		Example:       "  rocelink-fleet --boards 1000\n  rocelink-fleet --boards 100 --segment 5s --json",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := fleet.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			*missed = len(r.Problems) > 0
			if asJSON {
				return r.JSON(cmd.OutOrStdout())
			}
			return r.Text(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Programs, "programs", "build/bin", "`folder` of the programs")
	f.StringVar(&c.Dir, "dir", "build/fleet", "`folder` for logs")
	f.IntVar(&c.Boards, "boards", 1000, "boards that publish once a second")
	f.DurationVar(&c.Segment, "segment", 0, "time of a turn without and of one with the boards (default 10s)")
	f.IntVar(&c.Turns, "turns", 0, "turns (default 3)")
	f.StringVar(&c.Rate, "rate", "", "payload rate of the stream (default 2G)")
	f.DurationVar(&c.Scrape, "scrape", 0, "time between two scrapes (default 5s)")
	f.BoolVar(&asJSON, "json", false, "write the result as JSON")
	return cmd
}
