package iio

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// tree reads a tree of testdata.
func tree(t testing.TB, name string) fstest.MapFS {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	sys := fstest.MapFS{}
	var file *fstest.MapFile
	for line := range bytes.Lines(data) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "-- "); ok {
			file = &fstest.MapFile{}
			sys[path.Join(root, strings.TrimSuffix(name, " --"))] = file
			continue
		}
		file.Data = append(file.Data, line...)
	}
	return sys
}

// show is what is wanted of a sensor.
func show(s Sensor) string {
	if s.Problem != "" {
		return s.Name + " " + s.Unit + " ?"
	}
	return fmt.Sprintf("%s %.3f %s", s.Name, s.Value, s.Unit)
}

func TestRead(t *testing.T) {
	for file, want := range map[string]string{
		"zynqmp-ams.txt":    "Temp_LPD 50.981 C, voltage12 0.500 V, voltage13 0.500 V, VCC_PSINTLP 0.850 V",
		"versal-sysmon.txt": "temp160 41.250 C, vccint 0.798 V",
		"malformed.txt":     "temp0 C ?, temp1 C ?, temp2 C ?, temp3 C ?, voltage0 V ?, voltage1 V ?, voltage2 V ?, voltage3 1.000 V",
	} {
		list, err := Read(tree(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var got []string
		for _, s := range list {
			got = append(got, show(s))
			if (s.Problem != "") != (s.Value == 0) {
				t.Errorf("%s: %+v", file, s)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s:\n got %s\nwant %s", file, text, want)
		}
	}
}

func TestNoDevices(t *testing.T) {
	if s, err := Read(fstest.MapFS{}); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// failing is a tree in which one file cannot be read.
type failing struct {
	fs.FS
	name string
}

func (f failing) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Open(name)
}

// A channel that cannot be read is marked and hides no other; a device that is gone
// in between is passed over.
func TestReadFails(t *testing.T) {
	sys := tree(t, "zynqmp-ams.txt")
	for _, c := range []struct {
		name    string
		sensors int
		failed  int
	}{
		{"in_temp7_raw", 4, 1}, {"in_voltage9_scale", 4, 1}, {"in_temp7_label", 4, 0}, {"name", 0, 0},
	} {
		list, err := Read(failing{sys, path.Join(root, "iio:device0", c.name)})
		failed := 0
		for _, s := range list {
			if s.Problem != "" {
				failed++
			}
		}
		if err != nil || len(list) != c.sensors || failed != c.failed {
			t.Errorf("%s: %+v, %v", c.name, list, err)
		}
	}
	if _, err := Read(failing{sys, root}); err == nil {
		t.Error("a folder that cannot be read is no error")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("in_temp7_raw", "42618", "7.7", "-36058")
	f.Add("in_voltage_input", "1e308", "", "x")
	f.Fuzz(func(t *testing.T, name, raw, scale, offset string) {
		if !fs.ValidPath(name) || strings.Contains(name, "/") {
			return
		}
		channel, _ := strings.CutSuffix(name, "_raw")
		sys := fstest.MapFS{root + "/d/name": {Data: []byte("ams")}}
		for n, text := range map[string]string{name: raw, channel + "_scale": scale, channel + "_offset": offset} {
			sys[root+"/d/"+n] = &fstest.MapFile{Data: []byte(text)}
		}
		list, err := Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || s.Unit != "C" && s.Unit != "V" {
				t.Fatalf("%+v", s)
			}
		}
	})
}
