// Command rocelink-demo runs the whole path on one machine.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/demo"
	"rocelink/agent/page"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := demo.ExitFailed
	if err := command(&code).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rocelink-demo:", err)
	}
	os.Exit(code)
}

func command(code *int) *cobra.Command {
	c := demo.Config{Out: os.Stdout}
	var duration, verbs string
	var drop, duplicate, reorder, corrupt, delay string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "rocelink-demo",
		Short: "Run board, fabric and host on this machine and verify every byte",
		Long: "rocelink-demo starts the software fabric, boardd and rocelinkd, shows a line a second and a summary.\n\n" +
			"Exit status: 0 nothing was lost or corrupt, 1 something was, 2 the demo could not be run.",
		Example:       "  rocelink-demo --programs build/bin --dir build/demo --duration 30s\n  rocelink-demo --drop 1 --verbs send,write\n  rocelink-demo --source recording.bin --sink out.bin",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if duration != "" {
				if c.Duration, err = parseDuration(duration); err != nil {
					return err
				}
			}
			for v := range strings.FieldsFuncSeq(verbs, func(r rune) bool { return r == ',' || r == ' ' }) {
				c.Verbs = append(c.Verbs, rocelink.Verb(v))
			}
			for _, v := range c.Verbs {
				if !v.Valid() {
					return fmt.Errorf("verb %q: give one of %v", v, rocelink.Verbs)
				}
			}
			for name, value := range map[string]string{"drop": drop, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt, "delay": delay} {
				if value != "" {
					c.Faults = append(c.Faults, "--"+name, value)
				}
			}
			if seed != 0 {
				c.Faults = append(c.Faults, "--seed", fmt.Sprint(seed))
			}
			// The page is an extra: no reason to refuse when another demo has it.
			if l, err := net.Listen("tcp", c.HTTP); err == nil {
				l.Close()
			} else {
				c.HTTP = ""
			}
			if c.JSON {
				c.Progress = os.Stderr
			}
			*code, err = demo.Run(cmd.Context(), c)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Programs, "programs", "build/bin", "`folder` of the programs")
	f.StringVar(&c.Dir, "dir", "build/demo", "`folder` for logs, register file and summary")
	f.StringVar(&c.Board, "board", "", "run boardd on this emulated `board` (qemu-versal, qemu-zcu102) instead of on this machine")
	f.StringVar(&c.Fabric, "fabric", "", "what plays the fabric: model, or rtl for the RTL in simulation (default model)")
	f.StringVar(&c.Image, "image", "", "image `file` of the emulated board (default build/BOARD/BOARD.itb)")
	f.StringVar(&duration, "duration", "", "how long, in seconds or as 1m30s (default 10s; with --source until it ends)")
	f.StringVar(&verbs, "verbs", "", "streams: send, send-imm, write, write-imm, read (default send,write-imm,write,read)")
	f.StringVar(&c.Frame, "frame", "", "bytes a frame (default 64KiB)")
	f.StringVar(&c.Rate, "rate", "", "payload rate of each stream, 0 for no limit (default 1G, with --fabric rtl 5M)")
	f.Uint64Var(&c.Count, "count", 0, "frames of each stream, 0 for no limit")
	f.IntVar(&c.MTU, "mtu", 0, "path MTU (default what the port carries)")
	f.StringVar(&c.Source, "source", "", "`file` to send, - for standard input")
	f.StringVar(&c.Sink, "sink", "", "`file` to write what arrives to")
	f.StringVar(&drop, "drop", "", "per cent of packets to lose, each way")
	f.StringVar(&duplicate, "duplicate", "", "per cent of packets to duplicate")
	f.StringVar(&reorder, "reorder", "", "per cent of packets to reorder")
	f.StringVar(&corrupt, "corrupt", "", "per cent of packets to corrupt")
	f.StringVar(&delay, "delay", "", "per cent of packets to delay")
	f.Uint64Var(&seed, "seed", 0, "seed of the faults")
	f.StringVar(&c.NATSListen, "nats-listen", "", "where the NATS server listens (default 127.0.0.1:4222, or a free port)")
	f.StringVar(&c.HTTP, "http", page.DefaultAddress, "where the live page is served; left out if the port is taken")
	f.StringVar(&c.HostAddress, "host-address", "", "address of the host's port (default 127.0.0.1)")
	f.StringVar(&c.BoardAddress, "board-address", "", "address of the board's port (default 127.0.0.2)")
	f.StringVar(&c.Capture, "pcap", "", "`file` to capture the fabric's frames in")
	f.BoolVar(&c.JSON, "json", false, "write the summary as JSON")
	return cmd
}

// parseDuration takes seconds without a unit too, as in DURATION=30.
func parseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return d, nil
	}
	if d, err := time.ParseDuration(s + "s"); err == nil && d > 0 {
		return d, nil
	}
	return 0, fmt.Errorf("duration %q: give seconds above 0, or a time such as 1m30s", s)
}
