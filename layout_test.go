package rocelink_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// parsed is every Go file of the module by its folder.
func parsed(t *testing.T, mode parser.Mode) map[string][]*ast.File {
	t.Helper()
	files := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "build") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, mode)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(name, "_test.go") {
			dir := filepath.ToSlash(filepath.Dir(name))
			files[dir] = append(files[dir], f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for dir, files := range parsed(t, parser.PackageClauseOnly|parser.ParseComments) {
		documented := false
		for _, f := range files {
			documented = documented || f.Doc != nil && len(strings.TrimSpace(f.Doc.Text())) > 20
			switch f.Name.Name {
			case "util", "utils", "common", "helpers", "misc":
				t.Errorf("%s: a package named %s says nothing of what it holds", dir, f.Name.Name)
			}
		}
		if !documented {
			t.Errorf("%s: no package comment", dir)
		}
	}
}

// The rooms of the design and who may call whom. The key is a folder, the
// values are the folders of the module it may import besides itself.
var mayImport = map[string][]string{
	".":        {},
	"fpga":     {},
	"bsp":      {"fpga/regs"},        // drivers of I2C and GPIO blocks in the fabric
	"boards":   {"bsp", "fpga/roce"}, // the MAC type
	"firmware": {".", "bsp", "boards", "fpga/regs", "fpga/roce"},
	"agent":    {".", "fpga/roce", "fpga/pattern"},
	"images":   {"boards"},
	// rocectl is wiring and may use the pure tables of either side.
	"agent/cmd/rocectl": {".", "agent", "fpga/roce", "fpga/regs", "boards", "bsp/bitstream", "firmware/optics/sff"},
}

func TestImportsFollowTheLayout(t *testing.T) {
	for dir, files := range parsed(t, parser.ImportsOnly) {
		room := dir
		for mayImport[room] == nil && room != "." {
			room = path.Dir(room)
		}
		if room == "." && dir != "." {
			t.Errorf("%s: belongs to no room of the design", dir)
			continue
		}
		for _, f := range files {
			for _, im := range f.Imports {
				target := strings.Trim(im.Path.Value, `"`)
				if target != "rocelink" && !strings.HasPrefix(target, "rocelink/") {
					continue
				}
				target = strings.TrimPrefix(strings.TrimPrefix(target, "rocelink"), "/")
				if target == "" {
					target = "."
				}
				if !allowed(room, target) {
					t.Errorf("%s imports %s: %s may import %v", dir, target, room, mayImport[room])
				}
			}
		}
	}
}

func allowed(room, target string) bool {
	within := func(folder string) bool {
		return target == folder || folder != "." && strings.HasPrefix(target, folder+"/")
	}
	if within(room) {
		return true
	}
	for _, f := range mayImport[room] {
		if within(f) {
			return true
		}
	}
	return false
}
