// Command rocelinkd is the host agent: it takes streams from boards through an
// RDMA device.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rocelink/agent/daemon"
	"rocelink/agent/stream"
)

// Exit codes.
const (
	exitLost   = 1 // with --once: a stream lost something
	exitConfig = 2 // a setting is wrong
	exitFailed = 3 // device, NATS server or another part could not be started
)

// collectAt makes the heap be collected earlier than Go's default of 100 %: the
// data path allocates nothing, so that collections are rare, and status records
// of a thousand boards stay within a small host's memory. GOGC overrides it.
const collectAt = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "rocelinkd:", err)
	switch {
	case errors.Is(err, daemon.ErrLost):
		os.Exit(exitLost)
	case errors.Is(err, daemon.ErrConfig), errors.Is(err, stream.ErrSpec):
		os.Exit(exitConfig)
	}
	os.Exit(exitFailed)
}

func command() *cobra.Command {
	var c daemon.Config
	var file, level string
	var specs []string
	cmd := &cobra.Command{
		Use:   "rocelinkd",
		Short: "Receive streams from boards through an RDMA device",
		Long: "rocelinkd opens the given streams at their boards over NATS, receives them, and publishes what came.\n" +
			"Without --nats it runs a NATS server itself, on loopback.\n\n" +
			"A stream is key=value settings separated by commas: board (needed), verb (send, send-imm, write, write-imm, read),\n" +
			"name, frame, slots, source (prbs31, counter, external), crc, rate, burst, count, sink (verify, discard, file:PATH),\n" +
			"mode (event, busy), batch, mtu, cpu, lease, free-running, window, timeout, retry, rnr-retry,\n" +
			"share (send and send-imm streams of one share receive with one thread from one queue).\n\n" +
			"SIGHUP makes the NATS server inside read --nats-config again: users, keys, permissions and certificate.\n\n" +
			"Exit status: 0 ended in order, 1 with --once: a stream lost something, 2 a setting is wrong, 3 something could not be started.",
		Example:       "  rocelinkd --stream board=demo,verb=send,frame=64KiB,rate=1G\n  rocelinkd --config /etc/rocelink/rocelinkd.yaml",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return fmt.Errorf("%w: log level %q: give debug, info, warn or error", daemon.ErrConfig, level)
			}
			c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
			if file != "" {
				// What is given on the command line goes before the file.
				given := map[string]string{}
				cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
				delete(given, "stream")
				if err := c.Load(file); err != nil {
					return err
				}
				for name, value := range given {
					if err := cmd.Flags().Set(name, value); err != nil {
						return err
					}
				}
			}
			for _, text := range specs {
				s, err := stream.ParseSpec(text)
				if err != nil {
					return fmt.Errorf("--stream %s: %w", text, err)
				}
				c.Streams = append(c.Streams, s)
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			c.Reload = reload
			return daemon.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "configuration `file` (YAML)")
	f.StringVar(&c.Name, "name", "", "name of this host on NATS (default the host name)")
	f.StringVar(&c.Device, "device", "", "RDMA `device`, its address, or auto; soft:ADDRESS receives by software (default: auto, or soft:127.0.0.1 where there is none)")
	f.StringArrayVar(&specs, "stream", nil, "a stream to open; may be repeated")
	f.BoolVar(&c.Once, "once", false, "end when every stream's source has ended")
	f.StringVar(&c.Summary, "summary", "", "`file` for the results at the end, as JSON")
	f.StringVar(&c.HTTP, "http", "", "serve the live page and the metrics at host:port, such as 127.0.0.1:8471 (default: not)")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.NATS.URL, "nats", "", "NATS server to use in place of the one inside")
	f.StringVar(&c.NATS.Listen, "nats-listen", "", "where the server inside listens (default 127.0.0.1:4222)")
	f.StringVar(&c.NATS.Store, "nats-store", "", "`folder` of the server inside for JetStream (default: no history)")
	f.StringVar(&c.NATS.Server, "nats-config", "", "nats-server configuration `file` for the server inside")
	f.StringVar(&c.NATS.Credentials, "creds", "", "NATS credentials `file`")
	f.StringVar(&c.NATS.NKey, "nkey", "", "NATS nkey seed `file`")
	f.StringVar(&c.NATS.CA, "tls-ca", "", "`file` with the certificates that sign the server's")
	f.StringVar(&c.NATS.Cert, "tls-cert", "", "client certificate `file`")
	f.StringVar(&c.NATS.Key, "tls-key", "", "client key `file`")
	return cmd
}
