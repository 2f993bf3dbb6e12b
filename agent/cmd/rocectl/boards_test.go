package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"rocelink/boards"
)

func TestBoardsCheck(t *testing.T) {
	check := func(text string) (boardCheck, error) {
		c := boardsCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetArgs([]string{"check", "--json", file(t, []byte(text))})
		err := c.Execute()
		var r []boardCheck
		if e := json.Unmarshal(out.Bytes(), &r); e != nil || len(r) != 1 {
			t.Fatalf("%v in %s", e, out.String())
		}
		return r[0], err
	}
	if r, err := check("base: vck190\n"); err != nil || !r.OK || len(r.Unknown) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := check("base: vck190\nmac:\n  fec: maybe\n")
	var e exitError
	if !errors.As(err, &e) || e.code != exitUnhealthy || r.OK || r.Line != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The command is reached through rocectl itself.
func runBoards(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := command()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(append([]string{"boards"}, args...))
	err := c.Execute()
	return out.String(), err
}

func TestBoardsList(t *testing.T) {
	text, err := runBoards(t, "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range boards.Names() {
		if !strings.Contains(text, name+" ") {
			t.Errorf("%s is not in:\n%s", name, text)
		}
	}
	text, err = runBoards(t, "list", "--json")
	var list []boardLine
	if e := json.Unmarshal([]byte(text), &list); err != nil || e != nil || len(list) != len(boards.Names()) {
		t.Fatalf("%v, %v: %s", err, e, text)
	}
	for _, l := range list {
		b, err := boards.Load(l.Name)
		if err != nil || l.Model != b.Model || len(l.Unknown) != len(b.Unset()) || l.Image != (b.Boot != nil) {
			t.Errorf("%+v, %v", l, err)
		}
	}
}

func TestBoardsShow(t *testing.T) {
	for _, name := range boards.Names() {
		text, err := runBoards(t, "show", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := boards.Parse([]byte(text)); err != nil {
			t.Errorf("%s: what is shown cannot be read: %v", name, err)
		}
	}
	if _, err := runBoards(t, "show", "nothing"); !errors.Is(err, boards.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if text, err := runBoards(t, "show", "--template"); err != nil || text != string(boards.Template()) {
		t.Errorf("%v: %s", err, text)
	}
	for _, args := range [][]string{{"show"}, {"show", "demo", "--template"}, {"show", "demo", "zcu111"}} {
		if _, err := runBoards(t, args...); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestBoardsCheckText(t *testing.T) {
	good, bad := file(t, []byte("base: vck190\n")), file(t, []byte("base: vck190\nmac:\n  fec: maybe\n"))
	text, err := runBoards(t, "check", good, bad)
	var e exitError
	if !errors.As(err, &e) || e.code != exitUnhealthy {
		t.Errorf("%v", err)
	}
	for _, want := range []string{good + ": valid\n", good + ": must be set: ", bad + ":3: "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
