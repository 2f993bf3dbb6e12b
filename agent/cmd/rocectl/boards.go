package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"rocelink/boards"
)

// fieldForm is how an error of a description begins its field.
var fieldForm = regexp.MustCompile(`(?:^|: )([a-z0-9_]+(?:\[[0-9]+\])?(?:\.[a-z0-9_]+(?:\[[0-9]+\])?)*): `)

// boardCheck is the verdict on a description.
type boardCheck struct {
	File    string           `json:"file"`
	OK      bool             `json:"ok"`
	Problem string           `json:"problem,omitempty"`
	Line    int              `json:"line,omitempty"` // of the field at fault; absent where the text does not hold it
	Unknown []boards.Unknown `json:"unknown"`        // must be set before the board can be used
	NoFacts []string         `json:"no_source"`      // values no source speaks for
}

func checkBoard(file string) boardCheck {
	c := boardCheck{File: file, Unknown: []boards.Unknown{}, NoFacts: []string{}}
	b, err := boards.LoadFile(file)
	if err != nil {
		c.Problem = err.Error()
		if data, e := os.ReadFile(file); e == nil {
			for _, m := range fieldForm.FindAllStringSubmatch(c.Problem, -1) {
				if c.Line = boards.LineOf(data, m[1]); c.Line > 0 {
					break
				}
			}
		}
		return c
	}
	c.OK = true
	c.Unknown = append(c.Unknown, b.Unset()...)
	c.NoFacts = append(c.NoFacts, b.Unsourced()...)
	return c
}

func boardsCommand() *cobra.Command {
	c := &cobra.Command{Use: "boards", Short: "List, show and check board descriptions"}
	c.AddCommand(boardsList(), boardsShow())
	var asJSON bool
	check := &cobra.Command{
		Use: "check FILE...", Short: "Check board descriptions", Args: cobra.MinimumNArgs(1),
		Long: "check reads descriptions as boardd does and names the field and line at fault.\n\nExit status: 0 all are valid, 1 one is not.",
		RunE: func(cmd *cobra.Command, args []string) error {
			results, bad := []boardCheck{}, 0
			for _, file := range args {
				r := checkBoard(file)
				if results = append(results, r); !r.OK {
					bad++
				}
			}
			out := cmd.OutOrStdout()
			if asJSON {
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				if err := e.Encode(results); err != nil {
					return err
				}
			} else {
				for _, r := range results {
					switch {
					case r.OK:
						fmt.Fprintf(out, "%s: valid\n", r.File)
					case r.Line > 0:
						fmt.Fprintf(out, "%s:%d: %s\n", r.File, r.Line, r.Problem)
					default:
						fmt.Fprintf(out, "%s: %s\n", r.File, r.Problem)
					}
					for _, u := range r.Unknown {
						fmt.Fprintf(out, "%s: must be set: %s: %s\n", r.File, u.Field, u.Ask)
					}
				}
			}
			if bad > 0 {
				return exitError{exitUnhealthy, ""}
			}
			return nil
		},
	}
	check.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	c.AddCommand(check)
	return c
}

// boardLine is a built-in board.
type boardLine struct {
	Name    string           `json:"name"`
	Model   string           `json:"model"`
	SoC     string           `json:"soc"`
	Device  string           `json:"device,omitempty"`
	Image   bool             `json:"image"`   // images can be built
	Unknown []boards.Unknown `json:"unknown"` // must be set before the board can be used
}

func boardsList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the built-in boards", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []boardLine{}
			for _, name := range boards.Names() {
				b, err := boards.Load(name)
				if err != nil {
					return err
				}
				list = append(list, boardLine{name, b.Model, b.SoC, b.Device, b.Boot != nil, append([]boards.Unknown{}, b.Unset()...)})
			}
			out := cmd.OutOrStdout()
			if asJSON {
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				return e.Encode(list)
			}
			for _, l := range list {
				notes := "ready"
				if n := len(l.Unknown); n > 0 {
					notes = fmt.Sprintf("%d to set", n)
				}
				if !l.Image {
					notes += ", no image"
				}
				fmt.Fprintf(out, "%-14s %-16s %-24s %s\n", l.Name, l.Model, l.Device, notes)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func boardsShow() *cobra.Command {
	var template bool
	c := &cobra.Command{
		Use: "show BOARD | --template", Short: "Print a built-in description, or one to begin with", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var text []byte
			switch {
			case template == (len(args) == 1):
				return errors.New("give a board, or --template")
			case template:
				text = boards.Template()
			default:
				if text, err = boards.Description(args[0]); err != nil {
					return err
				}
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().BoolVar(&template, "template", false, "print a description with every section and its meaning")
	return c
}
