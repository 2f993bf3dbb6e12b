package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/dt"

	"rocelink/images/devicetree"
	"rocelink/images/kernel/kerneltest"
)

func command(t *testing.T, args ...string) (code int, out, complaints string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(context.Background(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The way of a user: build, check, sign, be told what is wrong.
func TestBuildAndCheck(t *testing.T) {
	dir := t.TempDir()
	if err := kerneltest.Tree(filepath.Join(dir, "kernel")); err != nil {
		t.Fatal(err)
	}
	cells := dt.WithProperty(dt.PropertyU32("#address-cells", 2), dt.PropertyU32("#size-cells", 2))
	blob, err := devicetree.Bytes(&dt.FDT{RootNode: dt.NewNode("", cells, dt.WithChildren(
		dt.NewNode("memory", dt.WithProperty(dt.PropertyString("device_type", "memory"), dt.PropertyRegion("reg", 0, 0x80000000))),
		dt.NewNode("reserved-memory", cells, dt.WithChildren(
			dt.NewNode("fabric", dt.WithProperty(dt.PropertyRegion("reg", 0x70000000, 0x1000000))))),
	))})
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	key := write(t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	open := write(t, filepath.Join(dir, "public.pem"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))
	out := filepath.Join(dir, "out")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	code, text, complaints := command(t,
		"build", "--source", "../../..", "--board", "qemu-versal", "--out", out, "--kernel", filepath.Join(dir, "kernel/boot/vmlinuz-"+kerneltest.Release), "--no-modules",
		"--devicetree", write(t, filepath.Join(dir, "a.dtb"), blob), "--set", "name=left", "--sign", key,
	)
	if code != exitOK {
		t.Fatalf("build: %s", complaints)
	}
	if !strings.Contains(complaints, "initramfs") || !strings.Contains(text, filepath.Join(out, "card.img")) {
		t.Errorf("progress:\n%s\nresults:\n%s", complaints, text)
	}
	image := filepath.Join(out, "qemu-versal.itb")
	code, text, complaints = command(t, "check", image, "--key", open)
	if code != exitOK || !strings.Contains(text, "rocelink.name=left") || !strings.Contains(text, "signature    right") {
		t.Errorf("check: %d\n%s%s", code, text, complaints)
	}

	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	short := write(t, filepath.Join(dir, "short.itb"), data[:len(data)-100])
	data[len(data)/2] ^= 1
	changed := write(t, filepath.Join(dir, "changed.itb"), data)
	other, _, _ := ed25519.GenerateKey(nil)
	pub, _ = x509.MarshalPKIXPublicKey(other)
	foreign := write(t, filepath.Join(dir, "foreign.pem"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))
	for _, c := range []struct {
		text string
		args []string
	}{
		{"cut off", []string{"check", short}},
		{"hash does not match", []string{"check", changed}},
		{"wrong signature", []string{"check", image, "--key", foreign}},
		{"short.itb.sig", []string{"check", image, "--key", open, "--signature", short + ".sig"}},
		{"unknown board", []string{"build", "--board", "zcu999", "--out", out}},
		{"required flag", []string{"build", "--board", "qemu-versal"}},
		{"build it first", []string{"run", "--board", "qemu-versal", "--image", filepath.Join(dir, "none.itb")}},
		{"cut off", []string{"run", "--board", "qemu-versal", "--image", short, "--fabric", "none"}},
		{"no emulator", []string{"run", "--board", "rfsoc4x2", "--image", image}},
		{"--serve-nats", []string{"run", "--board", "qemu-versal", "--image", image, "--serve-nats", "nowhere"}},
	} {
		code, _, complaints := command(t, c.args...)
		if code != exitFailed || !strings.Contains(complaints, c.text) {
			t.Errorf("%v: exit code %d, %q, want %q", c.args, code, complaints, c.text)
		}
	}
}

func TestBoards(t *testing.T) {
	code, out, _ := command(t, "boards")
	if code != exitOK || !strings.Contains(out, "rfsoc4x2") || strings.Count(out, "QEMU") != 2 || strings.Contains(out, "demo") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
