package boot

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		text string
		want []pair
	}{
		{"", nil},
		{"console=ttyPS0 quiet\n", nil},
		{"rocelink.name=a", []pair{{"name", "a"}}},
		{"x rocelink.shell y", []pair{{"shell", ""}}},
		{`rocelink.name="two words" rocelink.ip=dhcp`, []pair{{"name", "two words"}, {"ip", "dhcp"}}},
		{`"rocelink.name=two words"`, []pair{{"name", "two words"}}},
		{"rocelink.log_level=info", []pair{{"log-level", "info"}}},
		{"rocelink.name=a=b", []pair{{"name", "a=b"}}},
		{"rocelink.name=a rocelink.name=b", []pair{{"name", "a"}, {"name", "b"}}},
		{"rocelink.name=a -- rocelink.name=b", []pair{{"name", "a"}}},
		{`rocelink.name="open`, []pair{{"name", "open"}}},
		{"rocelink=1 rocelink.=2 xrocelink.name=3", []pair{{"", "2"}}},
	} {
		if got := commandLine(c.text); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func FuzzCommandLine(f *testing.F) {
	f.Add(goodLine)
	f.Add(`rocelink.name="a b" -- x`)
	f.Add("\"\x00 rocelink.mtu=\xff\"")
	f.Fuzz(func(t *testing.T, text string) {
		s := defaults()
		before := s
		problems := s.apply(source{name: "kernel command line", pairs: commandLine(text)})
		checkSettings(t, before, s, problems)
	})
}

func FuzzConfigFile(f *testing.F) {
	for _, s := range []string{
		"nats: nats://10.0.0.1:4222\nname: 007\nmtu: 4096\nshell: true\n", "", "---\n", "a: &x [*x]", "? [a]\n: b", "nats: |\n  x\n",
		"{name: a, name: b}", "- a", "name: !!binary aa==", "\xff\xfe", "name: a\n---\nname: b", "<<: {name: x}", "ip: 10.0.0.2/24,10.0.0.1 # card",
		"rocelink.name: x", strings.Repeat("[", 200), "name: \"\\u0000\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pairs, problems := configFile(data)
		s := defaults()
		problems = append(problems, s.apply(source{name: "card", pairs: pairs})...)
		checkSettings(t, defaults(), s, problems)
	})
}

// checkSettings: whatever was read, the settings are ones boardd and the kernel
// take.
func checkSettings(t *testing.T, before, s settings, problems []string) {
	t.Helper()
	s.check()
	if s.name != before.name && (len(s.name) == 0 || len(s.name) > maxName || strings.ContainsRune(s.name, 0)) {
		t.Fatalf("name %q", s.name)
	}
	if h := hostname(s.name); len(h) == 0 || len(h) > 63 || strings.HasPrefix(h, "-") || strings.HasSuffix(h, "-") || strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		t.Fatalf("host name %q of %q", h, s.name)
	}
	if s.address != "" {
		if a, err := netip.ParseAddr(s.address); err != nil || a.IsMulticast() || a.IsUnspecified() {
			t.Fatalf("address %q", s.address)
		}
	}
	kinds := 0
	for _, on := range []bool{s.ip.dhcp, s.ip.none, s.ip.prefix.IsValid()} {
		if on {
			kinds++
		}
	}
	if kinds != 1 {
		t.Fatalf("ip %+v", s.ip)
	}
	for _, v := range []string{s.registers, s.nats, s.mac, s.fec, s.mtu, s.class, s.logLevel, s.files.creds, s.files.ca} {
		if strings.ContainsRune(v, 0) || strings.HasPrefix(v, "-") && v == s.mtu {
			t.Fatalf("value %q", v)
		}
	}
	if s.watchdog != 0 && (s.watchdog < minWatchdog || s.watchdog > maxWatchdog) || s.card > maxCard {
		t.Fatalf("%+v", s)
	}
	for _, p := range problems {
		if p == "" {
			t.Fatal("a problem without words")
		}
		if !utf8.ValidString(printable(p)) {
			t.Fatalf("problem %q", p)
		}
	}
}

// The kernel's command line wins over the card, the card over the image, the
// image over the board description.
func TestPrecedence(t *testing.T) {
	withIP := goodBoard + "boot: {console: 'ttyAMA0,115200', ip: 10.1.0.1/24, load: {image: 0x20000000, kernel: 0x200000, devicetree: 0xf000000, ramdisk: 0x10000000}}\n"
	fixed := strings.Replace(withIP, "address: {source: flag}", "address: {source: fixed, value: 10.1.1.1}", 1)
	for n := range 16 {
		m := newMachine(t)
		m.file(boardFile, fixed)
		want := "1"
		line := "rocelink.nats=none rocelink.card=1s"
		if n&1 != 0 {
			m.file(imageFile, "address: 10.1.1.2\nip: 10.1.0.2/24")
			want = "2"
		}
		m.card = map[string]string{}
		if n&2 != 0 {
			m.card[cardFile] = "address: 10.1.1.3\nip: 10.1.0.3/24"
			want = "3"
		}
		if n&4 != 0 {
			line += " rocelink.address=10.1.1.4 rocelink.ip=10.1.0.4/24"
			want = "4"
		}
		if n&8 != 0 {
			// A wrong value leaves the one before in force.
			line += " rocelink.address=ten rocelink.ip=ten"
		}
		m.file("/proc/cmdline", line)
		m.boot(func() {
			if got := m.flag("--address"); got != "10.1.1."+want {
				t.Errorf("case %d: address %s, want 10.1.1.%s; %s", n, got, want, m.told())
			}
			if m.count("address 2 10.1.0."+want+"/24") != 1 {
				t.Errorf("case %d: %q", n, m.log())
			}
			if p := m.told(); (p != "") != (n&8 != 0) {
				t.Errorf("case %d: problem %q", n, p)
			}
		})
	}
}

func TestValues(t *testing.T) {
	good := map[string][]string{
		"nats":          {"none", "nats://h", "h:4222", "nats://a,tls://b:1", "nats://u:p@h"},
		"name":          {"a", "two words", strings.Repeat("x", 64), "β"},
		"address":       {"10.0.0.1", "fd00::1", "::ffff:10.0.0.1"},
		"registers":     {"/dev/shm/x"},
		"ip":            {"dhcp", "none", "10.0.0.2/24", "10.0.0.2/24,10.0.0.1", "fd00::2/64,fe80::1", "10.0.0.2/32"},
		"interface":     {"eth0", "end1"},
		"dns":           {"10.0.0.1", "10.0.0.1, fd00::1"},
		"ntp":           {"none", "pool.example", "10.0.0.1,h"},
		"slot":          {"a", "b", "b,trial"},
		"shell":         {"1", "0", "true", "false", ""},
		"card":          {"none", "0s", "5s"},
		"watchdog":      {"none", "3s", "10m"},
		"creds":         {"a.creds", "/etc/x.creds"},
		"nkey":          {"a"},
		"tls-ca":        {"ca.pem"},
		"tls-cert":      {"c"},
		"tls-key":       {"k"},
		"mac":           {"02:00:00:00:00:01"},
		"fec":           {"none", "off", "rs"},
		"mtu":           {"256", "4096"},
		"traffic-class": {"0", "255", "0x68"},
		"log-level":     {"debug", "error"},
	}
	bad := map[string][]string{
		"nats":          {"", "://", "nats://", "nats://a,", "nats://u:p@"},
		"name":          {"", strings.Repeat("x", 65), "a\nb", "a\x00b", "\xff"},
		"address":       {"", "ten", "0.0.0.0", "224.0.0.1", "fe80::1%eth0", "10.0.0.1/24"},
		"registers":     {"", "relative"},
		"ip":            {"", "10.0.0.2", "10.0.0.2/33", "10.0.0.2/24,", "10.0.0.2/24,10.0.1.1", "10.0.0.2/24,10.0.0.2", "10.0.0.2/24,fe80::1", "0.0.0.0/0", "DHCP"},
		"interface":     {"", "a/b", "..", "abcdefghijklmnop", "a b"},
		"dns":           {"", "host", "10.0.0.1,"},
		"ntp":           {"", "a,,b", "a b"},
		"slot":          {"", "c", "a,", "a,b", "a,trial,"},
		"shell":         {"yes please"},
		"card":          {"", "-1s", "1h", "5"},
		"watchdog":      {"", "1s", "1h", "15"},
		"creds":         {"", "..", "../x", "a/b"},
		"nkey":          {""},
		"tls-ca":        {""},
		"tls-cert":      {""},
		"tls-key":       {""},
		"mac":           {"", "01:00:00:00:00:00", "x"},
		"fec":           {"", "RS"},
		"mtu":           {"", "1500", "-1"},
		"traffic-class": {"", "256", "-1"},
		"log-level":     {"", "loud"},
	}
	for _, key := range keyNames() {
		if len(good[key]) == 0 || len(bad[key]) == 0 {
			t.Errorf("no case for %s", key)
		}
		for _, v := range good[key] {
			s := defaults()
			if p := s.apply(source{name: "x", pairs: []pair{{key, v}}}); len(p) != 0 {
				t.Errorf("%s=%q: %q", key, v, p)
			}
		}
		for _, v := range bad[key] {
			s := defaults()
			p := s.apply(source{name: "x", pairs: []pair{{key, v}}})
			if len(p) != 1 || !strings.Contains(p[0], "x: "+key+": ") {
				t.Errorf("%s=%q: %q", key, v, p)
			}
			if !reflect.DeepEqual(s, defaults()) {
				t.Errorf("%s=%q changed the settings", key, v)
			}
		}
	}
}

func TestHostname(t *testing.T) {
	for name, want := range map[string]string{
		"board7": "board7", "Board 7": "board-7", "--": defaultName, "": defaultName, "β": defaultName, "a__b": "a-b",
		strings.Repeat("x", 64): strings.Repeat("x", 63),
	} {
		if got := hostname(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestConfigFile(t *testing.T) {
	for _, c := range []struct {
		text     string
		want     string
		problems string // one word each
	}{
		{"", "[]", ""},
		{"# nothing\n", "[]", ""},
		{"name: 007\nmtu: 4096\nshell: true\n", "[{name 007} {mtu 4096} {shell true}]", ""},
		{"name: 'a: b' # c\n", "[{name a: b}]", ""},
		{"name:\n", "[]", "plain"},
		{"name: [a]\nmtu: 256\n", "[{mtu 256}]", "plain"},
		{"rocelink.name: a\n", "[]", "prefix"},
		{"- a\n", "[]", "mapping"},
		{"a", "[]", "mapping"},
		{"name: a\n---\nname: b\n", "[]", "mapping"},
		{"name: [", "[]", "YAML"},
		{"name: a\nname: b\n", "[]", "YAML"},
		{"\xff\xfe", "[]", "mapping"},
	} {
		pairs, problems := configFile([]byte(c.text))
		if got := fmt.Sprint(pairs); got != c.want || (len(problems) > 0) != (c.problems != "") || !strings.Contains(strings.Join(problems, " "), c.problems) {
			t.Errorf("%q: %s, problems %q; want %s, %q", c.text, got, problems, c.want, c.problems)
		}
	}
}
