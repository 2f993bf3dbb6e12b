package rocelink

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

//go:generate go test -run ^TestContractPage$ . -update

var update = flag.Bool("update", false, "write CONTRACT.md")

// TestContractPage keeps CONTRACT.md, the schema page, equal to what the
// package's own declarations and comments say.
func TestContractPage(t *testing.T) {
	want := contractPage(t)
	if *update {
		if err := os.WriteFile("CONTRACT.md", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile("CONTRACT.md")
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("CONTRACT.md does not say what the package says (%v): run make generate", err)
	}
}

// records in the order of the page: what is published, what is asked, what
// both hold.
var records = []string{
	"BoardStatus", "Fabric", "Link", "Module", "ModuleLane", "Clock", "Sensor", "Image", "StreamStatus", "HostStatus", "Device", "HostStream", "Window", "Totals", "Event",
	"OpenRequest", "Region", "Source", "OpenReply", "SessionRequest", "ResetRequest", "RegisterRequest", "RegisterReply",
	"ModuleRequest", "ModuleReply", "PowerRequest", "PowerReply", "UpdateRequest", "UpdateStep", "UpdateReply",
}

func contractPage(t *testing.T) []byte {
	fset := token.NewFileSet()
	structs := map[string]*ast.GenDecl{}
	consts := map[string]string{} // name → comment
	for _, name := range []string{"rocelink.go", "subject.go", "request.go", "status.go", "window.go"} {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					structs[s.Name.Name] = g
				case *ast.ValueSpec:
					consts[s.Names[0].Name] = oneLine(s.Comment.Text())
				}
			}
		}
	}
	var b bytes.Buffer
	b.WriteString("<!-- Generated from the package's own comments by `make generate`. DO NOT EDIT. -->\n" +
		"# The contract between board and host\n\n" +
		"Records are JSON objects over NATS. Each begins with `version`, at present " + strconv.Itoa(Version) + "; a reader refuses another version by name and ignores " +
		"fields it does not know. `Count` is a 64-bit counter as a decimal string. Names in subjects are encoded: letters, digits and `-` stay, any other byte " +
		"becomes `_` and two hexadecimal digits, the empty name is `_`.\n\n" +
		"## Subjects\n\n| subject | record |\n|---|---|\n")
	for _, row := range [][2]string{
		{BoardStatusSubject("BOARD"), "BoardStatus, each second and on every change"},
		{BoardEventSubject("BOARD"), "Event"},
		{HostStatusSubject("HOST"), "HostStatus, each second and on every change"},
		{HostEventSubject("HOST"), "Event"},
		{WindowSubject("HOST", "STREAM"), "Window, about each second while the stream is open"},
		{RequestSubject("BOARD", "ENDPOINT"), "requests to a board, a NATS micro service called `" + ServiceName + "`"},
	} {
		fmt.Fprintf(&b, "| `%s` | %s |\n", row[0], row[1])
	}
	fmt.Fprintf(&b, "\nWhere the server has JetStream, the last BoardStatus and HostStatus stand in the key-value bucket `%s` under `board.BOARD` and `host.HOST`.\n", StatusBucket)
	b.WriteString("\n## Endpoints of a board\n\n| endpoint | request → reply |\n|---|---|\n")
	for _, e := range []struct{ name, value string }{
		{"EndpointOpen", EndpointOpen}, {"EndpointStart", EndpointStart}, {"EndpointStop", EndpointStop}, {"EndpointRenew", EndpointRenew},
		{"EndpointClose", EndpointClose}, {"EndpointStatus", EndpointStatus}, {"EndpointReset", EndpointReset}, {"EndpointReadRegister", EndpointReadRegister},
		{"EndpointModule", EndpointModule}, {"EndpointWriteRegister", EndpointWriteRegister}, {"EndpointPower", EndpointPower},
		{"EndpointUpdateBegin", EndpointUpdateBegin}, {"EndpointUpdateWrite", EndpointUpdateWrite},
		{"EndpointUpdateFinish", EndpointUpdateFinish}, {"EndpointUpdateAbort", EndpointUpdateAbort},
	} {
		fmt.Fprintf(&b, "| `%s` | %s |\n", e.value, consts[e.name])
	}
	b.WriteString("\nA refusal carries one of these codes in the header `Nats-Service-Error-Code`, and a sentence in `Nats-Service-Error`:\n\n| code | meaning |\n|---|---|\n")
	for _, c := range []struct {
		name  string
		value Code
	}{
		{"CodeBadRequest", CodeBadRequest}, {"CodeUnknown", CodeUnknown}, {"CodeOldEpoch", CodeOldEpoch}, {"CodeNotReady", CodeNotReady}, {"CodeState", CodeState},
		{"CodeBusy", CodeBusy}, {"CodeNoFabric", CodeNoFabric}, {"CodeLinkDown", CodeLinkDown}, {"CodeUnsupported", CodeUnsupported}, {"CodeFailed", CodeFailed},
	} {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.value, consts[c.name])
	}
	b.WriteString("\n## Records\n")
	for _, name := range records {
		g := structs[name]
		if g == nil {
			t.Fatalf("no type %s", name)
		}
		spec := g.Specs[0].(*ast.TypeSpec)
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", name, oneLine(g.Doc.Text()))
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			tag, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			key, rest, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			var typ bytes.Buffer
			if err := printer.Fprint(&typ, fset, f.Type); err != nil {
				t.Fatal(err)
			}
			text := oneLine(f.Doc.Text() + " " + f.Comment.Text())
			if strings.Contains(rest, "omitempty") {
				text = strings.TrimSpace(text + " (may be absent)")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, strings.TrimPrefix(typ.String(), "*"), text)
		}
	}
	return b.Bytes()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
