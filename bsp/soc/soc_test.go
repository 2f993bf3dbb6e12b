package soc

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// zynqmp is a tree as a vendor kernel shows it, made by hand of what its drivers'
// sources name.
func zynqmp() fstest.MapFS {
	fuses := make([]byte, 0x100)
	for n := range dnaSize {
		fuses[dnaOffset+n] = byte(n + 1)
	}
	sys := fstest.MapFS{}
	for name, text := range map[string]string{
		devices + "/soc0/machine": "board\n", devices + "/soc0/family": "ZynqMP\n", devices + "/soc0/soc_id": "xczu48dr\n",
		devices + "/soc0/revision": "v1\n", devices + "/soc0/serial_number": "00a1\n",
		memories + "/zynqmp-nvmem0/nvmem": string(fuses), memories + "/mtd0/nvmem": "x",
		platform + "/fclk1/of_node/compatible": "xlnx,fclk\x00", platform + "/fclk1/set_rate": "249997498\n",
		platform + "/fclk0/of_node/compatible": "xlnx,fclk\x00", platform + "/fclk0/set_rate": "99999001\n",
		platform + "/fclk2/of_node/compatible": "xlnx,fclk\x00", // without the attribute
		platform + "/uart/of_node/compatible":  "xlnx,xuartps\x00cdns,uart\x00", platform + "/uart/set_rate": "1\n",
		platform + "/reg-dummy/uevent": "",
	} {
		sys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return sys
}

func TestRead(t *testing.T) {
	want := Info{
		Machine: "board", Family: "ZynqMP", ID: "xczu48dr", Revision: "v1", Serial: "00a1",
		DNA: "0c0b0a090807060504030201", Clocks: []Clock{{"fclk0", 99999001}, {"fclk1", 249997498}},
	}
	got, err := Read(zynqmp())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
	const line = "ZynqMP, id xczu48dr, revision v1, serial 00a1, DNA 0c0b0a090807060504030201, fclk0 99.999 MHz, fclk1 249.997 MHz"
	if s := got.String(); s != line {
		t.Errorf("%s", s)
	}
	// The same from files, which is how it is read on a board.
	dir := t.TempDir()
	if err := os.CopyFS(dir, zynqmp()); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(os.DirFS(dir)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("files: %v, %+v", err, got)
	}
	if got, err := Read(os.DirFS(filepath.Join(dir, "none"))); err != nil || got.String() != "" {
		t.Errorf("nothing there: %v, %+v", err, got)
	}
}

// What is wrong is told, and hides nothing else.
func TestOdd(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		change           func(*Info)
		want             string
	}{
		{"control characters", devices + "/soc0/serial_number", "a\x1bb", func(i *Info) { i.Serial = "" }, "serial_number"},
		{"long text", devices + "/soc0/revision", strings.Repeat("x", 4096), func(i *Info) { i.Revision = "" }, "revision"},
		{"no text", devices + "/soc0/serial_number", "\n", func(i *Info) { i.Serial = "" }, ""},
		{"short fuses", memories + "/zynqmp-nvmem0/nvmem", "1234567890123456", func(i *Info) { i.DNA = "" }, "device DNA"},
		{"fuses out of reach", memories + "/zynqmp-nvmem0/nvmem", strings.Repeat("\x00", 64), func(i *Info) { i.DNA = "" }, ""},
		{"rate", platform + "/fclk0/set_rate", "fast", func(i *Info) { i.Clocks = i.Clocks[1:] }, "want a rate"},
		{"negative rate", platform + "/fclk0/set_rate", "-1", func(i *Info) { i.Clocks = i.Clocks[1:] }, "want a rate"},
	} {
		want, _ := Read(zynqmp())
		c.change(&want)
		sys := zynqmp()
		sys[c.file] = &fstest.MapFile{Data: []byte(c.text)}
		got, err := Read(sys)
		if !reflect.DeepEqual(got, want) || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", c.name, err, got, want)
		}
	}
	denied := refusing{zynqmp(), path.Join(memories, "zynqmp-nvmem0", "nvmem")}
	if got, err := Read(denied); err == nil || got.Serial != "00a1" || len(got.Clocks) != 2 || got.DNA != "" {
		t.Errorf("fuses not allowed: %v, %+v", err, got)
	}
}

type refusing struct {
	fs.FS
	name string
}

func (r refusing) Open(name string) (fs.File, error) {
	if name == r.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return r.FS.Open(name)
}
