// Command gen writes board.schema.json, the JSON schema of a board description,
// from the Go types and their comments.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"rocelink/boards"
)

const output = "board.schema.json"

func main() {
	data, err := generate(".")
	if err == nil {
		err = os.WriteFile(output, data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// node is a part of a schema.
type node struct {
	Schema      string           `json:"$schema,omitempty"`
	Title       string           `json:"title,omitempty"`
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Type        string           `json:"type,omitempty"`
	Enum        []string         `json:"enum,omitempty"`
	Minimum     *float64         `json:"minimum,omitempty"`
	Maximum     *float64         `json:"maximum,omitempty"`
	Items       *node            `json:"items,omitempty"`
	Properties  map[string]*node `json:"properties,omitempty"`
	Additional  *bool            `json:"additionalProperties,omitempty"`
	Definitions map[string]*node `json:"$defs,omitempty"`
}

// enums are the values of fields that take one of a few.
var enums = map[string][]string{
	"Board.SoC":         {"zynqmp", "versal", "none"},
	"MAC.FEC":           {boards.FECNone, boards.FECOff, boards.FECRS},
	"Identity.Source":   {boards.SourceFixed, boards.SourceName, boards.SourceFlag},
	"I2C.Driver":        {"linux", "axi", "fabric"},
	"GPIO.Driver":       {"linux", "axi", "tca6416", "fabric"},
	"Cage.Form":         {"qsfp28", "sfp28", "qsfp-dd"},
	"Clock.Driver":      {"si570", "script"},
	"Source.Confidence": {"high", "medium", "low"},
}

// generator turns types into definitions.
type generator struct {
	comments map[string]string // of types, and of fields as "Type.Field"
	defs     map[string]*node
}

// generate makes the schema of the package in a folder.
func generate(dir string) ([]byte, error) {
	comments, err := readComments(dir)
	if err != nil {
		return nil, err
	}
	g := generator{comments, map[string]*node{}}
	root, err := g.object(reflect.TypeFor[boards.Board]())
	if err != nil {
		return nil, err
	}
	root.Schema, root.Title = "https://json-schema.org/draft/2020-12/schema", "rocelink board description"
	root.Properties["base"] = &node{
		Type: "string", Enum: boards.Names(),
		Description: "Built-in board that this description is laid over: only what differs needs to be given.",
	}
	root.Definitions = g.defs
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (g *generator) object(t reflect.Type) (*node, error) {
	no := false
	n := &node{Type: "object", Description: g.comments[t.Name()], Properties: map[string]*node{}, Additional: &no}
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		if name == "" || strings.Contains(name, ",") {
			return nil, fmt.Errorf("%s.%s: yaml tag %q, want a name", t.Name(), f.Name, name)
		}
		p, err := g.value(f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t.Name(), f.Name, err)
		}
		key := t.Name() + "." + f.Name
		p.Description, p.Enum = g.comments[key], enums[key]
		n.Properties[name] = p
	}
	return n, nil
}

func (g *generator) value(t reflect.Type) (*node, error) {
	switch t.Kind() {
	case reflect.Pointer:
		return g.value(t.Elem())
	case reflect.String:
		return &node{Type: "string"}, nil
	case reflect.Bool:
		return &node{Type: "boolean"}, nil
	case reflect.Float64:
		return &node{Type: "number"}, nil
	case reflect.Int, reflect.Int64:
		return &node{Type: "integer"}, nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		low, high := 0.0, math.Ldexp(1, t.Bits())-1
		n := &node{Type: "integer", Minimum: &low}
		if t.Bits() < 64 { // above, a double does not hold the limit
			n.Maximum = &high
		}
		return n, nil
	case reflect.Slice:
		items, err := g.value(t.Elem())
		return &node{Type: "array", Items: items}, err
	case reflect.Struct:
		if g.defs[t.Name()] == nil {
			g.defs[t.Name()] = &node{} // a type that holds itself ends here
			n, err := g.object(t)
			if err != nil {
				return nil, err
			}
			g.defs[t.Name()] = n
		}
		return &node{Ref: "#/$defs/" + t.Name()}, nil
	}
	return nil, fmt.Errorf("type %v has no schema", t)
}

// readComments reads the comments of struct types and their fields.
func readComments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				typ, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				body, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				comments[typ.Name.Name] = line(decl.Doc, nil)
				for _, field := range body.Fields.List {
					for _, n := range field.Names {
						comments[typ.Name.Name+"."+n.Name] = line(field.Doc, field.Comment)
					}
				}
			}
		}
	}
	return comments, nil
}

// line is a comment as one line.
func line(doc, trailing *ast.CommentGroup) string {
	text := strings.Join(strings.Fields(doc.Text()+" "+trailing.Text()), " ")
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}
