// Command rocelink-fabric plays the fabric: its registers are a file that
// boardd maps, its frames UDP datagrams.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"rocelink/fpga/model"
)

const usage = `rocelink-fabric plays the FPGA: it serves the fabric's registers in a file
that boardd maps and sends RoCE v2 over UDP from the address that is programmed
there. Faults of its module and link are provoked through the socket FILE.sim,
by rocectl sim.

Example: a fabric that loses one packet in a hundred, the same ones each time

  rocelink-fabric --registers /dev/shm/rocelink0 --drop 1 --seed 7

Flags:
`

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr, log); {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		log.Error("stopped", "err", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

// options are the command line.
type options struct {
	sim       string
	registers string
	offset    int64
	pcap      string
	sources   []string
	lossy     bool
	fabric    model.Config
	driver    model.DriverConfig
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("rocelink-fabric", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.registers, "registers", "", "`file` of the registers, made if there is none (required)")
	fs.Int64Var(&o.offset, "registers-offset", 0, "`bytes` into that file at which the registers begin: their address in the memory of a virtual machine")
	fs.StringVar(&o.sim, "sim", "", "`socket` through which rocectl sim provokes faults (default: the registers' file with .sim)")
	fs.Func("source", "external source: `[stream=]file`, - for standard input; may be repeated", func(s string) error {
		o.sources = append(o.sources, s)
		return nil
	})
	fs.BoolVar(&o.lossy, "source-lossy", false, "drop frames of the source that the stream cannot take, instead of waiting")
	fs.StringVar(&o.pcap, "pcap", "", "write all frames at the socket to a capture `file`")
	f := &o.driver.Faults
	fs.Float64Var(&f.Drop, "drop", 0, "`per cent` of packets lost, in each direction")
	fs.Float64Var(&f.Duplicate, "duplicate", 0, "`per cent` of packets sent twice")
	fs.Float64Var(&f.Reorder, "reorder", 0, "`per cent` of packets overtaken by one to four others")
	fs.Float64Var(&f.Corrupt, "corrupt", 0, "`per cent` of packets with a flipped bit")
	fs.Float64Var(&f.Delay, "delay", 0, "`per cent` of packets delayed")
	fs.DurationVar(&f.DelayBy, "delay-by", 0, "`time` by which they are delayed (default 1ms)")
	fs.Uint64Var(&f.Seed, "seed", 1, "`number` that chooses which packets the faults hit")
	c := &o.fabric
	fs.IntVar(&c.QueuePairs, "queue-pairs", 16, "`number` of queue pairs, 1 to 16")
	fs.IntVar(&c.MaxWindow, "window", 256, "`packets` of the retransmit ring of each queue pair")
	fs.DurationVar(&c.Link.AlignTime, "link-delay", 0, "`time` that the Ethernet link takes to align")
	fs.BoolVar(&c.Link.Dark, "link-dark", false, "no light arrives")
	fs.BoolVar(&c.Link.NoClock, "link-no-clock", false, "the transceivers have no reference clock")
	fs.Func("link-dark-lane", "no light arrives on optical `lane` 1 to 4; may be repeated", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 4 {
			return errors.New("want 1 to 4")
		}
		c.Link.DarkLanes |= 1 << (n - 1)
		return nil
	})
	fs.BoolVar(&c.Link.RemoteFault, "link-remote-fault", false, "the peer sends remote fault")
	fs.BoolVar(&c.Link.HighBER, "link-high-ber", false, "too many bit errors for any frame")
	fs.Func("link-fec", "RS-FEC of the peer, `on` or off (default: the same as ours)", func(s string) error {
		switch s {
		case "on":
			c.Link.FEC = model.FECOn
		case "off":
			c.Link.FEC = model.FECOff
		default:
			return errors.New("want on or off")
		}
		return nil
	})
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	if o.registers == "" || fs.NArg() > 0 {
		fmt.Fprintln(stderr, "give --registers file and nothing beside the flags; --help explains")
		return o, errUsage
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, log *slog.Logger) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	o.driver.Log = log
	closing := func(c io.Closer) { err = errors.Join(err, c.Close()) }

	shared, err := model.OpenSharedAt(o.registers, o.offset)
	if err != nil {
		return err
	}
	defer closing(shared)
	o.fabric.Registers = shared.Registers()
	for _, s := range o.sources {
		index, file, err := openSource(s)
		if err != nil {
			return err
		}
		defer file.Close()
		source := model.NewSource(file, model.SourceConfig{Lossy: o.lossy})
		defer source.Close()
		for len(o.fabric.Sources) <= index {
			o.fabric.Sources = append(o.fabric.Sources, nil)
		}
		o.fabric.Sources[index] = source
	}
	if o.pcap != "" {
		file, err := os.Create(o.pcap)
		if err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		defer closing(file)
		o.driver.Capture = file
	}
	d, err := model.NewDriver(o.fabric, o.driver)
	if err != nil {
		return err
	}
	sim, err := model.ServeSim(d.Fabric(), cmp.Or(o.sim, o.registers+".sim"))
	if err != nil {
		// Frames go without it as well: a path may be too long for a socket.
		log.Warn("no faults can be provoked", "err", err)
	} else {
		defer closing(sim)
	}
	fmt.Fprintf(stdout, "rocelink-fabric ready: %d queue pairs, registers in %s\n", o.fabric.QueuePairs, o.registers)
	err = d.Run(ctx)
	if f := o.driver.Faults; f.Active() {
		c := d.Counters()
		log.Info("faults", "seed", f.Seed, "sent", c.Sent, "received", c.Received)
	}
	for i, s := range o.fabric.Sources {
		if s != nil && s.Err() != nil {
			log.Warn("source", "stream", i, "err", s.Err())
		}
	}
	return err
}

// openSource opens what --source names.
func openSource(s string) (index int, f *os.File, err error) {
	name := s
	if n, rest, ok := strings.Cut(s, "="); ok {
		if i, err := strconv.ParseUint(n, 10, 4); err == nil {
			index, name = int(i), rest
		}
	}
	if name == "-" {
		return index, os.Stdin, nil
	}
	f, err = os.Open(name)
	if err != nil {
		return 0, nil, fmt.Errorf("source: %w", err)
	}
	return index, f, nil
}
