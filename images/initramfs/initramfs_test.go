package initramfs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"
)

var when = time.Unix(1_700_000_000, 0)

type file struct{ name, data string }

func archive(t *testing.T, files ...file) *Archive {
	t.Helper()
	var a Archive
	for _, f := range files {
		if err := a.File(f.name, []byte(f.data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &a
}

// read unpacks what was written, by the library's reader.
func read(t *testing.T, c Compression, packed []byte) map[string]cpio.Record {
	t.Helper()
	var z io.Reader
	var err error
	if c == Gzip {
		z, err = gzip.NewReader(bytes.NewReader(packed))
	} else {
		z, err = zstd.NewReader(bytes.NewReader(packed))
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]cpio.Record{}
	for _, r := range records {
		if _, ok := out[r.Name]; ok {
			t.Errorf("%s is there twice", r.Name)
		}
		if dir, _, ok := strings.Cut(r.Name, "/"); ok {
			if _, ok := out[dir]; !ok {
				t.Errorf("%s comes before its folder", r.Name)
			}
		}
		out[r.Name] = r
	}
	return out
}

func TestReadBack(t *testing.T) {
	for _, c := range []Compression{Zstd, Gzip} {
		t.Run(string(c), func(t *testing.T) { readBack(t, c) })
	}
}

func readBack(t *testing.T, c Compression) {
	a := archive(t, file{"init", "one"}, file{"lib/modules/a.ko", "two"}, file{"etc/empty", ""})
	if err := a.Link("bin/sh", "../init"); err != nil {
		t.Fatal(err)
	}
	packed, err := a.Packed(c, when, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, c, packed)
	for name, want := range map[string]string{"init": "one", "lib/modules/a.ko": "two", "etc/empty": "", "bin/sh": "../init"} {
		data, err := io.ReadAll(io.NewSectionReader(got[name], 0, 100))
		if err != nil || string(data) != want {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
	}
	for _, r := range got {
		if r.MTime != uint64(when.Unix()) || r.UID != 0 || r.GID != 0 {
			t.Errorf("%s: time %d, owner %d:%d", r.Name, r.MTime, r.UID, r.GID)
		}
	}
	for name, want := range map[string]cpio.Info{
		"dev/console": {Mode: cpio.S_IFCHR | 0o600, Rmajor: 5, Rminor: 1},
		"dev/null":    {Mode: cpio.S_IFCHR | 0o666, Rmajor: 1, Rminor: 3},
		"init":        {Mode: cpio.S_IFREG | 0o755},
		"lib/modules": {Mode: cpio.S_IFDIR | 0o755},
		"bin/sh":      {Mode: cpio.S_IFLNK | 0o777},
	} {
		if r := got[name]; r.Mode != want.Mode || r.Rmajor != want.Rmajor || r.Rminor != want.Rminor {
			t.Errorf("%s: %v", name, r.Info)
		}
	}
}

func TestReproducible(t *testing.T) {
	files := []file{{"init", "one"}, {"lib/modules/a.ko", "two"}, {"lib-b", "three"}, {"etc/x/y", "four"}}
	one, err := archive(t, files...).Packed(Zstd, when, 0)
	if err != nil {
		t.Fatal(err)
	}
	files[0], files[3] = files[3], files[0]
	two, err := archive(t, files...).Packed(Zstd, when, 0)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("another order gives another archive, %v", err)
	}
	three, err := archive(t, files...).Packed(Zstd, when.Add(time.Second), 0)
	if err != nil || bytes.Equal(one, three) {
		t.Errorf("the time is not in the archive, %v", err)
	}
}

func TestRefused(t *testing.T) {
	link := func(name, target string) func(a *Archive) error {
		return func(a *Archive) error { return a.Link(name, target) }
	}
	for _, c := range []struct {
		name, text string
		is         error
		add        func(a *Archive) error
	}{
		{"circle of one", "bin/x", ErrLink, link("bin/x", "x")},
		{"circle of two", "circles", ErrLink, func(a *Archive) error {
			return errors.Join(a.Link("bin/x", "/bin/y"), a.Link("bin/y", "../bin/x"))
		}},
		{"circle of folders", "circles", ErrLink, func(a *Archive) error {
			return errors.Join(a.Link("p", "q/r"), a.Link("q", "p/s"))
		}},
		{"nowhere", "bin/none", ErrLink, link("bin/x", "none")},
		{"twice", "init", ErrConflict, func(a *Archive) error { return a.File("init", nil, 0o755) }},
		{"file as folder", "init", ErrConflict, func(a *Archive) error { return a.File("init/x", nil, 0o755) }},
		{"device", "dev/null", ErrConflict, func(a *Archive) error { return a.File("dev/null", nil, 0o755) }},
		{"absolute", "/init", nil, func(a *Archive) error { return a.File("/init", nil, 0o755) }},
		{"upwards", "../init", nil, func(a *Archive) error { return a.File("../init", nil, 0o755) }},
		{"too large", "init (9000)", ErrTooLarge, func(a *Archive) error { return nil }},
	} {
		a := archive(t, file{"init", strings.Repeat("init and", 1125)})
		err := c.add(a)
		if err == nil {
			_, err = a.Packed(Zstd, when, map[bool]int64{true: 20}[c.is == ErrTooLarge])
		}
		if err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want one with %q", c.name, err, c.text)
		}
	}
	var a Archive
	if err := a.File("init", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Packed(Zstd, when, 0); err == nil || !strings.Contains(err.Error(), "init") {
		t.Errorf("an init that is no program: %v", err)
	}
	if _, err := archive(t, file{"bin/x", ""}).Packed(Zstd, when, 0); !errors.Is(err, ErrLink) {
		t.Errorf("no init: %v", err)
	}
}
