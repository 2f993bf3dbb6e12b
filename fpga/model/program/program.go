// Package program is what all programs that play the fabric are made of:
// command line, registers' file, capture, the socket for faults, sockets and
// time. Each adds the machine that it runs.
package program

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
	"syscall"

	"rocelink/fpga/model"
)

// ErrUsage means that the command line cannot be understood; what is wrong with
// it was written already.
var ErrUsage = errors.New("usage")

// Program is one that plays the fabric.
type Program struct {
	Name  string // of the command
	About string // what --help says above the flags
	// Flags adds the program's own flags; nil adds none.
	Flags func(*flag.FlagSet)
	// Build makes the fabric. What it returns is closed on an error too.
	Build func(Setup) (Fabric, error)
}

// Setup is what a program builds its fabric from.
type Setup struct {
	Registers []uint32 // the shared file
	Link      model.Link
	Driver    model.DriverConfig
}

// Fabric is a fabric that is built.
type Fabric struct {
	Driver *model.Driver
	Sim    model.Simulated
	Has    string // as in "16 queue pairs"
	// Ended is called when the driver has ended, to log what is worth it; nil
	// does nothing.
	Ended func(*slog.Logger)
	// Close frees what the driver does not; nil frees nothing.
	Close func()
}

// Main runs the program until SIGINT or SIGTERM and ends the process.
func (p *Program) Main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, log); {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, ErrUsage):
		os.Exit(2)
	case err != nil:
		log.Error("stopped", "err", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	sim       string
	registers string
	offset    int64
	pcap      string
	link      model.Link
	driver    model.DriverConfig
}

func (p *Program) parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, p.About, "\nFlags:\n")
		fs.PrintDefaults()
	}
	fs.StringVar(&o.registers, "registers", "", "`file` of the registers, made if there is none (required)")
	fs.Int64Var(&o.offset, "registers-offset", 0, "`bytes` into that file at which the registers begin: their address in the memory of a virtual machine")
	fs.StringVar(&o.sim, "sim", "", "`socket` through which rocectl sim provokes faults (default: the registers' file with .sim)")
	fs.StringVar(&o.pcap, "pcap", "", "write all frames at the socket to a capture `file`")
	f := &o.driver.Faults
	fs.Float64Var(&f.Drop, "drop", 0, "`per cent` of packets lost, in each direction")
	fs.Float64Var(&f.Duplicate, "duplicate", 0, "`per cent` of packets sent twice")
	fs.Float64Var(&f.Reorder, "reorder", 0, "`per cent` of packets overtaken by one to four others")
	fs.Float64Var(&f.Corrupt, "corrupt", 0, "`per cent` of packets with a flipped bit")
	fs.Float64Var(&f.Delay, "delay", 0, "`per cent` of packets delayed")
	fs.DurationVar(&f.DelayBy, "delay-by", 0, "`time` by which they are delayed (default 1ms)")
	fs.Uint64Var(&f.Seed, "seed", 1, "`number` that chooses which packets the faults hit")
	l := &o.link
	fs.DurationVar(&l.AlignTime, "link-delay", 0, "`time` that the Ethernet link takes to align")
	fs.BoolVar(&l.Dark, "link-dark", false, "no light arrives")
	fs.BoolVar(&l.NoClock, "link-no-clock", false, "the transceivers have no reference clock")
	fs.Func("link-dark-lane", "no light arrives on optical `lane` 1 to 4; may be repeated", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 4 {
			return errors.New("want 1 to 4")
		}
		l.DarkLanes |= 1 << (n - 1)
		return nil
	})
	fs.BoolVar(&l.RemoteFault, "link-remote-fault", false, "the peer sends remote fault")
	fs.BoolVar(&l.HighBER, "link-high-ber", false, "too many bit errors for any frame")
	fs.Func("link-fec", "RS-FEC of the peer, `on` or off (default: the same as ours)", func(s string) error {
		switch s {
		case "on":
			l.FEC = model.FECOn
		case "off":
			l.FEC = model.FECOff
		default:
			return errors.New("want on or off")
		}
		return nil
	})
	if p.Flags != nil {
		p.Flags(fs)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, ErrUsage
	}
	if o.registers == "" || fs.NArg() > 0 {
		fmt.Fprintln(stderr, "give --registers file and nothing beside the flags; --help explains")
		return o, ErrUsage
	}
	return o, nil
}

// Run runs the program until ctx is done.
func (p *Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer, log *slog.Logger) (err error) {
	o, err := p.parse(args, stderr)
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
	if o.pcap != "" {
		file, err := os.Create(o.pcap)
		if err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		defer closing(file)
		o.driver.Capture = file
	}
	f, err := p.Build(Setup{Registers: shared.Registers(), Link: o.link, Driver: o.driver})
	if f.Close != nil {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	sim, err := model.ServeSim(f.Sim, cmp.Or(o.sim, o.registers+".sim"))
	if err != nil {
		// Frames go without it as well: a path may be too long for a socket.
		log.Warn("no faults can be provoked", "err", err)
	} else {
		defer closing(sim)
	}
	fmt.Fprintf(stdout, "%s ready: %s, registers in %s\n", p.Name, f.Has, o.registers)
	err = f.Driver.Run(ctx)
	if x := o.driver.Faults; x.Active() {
		c := f.Driver.Counters()
		log.Info("faults", "seed", x.Seed, "sent", c.Sent, "received", c.Received)
	}
	if f.Ended != nil {
		f.Ended(log)
	}
	return err
}
