package boards

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Bus and lines of the software fabric are one block, which nothing else overlaps.
func TestFabricModules(t *testing.T) {
	for _, c := range []struct {
		bus, lines uint32
		line       int
		field      string
	}{
		{0x18000, 0x18000, 4, ""}, {0x18000, 0x18400, 4, ""},
		{0x18000, 0x18200, 0, "gpio[0].offset"}, {0x11F00, 0x18000, 0, "i2c[0].offset"}, {0x1FE00, 0x18000, 0, "i2c[0].offset"},
		{0x18000, 0x18000, 5, "cages[0].reset.line"},
	} {
		_, err := Parse(fmt.Appendf(nil, good+`
i2c:
  - {name: a, driver: fabric, aperture: pl, offset: %#x}
gpio:
  - {name: g, driver: fabric, aperture: pl, offset: %#x}
cages:
  - {name: q, form: qsfp28, i2c: a, reset: {gpio: g, line: %d}}
`, c.bus, c.lines, c.line))
		if c.field == "" && err != nil || c.field != "" && (!errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "board description: "+c.field)) {
			t.Errorf("%#x, %#x, line %d: %v, want %q", c.bus, c.lines, c.line, err, c.field)
		}
	}
}
