package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/heard"
	"rocelink/agent/path"
)

// listenLong is how long where listens when something is not in order, or two
// records of everyone are not there yet.
const listenLong = 3300 * time.Millisecond

// located is what where writes as JSON.
type located struct {
	InOrder bool        `json:"in_order"`
	Paths   []foundPath `json:"paths"`
}

type foundPath struct {
	path.Path
	Since *time.Time `json:"since,omitempty"` // with --watch: of the diagnosis
}

func whereCommand(access *rocelink.Access) *cobra.Command {
	var watch, asJSON bool
	c := &cobra.Command{
		Use:   "where [STREAM]",
		Short: "Tell where the frames of each stream are",
		Long: "where listens to boards and hosts for a little over a second, longer if something is wrong. For every stream, or\n" +
			"those called STREAM, it shows what each stage from the source to the sink counts, marks the first that falls\n" +
			"behind, and says what is wrong and what to do.\n\n" +
			"Exit status: 0 all is in order, 1 something is wrong, 2 the command failed. With --watch: of the last look.",
		Example: "  rocectl where\n  rocectl where raw --watch\n  rocectl where --json | jq -r '.paths[] | [.stream, .broken, .diagnosis.rule] | @tsv'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nc, err := connect(access, "where", watch)
			if err != nil {
				return err
			}
			defer nc.Close()
			store := heard.New(heard.Config{})
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			stop, err := store.Follow(nc, log)
			if err != nil {
				return err
			}
			defer stop()
			w := where{store: store, out: cmd.OutOrStdout(), json: asJSON, watch: watch}
			if len(args) == 1 {
				w.stream = args[0]
			}
			if watch {
				return w.follow(cmd.Context())
			}
			return w.once(cmd.Context(), nc.ConnectedUrlRedacted())
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "look again each second until interrupted")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON; with --watch one object a line")
	return c
}

type where struct {
	store       *heard.Store
	out         io.Writer
	json, watch bool
	stream      string // "": all
	tracker     path.Tracker
}

// look analyses what was heard so far.
func (w *where) look() []path.Path {
	all := path.Analyse(w.store.View())
	if w.stream == "" {
		return all
	}
	var some []path.Path
	for _, p := range all {
		if p.Stream == w.stream {
			some = append(some, p)
		}
	}
	return some
}

// once listens until it can tell, and tells.
func (w *where) once(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, listenLong)
	defer cancel()
	short := time.NewTimer(listen)
	defer short.Stop()
	changed, unwatch := w.store.Watch()
	defer unwatch()
	for enough, over := false, false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-short.C:
			enough = true
		case <-changed:
		}
		over = over || enough && settled(w.look())
	}
	paths := w.look()
	switch all := w.store.View(); {
	case len(paths) > 0:
	case len(all.Boards)+len(all.Hosts) == 0:
		return fmt.Errorf("no board and no host was heard at %s in %v: are boardd and rocelinkd running and connected to this server?", server, listenLong)
	default:
		return fmt.Errorf("no stream is called %q: `rocectl where` lists them", w.stream)
	}
	if err := w.write(paths, nil); err != nil {
		return err
	}
	return w.verdict(paths)
}

// settled reports that listening longer would change nothing: everything is in
// order, by two records of everyone.
func settled(paths []path.Path) bool {
	for _, p := range paths {
		if !p.InOrder() || p.Diagnosis.Rule == "measuring" {
			return false
		}
	}
	return len(paths) > 0
}

// follow looks again each second until ctx ends.
func (w *where) follow(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return w.verdict(w.look())
		case <-tick.C:
		}
		paths := w.look()
		if err := w.write(paths, w.tracker.Update(time.Now(), paths)); err != nil {
			return err
		}
	}
}

func (w *where) verdict(paths []path.Path) error {
	if !path.InOrder(paths) {
		return exitError{code: exitUnhealthy}
	}
	return nil
}

func (w *where) write(paths []path.Path, began map[string]path.Began) error {
	if w.json {
		l := located{InOrder: path.InOrder(paths), Paths: []foundPath{}}
		for _, p := range paths {
			f := foundPath{Path: p}
			if b, ok := began[p.ID]; ok {
				f.Since = &b.At
			}
			l.Paths = append(l.Paths, f)
		}
		e := json.NewEncoder(w.out)
		if !w.watch {
			e.SetIndent("", "  ")
		}
		return e.Encode(l)
	}
	if w.watch {
		if w.out == os.Stdout && terminal(os.Stdout) {
			fmt.Fprint(w.out, "\x1b[H\x1b[2J") // ECMA-48: home, erase
		}
		fmt.Fprintln(w.out, time.Now().Format("15:04:05"))
		if len(paths) == 0 {
			fmt.Fprintln(w.out, "nothing was heard yet: are boardd and rocelinkd running and connected to this server?")
		}
	}
	return path.Text(w.out, paths, began)
}

func terminal(f *os.File) bool {
	i, err := f.Stat()
	return err == nil && i.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
