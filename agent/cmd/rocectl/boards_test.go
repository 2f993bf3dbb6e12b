package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
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
