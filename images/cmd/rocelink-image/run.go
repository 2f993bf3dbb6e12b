package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"rocelink/boards"
	"rocelink/images"
	"rocelink/images/qemu"
)

// emulatedAddress is the address of the fabric's port unless told otherwise.
// The program that plays the fabric binds it on this machine.
const emulatedAddress = "127.0.0.2"

type runOptions struct {
	board, image, card, fabric, console, address, name, nats, serve string
	fabricArgs, settings, arguments                                 []string
	limit                                                           time.Duration
	interactive                                                     bool
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --board NAME",
		Short: "runs the image of a board under QEMU, with the software fabric",
		Long: `run boots a board's image under QEMU until the board powers itself off or the
command is interrupted. A program plays the fabric through memory that both
share; the board reaches this machine as ` + qemu.Host + `.`,
		Example: `  rocelink-image run --board qemu-versal --serve-nats 127.0.0.1:4222
  rocectl status          # from another terminal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.board, "board", "", "built-in board, or `file` (.yaml) with a description (required)")
	f.StringVar(&o.image, "image", "", "FIT image, a `file` (default: build/NAME/NAME.itb)")
	f.StringVar(&o.card, "card", "", "image `file` of a card in the board's slot (default: none)")
	f.StringVar(&o.fabric, "fabric", "build/bin/rocelink-fabric", "`program` that plays the fabric; none runs without")
	f.StringArrayVar(&o.fabricArgs, "fabric-arg", nil, "`argument` for it, such as --drop=1; may be repeated")
	f.StringVar(&o.console, "console", "", "`file` of what the board says at its serial port (default: standard output)")
	f.StringVar(&o.address, "address", emulatedAddress, "IP `address` of the fabric's port, one of this machine's")
	f.StringVar(&o.name, "name", "", "the board's `name` (default: that of its image)")
	f.StringVar(&o.nats, "nats", "nats://"+qemu.Host+":4222", "`URLs` of the NATS servers, as the board sees them")
	f.StringVar(&o.serve, "serve-nats", "", "`address` at which to serve NATS, such as 127.0.0.1:4222")
	f.StringArrayVar(&o.settings, "set", nil, "`key=value` of the board's configuration; may be repeated")
	f.StringArrayVar(&o.arguments, "append", nil, "`word` for the kernel's command line; may be repeated")
	f.BoolVar(&o.interactive, "interactive", false, "standard input is typed at the board's console, line by line")
	f.DurationVar(&o.limit, "limit", 0, "`time` after which to end; 0 is never")
	if err := cmd.MarkFlagRequired("board"); err != nil {
		panic(err)
	}
	return cmd
}

func (o *runOptions) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	load := boards.Load
	if filepath.Ext(o.board) == ".yaml" {
		load = boards.LoadFile
	}
	b, err := load(o.board)
	if err != nil {
		return err
	}
	if o.image == "" {
		o.image = filepath.Join("build", o.board, images.ImageFile(o.board))
	}
	image, err := os.ReadFile(o.image)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: build it first: rocelink-image build --board %s --out %s", err, o.board, filepath.Dir(o.image))
	} else if err != nil {
		return err
	}
	c := qemu.Config{Board: b, Image: image, Card: o.card, Console: stdout, Messages: stderr}
	if o.fabric != "none" {
		c.Fabric = append([]string{o.fabric}, o.fabricArgs...)
	}
	if o.console != "" {
		f, err := os.Create(o.console)
		if err != nil {
			return fmt.Errorf("console: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		c.Console = f
	}
	for _, s := range []struct{ key, value string }{{"nats", o.nats}, {"address", o.address}, {"name", o.name}} {
		if s.value != "" {
			c.Arguments = append(c.Arguments, "rocelink."+s.key+"="+s.value)
		}
	}
	for _, s := range o.settings {
		c.Arguments = append(c.Arguments, "rocelink."+s)
	}
	c.Arguments = append(c.Arguments, o.arguments...)
	if o.serve != "" {
		stop, err := serveNATS(o.serve)
		if err != nil {
			return err
		}
		defer stop()
	}
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("ended after %v", o.limit))
		defer cancel()
	}
	m, err := qemu.Start(ctx, c)
	if err != nil {
		return err
	}
	if o.interactive {
		// It ends with the program: nothing ends a read of standard input.
		go func() { _, _ = io.Copy(m, os.Stdin) }()
	}
	err = m.Wait()
	if errors.Is(err, context.Canceled) {
		return nil // interrupted
	}
	return err
}

// serveNATS runs a NATS server in this program.
func serveNATS(address string) (stop func(), err error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--serve-nats: %w", err)
	}
	s, err := server.NewServer(&server.Options{Host: a.IP.String(), Port: a.Port, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, fmt.Errorf("NATS server at %s: %w", address, err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("NATS server at %s: it does not come up: is the address in use?", address)
	}
	return s.Shutdown, nil
}
