package main

import (
	"encoding/json"
	"strings"
	"testing"

	"rocelink/bsp/bitstream/bitstreamtest"
)

func TestBitstream(t *testing.T) {
	data := bitstreamtest.Config{IDCode: 0x147FB093}.Data(false)
	name := file(t, bitstreamtest.Bit("rocelink;UserID=0XFFFFFFFF;Version=2023.2", "xczu48dr-ffvg1517-2-e", data))
	out, code, err := run(t.Context(), "bitstream", "--json", name)
	if code != 0 {
		t.Fatal(code, err)
	}
	var i map[string]any
	if err := json.Unmarshal([]byte(out), &i); err != nil {
		t.Fatal(err)
	}
	if i["format"] != "bit" || i["part"] != "xczu48dr-ffvg1517-2-e" || i["device"] != "xczu48dr" || i["idcode"] != "0x147FB093" {
		t.Errorf("%s", out)
	}
	if out, code, _ := run(t.Context(), "bitstream", name); code != 0 || !strings.Contains(out, "2024-02-29 12:34:56") {
		t.Errorf("code %d\n%s", code, out)
	}
	for _, c := range []struct{ arg, want string }{
		{file(t, []byte("text")), "no sync word"}, {"no/such/file", "no such file"}, {t.TempDir(), "directory"},
	} {
		out, code, err := run(t.Context(), "bitstream", c.arg)
		if code != exitNoBitstream || out != "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: code %d, %v\n%s", c.arg, code, err, out)
		}
	}
}
