package vivado

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rocelink/boards"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// names are the boards that have a description here.
func names(t *testing.T) []string {
	t.Helper()
	files, _ := filepath.Glob("boards/*.tcl")
	if len(files) == 0 {
		t.Fatal("no boards")
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".tcl")
	}
	return files
}

// field is the value of a key in a board's description.
func field(t *testing.T, board, key string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ {4}` + key + ` +(.+)$`).FindStringSubmatch(read(t, "boards/"+board+".tcl"))
	if m == nil {
		t.Fatalf("%s has no %s", board, key)
	}
	return strings.Trim(m[1], "{}")
}

func number(t *testing.T, board, key string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(field(t, board, key), 0, 64)
	if err != nil {
		t.Fatalf("%s: %s: %v", board, key, err)
	}
	return v
}

// The script takes each file of the fabric once, and nothing that is not there.
func TestSources(t *testing.T) {
	listed := regexp.MustCompile(`fpga/[a-z_/]+\.s?v\b`).FindAllString(read(t, "project.tcl"), -1)
	var want []string
	for _, pattern := range []string{"fpga/rtl/*.sv", "fpga/rtl/shell/*.sv", "fpga/vivado/*.v"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, f := range files {
			want = append(want, strings.TrimPrefix(filepath.ToSlash(f), root+"/"))
		}
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the script lists\n%s\nthe folders have\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"))
	}
}

// The files that the script takes make the cell, and every port of every module
// in it is that of its instance.
func TestElaborates(t *testing.T) {
	iverilog, err := exec.LookPath("iverilog")
	if err != nil {
		t.Skip("iverilog is not installed")
	}
	arguments := []string{"-g2012", "-t", "null", "-Wall", "-Wno-timescale", "-s", "rl_board", "-I", root + "/fpga/rtl", "-I", root + "/fpga/regs"}
	for _, f := range regexp.MustCompile(`fpga/[a-z_/]+\.s?v\b`).FindAllString(read(t, "project.tcl"), -1) {
		read(t, filepath.Join(root, f)) // go test's cache depends on it
		arguments = append(arguments, filepath.Join(root, f))
	}
	out, err := exec.Command(iverilog, arguments...).CombinedOutput()
	if err != nil || regexp.MustCompile(`(?i)\bports?\b|dangling`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}

// What the bitstream decodes is what boardd opens.
func TestBoards(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			b, err := boards.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			aperture, ok := b.Aperture(b.RoCE.Aperture)
			if !ok || b.MAC.Aperture != b.RoCE.Aperture {
				t.Fatalf("apertures %q and %q of board.yaml: want one", b.RoCE.Aperture, b.MAC.Aperture)
			}
			base, roce, mac := number(t, name, "base"), number(t, name, "roce"), number(t, name, "mac")
			if got, want := [3]uint64{base, roce, mac}, [3]uint64{uint64(aperture.Base), uint64(b.RoCE.Offset), uint64(b.MAC.Offset)}; got != want {
				t.Errorf("addresses %#x, board.yaml says %#x", got, want)
			}
			// rl_axil looks at 17 bits and refuses an address with the highest.
			if (base+roce)&0x1ffff != 0 || (base+mac)&0xffff != 0 || roce == mac {
				t.Errorf("RoCE at %#x, MAC at %#x: the one wants 128 KiB alignment, the other 64 KiB", base+roce, base+mac)
			}
			if part := field(t, name, "part"); !strings.HasPrefix(part, b.Device) {
				t.Errorf("part %s, board.yaml says %s", part, b.Device)
			}
			var x, first, x2, last int
			if n, _ := fmt.Sscanf(field(t, name, "quad"), "X%dY%d~X%dY%d", &x, &first, &x2, &last); n != 4 || x != x2 || first%4 != 0 || last != first+3 {
				t.Errorf("quad %s is not four lanes of one column", field(t, name, "quad"))
			}
			if cmac := field(t, name, "cmac"); !regexp.MustCompile(`^CMACE4_X\d+Y\d+$`).MatchString(cmac) {
				t.Errorf("cmac %s", cmac)
			}
		})
	}
}

// run runs a copy of the script with Vivado's commands recorded.
func run(t *testing.T, arguments ...string) (record, dir string, err error) {
	t.Helper()
	tclsh, err := exec.LookPath("tclsh")
	if err != nil {
		if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatal("tclsh is missing and ROCELINK_REQUIRE_TOOLS is 1")
		}
		t.Skip("tclsh is not installed (Debian: tcl)")
	}
	dir = t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "fpga/vivado"), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	arguments = append([]string{"testdata/recorder.tcl", filepath.Join(dir, "fpga/vivado/project.tcl")}, arguments...)
	out, err := exec.Command(tclsh, arguments...).CombinedOutput()
	return string(out), dir, err
}

func TestScript(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			arguments := []string{name}
			p, n, known := strings.Cut(field(t, name, "refclk_pins"), " ")
			if !known {
				if out, _, err := run(t, name); err == nil || !strings.Contains(out, "REFCLK_P") {
					t.Errorf("went on without pins of the reference clock: %s", out)
				}
				p, n = "A1", "A2"
				arguments = append(arguments, p, n)
			}
			out, dir, err := run(t, arguments...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			base := number(t, name, "base")
			for _, want := range []string{
				"-part " + field(t, name, "part") + "\n",
				"CONFIG.CMAC_CORE_SELECT " + field(t, name, "cmac") + " ",
				"CONFIG.GT_GROUP_SELECT " + field(t, name, "quad") + " ",
				"CONFIG.GT_REF_CLK_FREQ " + field(t, name, "refclk_mhz") + " ",
				fmt.Sprintf("-offset 0x%X -range 64K roce/s_axil/reg0\n", base+number(t, name, "roce")),
				fmt.Sprintf("-offset 0x%X -range 64K mac/s_axi/Reg\n", base+number(t, name, "mac")),
				"connect_bd_net mac/gt_txusrclk2 roce/clk\n",
				"/rl_core.sv\n",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			xdc := read(t, filepath.Join(dir, "build/vivado", name, "pins.xdc"))
			for pin, port := range map[string]string{p: "gt_ref_clk_clk_p", n: "gt_ref_clk_clk_n"} {
				if want := fmt.Sprintf("set_property PACKAGE_PIN %s [get_ports %s]\n", pin, port); !strings.Contains(xdc, want) {
					t.Errorf("no %q in\n%s", want, xdc)
				}
			}
			// No pin is driven twice, and each line has a port of its own.
			seen := map[string]bool{}
			for _, m := range regexp.MustCompile(`connect_bd_net \S+ (\S+)\n`).FindAllStringSubmatch(out, -1) {
				if seen[m[1]] {
					t.Errorf("%s is connected twice", m[1])
				}
				seen[m[1]] = true
			}
			lines := strings.Fields(field(t, name, "lines"))
			for i := 0; i+2 < len(lines); i += 3 {
				if !seen[lines[i]] || !strings.Contains(xdc, "PACKAGE_PIN "+lines[i+1]+" ") {
					t.Errorf("line %s is not driven or not placed", lines[i])
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, arguments := range [][]string{{}, {"none"}, {"../x"}, {"rfsoc4x2", "A1"}, {"rfsoc4x2", "A1", "A2", "A3"}} {
		if out, dir, err := run(t, arguments...); err == nil {
			t.Errorf("%q: no error: %s", arguments, out)
		} else if _, err := os.Stat(filepath.Join(dir, "build")); err == nil {
			t.Errorf("%q: refused and made a project", arguments)
		}
	}
}
