package iio

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	if s, err := Read(fstest.MapFS{}); s != nil || err != nil {
		t.Errorf("no devices: %v, %v", s, err)
	}
	// Names and factors as the kernel's xilinx-ams driver gives them.
	sys := fstest.MapFS{}
	for name, text := range map[string]string{
		"name": "ams\n", "in_temp7_raw": "47000\n", "in_temp7_scale": "7.771514892\n", "in_temp7_offset": "-36058\n",
		"in_temp7_label": "ps_temp\n", "in_voltage9_raw": "18000\n", "in_voltage9_scale": "0.045776367\n", "in_voltage10_raw": "x\n",
	} {
		sys[root+"/iio:device0/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	got, err := Read(sys)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, s := range got {
		switch s.Name {
		case "ps_temp":
			if s.Unit != "C" || math.Abs(s.Value-85.04) > 0.1 {
				t.Errorf("%+v", s)
			}
		case "voltage9":
			if s.Unit != "V" || math.Abs(s.Value-0.824) > 0.001 {
				t.Errorf("%+v", s)
			}
		case "voltage10":
			if !strings.Contains(s.Problem, "want a number") {
				t.Errorf("%+v", s)
			}
		default:
			t.Errorf("%+v", s)
		}
	}
}
