package boards

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Space of the cores that peripherals hang on: both decode nine address bits
// (AMD PG090 and PG144, port descriptions).
const (
	iicSpan  = 0x200
	gpioSpan = 0x200
	// Bus and lines of the software fabric's modules are one block.
	modulesSpan = 0x400
)

// Addresses of modules (SFF-8636 4; SFF-8472 4.1 for diagnostics).
const (
	moduleAddress     = 0x50
	diagnosticAddress = 0x51
)

// switches is how many channels an I2C switch has, by the data sheets of NXP
// and TI.
var switches = map[string]int{
	"pca9540": 2, "pca9542": 2, "pca9543": 2, "pca9544": 4, "pca9545": 4, "pca9546": 4, "pca9547": 8, "pca9548": 8,
	"tca9543": 2, "tca9544": 4, "tca9545": 4, "tca9546": 4, "tca9548": 8,
}

// Channels says how many channels an I2C switch has.
func Channels(part string) (int, bool) {
	n, ok := switches[strings.ToLower(part)]
	return n, ok
}

// Parts of clocks that a register script can be loaded into.
var scripted = []string{"si5341", "si5345", "si5395", "8a34001", "lmk04828", "lmk04208", "lmx2594"}

// bySPI are those that have no I2C port of their own.
var bySPI = []string{"lmk04828", "lmk04208", "lmx2594"}

// span is a range of registers in an aperture.
type span struct {
	field, aperture string
	from, to        uint64
}

// user is a device on an I2C bus.
type user struct {
	field, bus string
	route      []Hop
	address    uint16
	selected   bool // answers only while its ModSel is active
}

// survey gathers what must not collide.
type survey struct {
	*Board
	spans []span
	users []user
	lines map[Line]string // without polarity → field
	// modules are blocks that are claimed already: bus and lines share one.
	modules map[Block]bool
	// nested are the switches behind others that were taken, by where they are.
	nested map[string]bool
}

// checkHardware checks what cages and clocks hang on.
func (b *Board) checkHardware() error {
	s := &survey{Board: b, lines: map[Line]string{}, modules: map[Block]bool{}, nested: map[string]bool{}}
	s.spans = []span{
		{"roce", b.RoCE.Aperture, uint64(b.RoCE.Offset), uint64(b.RoCE.Offset) + roceSpan},
		{"mac", b.MAC.Aperture, uint64(b.MAC.Offset), uint64(b.MAC.Offset) + macSpan},
	}
	for _, check := range []func() error{s.buses, s.groups, s.cages, s.clocks, b.Bitstream.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// name checks the name of an element of a list.
func name(field, name string, seen map[string]bool) error {
	if !wordForm.MatchString(name) || len(name) > 32 {
		return invalid(field+".name", "%q, want up to 32 letters, digits and +._-", name)
	}
	if seen[name] {
		return invalid(field+".name", "%q is used twice", name)
	}
	seen[name] = true
	return nil
}

// claim takes a core's registers.
func (s *survey) claim(field, aperture string, offset uint32, size uint64) error {
	if err := s.checkBlock(field, Block{aperture, offset}, size); err != nil {
		return err
	}
	n := span{field, aperture, uint64(offset), uint64(offset) + size}
	for _, o := range s.spans {
		if o.aperture == n.aperture && o.from < n.to && n.from < o.to {
			return invalid(field+".offset", "%#x overlaps %s at %#x", offset, o.field, o.from)
		}
	}
	s.spans = append(s.spans, n)
	return nil
}

// claimModules takes the software fabric's block of modules.
func (s *survey) claimModules(field string, k Block) error {
	if s.modules[k] {
		return nil
	}
	if err := s.claim(field, k.Aperture, k.Offset, modulesSpan); err != nil {
		return err
	}
	s.modules[k] = true
	return nil
}

// address takes an address on a bus. Devices on the way are seen too: one at
// the end of a route collides with those before every switch of it.
func (s *survey) address(u user) error {
	if u.address < 0x08 || u.address > 0x77 {
		return invalid(u.field, "%#x is no 7-bit address of a device (0x08 to 0x77)", u.address)
	}
	for _, o := range s.users {
		if o.bus != u.bus || o.address != u.address || o.selected && u.selected {
			continue
		}
		n := min(len(o.route), len(u.route))
		if slices.Equal(o.route[:n], u.route[:n]) {
			return invalid(u.field, "%#x is that of %s too, and both are seen at once", u.address, o.field)
		}
	}
	s.users = append(s.users, u)
	return nil
}

func (s *survey) buses() error {
	seen := map[string]bool{}
	for i, d := range s.I2C {
		field := fmt.Sprintf("i2c[%d]", i)
		if err := name(field, d.Name, seen); err != nil {
			return err
		}
		if s.isUnknown(field + ".driver") {
			continue
		}
		if err := oneOf(field+".driver", d.Driver, "linux", "axi", "fabric"); err != nil {
			return err
		}
		if d.Driver == "linux" && d.Device == "" && !s.isUnknown(field+".device") {
			return invalid(field+".device", "missing: the bus's file, as /dev/i2c-1")
		}
		if d.Driver == "axi" {
			if err := s.claim(field, d.Aperture, d.Offset, iicSpan); err != nil {
				return err
			}
		}
		if d.Driver == "fabric" {
			if err := s.claimModules(field, Block{d.Aperture, d.Offset}); err != nil {
				return err
			}
		}
		// Standard, fast and fast mode plus (NXP UM10204); AXI IIC ends there too.
		if d.Hz != 0 && (d.Hz < 1000 || d.Hz > 1_000_000) {
			return invalid(field+".hz", "%d, want 1000 to 1000000, or 0 for 400 kHz", d.Hz)
		}
		at := map[uint16]bool{}
		for j, w := range d.Switches {
			field := fmt.Sprintf("%s.switches[%d]", field, j)
			if _, ok := Channels(w.Part); !ok {
				return invalid(field+".part", "%q is no switch that is known", w.Part)
			}
			switch {
			// The four families have their addresses at 0x70 to 0x77 (data sheets).
			case w.Address < 0x70 || w.Address > 0x77:
				return invalid(field+".address", "%#x, want 0x70 to 0x77", w.Address)
			case at[w.Address]:
				return invalid(field+".address", "%#x is used twice", w.Address)
			}
			at[w.Address] = true
			if w.Nested {
				continue // where it is seen is told by the routes
			}
			if err := s.address(user{field: field + ".address", bus: d.Name, address: w.Address}); err != nil {
				return err
			}
		}
	}
	return nil
}

// bus finds a bus.
func (s *survey) bus(field, name string) (I2C, error) {
	for _, d := range s.I2C {
		if d.Name == name {
			return d, nil
		}
	}
	return I2C{}, invalid(field, "%q is not among i2c", name)
}

// route checks a way through switches and takes the addresses of those behind
// another.
func (s *survey) route(field string, d I2C, route []Hop) error {
	for n, h := range route {
		field := fmt.Sprintf("%s.route[%d]", field, n)
		i := slices.IndexFunc(d.Switches, func(w Switch) bool { return w.Address == h.Switch })
		if i < 0 {
			return invalid(field+".switch", "%#x is not among the switches of %s", h.Switch, d.Name)
		}
		w := d.Switches[i]
		if w.Nested != (n > 0) {
			return invalid(field+".switch", "%#x is hop %d, but nested is %v", h.Switch, n+1, w.Nested)
		}
		if c, _ := Channels(w.Part); h.Channel < 0 || h.Channel >= c {
			return invalid(field+".channel", "%d, want 0 to %d (%s)", h.Channel, c-1, w.Part)
		}
		if n == 0 {
			continue // taken with the bus
		}
		// Several routes may lead through the same one.
		key := fmt.Sprint(d.Name, route[:n], h.Switch)
		if s.nested[key] {
			continue
		}
		s.nested[key] = true
		if err := s.address(user{field: field + ".switch", bus: d.Name, route: route[:n], address: h.Switch}); err != nil {
			return err
		}
	}
	return nil
}

func (s *survey) groups() error {
	seen := map[string]bool{}
	for i, g := range s.GPIO {
		field := fmt.Sprintf("gpio[%d]", i)
		if err := name(field, g.Name, seen); err != nil {
			return err
		}
		if s.isUnknown(field + ".driver") {
			continue
		}
		if err := oneOf(field+".driver", g.Driver, "linux", "axi", "tca6416", "fabric"); err != nil {
			return err
		}
		switch g.Driver {
		case "linux":
			if g.Device == "" && !s.isUnknown(field+".device") {
				return invalid(field+".device", "missing: the chip's file or label")
			}
		case "axi":
			if err := s.claim(field, g.Aperture, g.Offset, gpioSpan); err != nil {
				return err
			}
		case "fabric":
			if err := s.claimModules(field, Block{g.Aperture, g.Offset}); err != nil {
				return err
			}
		case "tca6416":
			if _, err := s.bus(field+".i2c", g.I2C); err != nil {
				return err
			}
			// One address pin (TI TCA6416A, 8.5.1).
			if g.Address != 0x20 && g.Address != 0x21 {
				return invalid(field+".address", "%#x, want 0x20 or 0x21", g.Address)
			}
			if err := s.address(user{field: field + ".address", bus: g.I2C, address: g.Address}); err != nil {
				return err
			}
		}
	}
	return nil
}

// line takes a GPIO line.
func (s *survey) line(field string, l *Line) error {
	if l == nil {
		return nil
	}
	i := slices.IndexFunc(s.GPIO, func(g GPIO) bool { return g.Name == l.GPIO })
	if i < 0 {
		return invalid(field+".gpio", "%q is not among gpio", l.GPIO)
	}
	// Two channels of 32 (PG144); 16 of the expander; the kernel's own limit; the
	// block Modules has five (fpga/regs).
	limit := map[string]int{"axi": 64, "tca6416": 16, "linux": 1024, "fabric": 5}[s.GPIO[i].Driver]
	if l.Number < 0 || limit > 0 && l.Number >= limit {
		return invalid(field+".line", "%d, want 0 to %d", l.Number, limit-1)
	}
	key := Line{GPIO: l.GPIO, Number: l.Number}
	if other := s.lines[key]; other != "" {
		return invalid(field+".line", "%d of %s is that of %s too", l.Number, l.GPIO, other)
	}
	s.lines[key] = field
	return nil
}

func (s *survey) cages() error {
	seen := map[string]bool{}
	lanes := map[int]string{}
	for i, c := range s.Cages {
		field := fmt.Sprintf("cages[%d]", i)
		if err := name(field, c.Name, seen); err != nil {
			return err
		}
		if err := oneOf(field+".form", c.Form, "qsfp28", "sfp28", "qsfp-dd"); err != nil {
			return err
		}
		if c.MaxClass < 0 || c.MaxClass > 8 {
			return invalid(field+".max_class", "%d, want 1 to 8, or 0 for 4", c.MaxClass)
		}
		if c.Form == "sfp28" && len(c.Lanes) > 1 {
			return invalid(field+".lanes", "%v: an SFP28 carries one", c.Lanes)
		}
		for _, n := range c.Lanes {
			if n < 1 || n > 4 {
				return invalid(field+".lanes", "%d, want 1 to 4", n)
			}
			if lanes[n] != "" {
				return invalid(field+".lanes", "lane %d is carried by %s too", n, lanes[n])
			}
			lanes[n] = c.Name
		}
		for _, l := range []struct {
			name string
			line *Line
		}{
			{"present", c.Present}, {"modsel", c.ModSel}, {"reset", c.Reset},
			{"lpmode", c.LPMode}, {"interrupt", c.Interrupt}, {"tx_disable", c.TxDisable},
		} {
			if err := s.line(field+"."+l.name, l.line); err != nil {
				return err
			}
		}
		if s.isUnknown(field + ".i2c") {
			continue
		}
		d, err := s.bus(field+".i2c", c.I2C)
		if err != nil {
			return err
		}
		if err := s.route(field, d, c.Route); err != nil {
			return err
		}
		u := user{field: field + ".route", bus: c.I2C, route: c.Route, address: moduleAddress, selected: c.ModSel != nil}
		if err := s.address(u); err != nil {
			return err
		}
		if c.Form == "sfp28" {
			u.address = diagnosticAddress
			if err := s.address(u); err != nil {
				return err
			}
		}
	}
	if len(lanes) > 0 && len(lanes) < 4 {
		return invalid("cages", "carry %d of the port's lanes, want each of 1 to 4 once", len(lanes))
	}
	return nil
}

func (s *survey) clocks() error {
	seen := map[string]bool{}
	bridges := map[string]bool{}
	for i, c := range s.Clocks {
		field := fmt.Sprintf("clocks[%d]", i)
		if err := name(field, c.Name, seen); err != nil {
			return err
		}
		if err := oneOf(field+".driver", c.Driver, "si570", "script"); err != nil {
			return err
		}
		if err := s.line(field+".lock", c.Lock); err != nil {
			return err
		}
		at := c.Address
		switch c.Driver {
		case "si570":
			// Range of the grades together (Si570 data sheet, table 3). A factory
			// frequency must be given: the crystal differs from part to part.
			if (c.Hz < 10e6 || c.Hz > 1.4175e9) && !s.isUnknown(field+".hz") {
				return invalid(field+".hz", "%g, want 10e6 to 1.4175e9", c.Hz)
			}
			if (c.Factory < 10e6 || c.Factory > 1.4175e9) && !s.isUnknown(field+".factory") {
				return invalid(field+".factory", "%g, want the frequency the part starts with, 10e6 to 1.4175e9", c.Factory)
			}
			if c.Script != "" || c.Bridge != 0 || c.Select != 0 {
				return invalid(field, "script, bridge and select are for driver script")
			}
			if c.Part != "" && c.Part != "si570" {
				return invalid(field+".part", "%q, want si570 or nothing", c.Part)
			}
		case "script":
			if err := oneOf(field+".part", c.Part, scripted...); err != nil {
				return err
			}
			if c.Script == "" && !s.isUnknown(field+".script") {
				return invalid(field+".script", "missing: the register export, a file on the board")
			}
			if slices.Contains(bySPI, c.Part) {
				if c.Address != 0 {
					return invalid(field+".address", "%#x, but %s has no I2C port: give bridge and select", c.Address, c.Part)
				}
				// Four select lines (NXP SC18IS602B, 7.1.2).
				if c.Select == 0 || c.Select > 0x0F {
					return invalid(field+".select", "%#x, want bits of 0x0f", c.Select)
				}
				at = c.Bridge
			} else if c.Bridge != 0 || c.Select != 0 {
				return invalid(field+".bridge", "%s is on I2C itself", c.Part)
			}
			if c.Hz < 0 || c.Factory != 0 {
				return invalid(field+".factory", "a script does not start from a frequency")
			}
		}
		if s.isUnknown(field + ".i2c") {
			continue
		}
		d, err := s.bus(field+".i2c", c.I2C)
		if err != nil {
			return err
		}
		if err := s.route(field, d, c.Route); err != nil {
			return err
		}
		// Several parts may share a bridge, each on its own select lines.
		if c.Bridge != 0 {
			key := fmt.Sprint(c.I2C, c.Route, c.Bridge)
			if bridges[key] {
				continue
			}
			bridges[key] = true
		}
		if err := s.address(user{field: field + ".address", bus: c.I2C, route: c.Route, address: at}); err != nil {
			return err
		}
	}
	return nil
}

// check refuses files that cannot be on the board.
func (f *Bitstream) check() error {
	if f == nil {
		return nil
	}
	for _, p := range []struct{ field, file string }{{"bitstream.file", f.File}, {"bitstream.overlay", f.Overlay}} {
		if p.file == "" && p.field != "bitstream.file" {
			continue
		}
		if !path.IsAbs(p.file) || path.Clean(p.file) != p.file || strings.ContainsFunc(p.file, func(r rune) bool { return r < ' ' || r == 0x7F }) {
			return invalid(p.field, "%q, want an absolute path on the board", p.file)
		}
	}
	return nil
}
