package kernel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"rocelink/images/artifact"
)

// ErrNoPackages means that this machine has no apt to fetch packages with.
var ErrNoPackages = errors.New("apt-get and dpkg-deb are not installed: give a file of your own")

// Debian fetches kernels, and other packages for the board, from Debian's package
// archive into a cache. It uses the machine's own sources with a list of arm64
// packages of its own; it installs nothing and needs no root.
type Debian struct {
	Cache string // folder
	// Progress is told of steps that take a while; nil is told nothing.
	Progress func(step string)
	// Sources is the file of apt's sources. Default: the machine's Debian ones.
	Sources string
}

// Fetch returns the folder of a package's files, of the newest version when the
// package is not yet in the cache. For one such as linux-image-arm64, which
// depends on the current kernel's, it is that one's folder.
func (d *Debian) Fetch(ctx context.Context, pkg string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(d.Cache, "packages", pkg))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("package %s: %w", pkg, ErrNoPackages)
		}
	}
	if err := d.fetch(ctx, pkg, dir); err != nil {
		return "", fmt.Errorf("package %s: %w", pkg, err)
	}
	return dir, nil
}

func (d *Debian) say(format string, args ...any) {
	if d.Progress != nil {
		d.Progress(fmt.Sprintf(format, args...))
	}
}

func (d *Debian) fetch(ctx context.Context, pkg, dir string) error {
	// A state of its own each time: builds at the same time do not meet.
	state, err := d.state()
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	options, err := d.options(state)
	if err != nil {
		return err
	}
	apt := func(tool, dir string, args ...string) (string, error) {
		return run(ctx, dir, tool, append(options, args...)...)
	}
	d.say("fetching the list of arm64 packages")
	if _, err := apt("apt-get", "", "-qq", "update"); err != nil {
		return fmt.Errorf("fetch the list of packages: %w", err)
	}
	name := pkg
	// A package that only names the current kernel's.
	text, err := apt("apt-cache", "", "show", "--no-all-versions", pkg)
	if err != nil {
		return fmt.Errorf("not among the packages: %w", err)
	}
	if depends := field(text, "Depends"); strings.HasPrefix(depends, "linux-image-") {
		name, _, _ = strings.Cut(depends, " ")
	}
	return artifact.Folder(dir, func(tmp string) error {
		d.say("fetching %s", name)
		if _, err := apt("apt-get", tmp, "-qq", "download", name); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
		if err != nil || len(debs) != 1 {
			return fmt.Errorf("fetched %d packages, want one: %w", len(debs), err)
		}
		d.say("unpacking %s", filepath.Base(debs[0]))
		if _, err := run(ctx, tmp, "dpkg-deb", "-x", debs[0], tmp); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		return os.Remove(debs[0])
	})
}

// state is a folder for apt's lists.
func (d *Debian) state() (string, error) {
	cache, err := filepath.Abs(d.Cache)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(cache, ".apt-*")
}

// options make apt use a state of its own, for arm64.
func (d *Debian) options(state string) ([]string, error) {
	for _, p := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, p), 0o755); err != nil {
			return nil, err
		}
	}
	status := filepath.Join(state, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	sources := d.Sources
	if sources == "" {
		var err error
		if sources, err = debianSources(); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, o := range []string{
		"APT::Architecture=arm64", "APT::Architectures::=arm64", "Acquire::Languages=none",
		"APT::Sandbox::User=", // the cache may be in a folder of the user's
		"Dir::State::Lists=" + filepath.Join(state, "lists"), "Dir::State::Status=" + status,
		"Dir::Cache=" + state, "Dir::Etc::SourceList=" + sources, "Dir::Etc::SourceParts=-",
	} {
		out = append(out, "-o", o)
	}
	return out, nil
}

// debianSources is the file that names Debian's own archive.
func debianSources() (string, error) {
	for _, name := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte("main")) {
			return name, nil
		}
	}
	return "", errors.New("this machine's apt names no Debian archive: give a file of your own")
}

// field returns the first line of a field in apt's output.
func field(text, name string) string {
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if v, ok := strings.CutPrefix(s.Text(), name+": "); ok {
			return v
		}
	}
	return ""
}

// run runs a program and returns what it says; errors carry its complaints.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		text := strings.TrimSpace(complaints.String())
		if n := len(text); n > 500 {
			text = "…" + text[n-500:]
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return out.String(), nil
}
