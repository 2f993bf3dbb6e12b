package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/report"
	"rocelink/agent/stream"
	"rocelink/fpga/regs"
)

// shown is a register as regs prints it.
type shown struct {
	Block    string            `json:"block"`
	Register string            `json:"register"`
	Offset   uint32            `json:"offset"`
	Access   string            `json:"access"`
	Meaning  string            `json:"meaning"`
	Value    *rocelink.Count   `json:"value,omitempty"`
	Fields   map[string]uint32 `json:"fields,omitempty"`

	digits int // hexadecimal digits of the value
}

func regsCommand(access *rocelink.Access) *cobra.Command {
	var board, write string
	var asJSON bool
	c := &cobra.Command{
		Use:   "regs [BLOCK[.REGISTER]]",
		Short: "List the fabric's registers, or read or write them on a board",
		Long: "regs lists registers by block and name. With --board it reads them; registers whose reading has an effect\n" +
			"are left out. --write writes one plain read-write register, which takes an operator's key; the board tells everyone.\n" +
			"BLOCK is " + strings.Join(blockNames(), ", ") + "; names are matched without regard to case.",
		Example: "  rocectl regs\n  rocectl regs Core --board demo\n  rocectl regs core.version --board demo --json\n  rocectl regs cmac.userreg0 --board demo --write 0x1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := selectRegisters(strings.Join(args, ""))
			if err != nil {
				return err
			}
			byName := len(args) == 1 && strings.Contains(args[0], ".")
			var value uint64
			if write != "" {
				if board == "" || !byName {
					return errors.New("--write takes one register, BLOCK.REGISTER, and --board")
				}
				if value, err = strconv.ParseUint(write, 0, 64); err != nil {
					return fmt.Errorf("--write %q: want a number such as 12 or 0xC", write)
				}
			}
			if board != "" {
				nc, err := connect(access, "regs", false)
				if err != nil {
					return err
				}
				defer nc.Close()
				if write != "" {
					err = writeRegister(cmd.Context(), nc, board, &selected[0], value)
				} else {
					selected, err = readRegisters(cmd.Context(), nc, board, selected, byName)
				}
				if err != nil {
					return err
				}
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(selected)
			}
			return printRegisters(cmd.OutOrStdout(), selected)
		},
	}
	c.Flags().StringVar(&board, "board", "", "read from this board")
	c.Flags().StringVar(&write, "write", "", "write this `value` to the register")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func blockNames() (names []string) {
	for _, b := range regs.Blocks() {
		names = append(names, b.Name)
	}
	return names
}

func selectRegisters(what string) ([]shown, error) {
	block, register, _ := strings.Cut(what, ".")
	list := []shown{}
	known := block == ""
	for _, b := range regs.Blocks() {
		if block != "" && !strings.EqualFold(b.Name, block) {
			continue
		}
		known = true
		for _, r := range b.Regs {
			if register == "" || strings.EqualFold(r.Name, register) {
				list = append(list, shown{Block: b.Name, Register: r.Name, Offset: r.Offset, Access: r.Access.String(), Meaning: r.Doc, digits: 8 * r.Words()})
			}
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("no block is called %q: give one of %s", block, strings.Join(blockNames(), ", "))
	case len(list) == 0:
		return nil, fmt.Errorf("block %s has no register %q: `rocectl regs %s` lists them", block, register, block)
	}
	return list, nil
}

// readRegisters reads what can be read without an effect; a register that was
// asked for by name must be readable.
func readRegisters(ctx context.Context, nc *nats.Conn, board string, list []shown, byName bool) ([]shown, error) {
	read := []shown{}
	for _, s := range list {
		if !byName && s.Access != regs.RO.String() && s.Access != regs.RW.String() && s.Access != regs.TIK.String() {
			continue
		}
		var reply rocelink.RegisterReply
		err := stream.Request(ctx, nc, board, rocelink.EndpointReadRegister,
			rocelink.RegisterRequest{Version: rocelink.Version, Block: s.Block, Register: s.Register}, &reply)
		if err != nil {
			if !byName && rocelink.CodeOf(err) == rocelink.CodeUnsupported {
				continue // this board has no such block
			}
			return nil, err
		}
		s.Value = &reply.Value
		s.Fields = fieldsOf(s.Block, s.Register, uint64(reply.Value))
		read = append(read, s)
	}
	return read, nil
}

// writeRegister writes a register and shows what it then reads.
func writeRegister(ctx context.Context, nc *nats.Conn, board string, s *shown, value uint64) error {
	var reply rocelink.RegisterReply
	err := stream.Request(ctx, nc, board, rocelink.EndpointWriteRegister,
		rocelink.RegisterRequest{Version: rocelink.Version, Block: s.Block, Register: s.Register, Value: new(rocelink.Count(value))}, &reply)
	if err != nil {
		return err
	}
	s.Value, s.Fields = &reply.Value, fieldsOf(s.Block, s.Register, uint64(reply.Value))
	return nil
}

func fieldsOf(block, register string, value uint64) map[string]uint32 {
	for _, b := range regs.Blocks() {
		if b.Name != block {
			continue
		}
		if r, ok := b.Lookup(register); ok && len(r.Fields) > 0 {
			fields := map[string]uint32{}
			for _, f := range r.Fields {
				fields[f.Name] = regs.Field{LSB: f.LSB, Width: f.Width}.Get(uint32(value))
			}
			return fields
		}
	}
	return nil
}

func printRegisters(out io.Writer, list []shown) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range list {
		value := s.Meaning
		if s.Value != nil {
			value = fmt.Sprintf("0x%0*x  %d", s.digits, uint64(*s.Value), *s.Value)
			for _, b := range regs.Blocks() {
				if r, ok := b.Lookup(s.Register); ok && b.Name == s.Block {
					for _, f := range r.Fields {
						value += fmt.Sprintf("  %s=%d", f.Name, s.Fields[f.Name])
						for _, v := range f.Values {
							if v.Value == s.Fields[f.Name] {
								value += "(" + v.Name + ")"
							}
						}
					}
				}
			}
		}
		fmt.Fprintf(w, "%s.%s\t0x%04x\t%s\t%s\n", s.Block, s.Register, s.Offset, s.Access, report.Printable(value))
	}
	return w.Flush()
}
