package boards

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestBuiltIn(t *testing.T) {
	names := Names()
	if len(names) < 2 {
		t.Fatalf("built in: %v", names)
	}
	for _, name := range names {
		b, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.Network.HardwareMAC("a board")
		if err != nil || !m.IsUnicast() {
			t.Errorf("%s: MAC %v, %v", name, m, err)
		}
	}
	b, err := Load("rfsoc4x2")
	if err != nil {
		t.Fatal(err)
	}
	a, ok := b.Aperture(b.MAC.Aperture)
	if !ok || a.Base+uint64(b.MAC.Offset) != 0xA0010000 || a.File != "/dev/mem" {
		t.Errorf("CMAC at %#x in %q", a.Base+uint64(b.MAC.Offset), a.File)
	}
	if len(b.Unverified) == 0 {
		t.Error("nothing was run on this board: the description must say so")
	}
	if _, err := Load("../boards"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "demo") {
		t.Errorf("unknown board: %v", err)
	}
}

const good = `
model: m
soc: versal
device: xcvm1802
apertures:
  - {name: pl, file: /dev/mem, base: 0x1000000000, size: 0x20000}
roce: {aperture: pl, offset: 0x0}
mac: {driver: cmac, aperture: pl, offset: 0x10000, fec: none}
network:
  mac: {source: fixed, value: "02:00:00:00:00:0a"}
  address: {source: fixed, value: 10.0.0.2}
`

func TestBasesHave64Bits(t *testing.T) {
	b, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if b.Apertures[0].Base != 0x10_0000_0000 {
		t.Errorf("base %#x", b.Apertures[0].Base)
	}
}

func TestInvalid(t *testing.T) {
	for _, c := range []struct{ name, from, to, field string }{
		{"unknown field", "model: m", "model: m\ncolour: red", "colour"},
		{"unknown nested field", "fec: none", "fec: none, lanes: 4", "lanes"},
		{"no model", "model: m", "model: ''", "model"},
		{"soc", "soc: versal", "soc: z80", "soc"},
		{"no device", "device: xcvm1802", "device: ''", "device"},
		{"aperture base", "base: 0x1000000000", "base: 0x1000000001", "apertures[0].base"},
		{"aperture wraps", "base: 0x1000000000", "base: 0xFFFFFFFFFFFFFFFC", "apertures[0].base"},
		{"aperture size", "size: 0x20000", "size: 0", "apertures[0].size"},
		{"negative base", "base: 0x1000000000", "base: -4", "base"},
		{"roce aperture", "roce: {aperture: pl", "roce: {aperture: ps", "roce.aperture"},
		{"roce outside", "offset: 0x0}", "offset: 0x1F000}", "roce.offset"},
		{"mac outside", "offset: 0x10000", "offset: 0x1F000", "mac.offset"},
		{"mac misaligned", "offset: 0x10000", "offset: 0x10002", "mac.offset"},
		{"overlap", "offset: 0x10000", "offset: 0x1000", "mac.offset"},
		{"fec", "fec: none", "fec: maybe", "mac.fec"},
		{"driver", "driver: cmac", "driver: ''", "mac.driver"},
		{"mac source", "mac: {source: fixed", "mac: {source: dice", "network.mac.source"},
		{"multicast", "02:00:00:00:00:0a", "03:00:00:00:00:0a", "network.mac.value"},
		{"mac text", "02:00:00:00:00:0a", "02:00", "network.mac.value"},
		{"address", "10.0.0.2", "224.0.0.1", "network.address.value"},
		{"address text", "10.0.0.2", "ten", "network.address.value"},
		{"value without source", "{source: fixed, value: 10.0.0.2}", "{source: flag, value: 10.0.0.2}", "network.address.value"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if text == good {
			t.Fatalf("%s: the case changes nothing", c.name)
		}
		b, err := Parse([]byte(text))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want ErrInvalid naming %s", c.name, err, c.field)
		}
		if b != nil {
			t.Errorf("%s: a board came with the error", c.name)
		}
	}
}

func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := LoadFile(path); err != nil || b.Model != "m" {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := LoadFile(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, make([]byte, maxFile+10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadFile(path); !errors.Is(err, ErrInvalid) {
		t.Errorf("large file: %v", err)
	}
}

func TestNameMAC(t *testing.T) {
	if NameMAC("a") == NameMAC("b") {
		t.Error("two names, one address")
	}
	// The address of a deployed board must not change with the program.
	if m := NameMAC("board1").String(); m != "32:02:10:99:37:f5" {
		t.Errorf("board1 became %v", m)
	}
	for _, n := range []string{"", "a", "board 7", "β"} {
		if m := NameMAC(n); !m.IsUnicast() || m[0]&2 == 0 {
			t.Errorf("%q: %v", n, m)
		}
	}
}

// Whatever the file holds, the parser returns a board that passes its own
// check, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("model: [1"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("apertures: [{base: 1e99}]"))
	f.Add([]byte("base: x410\ncages: []\nclocks: []"))
	f.Add([]byte("base: zcu111\nsources: [{fields: 7}]\ni2c: []"))
	f.Add(Template())
	for _, n := range Names() {
		b, err := files.ReadFile(n + "/board.yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Parse(data)
		if (b == nil) == (err == nil) {
			t.Fatalf("board %v with error %v", b, err)
		}
		if err != nil {
			return
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

const bootable = good + `
boot:
  console: ttyAMA0,115200
  kernel: linux-image-arm64
  devicetree: board.dts
  modules: [macb]
  firmware: [a/b.bin]
  arguments: [quiet]
  ip: 10.0.0.2/24,10.0.0.1
  load: {image: 0x20000000, kernel: 0x200000, devicetree: 0xf000000, ramdisk: 0x10000000}
  emulator: {machine: virt, memory: 0x2000000000, processors: 4, network: 0, arguments: ["-x"]}
`

func TestBoot(t *testing.T) {
	b, err := Parse([]byte(bootable))
	if err != nil {
		t.Fatal(err)
	}
	if b.Boot.Load.Kernel != 0x200000 || b.Boot.Emulator.Memory != 0x20_0000_0000 {
		t.Errorf("%+v", b.Boot)
	}
	for _, c := range []struct{ name, from, to, field string }{
		{"software fabric", "soc: versal", "soc: none", "boot"},
		{"ZynqMP's console", "ttyAMA0", "ttyPS0", "boot.console"},
		{"no console", "console: ttyAMA0,115200", "console: ''", "boot.console"},
		{"speed", "ttyAMA0,115200", "ttyAMA0,fast", "boot.console"},
		{"kernel", "linux-image-arm64", "-o Dir=x", "boot.kernel"},
		{"tree elsewhere", "board.dts", "../board.dts", "boot.devicetree"},
		{"compiled tree", "board.dts", "board.dtb", "boot.devicetree"},
		{"module", "[macb]", "[macb.ko]", "boot.modules[0]"},
		{"firmware elsewhere", "a/b.bin", "../b.bin", "boot.firmware[0]"},
		{"two words", "[quiet]", "['quiet a']", "boot.arguments[0]"},
		{"ip", "10.0.0.2/24", "10.0.0.2", "boot.ip"},
		{"gateway", "10.0.0.1", "10.0.1.1", "boot.ip"},
		{"kernel's address", "kernel: 0x200000", "kernel: 0x280000", "boot.load.kernel"},
		{"tree's address", "devicetree: 0xf000000", "devicetree: 0xf000004", "boot.load.devicetree"},
		{"same address", "ramdisk: 0x10000000", "ramdisk: 0x20000000", "boot.load"},
		{"unknown field", "ip: ", "dns: 1.1.1.1\n  ip: ", "dns"},
		{"machine", "machine: virt", "machine: 'virt,x=y'", "boot.emulator.machine"},
		{"little memory", "memory: 0x2000000000", "memory: 0x80000000", "boot.emulator.memory"},
		{"processors", "processors: 4", "processors: 0", "boot.emulator.processors"},
		{"port", "network: 0", "network: -1", "boot.emulator.network"},
		{"argument", `["-x"]`, `["-x y"]`, "boot.emulator.arguments[0]"},
	} {
		text := strings.Replace(bootable, c.from, c.to, 1)
		if text == bootable {
			t.Fatalf("%s: the case changes nothing", c.name)
		}
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want ErrInvalid naming %s", c.name, err, c.field)
		}
	}
}

// A board that boots has the files that its description names.
func TestBootFiles(t *testing.T) {
	n := 0
	for _, name := range Names() {
		b, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if b.Boot == nil {
			continue
		}
		n++
		if text, err := Description(name); err != nil {
			t.Error(err)
		} else if again, err := Parse(text); err != nil || again.Model != b.Model {
			t.Errorf("%s: the text is another board: %v", name, err)
		}
		if b.Boot.DeviceTree == "" {
			continue
		}
		if tree, err := DeviceTree(name, b.Boot.DeviceTree); err != nil || !strings.HasPrefix(string(tree), "/dts-v1/;") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 3 {
		t.Errorf("%d boards boot", n)
	}
	if _, err := Description("none"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown board: %v", err)
	}
	if _, err := DeviceTree("demo", "board.dts"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a board without a tree: %v", err)
	}
}

// Every value of a real board has a source.
func TestSources(t *testing.T) {
	for _, name := range Names() {
		b, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if b.SoC == "none" || b.Boot != nil && b.Boot.Emulator != nil {
			continue
		}
		if missing := b.Unsourced(); len(missing) > 0 {
			t.Errorf("%s: no source for %v", name, missing)
		}
		if _, err := os.Stat(filepath.Join(name, "README.md")); err != nil {
			t.Error(err)
		}
	}
}

func TestOverlay(t *testing.T) {
	b, err := Load("vck190")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Complete("vck190"); !errors.Is(err, ErrUnset) || !strings.Contains(err.Error(), "i2c[0].device") || !strings.Contains(err.Error(), "base: vck190") {
		t.Errorf("incomplete: %v", err)
	}
	mine := "base: vck190\ni2c: [{name: i2c1, device: /dev/i2c-1}]\nclocks: [{name: ref, script: /boot/ref.txt}]\n"
	if b, err = Parse([]byte(mine)); err != nil {
		t.Fatal(err)
	}
	if err := b.Complete("vck190"); err != nil || b.I2C[0].Device != "/dev/i2c-1" || len(b.I2C[0].Switches) != 2 || b.Clocks[0].Address != 0x5B {
		t.Errorf("%v, %+v", err, b)
	}
	for _, text := range []string{"base: none", mine + "colour: red", "base: vck190\ncages: 7"} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

const peripherals = good + `
i2c:
  - {name: a, driver: linux, device: /dev/i2c-1, switches: [{part: pca9548, address: 0x74}, {part: pca9544, address: 0x75}]}
gpio:
  - {name: g, driver: axi, aperture: pl, offset: 0x14000}
  - {name: x, driver: tca6416, i2c: a, address: 0x20}
cages:
  - {name: q, form: qsfp28, i2c: a, route: [{switch: 0x74, channel: 7}], lanes: [1, 2, 3, 4], reset: {gpio: g, line: 3}}
clocks:
  - {name: r, driver: si570, i2c: a, route: [{switch: 0x75, channel: 3}], address: 0x5d, hz: 156.25e6, factory: 300e6, lock: {gpio: x, line: 15}}
bitstream: {file: /boot/a.bit}
`

func TestPeripherals(t *testing.T) {
	if _, err := Parse([]byte(peripherals)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, field string }{
		{"name: x, driver", "name: g, driver", "gpio[1].name"},
		{"driver: linux", "driver: usb", "i2c[0].driver"},
		{"pca9544", "pca9999", "i2c[0].switches[1].part"},
		{"address: 0x75}]", "address: 0x74}]", "i2c[0].switches[1].address"},
		{"offset: 0x14000", "offset: 0x11000", "gpio[0].offset"},
		{"offset: 0x14000", "offset: 0x1FF00", "gpio[0].offset"},
		{"address: 0x20", "address: 0x30", "gpio[1].address"},
		{"channel: 7", "channel: 8", "cages[0].route[0].channel"},
		{"channel: 3", "channel: 4", "clocks[0].route[0].channel"},
		{"switch: 0x75", "switch: 0x76", "clocks[0].route[0].switch"},
		{"[1, 2, 3, 4]", "[1, 2, 3, 3]", "cages[0].lanes"},
		{"[1, 2, 3, 4]", "[1, 2]", "cages"},
		{"form: qsfp28", "form: cfp", "cages[0].form"},
		{"line: 3", "line: 64", "cages[0].reset.line"},
		{"{gpio: x, line: 15}", "{gpio: g, line: 3}", "clocks[0].lock.line"},
		{"{gpio: x, line: 15}", "{gpio: y, line: 3}", "clocks[0].lock.gpio"},
		{"address: 0x5d", "address: 0x20", "clocks[0].address"},
		{"address: 0x5d", "address: 0xba", "clocks[0].address"},
		{"hz: 156.25e6", "hz: 156.25", "clocks[0].hz"},
		{"driver: si570", "driver: si571", "clocks[0].driver"},
		{"/boot/a.bit", "a.bit", "bitstream.file"},
	} {
		text := strings.Replace(peripherals, c.from, c.to, 1)
		if text == peripherals {
			t.Fatalf("%s changes nothing", c.field)
		}
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "board description: "+c.field) {
			t.Errorf("%s → %s: %v, want %s", c.from, c.to, err, c.field)
		}
	}
}

// A switch behind another one has an address too.
func TestNestedSwitches(t *testing.T) {
	nested := func(clock string) string {
		return good + `
i2c:
  - {name: a, driver: linux, device: /dev/i2c-1, switches: [{part: pca9548, address: 0x74}, {part: pca9544, address: 0x75, nested: true}]}
cages:
  - {name: q, form: qsfp28, i2c: a, route: [{switch: 0x74, channel: 7}, {switch: 0x75, channel: 1}]}
  - {name: r, form: qsfp28, i2c: a, route: [{switch: 0x74, channel: 7}, {switch: 0x75, channel: 2}]}
clocks:
  - {name: c, driver: si570, hz: 156.25e6, factory: 300e6, i2c: a, ` + clock + `}
`
	}
	for _, c := range []struct{ clock, field string }{
		{"route: [{switch: 0x74, channel: 7}], address: 0x5d", ""},
		{"route: [{switch: 0x74, channel: 6}], address: 0x75", ""}, // never seen with it
		{"route: [{switch: 0x74, channel: 7}], address: 0x75", "clocks[0].address"},
		{"route: [{switch: 0x74, channel: 7}, {switch: 0x75, channel: 0}], address: 0x75", "clocks[0].address"},
		{"address: 0x75", "clocks[0].address"},
		{"route: [{switch: 0x74, channel: 7}, {switch: 0x75, channel: 0}], address: 0x74", "clocks[0].address"},
		{"route: [{switch: 0x74, channel: 7}, {switch: 0x75, channel: 1}], address: 0x50", "clocks[0].address"},
		{"route: [{switch: 0x75, channel: 1}], address: 0x5d", "clocks[0].route[0].switch"},
	} {
		_, err := Parse([]byte(nested(c.clock)))
		if c.field == "" && err != nil || c.field != "" && (!errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "board description: "+c.field+":")) {
			t.Errorf("%s: %v, want %q", c.clock, err, c.field)
		}
	}
}

// The cages of a VPK120 share a channel; what its page says to move the port to the
// other one does so.
func TestSharedChannel(t *testing.T) {
	b, err := Parse([]byte("base: vpk120\ncages: [{name: qsfp0, lanes: []}, {name: qsfp1, lanes: [1, 2, 3, 4]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Cages) != 2 || len(b.Cages[0].Lanes) != 0 || len(b.Cages[1].Lanes) != 4 || b.Cages[0].ModSel.Number != 2 || b.Cages[1].ModSel.Number != 3 {
		t.Errorf("%+v", b.Cages)
	}
	// Without ModSel both would answer.
	if _, err := Parse([]byte("base: vpk120\ncages: [{name: qsfp1, modsel: null}]")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "cages[1].route") {
		t.Errorf("%v", err)
	}
}

// The template is valid and has every field there is.
func TestTemplate(t *testing.T) {
	b, err := Parse(Template())
	if err != nil {
		t.Fatal(err)
	}
	if u := append(b.Unset(), b.Unknown[1:]...); len(u) > 0 || len(b.Unsourced()) > 0 {
		t.Errorf("unset %v, without a source %v", u, b.Unsourced())
	}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(typ.Elem())
		case reflect.Struct:
			for f := range typ.Fields() {
				if name := f.Tag.Get("yaml"); !strings.Contains(string(Template()), name+":") {
					t.Errorf("the template has no %s of %s", name, typ.Name())
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Board]())
}

// A section can be done without: what is unknown of it need not be set then.
func TestEmptied(t *testing.T) {
	for _, c := range []struct {
		text string
		open int
	}{
		{"base: x410", 1}, {"base: x410\ncages: []", 0}, {"base: 250-soc\ncages: []", 0}, {"base: sidewinder100\ncages: []", 0},
		{"base: zcu111\ncages: []", 2}, {"base: zcu111\nclocks: []", 1}, {"base: zcu111\ncages: []\nclocks: []\ni2c: []", 0},
		{"base: vck190\nclocks: []", 1},
	} {
		b, err := Parse([]byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if open := b.Unset(); len(open) != c.open || len(b.Unsourced()) > 0 {
			t.Errorf("%q: open %v, want %d; without a source %v", c.text, open, c.open, b.Unsourced())
		}
	}
	for _, text := range []string{"base: x410\ncages: null", "base: x410\nunknown: 7\ncages: []", "base: x410\nsources: [7]\ncages: []", "base: x410\nunknown: []\nsources: []"} {
		if _, err := Parse([]byte(text)); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
