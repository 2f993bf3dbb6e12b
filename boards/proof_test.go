package boards

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of README.md")

// The marks around the table in README.md.
const (
	tableBegin = "<!-- table: go test ./boards -run TestTable -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// Words of the table; README.md says what they mean.
const (
	emulated   = "emulated"
	playback   = "playback"
	simulation = "simulation"
	untried    = "untried"
	toBeSet    = "to be set"
	notThere   = "not described"
	none       = "–"
)

// blocks are the columns: each says of a board what is proven how.
var blocks = []struct {
	name string
	of   func(b *Board) string
}{
	{"MAC", func(b *Board) string {
		switch {
		case b.MAC.Driver == "":
			return toBeSet
		case b.isEmulated():
			return b.MAC.Driver + ", " + emulated
		}
		return b.MAC.Driver + ", " + playback
	}},
	{"RoCE core", func(b *Board) string {
		if b.isEmulated() {
			return emulated
		}
		return simulation
	}},
	{"optics bus", func(b *Board) string {
		if len(b.Cages) == 0 {
			return notThere
		}
		for _, c := range b.Cages {
			for _, d := range b.I2C {
				switch {
				case d.Name != c.I2C:
				case d.Driver == "fabric":
					return emulated
				case d.Driver == "":
					return toBeSet
				default:
					return d.Driver + ", " + playback
				}
			}
		}
		return toBeSet // the bus itself is not known
	}},
	{"side-band lines", func(b *Board) string {
		drivers := map[string]bool{}
		for _, c := range b.Cages {
			for _, l := range []*Line{c.Present, c.ModSel, c.Reset, c.LPMode, c.Interrupt, c.TxDisable} {
				for _, g := range b.GPIO {
					if l != nil && g.Name == l.GPIO {
						drivers[g.Driver] = true
					}
				}
			}
		}
		for _, d := range []string{"linux", "axi", "tca6416"} {
			if drivers[d] {
				return d + ", " + playback
			}
		}
		if drivers["fabric"] {
			return emulated
		}
		return notThere
	}},
	{"clocks", func(b *Board) string {
		if len(b.Clocks) == 0 {
			return none
		}
		var parts []string
		for _, c := range b.Clocks {
			part := c.Part
			if part == "" {
				part = c.Driver
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ", ") + ", " + playback
	}},
	{"bitstream", func(b *Board) string {
		switch {
		case b.isEmulated():
			return none
		case b.Bitstream == nil:
			return "by the boot loader, " + untried
		}
		return "fpga_manager, " + playback
	}},
	{"boot", func(b *Board) string {
		switch {
		case b.SoC == "none":
			return none
		case b.Boot == nil:
			return notThere
		case b.Boot.Emulator != nil:
			return emulated
		}
		return "image is built, " + untried
	}},
	{"sensors", func(b *Board) string {
		if b.isEmulated() {
			return none
		}
		return playback
	}},
	{"on hardware", func(b *Board) string {
		if b.isEmulated() {
			return none
		}
		return "not yet"
	}},
}

// isEmulated: the fabric is a program.
func (b *Board) isEmulated() bool { return b.SoC == "none" || b.Boot != nil && b.Boot.Emulator != nil }

func table(t *testing.T) string {
	var s strings.Builder
	s.WriteString("| board |")
	for _, c := range blocks {
		s.WriteString(" " + c.name + " |")
	}
	s.WriteString("\n|---|" + strings.Repeat("---|", len(blocks)) + "\n")
	for _, name := range Names() {
		b, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "| `%s` |", name)
		for _, c := range blocks {
			s.WriteString(" " + c.of(b) + " |")
		}
		s.WriteString("\n")
	}
	return s.String()
}

// The table of README.md is what the descriptions say, every board and block.
func TestTable(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := bytes.Cut(page, []byte(tableBegin))
	got, tail, ends := bytes.Cut(rest, []byte(tableEnd))
	if !begins || !ends {
		t.Fatal("README.md has no place for the table")
	}
	want := table(t)
	if string(got) == want {
		return
	}
	if !*update {
		t.Fatalf("the table of README.md is not what the descriptions say: run %sgot\n%s\nwant\n%s", tableBegin, got, want)
	}
	text := string(head) + tableBegin + want + tableEnd + string(tail)
	if err := os.WriteFile("README.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Every board that is built in is in the list of README.md, with a page where it is
// a real one, and the schema is named.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Names(), "board.schema.json", "rocectl boards show --template") {
		if !bytes.Contains(page, []byte("`"+name)) && !bytes.Contains(page, []byte("]("+name+")")) {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
