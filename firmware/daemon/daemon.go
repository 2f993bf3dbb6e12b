// Package daemon is the program boardd: its flags, what process 1 tells it, and
// the board that it runs. It is a package so that it can share one file with
// process 1 of a board.
package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"rocelink/firmware/board"
)

// Exit codes.
const (
	exitOK     = 0 // ended by a signal, all streams closed; or --help
	exitFailed = 1 // the configuration cannot work
	exitUsage  = 2 // wrong flags
)

// runFolder is gone when the system restarts (Filesystem Hierarchy Standard 3.0,
// 3.15).
const runFolder = "/run/rocelink"

// Main is the program; it returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args[1:], os.Getenv, os.Stderr)
}

func run(ctx context.Context, args []string, env func(string) string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "boardd: %v\n", err)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.level}))
	cfg, err := o.config()
	if err != nil {
		log.Error("configuration", "err", err)
		return exitFailed
	}
	cfg.Log, cfg.Run = log, runFolder
	cfg.System = system(env, cfg.Description.Model, log)
	b, err := board.New(cfg)
	if err != nil {
		log.Error("configuration", "err", err)
		return exitFailed
	}
	if err := b.Run(ctx); err != nil {
		log.Error("stopped", "err", err)
		return exitFailed
	}
	log.Info("stopped")
	return exitOK
}
