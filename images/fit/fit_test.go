package fit

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/dt"

	"rocelink/images/devicetree"
)

func packed(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func image(t *testing.T) *Image {
	t.Helper()
	tree, err := devicetree.Bytes(&dt.FDT{RootNode: dt.NewNode("", dt.WithProperty(dt.PropertyString("model", "a board")))})
	if err != nil {
		t.Fatal(err)
	}
	return &Image{
		Description: "an image", Time: time.Unix(1_700_000_000, 0).UTC(),
		Kernel:     Part{Description: "a kernel", Data: packed(t, []byte(strings.Repeat("kernel ", 1000))), Gzip: true, Load: 0x200000},
		DeviceTree: Part{Description: "a tree", Data: tree, Load: 0xf000000},
		Ramdisk:    Part{Description: "a file system", Data: []byte("not\x00four"), Load: 0x8_0000_0000},
	}
}

func written(t *testing.T, m *Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadBack(t *testing.T) {
	m := image(t)
	data := written(t, m)
	if !bytes.Equal(data, written(t, m)) {
		t.Error("the same image, other bytes")
	}
	got, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Description != m.Description || !got.Time.Equal(m.Time) {
		t.Errorf("%q of %v", got.Description, got.Time)
	}
	for _, c := range []struct{ got, want Part }{{got.Kernel, m.Kernel}, {got.DeviceTree, m.DeviceTree}, {got.Ramdisk, m.Ramdisk}} {
		if !bytes.Equal(c.got.Data, c.want.Data) || c.got.Description != c.want.Description || c.got.Gzip != c.want.Gzip || c.got.Load != c.want.Load {
			t.Errorf("%+v, want %+v", c.got, c.want)
		}
	}
	kernel, err := got.Kernel.Unpacked(7000)
	if err != nil || string(kernel) != strings.Repeat("kernel ", 1000) {
		t.Errorf("kernel of %d bytes, %v", len(kernel), err)
	}
	if _, err := got.Kernel.Unpacked(6999); err == nil {
		t.Error("more than the limit was unpacked")
	}
	// The library's reader sees the same tree.
	lib, err := dt.ReadFDT(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	n, ok := lib.NodeByName("ramdisk")
	if !ok {
		t.Fatal("no ramdisk")
	}
	if p, ok := n.LookProperty("data"); !ok || !bytes.Equal(p.Value, m.Ramdisk.Data) {
		t.Error("the library reads another ramdisk")
	}
}

// A card with a hole, a transfer that ended early: always an error, never a part
// of an image.
func TestDamaged(t *testing.T) {
	data := written(t, image(t))
	for n := range len(data) {
		if _, err := Read(data[:n]); !errors.Is(err, devicetree.ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	m, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Part{&m.Kernel, &m.DeviceTree, &m.Ramdisk} { // they share data's memory
		for _, at := range []int{0, len(p.Data) / 2, len(p.Data) - 1} {
			p.Data[at] ^= 0x10
			if _, err := Read(data); !errors.Is(err, ErrHash) {
				t.Errorf("%s, byte %d changed: %v", p.Description, at, err)
			}
			p.Data[at] ^= 0x10
		}
	}
	for _, c := range []struct{ from, to, text string }{
		{"sha256\x00", "sha1\x00\x00\x00", "sha1"},
		{"arm64\x00", "armvz\x00", "armvz"},
		{"flat_dt\x00", "ramdis\x00\x00", "ramdis"},
		{"gzip\x00", "lzma\x00", "lzma"},
		{"ramdisk\x00", "ramdisc\x00", "ramdis"},
		{"hash\x00", "hush\x00", "hash"},
		{"conf\x00", "coqf\x00", "co"},
	} {
		bad := bytes.Replace(bytes.Clone(data), []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(bad, data) {
			t.Fatalf("%q is not in the image", c.from)
		}
		if _, err := Read(bad); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q for %q: %v", c.to, c.from, err)
		}
	}
}

func TestEmptyPart(t *testing.T) {
	m := image(t)
	m.Ramdisk.Data = nil
	if err := m.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "a file system") {
		t.Errorf("%v", err)
	}
	m = image(t)
	m.Time = time.Unix(-1, 0)
	if err := m.Write(&bytes.Buffer{}); err == nil {
		t.Error("a time before 1970")
	}
}

// U-Boot's own tools read it.
func TestUBootReads(t *testing.T) {
	list, err := exec.LookPath("mkimage")
	dump, err2 := exec.LookPath("dumpimage")
	if err := errors.Join(err, err2); err != nil {
		if os.Getenv("ROCELINK_REQUIRE_IMAGE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs u-boot-tools: %v", err)
	}
	m := image(t)
	file := filepath.Join(t.TempDir(), "image.itb")
	if err := os.WriteFile(file, written(t, m), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(list, "-l", file).CombinedOutput()
	if err != nil {
		t.Fatalf("mkimage -l: %v\n%s", err, out)
	}
	for _, want := range []string{"FIT description: an image", "gzip compressed", "0x00200000", "Default Configuration: 'conf'", "FDT:          fdt", "sha256"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("mkimage -l does not say %q:\n%s", want, out)
		}
	}
	for i, p := range []Part{m.Kernel, m.DeviceTree, m.Ramdisk} {
		part := filepath.Join(t.TempDir(), "part")
		if out, err := exec.Command(dump, "-T", "flat_dt", "-p", string(rune('0'+i)), "-o", part, file).CombinedOutput(); err != nil {
			t.Errorf("dumpimage: %v\n%s", err, out)
		}
		if got, _ := os.ReadFile(part); !bytes.Equal(got, p.Data) {
			t.Errorf("%s: dumpimage reads %d bytes, want %d", p.Description, len(got), len(p.Data))
		}
	}
}

func TestSignature(t *testing.T) {
	data := written(t, image(t))
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := Sign(private, data)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(public, data, sig); err != nil {
		t.Error(err)
	}
	changed := bytes.Clone(data)
	changed[len(changed)/2] ^= 1
	for name, err := range map[string]error{
		"another image":       Verify(public, changed, sig),
		"a shorter image":     Verify(public, data[:len(data)-1], sig),
		"another key":         Verify(other, data, sig),
		"half a signature":    Verify(public, data, sig[:32]),
		"no signature":        Verify(public, data, nil),
		"no key":              Verify(nil, data, sig),
		"not of images":       Verify(public, data, ed25519.Sign(private, data)),
		"signature of no use": Verify(public, data, make([]byte, 64)),
	} {
		if !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Keys as openssl writes them.
	p8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseSigningKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p8}))
	if err != nil || !k.Equal(private) {
		t.Errorf("signing key: %v", err)
	}
	u, err := ParsePublicKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pk}))
	if err != nil || !u.Equal(public) {
		t.Errorf("public key: %v", err)
	}
	for _, text := range []string{"", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := ParseSigningKey([]byte(text)); err == nil {
			t.Errorf("%q is no signing key", text)
		}
		if _, err := ParsePublicKey([]byte(text)); err == nil {
			t.Errorf("%q is no public key", text)
		}
	}
}

// Whatever a card holds: an error, or an image whose hashes are right.
func FuzzRead(f *testing.F) {
	m := &Image{
		Description: "x", Time: time.Unix(1, 0),
		Kernel: Part{Data: []byte{1}}, DeviceTree: Part{Data: []byte{2}}, Ramdisk: Part{Data: []byte{3}},
	}
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-10])
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(data)
		if (m == nil) == (err == nil) {
			t.Fatalf("image %v with error %v", m, err)
		}
	})
}
