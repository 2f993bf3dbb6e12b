package stream

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as "4096", "64KiB" or "1MiB".
type Size struct {
	Bytes uint64
	given bool
}

// SizeOf is a Size of n bytes, 0 included.
func SizeOf(n uint64) Size { return Size{n, true} }

// Set parses text.
func (s *Size) Set(text string) error {
	number, unit := splitUnit(text)
	factor, ok := map[string]uint64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
	if !ok {
		return fmt.Errorf("unit %q: write bytes, KiB, MiB or GiB", unit)
	}
	v, err := strconv.ParseUint(number, 10, 64)
	if err != nil || v > math.MaxUint64/factor {
		return fmt.Errorf("%q is not a size", text)
	}
	*s = SizeOf(v * factor)
	return nil
}

// UnmarshalYAML parses the text of a configuration file.
func (s *Size) UnmarshalYAML(unmarshal func(any) error) error { return setFromYAML(s.Set, unmarshal) }

// Rate is a bit rate, written as "0" (no limit), "800M" or "2.5G" bits per
// second.
type Rate struct{ BitsPerSecond float64 }

// Set parses text.
func (r *Rate) Set(text string) error {
	number, unit := splitUnit(text)
	factor, ok := map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[strings.TrimSuffix(unit, "b/s")]
	if !ok {
		return fmt.Errorf("unit %q: write k, M or G bits per second", unit)
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < 0 || v*factor > 1e12 || v > 0 && v*factor < 1e3 {
		return fmt.Errorf("%q is not 0 or a rate from 1k to 1000G", text)
	}
	r.BitsPerSecond = v * factor
	return nil
}

// UnmarshalYAML parses the text of a configuration file.
func (r *Rate) UnmarshalYAML(unmarshal func(any) error) error { return setFromYAML(r.Set, unmarshal) }

// kbps is the rate as the board takes it.
func (r Rate) kbps() uint32 { return uint32(min(math.Round(r.BitsPerSecond/1e3), math.MaxUint32)) }

func splitUnit(text string) (number, unit string) {
	i := strings.LastIndexAny(text, "0123456789.") + 1
	return text[:i], strings.TrimSpace(text[i:])
}

func setFromYAML(set func(string) error, unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err != nil {
		return err
	}
	return set(text)
}
