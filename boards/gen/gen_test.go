package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"rocelink/boards"
)

func TestCurrent(t *testing.T) {
	want, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../" + output)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the types say (%v): run make generate", output, err)
	}
}

// Every enum has the values that the check of descriptions takes, in its words.
func TestEnums(t *testing.T) {
	const wrong = "nonsense"
	base := "base: vck190\n"
	texts := map[string]string{
		"Board.SoC":         base + "soc: " + wrong,
		"MAC.FEC":           base + "mac: {fec: " + wrong + "}",
		"Identity.Source":   base + "network: {mac: {source: " + wrong + "}}",
		"I2C.Driver":        base + "i2c: [{name: new, driver: " + wrong + "}]",
		"GPIO.Driver":       base + "gpio: [{name: new, driver: " + wrong + "}]",
		"Cage.Form":         base + "cages: [{name: new, form: " + wrong + "}]",
		"Clock.Driver":      base + "clocks: [{name: new, driver: " + wrong + "}]",
		"Source.Confidence": base + "sources: [{fields: [model], source: x, confidence: " + wrong + "}]",
	}
	comments, err := readComments("..")
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range enums {
		if _, ok := comments[key]; !ok {
			t.Errorf("%s is no field", key)
		}
		_, err := boards.Parse([]byte(texts[key]))
		if want := fmt.Sprintf("%q, want one of %s:", wrong, strings.Join(values, ", ")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", key, err, want)
		}
	}
}

// accepts says what of a value a schema refuses.
func accepts(root, n *node, at string, v any) error {
	if n.Ref != "" {
		d := root.Definitions[strings.TrimPrefix(n.Ref, "#/$defs/")]
		if d == nil {
			return fmt.Errorf("%s: %s is not defined", at, n.Ref)
		}
		return accepts(root, d, at, v)
	}
	ok := false
	switch v := v.(type) {
	case map[string]any:
		ok = n.Type == "object"
		for k, e := range v {
			p := n.Properties[k]
			if p == nil {
				return fmt.Errorf("%s: %s is no property", at, k)
			}
			if err := accepts(root, p, at+"."+k, e); err != nil {
				return err
			}
		}
	case []any:
		ok = n.Type == "array"
		for i, e := range v {
			if err := accepts(root, n.Items, fmt.Sprintf("%s[%d]", at, i), e); err != nil {
				return err
			}
		}
	case string:
		ok = n.Type == "string" && (n.Enum == nil || slices.Contains(n.Enum, v))
	case bool:
		ok = n.Type == "boolean"
	case float64:
		ok = n.Type == "number" || n.Type == "integer" && v == math.Trunc(v)
		ok = ok && (n.Minimum == nil || v >= *n.Minimum) && (n.Maximum == nil || v <= *n.Maximum)
	}
	if !ok {
		return fmt.Errorf("%s: %v is refused", at, v)
	}
	return nil
}

// What the schema takes and what boards.Parse takes agree where a schema can tell.
func TestDescriptions(t *testing.T) {
	data, err := os.ReadFile("../" + output)
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		t.Helper()
		j, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(j, &v); err != nil {
			t.Fatal(err)
		}
		return accepts(&root, &root, "board", v)
	}
	for _, name := range boards.Names() {
		text, err := boards.Description(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{"base: vck190\ni2c: [{name: i2c1, device: /dev/i2c-1}]", true},
		{"base: z80", false},
		{"base: vck190\ncolour: red", false},
		{"base: vck190\nmac: {fec: maybe}", false},
		{"base: vck190\nsoc: zynq", false},
		{"base: vck190\ngpio: [{name: g, driver: smoke}]", false},
		{"base: vck190\nroce: {aperture: pl, offset: -4}", false},
		{"base: vck190\nroce: {aperture: pl, offset: 0x100000000}", false},
	} {
		schema := check([]byte(c.text))
		_, parsed := boards.Parse([]byte(c.text))
		if (schema == nil) != c.ok || (parsed == nil) != c.ok {
			t.Errorf("%q: schema %v, Parse %v, want taken: %v", c.text, schema, parsed, c.ok)
		}
	}
}
