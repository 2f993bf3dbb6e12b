//go:build qemu && linux

package qemu_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rocelink/images"
	"rocelink/images/qemu"
	"rocelink/images/sdcard"
)

// uboot is U-Boot for QEMU's machine virt, whose memory begins at 1 GiB.
const (
	uboot      = "/usr/lib/u-boot/qemu_arm64/u-boot.bin"
	virtMemory = 0x40000000
)

// U-Boot itself reads the images: it checks the hashes of every part, finds a
// changed one, reads the card's files and takes the boot script for one.
func TestBoardsByUBoot(t *testing.T) {
	if _, err := os.Stat(uboot); err != nil {
		t.Fatalf("%v: install u-boot-qemu", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cache := os.Getenv("ROCELINK_CACHE")
	if cache == "" {
		cache = "../../build/cache"
	}
	out := t.TempDir()
	const board = "qemu-versal"
	if _, err := images.Build(ctx, images.Config{Board: board, Out: out, Cache: cache, Source: "../.."}); err != nil {
		t.Fatal(err)
	}
	name := images.ImageFile(board)
	image, err := os.ReadFile(filepath.Join(out, name))
	if err != nil {
		t.Fatal(err)
	}
	// A damaged copy: the middle of the largest part, the kernel.
	image[len(image)/2] ^= 1
	bad := filepath.Join(out, "bad.itb")
	if err := os.WriteFile(bad, image, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := sdcard.Read(filepath.Join(out, images.CardFile))
	if err != nil {
		t.Fatal(err)
	}
	var script []byte
	for _, f := range files {
		if f.Name == "boot.scr" {
			script = f.Data
		}
	}
	const good, damaged = virtMemory + 0x10000000, virtMemory + 0x18000000
	c := exec.CommandContext(ctx, qemu.Program, "-M", "virt", "-cpu", "cortex-a57", "-m", "1024", "-smp", "1",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console", "-bios", uboot,
		"-drive", "if=none,id=card,format=raw,snapshot=on,file="+filepath.Join(out, images.CardFile), "-device", "virtio-blk-device,drive=card",
		"-device", fmt.Sprintf("loader,file=%s,addr=%#x,force-raw=on", bad, damaged))
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	// until reads what U-Boot says up to a text, from where it left off.
	until := func(text string) string {
		t.Helper()
		from := said.Len()
		one := make([]byte, 1)
		for !strings.HasSuffix(said.String(), text) {
			if _, err := io.ReadFull(stdout, one); err != nil {
				t.Fatalf("%v before %q:\n%s", err, text, said.String())
			}
			said.Write(one)
		}
		return said.String()[from:]
	}
	asked := 0
	ask := func(command string) string {
		t.Helper()
		asked++
		// The echo of what is typed has no line's end before the mark.
		if _, err := fmt.Fprintf(stdin, "%s; echo mark-%d\n", command, asked); err != nil {
			t.Fatal(err)
		}
		return until(fmt.Sprintf("\nmark-%d\r\n", asked))
	}
	defer func() {
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = c.Wait() // it was killed
	}()
	until("Hit any key to stop autoboot")
	if _, err := io.WriteString(stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	until("=> ")

	if answer := ask("ls virtio 0:1"); !strings.Contains(answer, "image-a.itb") || !strings.Contains(answer, "boot.scr") || !strings.Contains(answer, "slot.env") {
		t.Errorf("the card:\n%s", answer)
	}
	ask(fmt.Sprintf("load virtio 0:1 %#x image-a.itb", good))
	if answer := ask(fmt.Sprintf("iminfo %#x", good)); strings.Count(answer, "sha256+") != 3 {
		t.Errorf("the image:\n%s", answer)
	}
	if answer := ask(fmt.Sprintf("iminfo %#x", damaged)); strings.Count(answer, "sha256+") > 2 || !strings.Contains(answer, "Bad hash") {
		t.Errorf("a changed image:\n%s", answer)
	}
	ask(fmt.Sprintf("load virtio 0:1 %#x boot.scr", damaged))
	if answer := ask(fmt.Sprintf("iminfo %#x", damaged)); !strings.Contains(answer, "Script") || !strings.Contains(answer, "Verifying Checksum ... OK") {
		t.Errorf("the boot script:\n%s", answer)
	}
	// It does what the script says, up to where this machine has no memory.
	ask("setenv devtype virtio; setenv devnum 0; setenv distro_bootpart 1")
	if n := binary.BigEndian.Uint32(script[64:]); int(n) != len(script)-72 {
		t.Errorf("the script's text has %d bytes of %d", n, len(script)-72)
	}
	answer := ask(fmt.Sprintf("source %#x", damaged))
	if !strings.Contains(answer, "Executing script") {
		t.Errorf("the script does not run:\n%s", answer)
	}
	// The state's file cannot be loaded there either: then either slot is tried.
	for _, want := range []string{"the state of the slots cannot be read", "slot a of a b", "the image in slot a does not boot", "the image in slot b does not boot"} {
		if !strings.Contains(answer, "rocelink: "+want) {
			t.Errorf("the script does not say %q:\n%s", want, answer)
		}
	}
}
