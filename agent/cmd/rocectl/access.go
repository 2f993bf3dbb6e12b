package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rocelink/agent/access"
)

const (
	defaultAccessDir = "/etc/rocelink/access"
	reloadHint       = "then: systemctl reload rocelinkd (or SIGHUP to rocelinkd, or nats-server --signal reload)"
)

func accessCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "access",
		Short: "Make and change who may do what at the NATS server",
		Long: "access keeps a directory with an nkey for each board, agent, operator and observer, the least permissions each needs,\n" +
			"TLS by a certificate authority of its own, and the server's configuration made of it. It works on files alone.\n\n" +
			"board     publishes its own status and answers requests\n" +
			"agent     runs streams on boards (--board: on these only), publishes its own status and windows\n" +
			"operator  calls every endpoint of every board: registers, reset, power, update\n" +
			"observer  listens\n\n" +
			"The directory holds private keys: whoever reads it may do everything.\n\n" +
			"Exit status: 0 done, 2 refused; nothing has changed then.",
		Example: "  rocectl access init --host nats.lab.example --host 192.168.1.10\n" +
			"  rocectl access add board rfsoc1\n" +
			"  rocectl access add agent host1 --board rfsoc1\n" +
			"  rocectl access add operator ann\n" +
			"  rocectl access rotate board rfsoc1   # hand out the new key, then:\n" +
			"  rocectl access retire board rfsoc1",
	}
	c.PersistentFlags().StringVar(&dir, "dir", defaultAccessDir, "the `folder`")
	c.AddCommand(accessInit(&dir), accessAdd(&dir), accessList(&dir),
		accessChange(&dir, "rotate", "Give a user a new key; the one before stays valid until retire", func(d *access.Directory, kind access.Kind, name string, w io.Writer) error {
			folder, err := d.Rotate(kind, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "new key for %s %s in %s\n1. reload the server; %s\n2. replace %s where the %s has it; it needs no restart\n3. rocectl access retire %s %q, and reload again\n",
				kind, name, folder, reloadHint, access.SeedFile, kind, kind, name)
			return nil
		}),
		accessChange(&dir, "retire", "End every key of a user but the newest", func(d *access.Directory, kind access.Kind, name string, w io.Writer) error {
			if err := d.Retire(kind, name); err != nil {
				return err
			}
			fmt.Fprintf(w, "only the newest key of %s %s is valid\n%s\n", kind, name, reloadHint)
			return nil
		}),
		accessChange(&dir, "remove", "End a user and remove its key", func(d *access.Directory, kind access.Kind, name string, w io.Writer) error {
			if err := d.Remove(kind, name); err != nil {
				return err
			}
			fmt.Fprintf(w, "%s %s is no user any more\n%s\n", kind, name, reloadHint)
			return nil
		}),
		accessRenew(&dir))
	return c
}

func accessInit(dir *string) *cobra.Command {
	var hosts []string
	var listen, store string
	c := &cobra.Command{
		Use:     "init",
		Short:   "Make a new directory: certificate authority, server certificate and configuration",
		Long:    "init makes a new directory. Run it where the server will read it: its configuration holds absolute paths.",
		Example: "  rocectl access init --host nats.lab.example --host 192.168.1.10 --store /var/lib/rocelink/jetstream",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := access.Init(*dir, access.Server{Hosts: hosts, Listen: listen, Store: store})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "made %s\nthe server's configuration: %s\n  rocelinkd --nats-config %[2]s, or nats.server in rocelinkd.yaml, or nats-server -c %[2]s\n"+
				"  its user must be able to read it: chown -R rocelink %s\nnext: rocectl access add agent, board, operator\n",
				d.Path(""), d.Path(access.ServerConfig), filepath.Dir(d.Path(access.ServerConfig)))
			return nil
		},
	}
	c.Flags().StringArrayVar(&hosts, "host", nil, "host `name` or address by which the server is reached; may be repeated (required)")
	c.Flags().StringVar(&listen, "listen", "0.0.0.0:4222", "where the server listens")
	c.Flags().StringVar(&store, "store", "", "`folder` of the server for JetStream (default: no history)")
	return c
}

func accessAdd(dir *string) *cobra.Command {
	var boards []string
	c := &cobra.Command{
		Use:     "add KIND NAME",
		Short:   "Make a user; KIND is " + kindNames(),
		Example: "  rocectl access add board rfsoc1\n  rocectl access add agent host1 --board rfsoc1",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := access.Open(*dir)
			if err != nil {
				return err
			}
			kind := access.Kind(args[0])
			folder, err := d.Add(kind, args[1], boards...)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "%s %s: its files are in %s\n", kind, args[1], folder)
			seed, ca := filepath.Join(folder, access.SeedFile), filepath.Join(folder, access.CAFile)
			switch kind {
			case access.Board:
				fmt.Fprintf(w, "  copy them to the board's card: cp %s/* /media/ROCELINK/\n", folder)
			case access.Agent:
				fmt.Fprintf(w, "  in rocelinkd.yaml, below nats: nkey: %s, tls-ca: %s\n  its user must be able to read them: chown -R rocelink %s\n", seed, ca, folder)
			default:
				fmt.Fprintf(w, "  rocectl --nats %s --nkey %s --tls-ca %s status\n", d.URL(), seed, ca)
			}
			fmt.Fprintln(w, reloadHint)
			return nil
		},
	}
	c.Flags().StringArrayVar(&boards, "board", nil, "an agent: a `board` it may run streams on; may be repeated (default: all)")
	return c
}

func kindNames() string {
	names := make([]string, len(access.Kinds))
	for i, k := range access.Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

func accessChange(dir *string, verb, short string, do func(*access.Directory, access.Kind, string, io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " KIND NAME",
		Short:   short,
		Example: "  rocectl access " + verb + " board rfsoc1",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := access.Open(*dir)
			if err != nil {
				return err
			}
			return do(d, access.Kind(args[0]), args[1], cmd.OutOrStdout())
		},
	}
}

func accessRenew(dir *string) *cobra.Command {
	var hosts []string
	c := &cobra.Command{
		Use:     "renew",
		Short:   "Make a new server certificate; boards, agents and operators need nothing new",
		Example: "  rocectl access renew\n  rocectl access renew --host nats2.lab.example",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := access.Open(*dir)
			if err != nil {
				return err
			}
			if err := d.Renew(hosts...); err != nil {
				return err
			}
			end, err := d.Expires()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "new certificate for %s, valid until %s\n%s\n", strings.Join(d.Server().Hosts, ", "), end.Format("2006-01-02"), reloadHint)
			return nil
		},
	}
	c.Flags().StringArrayVar(&hosts, "host", nil, "host `names` and addresses in place of those before")
	return c
}

func accessList(dir *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show the users and until when the server's certificate is valid",
		Example: "  rocectl access list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := access.Open(*dir)
			if err != nil {
				return err
			}
			end, err := d.Expires()
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				users := d.Users()
				if users == nil {
					users = []access.User{}
				}
				return out.Encode(map[string]any{"server": d.Server(), "certificate_until": end, "users": users})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "server %s, certificate for %s until %s\n", d.Server().Listen, strings.Join(d.Server().Hosts, ", "), end.Format("2006-01-02"))
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KIND\tNAME\tBOARDS\tKEYS")
			for _, u := range d.Users() {
				boards := strings.Join(u.Boards, ",")
				if u.Kind == access.Agent && boards == "" {
					boards = "all"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.Kind, u.Name, boards, strings.Join(u.Keys, " (to retire) "))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
