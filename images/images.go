// Package images builds what a board boots from its description: initramfs, FIT
// image, card image and the boot ROM's file. The same input gives the same bytes;
// a file has its name only when it is whole; errors name the file and the reason.
package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"rocelink/boards"
	"rocelink/images/bootbin"
	"rocelink/images/initramfs"
)

// Errors of Build.
var (
	// ErrNoBoot means that a board's description does not say how it boots.
	ErrNoBoot = errors.New("the board does not boot from an image")
	// ErrLayout means that parts of an image overlap in memory or lie where there
	// is none.
	ErrLayout = errors.New("load addresses do not fit")
	// ErrKernel means that a kernel was built without something it needs here.
	ErrKernel = errors.New("the kernel lacks something")
)

// Budget is how large a packed initramfs may be without the rescue shell, and
// ShellBudget with it.
const (
	Budget      = 4 << 20
	ShellBudget = 8 << 20
)

// Config says what to build. Board and Out must be set.
type Config struct {
	Board string // built-in board, or a description's file (.yaml)
	Out   string // folder of the results, made if there is none
	Cache string // folder of what was fetched; default: "cache" beside Out

	Source string // folder of this module's source; default: the current one
	Go     string // the Go command; default "go"
	// Init and Boardd are programs in place of those built from Source.
	Init, Boardd string

	Kernel     string // image or folder in place of the description's package
	DeviceTree string // .dts or .dtb in place of the description's
	Firmware   string // folder in which the description's firmware files lie
	Console    string // serial port in place of the description's
	// NoModules leaves the description's modules out: the kernel given has them
	// built in.
	NoModules bool

	// Settings are those of the board, "key=value" without the prefix
	// "rocelink.", for its kernel command line.
	Settings []string
	// Arguments are added to the kernel's command line.
	Arguments []string
	// Shell is a static program that becomes /bin/sh, for rescue, or "busybox":
	// Debian's. The board starts it when its setting shell is 1.
	Shell string
	// ImageConfig is a file that becomes /etc/rocelink/rocelink.yaml.
	ImageConfig string
	// CardConfig is a file that becomes rocelink.yaml on the card.
	CardConfig string

	Bitstream   string // .bit or .bin for the card, loaded by the boot loader
	Boot        bootbin.Inputs
	DeviceImage string // Versal's PDI, passed through
	CardSize    int64  // bytes; default: what is needed, at least 128 MiB
	SigningKey  string // Ed25519 key (PEM): signs the FIT image
	// UpdateKey is the public key (PEM) by which the board checks a new image;
	// default: that of SigningKey. Without either the board takes none.
	UpdateKey string
	// Extlinux adds extlinux.conf to the card. U-Boot prefers it to boot.scr: such
	// a board has one image and takes no updates.
	Extlinux bool

	Name    string    // the board's name; default: of its description
	Version string    // of the image; default: of the source's repository
	Time    time.Time // of everything in the image; default: SOURCE_DATE_EPOCH, then the source's last commit

	// MaxInitramfs is the budget of the packed initramfs; default Budget or
	// ShellBudget.
	MaxInitramfs int64

	// Compression of the initramfs; default zstd.
	Compression initramfs.Compression

	// Progress is told of each step as it begins; nil is told nothing.
	Progress func(step string)
}

// board is a description with the files beside it.
type board struct {
	*boards.Board
	name string // of the files
	text []byte // of the description
	tree []byte // source of the device tree; nil: none
	file string // of the device tree, for messages
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// loadBoard reads a description, built in or from a file.
func loadBoard(name string) (*board, error) {
	b := &board{name: name}
	var err error
	if filepath.Ext(name) == ".yaml" {
		if b.Board, err = boards.LoadFile(name); err == nil {
			b.text, err = os.ReadFile(name)
		}
		dir := filepath.Dir(name)
		if b.name = strings.TrimSuffix(filepath.Base(name), ".yaml"); b.name == "board" {
			if dir, err := filepath.Abs(dir); err == nil {
				b.name = filepath.Base(dir)
			}
		}
		if err == nil && b.Boot != nil && b.Boot.DeviceTree != "" {
			b.file = filepath.Join(dir, b.Boot.DeviceTree)
			b.tree, err = os.ReadFile(b.file)
			if base := boards.Base(b.text); base != "" && errors.Is(err, os.ErrNotExist) {
				b.file = base + "/" + b.Boot.DeviceTree
				b.tree, err = boards.DeviceTree(base, b.Boot.DeviceTree)
			}
		}
	} else {
		if b.Board, err = boards.Load(name); err == nil {
			b.text, err = boards.Description(name)
		}
		if err == nil && b.Boot != nil && b.Boot.DeviceTree != "" {
			b.file = name + "/" + b.Boot.DeviceTree
			b.tree, err = boards.DeviceTree(name, b.Boot.DeviceTree)
		}
	}
	if err != nil {
		return nil, err
	}
	if b.Boot == nil {
		return nil, fmt.Errorf("board %s: %w: its description has no section boot: write one (boards/README.md), or run boardd on the board's own Linux", name, ErrNoBoot)
	}
	if err := b.Complete(name); err != nil {
		return nil, err
	}
	if !nameForm.MatchString(b.name) {
		return nil, fmt.Errorf("board %s: the name %q does not do for files", name, b.name)
	}
	return b, nil
}

// commandLine is the kernel's command line.
func (c *Config) commandLine(b *board) (string, error) {
	console := b.Boot.Console
	if c.Console != "" {
		console = c.Console
	}
	if err := boards.CheckConsole(b.SoC, console); err != nil {
		return "", err
	}
	// A kernel that panics starts again instead of standing still; what is given
	// later wins.
	words := append([]string{"console=" + console, "panic=5"}, b.Boot.Arguments...)
	if b.Boot.IP != "" {
		words = append(words, "rocelink.ip="+b.Boot.IP)
	}
	for _, s := range c.Settings {
		if key, _, ok := strings.Cut(s, "="); !ok || key == "" || strings.HasPrefix(s, "rocelink.") {
			return "", fmt.Errorf("setting %q: want key=value such as nats=nats://10.0.0.1:4222", s)
		}
		words = append(words, "rocelink."+s)
	}
	words = append(words, c.Arguments...)
	for _, w := range words {
		if err := boards.CheckArgument(w); err != nil {
			return "", fmt.Errorf("kernel command line: %w", err)
		}
	}
	line := strings.Join(words, " ")
	// COMMAND_LINE_SIZE (Linux, arch/arm64/include/uapi/asm/setup.h).
	if len(line) >= 2048 {
		return "", fmt.Errorf("kernel command line: %d bytes, the kernel takes 2047", len(line))
	}
	return line, nil
}
