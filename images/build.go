package images

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/u-root/u-root/pkg/dt"

	"rocelink/boards/slot"
	"rocelink/images/artifact"
	"rocelink/images/bootbin"
	"rocelink/images/devicetree"
	"rocelink/images/fit"
	"rocelink/images/initramfs"
	"rocelink/images/kernel"
	"rocelink/images/program"
	"rocelink/images/sdcard"
)

// Packages of the programs in an image.
const (
	initPackage   = "rocelink/firmware/cmd/board-init"
	boarddPackage = "rocelink/firmware/cmd/boardd"
)

// Result is what was built.
type Result struct {
	Board     string   `json:"board"`
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Time      int64    `json:"time"`   // Unix seconds
	Kernel    string   `json:"kernel"` // release
	Arguments string   `json:"arguments"`
	Modules   []string `json:"modules"`
	Files     []Output `json:"files"`
}

// Output is a file that was built.
type Output struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Names of files in the folder of results.
const (
	InitramfsFile = "initramfs.cpio" // and its compression's suffix
	CardFile      = "card.img"
	BootFile      = "BOOT.BIN"
	ManifestFile  = "manifest.json"
)

// ImageFile is the name of a board's FIT image.
func ImageFile(board string) string { return board + ".itb" }

// identity is build.json of the initramfs.
type identity struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Time    int64  `json:"time"`
}

// builder is one build under way.
type builder struct {
	Config
	board  *board
	result Result
}

// Build builds an image. What it returns is in Config.Out, with a manifest.
func Build(ctx context.Context, c Config) (*Result, error) {
	b := builder{Config: c}
	if err := b.complete(ctx); err != nil {
		return nil, err
	}
	// What can be refused is refused before anything takes time.
	line, err := b.commandLine(b.board)
	if err != nil {
		return nil, err
	}
	if err := b.checkInputs(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the results: %w", err)
	}
	// What this build may not make must not stay from an earlier one.
	for _, name := range []string{ImageFile(b.board.name) + ".sig", BootFile, ManifestFile} {
		if err := os.Remove(filepath.Join(b.Out, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("folder of the results: %w", err)
		}
	}
	b.result.Arguments = line
	tree, err := b.deviceTree(ctx, line)
	if err != nil {
		return nil, err
	}
	k, err := b.kernel(ctx)
	if err != nil {
		return nil, err
	}
	ramdisk, err := b.initramfs(ctx, k)
	if err != nil {
		return nil, err
	}
	image, err := b.image(k, tree, ramdisk)
	if err != nil {
		return nil, err
	}
	if err := b.boot(ctx, image, line); err != nil {
		return nil, err
	}
	manifest, err := json.MarshalIndent(b.result, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := artifact.WriteBytes(filepath.Join(b.Out, ManifestFile), append(manifest, '\n')); err != nil {
		return nil, err
	}
	return &b.result, nil
}

func (b *builder) say(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(fmt.Sprintf(format, args...))
	}
}

// complete fills in what is not given.
func (b *builder) complete(ctx context.Context) (err error) {
	if b.Board == "" || b.Out == "" {
		return errors.New("give a board and a folder for the results")
	}
	if b.board, err = loadBoard(b.Board); err != nil {
		return err
	}
	if b.Cache == "" {
		b.Cache = filepath.Join(filepath.Dir(filepath.Clean(b.Out)), "cache")
	}
	if b.Name == "" {
		b.Name = b.board.name
	}
	if !nameForm.MatchString(b.Name) {
		return fmt.Errorf("name %q: want letters, digits, dots and hyphens", b.Name)
	}
	if b.MaxInitramfs == 0 {
		b.MaxInitramfs = Budget
		if b.Shell != "" {
			b.MaxInitramfs = ShellBudget
		}
	}
	if b.Compression == "" {
		b.Compression = initramfs.Zstd
	}
	if b.Time.IsZero() {
		if b.Time, err = sourceTime(ctx, b.Source); err != nil {
			return err
		}
	}
	b.Time = b.Time.UTC().Truncate(time.Second)
	if y := b.Time.Year(); y < 1980 || y > 2105 {
		return fmt.Errorf("time %v: file systems and images know 1980 to 2105", b.Time)
	}
	if b.Version == "" {
		b.Version = sourceVersion(ctx, b.Source)
	}
	b.result = Result{Board: b.board.name, Name: b.Name, Version: b.Version, Time: b.Time.Unix()}
	return nil
}

// sourceTime is the time that everything in an image has.
func sourceTime(ctx context.Context, source string) (time.Time, error) {
	if text, ok := os.LookupEnv("SOURCE_DATE_EPOCH"); ok {
		s, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: want Unix seconds", text)
		}
		return time.Unix(s, 0), nil
	}
	if out, err := git(ctx, source, "log", "-1", "--format=%ct"); err == nil {
		if s, err := strconv.ParseInt(out, 10, 64); err == nil {
			return time.Unix(s, 0), nil
		}
	}
	// A source archive keeps the times of its files.
	info, err := os.Stat(filepath.Join(source, "go.mod"))
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the image: set SOURCE_DATE_EPOCH or build in the source's folder: %w", err)
	}
	return info.ModTime(), nil
}

func sourceVersion(ctx context.Context, source string) string {
	if out, err := git(ctx, source, "describe", "--always", "--tags", "--dirty"); err == nil && out != "" {
		return out
	}
	return "unversioned"
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = dir
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// checkInputs looks at the files that are given.
func (b *builder) checkInputs() error {
	if !b.Boot.None() {
		if b.board.SoC != "zynqmp" {
			return fmt.Errorf("BOOT.BIN is for zynqmp, board %s has %s: %w", b.board.name, b.board.SoC, bootbin.ErrInput)
		}
		if err := b.Boot.Check(); err != nil {
			return fmt.Errorf("BOOT.BIN: %w", err)
		}
	}
	if b.DeviceImage != "" && b.board.SoC != "versal" {
		return fmt.Errorf("a device image (PDI) is for versal, board %s has %s: %w", b.board.name, b.board.SoC, bootbin.ErrInput)
	}
	if len(b.board.Boot.Firmware) > 0 && b.Firmware == "" {
		return fmt.Errorf("board %s needs the firmware files %s: give the folder they are in", b.board.name, strings.Join(b.board.Boot.Firmware, ", "))
	}
	return nil
}

// deviceTree makes the tree with the kernel's command line in it.
func (b *builder) deviceTree(ctx context.Context, line string) (*dt.FDT, error) {
	data, file := b.board.tree, b.board.file
	if b.DeviceTree != "" {
		file = b.DeviceTree
		var err error
		if data, err = readInput("device tree", file, 4<<20); err != nil {
			return nil, err
		}
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("board %s has no device tree of its own: give a .dts or .dtb file", b.board.name)
	}
	if filepath.Ext(file) == ".dts" {
		b.say("device tree %s", file)
		var err error
		if data, err = devicetree.Compile(ctx, file, data); err != nil {
			return nil, err
		}
	}
	t, err := devicetree.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("device tree %s: %w", file, err)
	}
	devicetree.SetArguments(t, line)
	if err := checkApertures(t, b.board.Board); err != nil {
		return nil, fmt.Errorf("device tree %s: %w", file, err)
	}
	return t, nil
}

func (b *builder) kernel(ctx context.Context) (*kernel.Tree, error) {
	path := b.Kernel
	if path == "" {
		if b.board.Boot.Kernel == "" {
			return nil, fmt.Errorf("board %s names no kernel: give an image or a folder", b.board.name)
		}
		d := kernel.Debian{Cache: b.Cache, Progress: b.Progress}
		var err error
		if path, err = d.Fetch(ctx, b.board.Boot.Kernel); err != nil {
			return nil, err
		}
	}
	k, err := kernel.Open(path)
	if err != nil {
		return nil, err
	}
	for _, symbol := range []string{b.Compression.Symbol(), "CONFIG_DEVMEM", "CONFIG_DEVTMPFS"} {
		if has, known := k.Has(symbol); known && !has {
			remedy := "give another --kernel"
			if symbol == b.Compression.Symbol() {
				remedy = fmt.Sprintf("it cannot unpack %s: give another --compression (zstd, gzip)", b.Compression)
			}
			return nil, fmt.Errorf("kernel %s is built without %s: %w: %s", k.File, symbol, ErrKernel, remedy)
		}
	}
	b.result.Kernel = k.Release
	b.say("kernel %s (%s)", k.Release, k.File)
	return k, nil
}

func (b *builder) initramfs(ctx context.Context, k *kernel.Tree) ([]byte, error) {
	var a initramfs.Archive
	dir, err := os.MkdirTemp("", "rocelink-image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	shell, err := b.shell(ctx)
	if err != nil {
		return nil, err
	}
	boardd := boarddPackage
	if b.Init == "" && b.Boardd == "" {
		// One file is both.
		boardd = ""
		if err := a.Link("bin/boardd", "../init"); err != nil {
			return nil, err
		}
	}
	for _, p := range []struct{ name, given, pkg string }{
		{"init", b.Init, initPackage},
		{"bin/boardd", b.Boardd, boardd},
		{"bin/busybox", shell, ""},
	} {
		if p.given == "" && p.pkg == "" {
			continue
		}
		file := p.given
		if file == "" {
			b.say("building %s", p.pkg)
			file = filepath.Join(dir, filepath.Base(p.pkg))
			g := program.Build{Go: b.Go, Source: b.Source}
			if err := g.Program(ctx, p.pkg, file); err != nil {
				return nil, err
			}
		} else if err := program.Check(file); err != nil {
			return nil, err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := a.File(p.name, data, 0o755); err != nil {
			return nil, err
		}
	}

	if shell != "" {
		if err := a.Link("bin/sh", "busybox"); err != nil {
			return nil, err
		}
	}
	if b.ImageConfig != "" {
		data, err := readInput("image's configuration", b.ImageConfig, 64<<10)
		if err != nil {
			return nil, err
		}
		if err := a.File("etc/rocelink/rocelink.yaml", data, 0o644); err != nil {
			return nil, err
		}
	}

	key, err := b.updateKey()
	if err != nil {
		return nil, err
	}
	if key != nil {
		if err := a.File("etc/rocelink/update.pub", key, 0o644); err != nil {
			return nil, err
		}
	}

	var modules []kernel.Module
	if !b.NoModules {
		if modules, err = k.Modules(withFAT(b.board.Boot.Modules)); err != nil {
			return nil, err
		}
	}
	var list strings.Builder
	for _, m := range modules {
		name := m.Name + ".ko"
		if err := a.File("lib/modules/"+name, m.Data, 0o644); err != nil {
			return nil, err
		}
		fmt.Fprintln(&list, name)
		b.result.Modules = append(b.result.Modules, m.Name)
	}
	id, err := json.Marshal(identity{Name: b.Name, Version: b.Version, Time: b.Time.Unix()})
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"lib/modules-list", []byte(list.String())},
		{"etc/rocelink/board.yaml", b.board.text},
		{"etc/rocelink/build.json", append(id, '\n')},
	} {
		if err := a.File(f.name, f.data, 0o644); err != nil {
			return nil, err
		}
	}
	for _, name := range b.board.Boot.Firmware {
		data, err := readInput("firmware", filepath.Join(b.Firmware, filepath.FromSlash(name)), 64<<20)
		if err != nil {
			return nil, err
		}
		if err := a.File("lib/firmware/"+name, data, 0o644); err != nil {
			return nil, err
		}
	}
	b.say("initramfs with %d modules", len(modules))
	packed, err := a.Packed(b.Compression, b.Time, b.MaxInitramfs)
	if err != nil {
		return nil, err
	}
	return packed, b.write(InitramfsFile+b.Compression.Suffix(), packed)
}

// fatModules are what reading the card takes: the file system and the alphabets
// of its names (Linux, fs/fat/Kconfig: FAT_DEFAULT_CODEPAGE 437 and, in Debian's
// kernel, FAT_DEFAULT_IOCHARSET ascii).
var fatModules = []string{"vfat", "nls_cp437", "nls_ascii"}

// withFAT adds them where a board has a driver for a card.
func withFAT(modules []string) []string {
	if !slices.ContainsFunc(modules, func(m string) bool {
		return strings.HasPrefix(m, "sdhci") || strings.HasPrefix(m, "mmc") || m == "virtio_blk"
	}) {
		return modules
	}
	out := slices.Clone(modules)
	for _, m := range fatModules {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// updateKey is the public key by which the board checks a new image, in PEM.
func (b *builder) updateKey() ([]byte, error) {
	switch {
	case b.UpdateKey != "":
		text, err := readInput("key of updates", b.UpdateKey, 1<<16)
		if err != nil {
			return nil, err
		}
		if _, err := fit.ParsePublicKey(text); err != nil {
			return nil, fmt.Errorf("key of updates %s: %w", b.UpdateKey, err)
		}
		return text, nil
	case b.SigningKey != "":
		key, err := b.signingKey()
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", b.SigningKey, err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
	}
	return nil, nil
}

func (b *builder) signingKey() (ed25519.PrivateKey, error) {
	text, err := readInput("signing key", b.SigningKey, 1<<16)
	if err != nil {
		return nil, err
	}
	key, err := fit.ParseSigningKey(text)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", b.SigningKey, err)
	}
	return key, nil
}

// busybox is Debian's package of a static busybox.
const busybox = "busybox-static"

// shell is the program of the rescue shell; "" for none.
func (b *builder) shell(ctx context.Context) (string, error) {
	if b.Shell != "busybox" {
		return b.Shell, nil
	}
	d := kernel.Debian{Cache: b.Cache, Progress: b.Progress}
	dir, err := d.Fetch(ctx, busybox)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"bin/busybox", "usr/bin/busybox"} {
		if file := filepath.Join(dir, name); program.Check(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("package %s in %s has no busybox for the board", busybox, dir)
}

// image makes the FIT image.
func (b *builder) image(k *kernel.Tree, tree *dt.FDT, ramdisk []byte) ([]byte, error) {
	b.say("FIT image")
	blob, err := devicetree.Bytes(tree)
	if err != nil {
		return nil, fmt.Errorf("device tree: %w", err)
	}
	packed, err := pack(k.Image)
	if err != nil {
		return nil, fmt.Errorf("pack the kernel: %w", err)
	}
	at := b.board.Boot.Load
	m := fit.Image{
		Description: fmt.Sprintf("rocelink %s %s", b.board.name, b.Version),
		Model:       b.board.Model,
		Time:        b.Time,
		Kernel:      fit.Part{Description: strings.TrimSpace("Linux " + k.Release), Data: packed, Gzip: true, Load: at.Kernel},
		DeviceTree:  fit.Part{Description: devicetree.Model(tree), Data: blob, Load: at.DeviceTree},
		Ramdisk:     fit.Part{Description: "rocelink " + b.Version, Data: ramdisk, Load: at.Ramdisk},
	}
	var out bytes.Buffer
	if err := m.Write(&out); err != nil {
		return nil, err
	}
	image := out.Bytes()
	if err := checkLayout(tree, at, sizes{
		image: uint64(len(image)), kernel: k.Span, tree: uint64(len(blob)), ramdisk: uint64(len(ramdisk)),
	}); err != nil {
		return nil, fmt.Errorf("board %s: %w", b.board.name, err)
	}
	name := ImageFile(b.board.name)
	if b.SigningKey == "" {
		return image, b.write(name, image)
	}
	key, err := b.signingKey()
	if err != nil {
		return nil, err
	}
	signature, err := fit.Sign(key, image)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	if err := b.write(name, image); err != nil {
		return nil, err
	}
	return image, b.write(name+".sig", signature)
}

// pack packs by gzip, fast: a kernel is large, and cards have room.
func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, 6)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// boot makes the card and what the boot ROM reads from it.
func (b *builder) boot(ctx context.Context, image []byte, line string) error {
	state := slot.State{Slot: slot.A}.Encode()
	files := []sdcard.File{
		{Name: slot.Image(slot.A), Data: image},
		{Name: slot.StateFile, Data: state},
		{Name: slot.StateCopy, Data: state},
		{Name: slot.TriesFile, Data: slot.Tries{}.Encode()},
	}
	if b.Extlinux {
		files = append(files, sdcard.File{Name: "extlinux/extlinux.conf", Data: []byte(extlinux(slot.Image(slot.A), line))})
	}
	add := func(what, file, name string, check func(string, []byte) error) error {
		if file == "" {
			return nil
		}
		data, err := readInput(what, file, 256<<20)
		if err == nil && check != nil {
			err = check(file, data)
		}
		files = append(files, sdcard.File{Name: name, Data: data})
		return err
	}
	bitstream := ""
	if b.Bitstream != "" {
		bitstream = "fabric" + strings.ToLower(filepath.Ext(b.Bitstream))
	}
	if bitstream != "" && bitstream != "fabric.bit" && bitstream != "fabric.bin" {
		return fmt.Errorf("bitstream %s: want a .bit or .bin file: %w", b.Bitstream, bootbin.ErrInput)
	}
	if err := errors.Join(
		add("bitstream", b.Bitstream, bitstream, bootbin.CheckBitstream),
		add("card's configuration", b.CardConfig, "rocelink.yaml", nil),
		// The boot ROM of Versal looks for this name, too (AM011, "SD Boot Mode").
		add("device image", b.DeviceImage, BootFile, bootbin.CheckPDI),
	); err != nil {
		return err
	}
	s, err := script(scriptText(bitstream, line, b.board.Boot.Load), b.Time)
	if err != nil {
		return fmt.Errorf("boot script: %w", err)
	}
	files = append(files, sdcard.File{Name: "boot.scr", Data: s})
	if !b.Boot.None() {
		b.say("%s", BootFile)
		path := filepath.Join(b.Out, BootFile)
		if err := b.Boot.Write(ctx, path); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b.note(BootFile, data)
		files = append(files, sdcard.File{Name: BootFile, Data: data})
	}
	b.say("card image")
	card := sdcard.Card{Size: b.CardSize, Spare: spare(image), Label: "ROCELINK", Time: b.Time, Files: files}
	path := filepath.Join(b.Out, CardFile)
	if err := card.Write(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	b.result.Files = append(b.result.Files, Output{CardFile, n, hex.EncodeToString(h.Sum(nil))})
	return nil
}

// spare is what a new image takes on the card beside the two that are there.
func spare(image []byte) int64 { return 2 * int64(len(image)) }

func (b *builder) write(name string, data []byte) error {
	if err := artifact.WriteBytes(filepath.Join(b.Out, name), data); err != nil {
		return err
	}
	b.note(name, data)
	return nil
}

func (b *builder) note(name string, data []byte) {
	h := sha256.Sum256(data)
	b.result.Files = append(b.result.Files, Output{name, int64(len(data)), hex.EncodeToString(h[:])})
}

// readInput reads a file of at most limit bytes; errors say what it is for.
func readInput(what, name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: read %s: %w", what, name, err)
	case len(data) == 0:
		return nil, fmt.Errorf("%s: %s is empty", what, name)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s: %s has more than %d bytes", what, name, limit)
	}
	return data, nil
}
