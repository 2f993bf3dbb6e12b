package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"rocelink/fpga/model"
	"rocelink/fpga/model/program"
)

const about = `rocelink-fabric plays the FPGA: it serves the fabric's registers in a file
that boardd maps and sends RoCE v2 over UDP from the address that is programmed
there. Faults of its module and link are provoked through the socket FILE.sim,
by rocectl sim.

Example: a fabric that loses one packet in a hundred, the same ones each time

  rocelink-fabric --registers /dev/shm/rocelink0 --drop 1 --seed 7
`

// fabric is what the flags of this program shape.
type fabric struct {
	config  model.Config
	sources []string
	lossy   bool
	close   []func()
}

func newProgram() *program.Program {
	var f fabric
	return &program.Program{Name: "rocelink-fabric", About: about, Flags: f.flags, Build: f.build}
}

func (f *fabric) flags(fs *flag.FlagSet) {
	fs.IntVar(&f.config.QueuePairs, "queue-pairs", 16, "`number` of queue pairs, 1 to 16")
	fs.IntVar(&f.config.MaxWindow, "window", 256, "`packets` of the retransmit ring of each queue pair")
	fs.Func("source", "external source: `[stream=]file`, - for standard input; may be repeated", func(s string) error {
		f.sources = append(f.sources, s)
		return nil
	})
	fs.BoolVar(&f.lossy, "source-lossy", false, "drop frames of the source that the stream cannot take, instead of waiting")
}

func (f *fabric) build(s program.Setup) (p program.Fabric, err error) {
	p.Close = func() {
		for _, c := range f.close {
			c()
		}
	}
	f.config.Registers, f.config.Link = s.Registers, s.Link
	for _, name := range f.sources {
		if err := f.source(name); err != nil {
			return p, err
		}
	}
	p.Driver, err = model.NewDriver(f.config, s.Driver)
	if err != nil {
		return p, err
	}
	p.Sim = p.Driver.Fabric()
	p.Has = fmt.Sprintf("%d queue pairs", f.config.QueuePairs)
	p.Ended = func(log *slog.Logger) {
		for i, s := range f.config.Sources {
			if s != nil && s.Err() != nil {
				log.Warn("source", "stream", i, "err", s.Err())
			}
		}
	}
	return p, nil
}

// source opens what --source names.
func (f *fabric) source(s string) error {
	index, name := 0, s
	if n, rest, ok := strings.Cut(s, "="); ok {
		if i, err := strconv.ParseUint(n, 10, 4); err == nil {
			index, name = int(i), rest
		}
	}
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return fmt.Errorf("source: %w", err)
		}
	}
	source := model.NewSource(file, model.SourceConfig{Lossy: f.lossy})
	f.close = append(f.close, func() { _, _ = source.Close(), file.Close() })
	for len(f.config.Sources) <= index {
		f.config.Sources = append(f.config.Sources, nil)
	}
	f.config.Sources[index] = source
	return nil
}
