package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/report"
)

// listen is how long status collects: everyone publishes once a second.
const listen = 1300 * time.Millisecond

func statusCommand(access *rocelink.Access) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show boards, hosts and their streams",
		Long:    "status listens for a little over a second and shows the last record of every board and host.\n\nExit status: 0 all is in order, 1 a link is down or a stream lost something, 2 nobody was heard.",
		Example: "  rocectl status\n  rocectl status --json | jq '.boards[].link.state'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nc, err := connect(access, "status", false)
			if err != nil {
				return err
			}
			defer nc.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), listen)
			defer cancel()
			s := report.Snapshot{Boards: []rocelink.BoardStatus{}, Hosts: []rocelink.HostStatus{}}
			err = records(ctx, nc, []string{rocelink.AnyBoardStatus, rocelink.AnyHostStatus}, func(record any) error {
				s.Add(record)
				return nil
			})
			if err != nil {
				return err
			}
			if len(s.Boards)+len(s.Hosts) == 0 {
				return fmt.Errorf("no board and no host was heard at %s in %v: are boardd and rocelinkd running and connected to this server?", nc.ConnectedUrlRedacted(), listen)
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(s)
			} else {
				err = s.Text(cmd.OutOrStdout())
			}
			if err == nil && !s.Healthy() {
				err = exitError{code: exitUnhealthy}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func watchCommand(access *rocelink.Access) *cobra.Command {
	var asJSON bool
	var stream string
	c := &cobra.Command{
		Use:     "watch",
		Short:   "Show windows and events as they come",
		Long:    "watch prints a line for every window of every stream and for every event, until it is interrupted.",
		Example: "  rocectl watch\n  rocectl watch --stream send --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nc, err := connect(access, "watch", true)
			if err != nil {
				return err
			}
			defer nc.Close()
			w := cmd.OutOrStdout()
			if !asJSON {
				fmt.Fprintln(w, report.WindowHeader)
			}
			out := json.NewEncoder(w)
			return records(cmd.Context(), nc, []string{rocelink.AnyWindow, rocelink.AnyBoardEvent, rocelink.AnyHostEvent}, func(record any) error {
				name, line := "", ""
				switch r := record.(type) {
				case rocelink.Window:
					name, line = r.Stream, report.WindowLine(r)
				case rocelink.Event:
					name, line = r.Stream, report.EventLine(r)
				}
				if stream != "" && name != stream {
					return nil
				}
				if asJSON {
					return out.Encode(record)
				}
				fmt.Fprintln(w, line)
				return nil
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON object a line")
	c.Flags().StringVar(&stream, "stream", "", "only this stream")
	return c
}

// records calls take with every record of the subjects until ctx ends. What
// cannot be decoded is named on standard error once a subject.
func records(ctx context.Context, nc *nats.Conn, subjects []string, take func(any) error) error {
	messages := make(chan *nats.Msg, 1024)
	kinds := map[*nats.Subscription]func([]byte) (any, error){}
	for _, subject := range subjects {
		sub, err := nc.ChanSubscribe(subject, messages)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		kinds[sub] = decoder(subject)
	}
	complained := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			record, err := kinds[m.Sub](m.Data)
			if err != nil {
				if !complained[m.Subject] {
					complained[m.Subject] = true
					fmt.Fprintf(os.Stderr, "rocectl: %s: %v\n", m.Subject, err)
				}
				continue
			}
			if err := take(record); err != nil {
				return err
			}
		}
	}
}

func decoder(subject string) func([]byte) (any, error) {
	switch subject {
	case rocelink.AnyBoardStatus:
		return decode[rocelink.BoardStatus]
	case rocelink.AnyHostStatus:
		return decode[rocelink.HostStatus]
	case rocelink.AnyWindow:
		return decode[rocelink.Window]
	}
	return decode[rocelink.Event]
}

func decode[T any](data []byte) (any, error) {
	var v T
	err := rocelink.Decode(data, &v)
	return v, err
}
