package packaging_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// built is a package that .ci/package has built.
func built(t *testing.T, pattern string) string {
	t.Helper()
	dir := os.Getenv("ROCELINK_PACKAGES")
	if dir == "" {
		t.Skip("the packages are built and tested by .ci/package")
	}
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, dir, found, err)
	}
	return found[0]
}

// need skips a test whose tool is missing, unless tools are required.
func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
				t.Fatalf("%s is required: %v", tool, err)
			}
			t.Skipf("not run: %s is not installed", tool)
		}
	}
}

// run runs a command and returns what it writes to standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// contents is every file of the packages with its mode.
var contents = map[string]os.FileMode{
	"usr/bin/rocelinkd":                               0o755,
	"usr/bin/rocectl":                                 0o755,
	"usr/lib/systemd/system/rocelinkd.service":        0o644,
	"usr/lib/sysusers.d/rocelink.conf":                0o644,
	"etc/rocelink/rocelinkd.yaml":                     0o644,
	"usr/share/doc/rocelink/README.packaging.md":      0o644,
	"usr/share/doc/rocelink/README.doctor.md":         0o644,
	"usr/share/doc/rocelink/README.access.md":         0o644,
	"usr/share/doc/rocelink/CONTRACT.md":              0o644,
	"usr/share/doc/rocelink/CHANGELOG.md":             0o644,
	"usr/share/doc/rocelink/third-party-licences.txt": 0o644,
	"usr/share/doc/rocelink/copyright":                0o644, // deb
	"usr/share/licenses/rocelink/LICENSE":             0o644, // rpm
}

// holds checks an unpacked package file by file.
func holds(t *testing.T, root, but string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		mode, known := contents[rel]
		if !known || rel == but || i.Mode() != mode || i.Size() == 0 {
			t.Errorf("%s: %v, %d bytes", rel, i.Mode(), i.Size())
		}
		seen++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen != len(contents)-1 {
		t.Errorf("%d files, want %d", seen, len(contents)-1)
	}
	licences, err := os.ReadFile(filepath.Join(root, "usr/share/doc/rocelink/third-party-licences.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"github.com/nats-io/nats.go", "github.com/spf13/cobra", "\nGo\n", "golang.org/x/sys"} {
		if !bytes.Contains(licences, []byte(module)) {
			t.Errorf("the licences lack %q", module)
		}
	}
}

func TestDeb(t *testing.T) {
	deb := built(t, "*.deb")
	need(t, "dpkg-deb", "readelf")
	root := t.TempDir()
	run(t, "dpkg-deb", "-x", deb, root)
	holds(t, root, "usr/share/licenses/rocelink/LICENSE")
	control := t.TempDir()
	run(t, "dpkg-deb", "-e", deb, control)
	conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
	if err != nil || strings.TrimSpace(string(conffiles)) != "/etc/rocelink/rocelinkd.yaml" {
		t.Errorf("conffiles: %q, %v", conffiles, err)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		ours, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.ReadFile(filepath.Join(control, script))
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%s is not the one of the source (%v)", script, err)
		}
	}
	info := run(t, "dpkg", "--info", deb)
	for _, want := range []string{"Package: rocelink\n", "Section: net\n", "Maintainer: ", "Description: Receive streams"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
	// What the program is linked to is what the package depends on.
	depends := run(t, "dpkg-deb", "--field", deb, "Depends")
	linked := run(t, "readelf", "-d", filepath.Join(root, "usr/bin/rocelinkd"))
	for library, dependency := range map[string]string{"libc.so.6": "libc6 (>= ", "libibverbs.so.1": "libibverbs1 (>= "} {
		if strings.Contains(linked, "["+library+"]") != strings.Contains(depends, dependency) {
			t.Errorf("depends on %q, but is linked to\n%s", depends, linked)
		}
	}
}

func TestRPM(t *testing.T) {
	file := built(t, "*.rpm")
	need(t, "rpm", "rpm2cpio", "cpio")
	info := run(t, "rpm", "-qip", file)
	for _, want := range []string{"Name        : rocelink\n", "License     : Apache-2.0\n", "Build Host  : localhost\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
	if got := strings.TrimSpace(run(t, "rpm", "-qp", "--configfiles", file)); got != "/etc/rocelink/rocelinkd.yaml" {
		t.Errorf("configuration files: %q", got)
	}
	if flags := run(t, "rpm", "-qp", "--qf", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", file); !strings.Contains(flags, "/etc/rocelink/rocelinkd.yaml cn\n") {
		t.Errorf("the configuration is not config and noreplace:\n%s", flags)
	}
	scripts := run(t, "rpm", "-qp", "--scripts", file)
	for _, want := range []string{"postinstall scriptlet", "preuninstall scriptlet", "postuninstall scriptlet", "systemd-sysusers"} {
		if !strings.Contains(scripts, want) {
			t.Errorf("no %q in\n%s", want, scripts)
		}
	}
	run(t, "rpm", "-K", file)
	root := t.TempDir()
	// The names in the archive are absolute: they must not lead out of root.
	run(t, "sh", "-c", `rpm2cpio "$1" | (cd "$2" && cpio -idm --quiet --no-absolute-filenames)`, "sh", file, root)
	holds(t, root, "usr/share/doc/rocelink/copyright")
}

// TestReproducible builds everything again, later and in another folder, and
// compares bytes.
func TestReproducible(t *testing.T) {
	deb, rpm := built(t, "*.deb"), built(t, "*.rpm")
	again := filepath.Join(t.TempDir(), "packages")
	cmd := exec.Command("./build.sh")
	cmd.Env = append(os.Environ(), "OUT="+again)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build again: %v\n%s", err, out)
	}
	for _, first := range []string{deb, rpm} {
		a, err := os.ReadFile(first)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(again, filepath.Base(first)))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs from the one built a second time (%v)", filepath.Base(first), err)
		}
	}
}

// TestInstall installs, upgrades, removes and purges in a scratch root, with the
// maintainer scripts.
func TestInstall(t *testing.T) {
	deb := built(t, "*.deb")
	need(t, "dpkg", "systemd-sysusers")
	root := scratch(t)
	dpkg := func(args ...string) string {
		t.Helper()
		return run(t, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless,depends,not-root", "--log=/dev/null"}, args...)...)
	}
	status := func() string {
		return run(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f", "${Status}", "rocelink")
	}
	config := filepath.Join(root, "etc/rocelink/rocelinkd.yaml")

	dpkg("--install", deb)
	if got := status(); got != "install ok installed" {
		t.Errorf("after installation: %q", got)
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), ":/var/lib/rocelink:/usr/sbin/nologin\n") || !strings.Contains(string(passwd), "rocelink:") {
		t.Errorf("no user: %q, %v", passwd, err)
	}
	if err := os.WriteFile(config, []byte("name: mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb)
	if text, err := os.ReadFile(config); err != nil || string(text) != "name: mine\n" {
		t.Errorf("an upgrade did not keep the settings: %q, %v", text, err)
	}
	dpkg("--remove", "rocelink")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/rocelinkd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program is still there after removal: %v", err)
	}
	if _, err := os.Stat(config); err != nil {
		t.Errorf("removal took the settings: %v", err)
	}
	data := filepath.Join(root, "var/lib/rocelink/run.bin")
	if err := os.MkdirAll(filepath.Dir(data), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(data, []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	dpkg("--purge", "rocelink")
	if _, err := os.Stat(config); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("purging left the settings: %v", err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Errorf("purging took what was received: %v", err)
	}
}

// scratch is a root with a dpkg that knows nothing, and accounts.
func scratch(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"var/lib/dpkg/status": "", "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:1::::::\n", "etc/gshadow": "root:*::\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestUnit(t *testing.T) {
	deb := built(t, "*.deb")
	need(t, "dpkg-deb", "systemd-analyze")
	root := scratch(t)
	run(t, "dpkg-deb", "-x", deb, root)
	// The units it orders itself by.
	for _, unit := range []string{"network-online.target", "modprobe@.service", "multi-user.target", "basic.target", "sysinit.target", "shutdown.target", "system.slice", "-.slice"} {
		text, err := os.ReadFile(filepath.Join("/usr/lib/systemd/system", unit))
		if errors.Is(err, os.ErrNotExist) {
			text, err = os.ReadFile(filepath.Join("/lib/systemd/system", unit))
		}
		if errors.Is(err, os.ErrNotExist) {
			continue // slices are built in
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "usr/lib/systemd/system", unit), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// What every Debian has and a scratch root has not.
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/kill"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("systemd-analyze", "verify", "--root="+root, "--man=no", "--recursive-errors=no", "rocelinkd.service")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "rocelinkd.service") {
			t.Errorf("verify: %s", line)
		}
	}
	if err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// Exposure from 0 (none) to 100; a unit without any hardening has 96.
	cmd = exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", filepath.Join(root, "usr/lib/systemd/system/rocelinkd.service"))
	out, err = cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	unit := strings.Split(run(t, "cat", filepath.Join(root, "usr/lib/systemd/system/rocelinkd.service")), "\n")
	for _, want := range []string{"Type=notify", "WatchdogSec=30", "LimitMEMLOCK=infinity", "Restart=on-failure", "User=rocelink", "DeviceAllow=char-infiniband_verbs rw"} {
		if !slices.Contains(unit, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
}
