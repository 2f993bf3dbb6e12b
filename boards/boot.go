package boards

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The sources of the device trees are kept apart from the descriptions: only
// the image builder asks for them, and programs that do not are linked without.
//
//go:embed */*.dts
var trees embed.FS

// Boot is how a board starts: what the image builder puts together, and where
// the boot loader puts it in memory.
type Boot struct {
	// Console is the serial port of the kernel's messages, with its speed:
	// "ttyPS0,115200".
	Console string `yaml:"console"`
	// Kernel is the Debian package of the kernel. A kernel given to the image
	// builder overrides it.
	Kernel string `yaml:"kernel"`
	// DeviceTree is a source beside the description. A board without one boots
	// with the tree that is given to the image builder.
	DeviceTree string `yaml:"devicetree"`
	// Modules are the kernel modules to load; those they depend on come along.
	// What the kernel has built in is left out.
	Modules []string `yaml:"modules"`
	// Firmware are files below /lib/firmware, taken from the folder that is
	// given to the image builder.
	Firmware []string `yaml:"firmware"`
	// Arguments are added to the kernel's command line.
	Arguments []string `yaml:"arguments"`
	// IP is that of the processor's own network port, not of the fabric's:
	// "dhcp" or a prefix, perhaps with a gateway: "10.0.0.2/24,10.0.0.1".
	// Default: dhcp.
	IP   string    `yaml:"ip"`
	Load Addresses `yaml:"load"`
	// Emulator is how QEMU plays the board; nil when it cannot.
	Emulator *Emulator `yaml:"emulator"`
}

// Addresses are those at which the boot loader puts the parts of an image.
type Addresses struct {
	Image      uint64 `yaml:"image"`      // the FIT image, as it was read
	Kernel     uint64 `yaml:"kernel"`     // a multiple of 2 MiB
	DeviceTree uint64 `yaml:"devicetree"` // a multiple of 8
	Ramdisk    uint64 `yaml:"ramdisk"`
}

// Emulator is a machine of QEMU.
type Emulator struct {
	Machine string `yaml:"machine"`
	// Memory in bytes; its first byte is at address 0. The register aperture
	// must lie within: the emulated fabric shares it.
	Memory     uint64 `yaml:"memory"`
	Processors int    `yaml:"processors"`
	// Network is which of the machine's network ports is the board's, from 0.
	Network   int      `yaml:"network"`
	Arguments []string `yaml:"arguments"`
}

// KernelAlign is what a 64-bit ARM kernel's load address must be a multiple of
// (Linux, Documentation/arm64/booting.rst).
const KernelAlign = 2 << 20

// consoles are the serial ports' names by SoC: the Cadence UART of the
// Zynq UltraScale+ (UG1085) and the PL011 of Versal (AM011).
var consoles = map[string]string{"zynqmp": "ttyPS", "versal": "ttyAMA"}

var (
	consoleForm = regexp.MustCompile(`^(tty[A-Z]+)[0-9]{1,2}(,[0-9]{3,7}(n8)?)?$`)
	wordForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]*$`)
	moduleForm  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// CheckConsole says whether a serial console can be one of the SoC's.
func CheckConsole(soc, console string) error {
	m := consoleForm.FindStringSubmatch(console)
	if m == nil {
		return invalid("boot.console", "%q, want a name and a speed such as %s0,115200", console, consoles[soc])
	}
	if want := consoles[soc]; m[1] != want {
		return invalid("boot.console", "%q is not a serial port of %s: its are called %s0, %s1", console, soc, want, want)
	}
	return nil
}

// CheckIP checks an address as in [Boot.IP].
func CheckIP(s string) error {
	if s == "dhcp" {
		return nil
	}
	prefix, gateway, more := strings.Cut(s, ",")
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return fmt.Errorf("%q: want dhcp, or an address with its prefix length such as 10.0.0.2/24: %w", s, err)
	}
	if !p.Addr().Is4() && !p.Addr().Is6() || p.Addr().IsUnspecified() || p.Addr().IsMulticast() {
		return fmt.Errorf("%q is no address of a host", s)
	}
	if !more {
		return nil
	}
	g, err := netip.ParseAddr(gateway)
	if err != nil {
		return fmt.Errorf("%q: gateway: %w", s, err)
	}
	if !p.Contains(g) {
		return fmt.Errorf("%q: gateway %v is not within %v", s, g, p.Masked())
	}
	return nil
}

func (b *Board) checkBoot() error {
	k := b.Boot
	if k == nil {
		return nil
	}
	if b.SoC == "none" {
		return invalid("boot", "a software fabric does not boot")
	}
	if err := CheckConsole(b.SoC, k.Console); err != nil {
		return err
	}
	if k.Kernel != "" && !wordForm.MatchString(k.Kernel) {
		return invalid("boot.kernel", "%q is no name of a package", k.Kernel)
	}
	if k.DeviceTree != "" && (!wordForm.MatchString(k.DeviceTree) || path.Ext(k.DeviceTree) != ".dts") {
		return invalid("boot.devicetree", "%q, want a .dts file beside the description", k.DeviceTree)
	}
	for i, m := range k.Modules {
		if !moduleForm.MatchString(m) {
			return invalid(fmt.Sprintf("boot.modules[%d]", i), "%q is no name of a module", m)
		}
	}
	for i, f := range k.Firmware {
		if !fs.ValidPath(f) || f == "." {
			return invalid(fmt.Sprintf("boot.firmware[%d]", i), "%q, want a path below /lib/firmware", f)
		}
	}
	for i, a := range k.Arguments {
		if err := CheckArgument(a); err != nil {
			return invalid(fmt.Sprintf("boot.arguments[%d]", i), "%v", err)
		}
	}
	if k.IP != "" {
		if err := CheckIP(k.IP); err != nil {
			return invalid("boot.ip", "%v", err)
		}
	}
	switch l := k.Load; {
	case l.Kernel%KernelAlign != 0:
		return invalid("boot.load.kernel", "%#x is not a multiple of %#x", l.Kernel, KernelAlign)
	case l.DeviceTree%8 != 0:
		return invalid("boot.load.devicetree", "%#x is not a multiple of 8", l.DeviceTree)
	case l.Image%8 != 0:
		return invalid("boot.load.image", "%#x is not a multiple of 8", l.Image)
	case l.Ramdisk%4096 != 0:
		return invalid("boot.load.ramdisk", "%#x is not a multiple of 4096", l.Ramdisk)
	case l.Image == l.Kernel || l.Image == l.DeviceTree || l.Image == l.Ramdisk ||
		l.Kernel == l.DeviceTree || l.Kernel == l.Ramdisk || l.DeviceTree == l.Ramdisk:
		return invalid("boot.load", "image %#x, kernel %#x, devicetree %#x and ramdisk %#x must differ", l.Image, l.Kernel, l.DeviceTree, l.Ramdisk)
	}
	return b.checkEmulator()
}

func (b *Board) checkEmulator() error {
	e := b.Boot.Emulator
	if e == nil {
		return nil
	}
	a, _ := b.Aperture(b.RoCE.Aperture)
	switch {
	case !wordForm.MatchString(e.Machine):
		return invalid("boot.emulator.machine", "%q is no name of a machine", e.Machine)
	case e.Memory == 0 || e.Memory%KernelAlign != 0 || e.Memory > 1<<40:
		return invalid("boot.emulator.memory", "%#x, want a multiple of %#x up to 1 TiB", e.Memory, KernelAlign)
	case a.Base+a.Size > e.Memory:
		return invalid("boot.emulator.memory", "%#x ends before aperture %s at %#x: the emulated fabric lives in the machine's memory", e.Memory, a.Name, a.Base)
	case a.Base%4096 != 0:
		return invalid("boot.emulator", "aperture %s at %#x is not at a page: the emulated fabric maps it", a.Name, a.Base)
	case e.Processors < 1 || e.Processors > 16:
		return invalid("boot.emulator.processors", "%d, want 1 to 16", e.Processors)
	case e.Network < 0 || e.Network > 7:
		return invalid("boot.emulator.network", "%d, want 0 to 7", e.Network)
	}
	for i, s := range e.Arguments {
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return invalid(fmt.Sprintf("boot.emulator.arguments[%d]", i), "%q, want one word", s)
		}
	}
	return nil
}

// CheckArgument checks a word of the kernel's command line.
func CheckArgument(s string) error {
	if s == "" {
		return errors.New("an empty argument")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return fmt.Errorf("%q, want one word of printable ASCII without quotes", s)
	}
	return nil
}

// Description returns the text of a built-in board's description.
func Description(name string) ([]byte, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("board %q: %w: built in are %s; a path ending in .yaml loads a file", name, ErrUnknown, strings.Join(Names(), ", "))
	}
	return files.ReadFile(path.Join(name, "board.yaml"))
}

// DeviceTree returns the source of a built-in board's device tree, which
// [Boot.DeviceTree] names.
func DeviceTree(name, file string) ([]byte, error) {
	data, err := trees.ReadFile(path.Join(name, file))
	if err != nil {
		return nil, fmt.Errorf("board %q: device tree %s: %w", name, file, err)
	}
	return data, nil
}
