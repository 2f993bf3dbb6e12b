package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/firmware/board"
	"rocelink/fpga/roce"
)

const usage = `boardd runs a board: it brings fabric and link up, keeps the streams that hosts
open, and reports over NATS.

Examples: a board with hardware, and the software fabric

  boardd --board rfsoc4x2 --address 192.168.100.2 --nats nats://192.168.1.10:4222
  boardd --board demo --registers /dev/shm/rocelink0 --address 127.0.0.2

Built-in boards: %s.
Exit codes: 0 ended by a signal, streams closed; 1 the configuration cannot
work; 2 wrong flags.

Flags:
`

// options are the command line.
type options struct {
	board, registers, name string
	address, mac, fec      string
	mtu, trafficClass      int
	lease                  time.Duration
	nats                   string
	access                 rocelink.Access
	level                  slog.Level
}

// parse reads the command line. After flag.ErrHelp the help is written.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	host, _ := os.Hostname() // without one --name must be given
	fs := flag.NewFlagSet("boardd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.board, "board", "", "built-in board, or `file` (.yaml) with a description (required)")
	fs.StringVar(&o.registers, "registers", "", "`file` in place of the board's register aperture; its first byte is the aperture's first")
	fs.StringVar(&o.name, "name", host, "`name` of this board")
	fs.StringVar(&o.address, "address", "", "IP `address` of the fabric's port")
	fs.StringVar(&o.mac, "mac", "", "MAC `address` of the fabric's port (default: from the board's description)")
	fs.StringVar(&o.fec, "fec", "", "error correction of the MAC: `none, off or rs` (default: from the board's description)")
	fs.IntVar(&o.mtu, "mtu", 0, "largest path MTU in `bytes` that the network takes (default: the fabric's)")
	fs.IntVar(&o.trafficClass, "traffic-class", 0, "traffic class `byte` of the packets, DSCP in bits 7..2")
	fs.DurationVar(&o.lease, "lease", rocelink.DefaultLeaseMillis*time.Millisecond, "lease `time` of hosts that ask for none")
	fs.StringVar(&o.nats, "nats", rocelink.DefaultURL, "`URLs` of the NATS servers, comma-separated; \"none\" runs without")
	fs.StringVar(&o.access.Credentials, "creds", "", "credentials `file` for NATS")
	fs.StringVar(&o.access.NKey, "nkey", "", "`file` with the nkey seed for NATS")
	fs.StringVar(&o.access.CA, "tls-ca", "", "`file` of the certificate authority of the NATS servers")
	fs.StringVar(&o.access.Cert, "tls-cert", "", "`file` of the client certificate for NATS")
	fs.StringVar(&o.access.Key, "tls-key", "", "`file` of the client certificate's key")
	fs.TextVar(&o.level, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stderr, usage, strings.Join(boards.Names(), ", "))
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		return o, err
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%w; --help lists the flags", err)
	case fs.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag; --help lists the flags", fs.Arg(0))
	case o.board == "":
		return o, fmt.Errorf("--board is missing: one of %s, or a .yaml file", strings.Join(boards.Names(), ", "))
	case o.trafficClass < 0 || o.trafficClass > 255:
		return o, fmt.Errorf("--traffic-class %d: want 0 to 255", o.trafficClass)
	case o.lease < rocelink.MinLeaseMillis*time.Millisecond || o.lease > rocelink.MaxLeaseMillis*time.Millisecond:
		return o, fmt.Errorf("--lease %v: want %v to %v", o.lease, rocelink.MinLeaseMillis*time.Millisecond, rocelink.MaxLeaseMillis*time.Millisecond)
	}
	o.access.URL = o.nats
	return o, nil
}

// config makes the board's configuration of the flags and the description.
func (o options) config() (board.Config, error) {
	if o.nats != "none" {
		if err := o.access.Check(); err != nil {
			return board.Config{}, err
		}
	}
	load := boards.Load
	if strings.HasSuffix(o.board, ".yaml") || strings.Contains(o.board, "/") {
		load = boards.LoadFile
	}
	d, err := load(o.board)
	if err != nil {
		return board.Config{}, err
	}
	if err := d.Complete(o.board); err != nil {
		return board.Config{}, err
	}
	if o.registers != "" {
		if d, err = board.Override(*d, o.registers); err != nil {
			return board.Config{}, err
		}
	}
	for _, a := range d.Apertures {
		if a.File == "" {
			return board.Config{}, fmt.Errorf("board %s has no register file of its own: give --registers", o.board)
		}
	}
	c := board.Config{
		Name: o.name, Description: d, FEC: o.fec, MTU: roce.MTU(o.mtu), TrafficClass: uint8(o.trafficClass), Lease: o.lease,
	}
	if o.mac != "" {
		c.MAC, err = roce.ParseMAC(o.mac)
	} else {
		c.MAC, err = d.Network.HardwareMAC(o.name)
	}
	if err != nil {
		return board.Config{}, fmt.Errorf("--mac: %w", err)
	}
	address := o.address
	if address == "" && d.Network.Address.Source == boards.SourceFixed {
		address = d.Network.Address.Value
	}
	if address == "" {
		return board.Config{}, errors.New("--address is missing: give the IP address of the fabric's port")
	}
	if c.Address, err = netip.ParseAddr(address); err != nil {
		return board.Config{}, fmt.Errorf("--address: %w", err)
	}
	if o.nats != "none" {
		c.NATS = &o.access
	}
	return c, nil
}
