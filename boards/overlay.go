package boards

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// Base is the built-in board that a description is laid over; empty when there is
// none.
func Base(data []byte) string {
	var head struct {
		Base string `yaml:"base"`
	}
	if yaml.Unmarshal(data, &head) != nil {
		return ""
	}
	return head.Base
}

// overlay lays a description over the built-in one it names as base. Without a
// base it is the description itself. Sections are merged field by field, lists
// of named things by the name; any other list replaces that of the base, and so
// does an empty one: "cages: []" is a board without cages, of which the base's
// unknown and sources then say nothing.
func overlay(data []byte) ([]byte, error) {
	base := Base(data)
	if base == "" {
		return data, nil // what is wrong is told by the strict reading
	}
	if !slices.Contains(Names(), base) {
		return nil, invalid("base", "%q is not built in: %s are", base, strings.Join(Names(), ", "))
	}
	var mine struct {
		Base  string `yaml:"base"`
		Board `yaml:",inline"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.DisallowUnknownField()).Decode(&mine); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	below, err := files.ReadFile(path.Join(base, "board.yaml"))
	if err != nil {
		return nil, err
	}
	var to, from map[string]any
	if err := yaml.Unmarshal(below, &to); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &from); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	delete(from, "base")
	merge(to, from)
	for section, v := range from {
		if list, ok := v.([]any); ok && len(list) == 0 {
			forget(to, section)
		}
	}
	return yaml.Marshal(to)
}

// forget drops what unknown and sources say of a section that was emptied.
func forget(b map[string]any, section string) {
	within := func(field any) bool {
		s, _ := field.(string)
		return strings.HasPrefix(s, section+"[")
	}
	of := func(key string) []any {
		list, _ := b[key].([]any)
		return list
	}
	if _, ok := b["unknown"]; ok {
		b["unknown"] = slices.DeleteFunc(of("unknown"), func(u any) bool {
			m, _ := u.(map[string]any)
			return within(m["field"])
		})
	}
	for _, s := range of("sources") {
		if m, _ := s.(map[string]any); m != nil {
			if fields, ok := m["fields"].([]any); ok {
				m["fields"] = slices.DeleteFunc(fields, within)
			}
		}
	}
	if _, ok := b["sources"]; ok {
		b["sources"] = slices.DeleteFunc(of("sources"), func(s any) bool {
			m, _ := s.(map[string]any)
			fields, ok := m["fields"].([]any)
			return ok && len(fields) == 0
		})
	}
}

func merge(to, from any) any {
	switch from := from.(type) {
	case map[string]any:
		to, ok := to.(map[string]any)
		if !ok {
			return from
		}
		for k, v := range from {
			to[k] = merge(to[k], v)
		}
		return to
	case []any:
		to, ok := to.([]any)
		if !ok || len(from) == 0 || !named(to) || !named(from) {
			return from
		}
		for _, v := range from {
			i := slices.IndexFunc(to, func(o any) bool { return o.(map[string]any)["name"] == v.(map[string]any)["name"] })
			if i < 0 {
				to = append(to, v)
			} else {
				to[i] = merge(to[i], v)
			}
		}
		return to
	}
	return from
}

// named reports whether all elements have a text as name.
func named(list []any) bool {
	for _, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return false
		}
		if _, ok := m["name"].(string); !ok {
			return false
		}
	}
	return true
}

// LineOf finds the line of a field in a description, 0 where the text does not
// hold it.
func LineOf(data []byte, field string) int {
	p, err := yaml.PathString("$." + field)
	if err != nil {
		return 0
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return 0
	}
	n, err := p.FilterFile(f)
	if err != nil || n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}
