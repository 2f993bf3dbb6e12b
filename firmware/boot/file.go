package boot

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxConfig is the largest configuration file that is read.
const maxConfig = 16 << 10

// configFile finds the keys of a configuration file: a YAML mapping of plain
// values. Values are taken as they are written, so that a name 007 stays one.
// What cannot be taken is told; the rest of the file still counts.
func configFile(data []byte) (pairs []pair, problems []string) {
	// The parser is not ours, and this is process 1.
	defer func() {
		if p := recover(); p != nil {
			pairs, problems = nil, []string{fmt.Sprintf("not YAML: %v", p)}
		}
	}()
	if len(data) > maxConfig {
		return nil, []string{fmt.Sprintf("more than %d bytes", maxConfig)}
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, []string{"not YAML: " + firstLine(err)}
	}
	seen := map[string]bool{}
	for n, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		mapping, ok := doc.Body.(ast.MapNode)
		if n > 0 || !ok {
			return nil, []string{"want one mapping, as in \"nats: nats://10.0.0.1:4222\""}
		}
		for entries := mapping.MapRange(); entries.Next(); {
			key, err := scalar(entries.Key())
			if err != nil {
				problems = append(problems, "a key: "+err.Error())
				continue
			}
			value, err := scalar(entries.Value())
			switch {
			case err != nil:
				problems = append(problems, fmt.Sprintf("%.40s: %v", key, err))
			case strings.HasPrefix(key, keyPrefix):
				problems = append(problems, fmt.Sprintf("%.40s: write %.40s, the prefix belongs to the kernel's command line", key, key[len(keyPrefix):]))
			case seen[key]:
				problems = append(problems, fmt.Sprintf("%.40s: given twice", key))
			default:
				seen[key] = true
				pairs = append(pairs, pair{key, value})
			}
		}
	}
	return pairs, problems
}

var errPlain = errors.New("want a plain value")

// scalar returns the text of a plain value.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", errPlain
}

// firstLine keeps the cause of a parser's error and leaves out the excerpt of
// the file, which may hold a password.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
