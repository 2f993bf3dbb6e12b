// Package boards describes boards as data: which registers are where, which
// MAC carries the traffic, and what the board is called on the network. Adding
// a board adds a folder with a board.yaml and no code.
//
// A description is checked when it is loaded: unknown fields, overlapping
// blocks, blocks outside their aperture and misaligned addresses are refused
// with the field's name.
package boards

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"rocelink/fpga/roce"
)

//go:generate go run ./gen

//go:embed */board.yaml
var files embed.FS

//go:embed template.yaml
var template []byte

// Template is a description with every section and what it means, to begin a new
// one with.
func Template() []byte { return slices.Clone(template) }

// Errors of Load, LoadFile and Parse.
var (
	// ErrUnknown: no description of that name is built in.
	ErrUnknown = errors.New("unknown board")
	// ErrInvalid: the description contradicts itself or misses something.
	ErrInvalid = errors.New("invalid board description")
)

// maxFile is the largest description that is read.
const maxFile = 64 << 10

// Board is one board.
type Board struct {
	Model     string     `yaml:"model"`     // what status records call it
	SoC       string     `yaml:"soc"`       // zynqmp, versal, or none for a software fabric
	Device    string     `yaml:"device"`    // part number of the device
	Apertures []Aperture `yaml:"apertures"` // ranges of registers
	RoCE      Block      `yaml:"roce"`      // first block of the RoCE core's chain
	MAC       MAC        `yaml:"mac"`
	Network   Network    `yaml:"network"`
	// I2C and GPIO are what cages and clocks hang on.
	I2C  []I2C  `yaml:"i2c"`
	GPIO []GPIO `yaml:"gpio"`
	// Cages for pluggable modules, in the order of the port's lanes.
	Cages []Cage `yaml:"cages"`
	// Clocks that must run before the transceivers are reset, in order.
	Clocks []Clock `yaml:"clocks"`
	// Bitstream is loaded before anything touches the logic; nil where the boot
	// loader does it.
	Bitstream *Bitstream `yaml:"bitstream"`
	// Boot is how the board starts; nil for a board without an image.
	Boot *Boot `yaml:"boot"`
	// Unknown are values nobody has published: whoever uses the board gives them
	// in a file of their own (Base).
	Unknown []Unknown `yaml:"unknown"`
	// Sources say where values come from and how far they can be trusted.
	Sources []Source `yaml:"sources"`
	// Unverified lists what in this description nobody has seen work on the
	// hardware yet.
	Unverified []string `yaml:"unverified"`
}

// Aperture is a range of registers the processor can map.
type Aperture struct {
	Name string `yaml:"name"`
	// File is /dev/mem, or empty when it must be given on the command line.
	File string `yaml:"file"`
	Base uint64 `yaml:"base"`
	Size uint64 `yaml:"size"`
}

// Block is where the registers of a block begin.
type Block struct {
	Aperture string `yaml:"aperture"`
	Offset   uint32 `yaml:"offset"`
}

// MAC is the Ethernet MAC of the fabric's port.
type MAC struct {
	Driver   string `yaml:"driver"`
	Aperture string `yaml:"aperture"`
	Offset   uint32 `yaml:"offset"`
	// FEC is "none" where the core was built without RS-FEC (its registers
	// must not be touched), "off" or "rs".
	FEC string `yaml:"fec"`
	// FlowControl takes and sends pause frames; only in cores that were built with
	// it.
	FlowControl bool `yaml:"flow_control"`
}

// Forward error correction of a MAC.
const (
	FECNone = "none"
	FECOff  = "off"
	FECRS   = "rs"
)

// Network is the identity of the fabric's port.
type Network struct {
	MAC     Identity `yaml:"mac"`
	Address Identity `yaml:"address"`
}

// Identity says where an address comes from.
type Identity struct {
	// Source is "fixed" (Value holds it), "name" (MAC only: a locally
	// administered address made of the board's name) or "flag" (given on the
	// command line). A command-line flag overrides each of them.
	Source string `yaml:"source"`
	Value  string `yaml:"value"`
}

// Sources of an Identity.
const (
	SourceFixed = "fixed"
	SourceName  = "name"
	SourceFlag  = "flag"
)

// Names lists the built-in boards in order.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// Load returns a built-in board. The error matches ErrUnknown when there is
// none of that name.
func Load(name string) (*Board, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("board %q: %w: built in are %s; a path ending in .yaml loads a file", name, ErrUnknown, strings.Join(Names(), ", "))
	}
	data, err := files.ReadFile(path.Join(name, "board.yaml"))
	if err != nil {
		return nil, fmt.Errorf("board %q: %w", name, err)
	}
	return parse(name, data)
}

// LoadFile reads a description from a file.
func LoadFile(name string) (*Board, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("board description: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("board description %s: %w", name, err)
	}
	return parse(name, data)
}

// Parse reads a description and checks it.
func Parse(data []byte) (*Board, error) { return parse("description", data) }

func parse(from string, data []byte) (*Board, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("board %s: more than %d bytes: %w", from, maxFile, ErrInvalid)
	}
	merged, err := overlay(data)
	if err != nil {
		return nil, fmt.Errorf("board %s: %w", from, err)
	}
	var b Board
	if err := yaml.NewDecoder(bytes.NewReader(merged), yaml.DisallowUnknownField()).Decode(&b); err != nil {
		return nil, fmt.Errorf("board %s: %w: %w", from, ErrInvalid, err)
	}
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("board %s: %w", from, err)
	}
	return &b, nil
}

// Aperture finds an aperture by name.
func (b *Board) Aperture(name string) (Aperture, bool) {
	for _, a := range b.Apertures {
		if a.Name == name {
			return a, true
		}
	}
	return Aperture{}, false
}

// HardwareMAC returns the port's MAC address for a board of that name, or an
// error when the description leaves it to the command line.
func (n Network) HardwareMAC(board string) (roce.MAC, error) {
	switch n.MAC.Source {
	case SourceFixed:
		return roce.ParseMAC(n.MAC.Value)
	case SourceName:
		return NameMAC(board), nil
	}
	return roce.MAC{}, errors.New("the board description gives no MAC address: give one on the command line")
}
