package sdcard

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var when = time.Unix(1_700_000_000, 0)

// noise is data that no mistake of a cluster leaves looking right.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func card() *Card {
	return &Card{Label: "ROCELINK", Time: when, Files: []File{
		{"board.itb", noise(5<<20 + 13)},
		{"extlinux/extlinux.conf", []byte("default rocelink\n")},
		{"boot.scr", noise(511)},
		{"a name that is longer than eight.text", noise(4096)},
		{"deep/er/file", noise(3)},
	}}
}

func TestCard(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "card.img")
	c := card()
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(c.Files) {
		t.Errorf("%d files, want %d", len(got), len(c.Files))
	}
	for _, f := range c.Files {
		found := false
		for _, g := range got {
			found = found || g.Name == f.Name && bytes.Equal(g.Data, f.Data)
		}
		if !found {
			t.Errorf("%s is not on the card as it was", f.Name)
		}
	}

	// Another order, another place, another time of day: the same bytes.
	again := filepath.Join(dir, "again.img")
	c.Files[0], c.Files[2] = c.Files[2], c.Files[0]
	if err := c.Write(again); err != nil {
		t.Fatal(err)
	}
	one, _ := os.ReadFile(path)
	two, _ := os.ReadFile(again)
	if len(one) != defaultSize || !bytes.Equal(one, two) {
		t.Errorf("images of %d and %d bytes differ", len(one), len(two))
	}
	if _, ok := os.LookupEnv("SOURCE_DATE_EPOCH"); ok {
		t.Error("the environment was changed for good")
	}
}

// What others say about the card.
func TestOthersRead(t *testing.T) {
	fsck, err := exec.LookPath("fsck.fat")
	mtype, err2 := exec.LookPath("mtype")
	if err := errors.Join(err, err2); err != nil {
		if os.Getenv("ROCELINK_REQUIRE_IMAGE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs dosfstools and mtools: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "card.img")
	c := card()
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, "part.img")
	if err := os.WriteFile(part, image[start:], 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(fsck, "-n", "-v", part).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("FATs, 32 bit entries")) {
		t.Errorf("fsck.fat: %v\n%s", err, out)
	}
	for _, f := range c.Files {
		got, err := exec.Command(mtype, "-i", part, "::"+f.Name).Output()
		if err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("%s: mtools reads %d bytes of %d, %v", f.Name, len(got), len(f.Data), err)
		}
	}
	// fsck must be able to fail, or it proves nothing: the length of a file.
	bad := bytes.Clone(image[start:])
	i := bytes.Index(bad, []byte("BOOT    SCR"))
	if i < 0 {
		t.Fatal("no entry BOOT.SCR")
	}
	bad[i+31] = 0x40
	if err := os.WriteFile(part, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(fsck, "-n", part).CombinedOutput(); err == nil {
		t.Errorf("fsck.fat accepts a damaged card:\n%s", out)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, text string
		is         error
		change     func(c *Card)
	}{
		{"too small for FAT32", "42991616", ErrTooSmall, func(c *Card) { c.Size = 4 << 20 }},
		{"too small for the files", "the files need", ErrTooSmall, func(c *Card) {
			c.Size, c.Files = 48<<20, []File{{"big", make([]byte, 47<<20)}}
		}},
		{"empty", "boot.scr is empty", nil, func(c *Card) { c.Files[2].Data = nil }},
		{"time", "1980", nil, func(c *Card) { c.Time = time.Unix(0, 0) }},
		{"label", "11", nil, func(c *Card) { c.Label = "twelve chars" }},
		{"name", "no name", nil, func(c *Card) { c.Files[0].Name = "../x" }},
		{"colon", "no name", nil, func(c *Card) { c.Files[0].Name = "a:b" }},
		{"capitals", "capitals", nil, func(c *Card) { c.Files[0].Name = "BOOT.scr" }},
	} {
		dir := t.TempDir()
		k := card()
		c.change(k)
		err := k.Write(filepath.Join(dir, "card.img"))
		if err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want one with %q", c.name, err, c.text)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v", c.name, left)
		}
	}
}

// The smallest card that is said to be enough is.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "card.img")
	c := &Card{Time: when}
	for i := range 44 {
		c.Files = append(c.Files, File{Name: "folder" + string(rune('a'+i%26)) + "/file-with-a-long-name-" + string(rune('A'+i/26)), Data: noise(1<<20 + i)})
	}
	c.Size = 1 << 20
	for ; ; c.Size += 1 << 20 {
		if _, err := c.size(); err == nil {
			break
		} else if !errors.Is(err, ErrTooSmall) {
			t.Fatal(err)
		}
	}
	if err := c.Write(path); err != nil {
		t.Fatalf("%d bytes: %v", c.Size, err)
	}
	got, err := Read(path)
	if err != nil || len(got) != len(c.Files) {
		t.Errorf("%d files, %v", len(got), err)
	}
}
