// Command rocectl shows an operator what boards and hosts do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"rocelink"
)

// exitError ends the program with a code of its own.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

const (
	exitUnhealthy = 1 // the command worked; what it shows is not in order
	exitFailed    = 2 // the command could not be carried out
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err == nil {
		return
	}
	code := exitFailed
	var e exitError
	if errors.As(err, &e) {
		code = e.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "rocectl:", text)
	}
	os.Exit(code)
}

func command() *cobra.Command {
	var access rocelink.Access
	root := &cobra.Command{
		Use:           "rocectl",
		Short:         "See what boards and hosts of rocelink do",
		Long:          "rocectl shows boards, hosts and their streams, reads registers and decodes captures.\n\nExit status: 0 in order, 1 what is shown is not in order, 2 the command failed.",
		Example:       "  rocectl status\n  rocectl watch --json\n  rocectl regs Core --board demo\n  rocectl decode capture.pcap",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&access.URL, "nats", rocelink.DefaultURL, "NATS server, or several separated by commas")
	f.StringVar(&access.Credentials, "creds", "", "NATS credentials `file`")
	f.StringVar(&access.NKey, "nkey", "", "NATS nkey seed `file`")
	f.StringVar(&access.CA, "tls-ca", "", "`file` with the certificates that sign the server's")
	f.StringVar(&access.Cert, "tls-cert", "", "client certificate `file`")
	f.StringVar(&access.Key, "tls-key", "", "client key `file`")
	root.AddCommand(statusCommand(&access), whereCommand(&access), watchCommand(&access), regsCommand(&access), decodeCommand(), doctorCommand(), opticsCommand(&access), bitstreamCommand(), boardsCommand(), accessCommand(), eventsCommand(&access), powerCommand(&access), updateCommand(&access), simCommand())
	return root
}
