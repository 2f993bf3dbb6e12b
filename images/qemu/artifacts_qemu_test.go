//go:build qemu && linux

package qemu_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rocelink/boards"
	"rocelink/boards/slot"
	"rocelink/images"
	"rocelink/images/sdcard"
)

// What is built for each board, as others see it: U-Boot's tool lists the FIT
// image, fsck.fat finds nothing, mtools reads every file as it was put there, and
// a second build in another folder gives the same bytes.
func TestBoardsArtifacts(t *testing.T) {
	for _, tool := range []string{"mkimage", "fsck.fat", "mtype"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: install u-boot-tools, dosfstools and mtools", err)
		}
	}
	for _, name := range boards.Names() {
		b, err := boards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if b.Boot == nil || b.Boot.Emulator == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			one, two := built(t, name), built(t, name)
			var manifest images.Result
			text, err := os.ReadFile(filepath.Join(one, images.ManifestFile))
			if err != nil || json.Unmarshal(text, &manifest) != nil || len(manifest.Files) < 3 {
				t.Fatalf("manifest: %v, %s", err, text)
			}
			for _, f := range manifest.Files {
				a, errA := os.ReadFile(filepath.Join(one, f.Name))
				b, errB := os.ReadFile(filepath.Join(two, f.Name))
				if errA != nil || errB != nil || !bytes.Equal(a, b) || int64(len(a)) != f.Bytes {
					t.Errorf("%s: two builds differ, or one is missing: %v, %v", f.Name, errA, errB)
				}
			}
			list, err := exec.Command("mkimage", "-l", filepath.Join(one, images.ImageFile(name))).CombinedOutput()
			if err != nil || !strings.Contains(string(list), "AArch64") || !strings.Contains(string(list), "sha256") {
				t.Errorf("mkimage -l: %v\n%s", err, list)
			}

			card := filepath.Join(one, images.CardFile)
			data, err := os.ReadFile(card)
			if err != nil {
				t.Fatal(err)
			}
			volume := filepath.Join(t.TempDir(), "volume.img")
			if err := os.WriteFile(volume, data[1<<20:], 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("fsck.fat", "-n", volume).CombinedOutput(); err != nil {
				t.Errorf("fsck.fat: %v\n%s", err, out)
			}
			files, err := sdcard.Read(card)
			if err != nil || len(files) == 0 {
				t.Fatal(err)
			}
			image, err := os.ReadFile(filepath.Join(one, images.ImageFile(name)))
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range files {
				if f.Name == slot.Image(slot.A) {
					found = bytes.Equal(f.Data, image)
				}
				got, err := exec.Command("mtype", "-i", volume, "::"+f.Name).Output()
				if err != nil || !bytes.Equal(got, f.Data) {
					t.Errorf("%s: mtools reads %d bytes of %d, %v", f.Name, len(got), len(f.Data), err)
				}
			}
			if !found {
				t.Error("the card does not hold the FIT image, or another one")
			}
		})
	}
}

func built(t *testing.T, name string) string {
	t.Helper()
	c := images.Config{Board: name, Out: t.TempDir(), Source: "../..", Cache: os.Getenv("ROCELINK_CACHE")}
	if c.Cache == "" {
		c.Cache = "../../build/cache"
	}
	if _, err := images.Build(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c.Out
}
