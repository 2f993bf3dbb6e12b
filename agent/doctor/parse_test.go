package doctor

import (
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseGID(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"0000:0000:0000:0000:0000:ffff:c000:020a", "192.0.2.10"},
		{"fe80:0000:0000:0000:0000:5eff:fe00:5301", "fe80::5eff:fe00:5301"},
		{"0000:0000:0000:0000:0000:0000:0000:0000", "::"},
		{"", ""},
		{"192.0.2.10", ""},
		{"fe80::1", ""},
		{"fe80:0000:0000:0000:0000:5eff:fe00:530g", ""},
		{"fe80:0000:0000:0000:0000:5eff:fe00:%eth", ""},
		{"0000:0000:0000:0000:0000:ffff:c000:020a:", ""},
		{"0000:0000:0000:0000:0000:::::c000:020a0", ""},
	} {
		got, err := parseGID(tc.in)
		if tc.want == "" {
			if err == nil {
				t.Errorf("%q is %v", tc.in, got)
			}
		} else if err != nil || got != netip.MustParseAddr(tc.want) {
			t.Errorf("%q: %v, %v", tc.in, got, err)
		}
	}
}

func TestParseNumbers(t *testing.T) {
	if n, s, ok := parseNumbered("4: ACTIVE"); n != 4 || s != "ACTIVE" || !ok {
		t.Error(n, s, ok)
	}
	for _, s := range []string{"", "ACTIVE", ": ACTIVE", "x: y", "99999999999999999999: y"} {
		if _, _, ok := parseNumbered(s); ok {
			t.Errorf("%q is a state", s)
		}
	}
	for s, want := range map[string]float64{
		"100 Gb/sec (4X EDR)": 100, "2.5 Gb/sec (1X SDR)": 2.5, "400 Gb/sec": 400,
		"": 0, "NaN Gb/sec": 0, "+Inf Gb/sec": 0, "-1 Gb/sec": 0, "100 Mb/sec": 0, "100": 0,
	} {
		if got := parseRate(s); got != want {
			t.Errorf("rate %q: %v", s, got)
		}
	}
	for s, want := range map[string]float64{"16.0 GT/s PCIe": 16, "8 GT/s": 8, "Unknown": 0, "Unknown speed": 0, "NaN GT/s": 0} {
		if got := parseLinkSpeed(s); got != want {
			t.Errorf("link speed %q: %v", s, got)
		}
	}
	for gtps, want := range map[float64]float64{5: 4, 8: 7.877, 16: 15.754} {
		if got := laneGbps(gtps); math.Abs(got-want) > 0.001 {
			t.Errorf("a lane of %v GT/s: %v", gtps, got)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for s, want := range map[string][2]int{"0": {1, 0}, "0-3": {4, 0}, "16-31,48-63": {32, 16}, "8, 2-3": {3, 2}} {
		if n, first, err := parseCPUList(s); n != want[0] || first != want[1] || err != nil {
			t.Errorf("%q: %d from %d, %v", s, n, first, err)
		}
	}
	for _, s := range []string{"", ",", "-", "3-1", "0-99999999", "a", "1-2-3", "-1"} {
		if n, _, err := parseCPUList(s); err == nil {
			t.Errorf("%q is %d CPUs", s, n)
		}
	}
}

func TestParseProc(t *testing.T) {
	if got := parseModules("b 1 0\nno-space\n\n a\nab 2 - Live\n"); !slices.Equal(got, []string{"ab", "b"}) {
		t.Error(got)
	}
	for s, want := range map[string]bool{"CapEff:\t0000000000004000\n": true, "CapEff:\t0000000000000000": false, "CapEff: x": false, "": false, "CapPrm:\t0000000000004000": false} {
		if parseCapability(s, capIPCLock) != want {
			t.Errorf("%q", s)
		}
	}
	if p, ok := parseHugePages("HugePages_Total: 5\nHugePages_Free: 4\nHugepagesize: 2048 kB"); !ok || p != (hugePool{5, 4, 2 << 20}) {
		t.Error(p, ok)
	}
	for _, s := range []string{"", "HugePages_Total: 5\nHugePages_Free: 4\nHugepagesize: 2048", "HugePages_Total: 5\nHugePages_Free: 4\nHugepagesize: 0 kB", "HugePages_Total: -1\nHugePages_Free: 4\nHugepagesize: 4 kB"} {
		if _, ok := parseHugePages(s); ok {
			t.Errorf("%q", s)
		}
	}
}

func TestClean(t *testing.T) {
	long := clean(string(make([]byte, 10000)))
	if len(long) > maxShown+3 {
		t.Error(len(long))
	}
	if got := clean("a\x1b[31m\xff\n"); got != "a?[31m??" {
		t.Errorf("%q", got)
	}
}

// FuzzParse gives every parser the same text and checks what they promise.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"0000:0000:0000:0000:0000:ffff:c000:020a", "4: ACTIVE", "100 Gb/sec (4X EDR)", "16.0 GT/s PCIe", "0-3,8,10-11",
		"mlx5_ib 434176 0 - Live 0x0\n", "CapEff:\t0000000000004000\n", "HugePages_Total: 5\nHugePages_Free: 4\nHugepagesize: 2048 kB",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := parseGID(s); err == nil && (!a.IsValid() || a.Zone() != "" || a.Is4In6()) {
			t.Errorf("GID %q: %v", s, a)
		}
		parseNumbered(s)
		for _, v := range []float64{parseRate(s), parseLinkSpeed(s)} {
			if math.IsNaN(v) || v < 0 || v > 1e6 {
				t.Errorf("speed %q: %v", s, v)
			}
		}
		if n, first, err := parseCPUList(s); err == nil && (n < 1 || first < 0 || first >= maxCPU) {
			t.Errorf("CPU list %q: %d from %d", s, n, first)
		}
		if !slices.IsSorted(parseModules(s)) {
			t.Errorf("modules %q are not sorted", s)
		}
		parseCapability(s, capIPCLock)
		if p, ok := parseHugePages(s); ok && (p.pageBytes == 0 || p.total >= 1<<40) {
			t.Errorf("huge pages %q: %+v", s, p)
		}
		for _, r := range clean(s) {
			if r < ' ' || r == '\uFFFD' {
				t.Errorf("%q is not clean", clean(s))
			}
		}
	})
}

// FuzzTree puts the same text in every file of a device.
func FuzzTree(f *testing.F) {
	f.Add([]byte("4: ACTIVE\n"), []byte("0000:0000:0000:0000:0000:ffff:c633:6407\n"), []byte("eth0\n"))
	f.Add([]byte("Ethernet"), []byte{0xFF, 0}, []byte("../../x"))
	tree := rxe()
	root := lay(f, tree)
	f.Fuzz(func(t *testing.T, attribute, gid, netdev []byte) {
		for name, was := range tree {
			content := attribute
			switch {
			case was == "" || strings.HasPrefix(was, "-> "):
				continue
			case strings.HasSuffix(name, "/gids/1"):
				content = gid
			case strings.HasSuffix(name, "/ndevs/1"), strings.HasSuffix(name, "/parent"):
				content = netdev
			case strings.HasSuffix(name, "/types/1"), strings.HasSuffix(name, "/ibdev"):
				continue
			}
			if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		examine(t, Config{Root: root}, nil)
	})
}
