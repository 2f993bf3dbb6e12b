package boot

import (
	"fmt"
	"os"

	"github.com/goccy/go-yaml"

	"rocelink/boards"
)

// withheld is the register file boardd is given when it must not touch the
// fabric. It never exists; boardd reports its name.
const withheld = runFolder + "/withheld-until-the-configuration-is-mended"

// placeholder stands for the port's address when none is known and the fabric
// is withheld (RFC 5737, TEST-NET-1).
const placeholder = "192.0.2.1"

// configure gathers the settings: the board description, the image, the card
// and the kernel's command line, where the later wins. Everything wrong with
// them is a problem: the board comes up with what is left and keeps the sender
// off.
func (i *Init) configure() {
	s := defaults()
	s.name = i.build.Name
	i.board = i.readBoard()
	if b := i.board; b != nil {
		if b.Network.Address.Source == boards.SourceFixed {
			s.address = b.Network.Address.Value
		}
		if b.Boot != nil && b.Boot.IP != "" {
			if err := setIP(&s, b.Boot.IP); err != nil {
				i.problem("%s: boot.ip: %v", boardFile, err)
			}
		}
	}
	image := readFile(imageFile, i.path(imageFile))
	line := i.readCommandLine()

	// How to look for the card cannot stand on the card.
	early := s
	early.apply(image)
	early.apply(line)
	card, folder, done := i.openCard(early.card)
	defer done()

	for _, src := range []source{image, card, line} {
		for _, p := range s.apply(src) {
			i.problem("%s", p)
		}
	}
	problems := append(s.check(), i.fetch(&s.files, folder)...)
	// A file that is missing may leave half of a pair.
	for _, p := range append(problems, s.check()...) {
		i.problem("%s", p)
	}
	if s.address == "" {
		i.problem("no address for the fabric's port: give rocelink.address on the kernel's command line, or address in %s on the card", cardFile)
	}
	if i.board != nil {
		if _, err := i.aperture(s.registers); err != nil {
			i.problem("%v", err)
		}
		if s.mac == "" && i.board.Network.MAC.Source == boards.SourceFlag {
			i.problem("no MAC address for the fabric's port: give mac")
		}
	}
	if s.nats == "" {
		i.log.Warn("no NATS server is given: nobody can reach this board's daemon; give nats")
	}
	i.set = s
}

// problem notes what is wrong with the configuration.
func (i *Init) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	i.log.Error("configuration", "problem", text)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.problems = appendText(i.problems, text)
}

func (i *Init) readBoard() *boards.Board {
	b, err := boards.LoadFile(i.path(boardFile))
	if err != nil {
		i.problem("%v", err)
		return nil
	}
	if err := b.Complete(boardFile); err != nil {
		// Its registers are withheld as for any other problem.
		i.problem("%v", err)
	}
	return b
}

func (i *Init) readCommandLine() source {
	src := source{name: "kernel command line"}
	data, err := os.ReadFile(i.path("/proc/cmdline"))
	if err != nil {
		src.problems = []string{err.Error()}
		return src
	}
	src.pairs = commandLine(string(data))
	return src
}

// aperture returns the register aperture with the RoCE core, in the file that
// replaces it if one is given.
func (i *Init) aperture(registers string) (boards.Aperture, error) {
	b := i.board
	a, ok := b.Aperture(b.RoCE.Aperture)
	switch {
	case !ok:
		return a, fmt.Errorf("board %s: no aperture %q", b.Model, b.RoCE.Aperture)
	case registers != "" && len(b.Apertures) != 1:
		return a, fmt.Errorf("registers replaces one aperture, board %s has %d", b.Model, len(b.Apertures))
	case registers != "":
		a.File, a.Base = registers, 0
	case a.File == "":
		return a, fmt.Errorf("board %s has no register file of its own: give registers", b.Model)
	}
	return a, nil
}

// withhold writes a description with which boardd reaches no register. It
// stands for a broken one and for one with values that must be set, too.
func (i *Init) withhold() (file string, err error) {
	var b boards.Board
	if i.board != nil && i.board.Complete(boardFile) == nil {
		b = *i.board
	} else {
		b = boards.Board{
			Model: "unknown", SoC: "none",
			Apertures: []boards.Aperture{{Name: "fabric", Size: 0x20000}},
			RoCE:      boards.Block{Aperture: "fabric"},
			MAC:       boards.MAC{Driver: "cmac", Aperture: "fabric", Offset: 0x10000, FEC: boards.FECNone},
			Network:   boards.Network{MAC: boards.Identity{Source: boards.SourceName}, Address: boards.Identity{Source: boards.SourceFlag}},
		}
	}
	b.Boot = nil // of no use to boardd
	b.Apertures = append([]boards.Aperture(nil), b.Apertures...)
	for n := range b.Apertures {
		b.Apertures[n].File = withheld
	}
	if b.Network.MAC.Source == boards.SourceFlag {
		b.Network.MAC.Source = boards.SourceName
	}
	data, err := yaml.Marshal(b)
	if err != nil {
		return "", err
	}
	if _, err := boards.Parse(data); err != nil {
		return "", err
	}
	file = runFolder + "/board.yaml"
	return file, os.WriteFile(i.path(file), data, 0o644)
}

// daemonCommand is the command that starts boardd.
func (i *Init) daemonCommand() (Command, error) {
	s := &i.set
	file, address, registers := boardFile, s.address, s.registers
	if len(i.problems) > 0 {
		var err error
		if file, err = i.withhold(); err != nil {
			return Command{}, fmt.Errorf("withhold the fabric: %w", err)
		}
		registers = ""
		if address == "" {
			address = placeholder
		}
	}
	c := Command{Path: daemonPath, Args: []string{"--board", file, "--name", s.name}}
	nats := s.nats
	if nats == "" {
		nats = "none"
	}
	for _, f := range []struct{ flag, value string }{
		{"--nats", nats}, {"--address", address}, {"--registers", registers},
		{"--mac", s.mac}, {"--fec", s.fec}, {"--mtu", s.mtu}, {"--traffic-class", s.class}, {"--log-level", s.logLevel},
		{"--creds", s.files.creds}, {"--nkey", s.files.nkey}, {"--tls-ca", s.files.ca}, {"--tls-cert", s.files.cert}, {"--tls-key", s.files.key},
	} {
		if f.value != "" {
			c.Args = append(c.Args, f.flag, f.value)
		}
	}
	c.Env = []string{
		"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/",
		"ROCELINK_INIT=" + socketPath,
		"ROCELINK_CLOCK=" + clockFile,
		"ROCELINK_VERSION=" + i.build.Version,
		"ROCELINK_UPDATE_KEY=" + updateKey,
	}
	problems, faults := i.troubles()
	for _, e := range []struct{ name, value string }{
		{"ROCELINK_PROBLEM", problems}, {"ROCELINK_FAULTS", faults}, {"ROCELINK_SLOT", i.set.slot},
	} {
		if e.value != "" {
			c.Env = append(c.Env, e.name+"="+e.value)
		}
	}
	return c, nil
}
