package boards

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ErrUnset: the description leaves values open that only the user can give.
var ErrUnset = errors.New("values of the board are unknown and must be set")

// Unknown is a value that is not known. It counts until the field is set.
type Unknown struct {
	Field string `yaml:"field" json:"field"` // as in an error, "cages[0].i2c"
	// Ask is what to find out, and where.
	Ask string `yaml:"ask" json:"ask"`
}

// Source is where values come from.
type Source struct {
	// Fields the source speaks for, each with all that is below it.
	Fields []string `yaml:"fields"`
	Source string   `yaml:"source"`
	// Confidence is high (official text and at least one independent design),
	// medium (one good source) or low (derived).
	Confidence string `yaml:"confidence"`
}

// isUnknown reports whether a field is listed as unknown and not set.
func (b *Board) isUnknown(field string) bool {
	for _, u := range b.Unknown {
		if u.Field == field {
			v, ok := at(reflect.ValueOf(b).Elem(), field)
			return ok && v.IsZero()
		}
	}
	return false
}

// Unset lists what is unknown and has not been set.
func (b *Board) Unset() []Unknown {
	var open []Unknown
	for _, u := range b.Unknown {
		if b.isUnknown(u.Field) {
			open = append(open, u)
		}
	}
	return open
}

// Complete refuses a board with values that must be set. The error lists them
// and how to set them, and matches ErrUnset. from is the board's built-in name, or
// the file of its description.
func (b *Board) Complete(from string) error {
	open := b.Unset()
	if len(open) == 0 {
		return nil
	}
	lines := make([]string, len(open))
	for i, u := range open {
		lines[i] = fmt.Sprintf("\n  %s: %s", u.Field, u.Ask)
	}
	how := "set them in " + from
	if slices.Contains(Names(), from) {
		how = fmt.Sprintf("write a file mine.yaml that begins with \"base: %s\", set them there, and give it as --board mine.yaml", from)
	}
	return fmt.Errorf("board %s: %w: %s\n%s", b.Model, ErrUnset, strings.Join(lines, ""), how)
}

// checkOrigin checks that what is said of fields is said of fields there are.
func (b *Board) checkOrigin() error {
	root := reflect.ValueOf(b).Elem()
	for i, u := range b.Unknown {
		field := fmt.Sprintf("unknown[%d]", i)
		if _, ok := at(root, u.Field); !ok {
			return invalid(field+".field", "%q is no field of this description", u.Field)
		}
		if u.Ask == "" {
			return invalid(field+".ask", "missing: say what to find out")
		}
	}
	for i, s := range b.Sources {
		field := fmt.Sprintf("sources[%d]", i)
		if len(s.Fields) == 0 || s.Source == "" {
			return invalid(field, "fields or source are missing")
		}
		for j, f := range s.Fields {
			if _, ok := at(root, f); !ok {
				return invalid(fmt.Sprintf("%s.fields[%d]", field, j), "%q is no field of this description", f)
			}
		}
		if err := oneOf(field+".confidence", s.Confidence, "high", "medium", "low"); err != nil {
			return err
		}
	}
	return nil
}

// own are the sections that state no facts of the hardware.
var own = map[string]bool{"model": true, "network": true, "unknown": true, "sources": true, "unverified": true, "bitstream": true}

// Unsourced lists the values of the hardware that no source speaks for.
func (b *Board) Unsourced() []string {
	var missing []string
	leaves("", reflect.ValueOf(b).Elem(), func(field string) {
		top, _, _ := strings.Cut(field, ".")
		top, _, _ = strings.Cut(top, "[")
		if own[top] || strings.HasSuffix(field, ".name") {
			return
		}
		for _, s := range b.Sources {
			for _, f := range s.Fields {
				if rest, ok := strings.CutPrefix(field, f); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
					return
				}
			}
		}
		missing = append(missing, field)
	})
	return missing
}

// leaves calls fn with every value that is set.
func leaves(field string, v reflect.Value, fn func(string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			leaves(field, v.Elem(), fn)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("yaml")
			if field != "" {
				name = field + "." + name
			}
			leaves(name, v.Field(i), fn)
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(fmt.Sprintf("%s[%d]", field, i), v.Index(i), fn)
		}
	default:
		if !v.IsZero() {
			fn(field)
		}
	}
}

// at finds a field by its path.
func at(v reflect.Value, field string) (reflect.Value, bool) {
	for part := range strings.SplitSeq(field, ".") {
		name, index, indexed := strings.Cut(part, "[")
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v = reflect.New(v.Type().Elem())
			}
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return v, false
		}
		found := false
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("yaml") == name {
				v, found = v.Field(i), true
				break
			}
		}
		if !found {
			return v, false
		}
		if !indexed {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(index, "%d]", &n); err != nil || fmt.Sprintf("%d]", n) != index ||
			v.Kind() != reflect.Slice || n < 0 || n >= v.Len() {
			return v, false
		}
		v = v.Index(n)
	}
	return v, true
}
