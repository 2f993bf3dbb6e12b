package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// defaultFabric is where make demo keeps the software fabric's registers.
const defaultFabric = "build/demo/fabric.regs"

// simTime bounds a request: the fabric is on this machine.
const simTime = 5 * time.Second

// simRequest and simReply are the lines of the software fabric's socket.
type simRequest struct {
	Do     string    `json:"do,omitempty"`
	Args   []string  `json:"args,omitempty"`
	ForMS  int64     `json:"for_ms,omitempty"`
	Script []simStep `json:"script,omitempty"`
}

type simStep struct {
	AfterMS int64    `json:"after_ms,omitempty"`
	Do      string   `json:"do"`
	Args    []string `json:"args,omitempty"`
	ForMS   int64    `json:"for_ms,omitempty"`
}

type simReply struct {
	Error  string `json:"error,omitempty"`
	Active []struct {
		Name   string `json:"name"`
		Lane   int    `json:"lane,omitempty"`
		LeftMS int64  `json:"left_ms,omitempty"`
	} `json:"active"`
	Waiting int `json:"waiting"`
	Faults  []struct {
		Name  string `json:"name"`
		Lanes bool   `json:"lanes"`
		Ends  string `json:"ends,omitempty"`
		Doc   string `json:"doc"`
	} `json:"faults,omitempty"`
}

func simCommand() *cobra.Command {
	var fabric string
	var last time.Duration
	c := &cobra.Command{
		Use:   "sim FAULT [LANE...]",
		Short: "Provoke faults of the software fabric's module and link",
		Long: "sim provokes a fault of the software fabric on this machine, or ends it:\n\n" +
			"  unplug, plug              pull the module, plug it again\n" +
			"  dark, light [LANE...]     no light arrives on lanes 1 to 4, or all\n" +
			"  tx-off [LANE...]          transmitters are off\n" +
			"  low-power, hot            the module is held in low power, is too hot\n" +
			"  i2c-stuck, i2c-nack       its bus is held, it does not acknowledge\n" +
			"  checksum                  another module, with a wrong checksum\n" +
			"  peer-silent, peer-blind   the peer sends nothing, does not see us\n" +
			"  fec-mismatch, wrong-rate  the peer has another FEC, another rate\n" +
			"  high-ber, no-clock        too many bit errors, no reference clock\n" +
			"  clear                     end all, and what a script has yet to do\n\n" +
			"sim list shows what is active and what there is, sim script runs a list of steps.\n" +
			"Exit status: 0 done, 2 refused or no such fabric.",
		Example: "  rocectl sim dark 3\n  rocectl sim unplug --for 10s\n  rocectl sim clear\n  rocectl sim list --json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ms, err := wholeMS("--for", last)
			if err != nil {
				return err
			}
			_, err = simulate(cmd.Context(), fabric, simRequest{Do: args[0], Args: args[1:], ForMS: ms})
			return err
		},
	}
	c.PersistentFlags().StringVar(&fabric, "fabric", defaultFabric, "registers `file` of the software fabric")
	c.Flags().DurationVar(&last, "for", 0, "end the fault after this `time` (default: it stays)")
	c.AddCommand(simListCommand(&fabric), simScriptCommand(&fabric))
	return c
}

func simListCommand(fabric *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show the faults that are active, and those there are",
		Example: "  rocectl sim list\n  rocectl sim list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := simulate(cmd.Context(), *fabric, simRequest{})
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(r)
			}
			return printSim(cmd.OutOrStdout(), r)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func printSim(to io.Writer, r simReply) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, a := range r.Active {
		fmt.Fprintf(w, "active\t%s", a.Name)
		if a.Lane > 0 {
			fmt.Fprintf(w, " %d", a.Lane)
		}
		if a.LeftMS > 0 {
			fmt.Fprintf(w, "\tfor %v", time.Duration(a.LeftMS)*time.Millisecond)
		}
		fmt.Fprintln(w)
	}
	if len(r.Active) == 0 {
		fmt.Fprintln(w, "no fault is active")
	}
	if r.Waiting > 0 {
		fmt.Fprintf(w, "%d steps of a script are yet to come\n", r.Waiting)
	}
	fmt.Fprintln(w)
	for _, f := range r.Faults {
		name := f.Name
		if f.Lanes {
			name += " [LANE...]"
		}
		fmt.Fprintf(w, "%s\t%s\n", name, f.Doc)
	}
	return w.Flush()
}

// scriptStep is a step as a file has it.
type scriptStep struct {
	After string `yaml:"after"`
	Do    string `yaml:"do"`
	Arg   any    `yaml:"arg"` // a lane, or a list of them
	For   string `yaml:"for"`
}

func simScriptCommand(fabric *string) *cobra.Command {
	return &cobra.Command{
		Use:   "script FILE",
		Short: "Run a script of faults",
		Long: "script gives the fabric a list of steps, which replaces what an earlier script had yet to do, and ends\n" +
			"at once: the fabric does each step at its time. FILE is YAML, - is standard input:\n\n" +
			"  - {after: 2s, do: dark, arg: 3}           # 2 s from now\n" +
			"  - {after: 5s, do: light}                  # 5 s after that\n" +
			"  - {after: 1s, do: tx-off, arg: [1, 2], for: 500ms}\n\n" +
			"If one step is wrong none is taken.",
		Example: "  rocectl sim script faults.yaml\n  rocectl sim script - < faults.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("script: %w", err)
				}
				defer f.Close()
				in = f
			}
			steps, err := parseScript(in)
			if err != nil {
				return fmt.Errorf("script %s: %w", args[0], err)
			}
			_, err = simulate(cmd.Context(), *fabric, simRequest{Script: steps})
			return err
		},
	}
}

// maxScript bounds a script file.
const maxScript = 256 << 10

func parseScript(in io.Reader) (list []simStep, err error) {
	data, err := io.ReadAll(io.LimitReader(in, maxScript+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxScript {
		return nil, fmt.Errorf("more than %d bytes", maxScript)
	}
	var steps []scriptStep
	if err := yaml.UnmarshalWithOptions(data, &steps, yaml.Strict()); err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, errors.New("no steps: want a list such as \"- {after: 2s, do: dark, arg: 3}\"")
	}
	for i, s := range steps {
		x := simStep{Do: s.Do}
		if x.AfterMS, err = scriptMS("after", s.After); err == nil {
			x.ForMS, err = scriptMS("for", s.For)
		}
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		switch v := s.Arg.(type) {
		case nil:
		case []any:
			for _, a := range v {
				x.Args = append(x.Args, fmt.Sprint(a))
			}
		default:
			x.Args = []string{fmt.Sprint(v)}
		}
		list = append(list, x)
	}
	return list, nil
}

func scriptMS(what, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s %.40q: want a time such as 2s or 500ms", what, s)
	}
	return wholeMS(what, d)
}

func wholeMS(what string, d time.Duration) (int64, error) {
	if d < 0 || d > 0 && d < time.Millisecond {
		return 0, fmt.Errorf("%s %v: want at least 1ms", what, d)
	}
	return d.Milliseconds(), nil
}

// simulate asks the software fabric whose registers are in a file.
func simulate(ctx context.Context, fabric string, q simRequest) (r simReply, err error) {
	path := fabric + ".sim"
	ctx, cancel := context.WithTimeout(ctx, simTime)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return r, fmt.Errorf("%w: no software fabric runs with its registers in %s; give its file with --fabric", err, fabric)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := json.NewEncoder(c).Encode(q); err != nil {
		return r, fmt.Errorf("ask %s: %w", path, err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return r, fmt.Errorf("answer of %s: %w", path, err)
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return r, fmt.Errorf("answer of %s: %w", path, err)
	}
	if r.Error != "" {
		return r, errors.New(strings.TrimSpace(r.Error))
	}
	return r, nil
}
