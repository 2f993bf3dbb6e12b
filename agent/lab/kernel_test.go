package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestModinfo(t *testing.T) {
	for _, c := range []struct {
		info string
		want []string
	}{
		{"", nil},
		{"license=GPL\x00depends=\x00", nil},
		{"depends=ib_core,udp-tunnel\x00name=x\x00", []string{"ib_core", "udp_tunnel"}},
		{"softdep=pre: crc32 post: later\x00depends=a\x00", []string{"crc32", "a"}},
		{"softdep=post: later pre: b c\x00", []string{"b", "c"}},
		{"depends", nil},
	} {
		if got := parseModinfo([]byte(c.info)); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.info, got, c.want)
		}
	}
}

func TestLoadOrder(t *testing.T) {
	needs := map[string][]string{"rxe": {"core", "tunnel6", "tunnel"}, "tunnel6": {"tunnel"}, "tunnel": nil, "core": nil, "net": {"core"},
		"a": {"b"}, "b": {"a"}, "broken": {"nowhere"}}
	look := func(name string) ([]string, error) {
		n, ok := needs[name]
		if !ok {
			return nil, errors.New("no module " + name)
		}
		return n, nil
	}
	got, err := loadOrder([]string{"rxe", "net", "rxe"}, look)
	if want := []string{"core", "tunnel", "tunnel6", "rxe", "net"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	// A circle must not be gone round for ever.
	if got, err := loadOrder([]string{"a"}, look); err != nil || len(got) != 2 {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := loadOrder([]string{"broken"}, look); err == nil || err.Error() != "no module nowhere (for broken)" {
		t.Error(err)
	}
}

func TestOpenKernel(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenKernel(dir); !errors.Is(err, ErrNoKernel) {
		t.Error(err)
	}
	modules := filepath.Join(dir, "lib/modules/6.9-test/kernel/drivers")
	for _, d := range []string{filepath.Join(dir, "boot"), modules} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string) {
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "boot/vmlinuz-6.9-test"))
	if _, err := OpenKernel(dir); !errors.Is(err, ErrNoKernel) {
		t.Error(err)
	}
	write(filepath.Join(modules, "two-words.ko"))
	k, err := OpenKernel(dir)
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != "6.9-test" || k.modules["two_words"] == "" {
		t.Errorf("%+v", k)
	}
	if _, err := k.Modules("absent"); err == nil {
		t.Error("a module that is not there was found")
	}
	if _, err := k.Modules("two-words"); err == nil {
		t.Error("a file that is no module was taken")
	}
}
