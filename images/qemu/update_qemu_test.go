//go:build qemu && linux

package qemu_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/boards/slot"
	"rocelink/images"
	"rocelink/images/program"
	"rocelink/images/qemu"
	"rocelink/images/sdcard"
)

// updater is a board that U-Boot starts from a card, and what it publishes.
type updater struct {
	*testing.T
	ctx      context.Context
	dir, url string
	key      string
	tree     string
	rocectl  string
	statuses chan *rocelink.BoardStatus
	console  *console
	ended    chan error

	mu     sync.Mutex
	events []rocelink.Event
}

const updateBoard = "virt"

// build builds an image of a version; of a broken one init ends at once, so that
// the kernel panics.
func (u *updater) build(version, key string, broken bool) string {
	u.Helper()
	out := filepath.Join(u.dir, version)
	c := images.Config{
		Board: "testdata/virt.yaml", Out: out, Source: "../..", Cache: os.Getenv("ROCELINK_CACHE"), DeviceTree: u.tree,
		SigningKey: key, Version: version, CardSize: 128 << 20, Name: updateBoard,
		Settings: []string{"nats=" + strings.Replace(u.url, "127.0.0.1", qemu.Host, 1), "address=192.0.2.7", "registers=/run/none"},
	}
	if c.Cache == "" {
		c.Cache = "../../build/cache"
	}
	if broken {
		c.Init, c.Boardd = filepath.Join(u.dir, "hello"), filepath.Join(u.dir, "hello")
		p := program.Build{Source: "../.."}
		if err := p.Program(u.ctx, "rocelink/images/program/testdata/hello", c.Init); err != nil {
			u.Fatal(err)
		}
	}
	if _, err := images.Build(u.ctx, c); err != nil {
		u.Fatal(err)
	}
	return out
}

func (u *updater) signingKey(name string) string {
	u.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		u.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		u.Fatal(err)
	}
	file := filepath.Join(u.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		u.Fatal(err)
	}
	return file
}

// wait returns the first status that is as wanted.
func (u *updater) wait(what string, want func(*rocelink.BoardStatus) bool) *rocelink.BoardStatus {
	u.Helper()
	timeout := time.NewTimer(bootLimit)
	defer timeout.Stop()
	var last *rocelink.BoardStatus
	for {
		select {
		case st := <-u.statuses:
			if last = st; st.Image != nil && want(st) {
				return st
			}
		case err := <-u.ended:
			u.Fatalf("%s: the machine ended: %v", what, err)
		case <-timeout.C:
			u.Fatalf("%s: not within %v; the last status is %+v", what, bootLimit, last)
		}
	}
}

// call runs rocectl and returns what it says.
func (u *updater) call(args ...string) (string, error) {
	out, err := exec.CommandContext(u.ctx, u.rocectl, append([]string{"--nats", u.url}, args...)...).CombinedOutput()
	return string(out), err
}

// A board takes a new image over NATS, U-Boot tries it, it reports in and stays;
// one that does not report in is given up after three tries. What is not right is
// refused, and the board can be switched off.
func TestBoardsUpdate(t *testing.T) {
	if _, err := os.Stat(uboot); err != nil {
		t.Fatalf("%v: install u-boot-qemu", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	u := &updater{T: t, ctx: ctx, dir: t.TempDir(), statuses: make(chan *rocelink.BoardStatus, 256), ended: make(chan error, 1)}
	nc, s := natsPair(t)
	u.url = fmt.Sprintf("nats://127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port)
	if _, err := nc.Subscribe(rocelink.BoardStatusSubject(updateBoard), func(m *nats.Msg) {
		var st rocelink.BoardStatus
		if err := json.Unmarshal(m.Data, &st); err != nil {
			t.Errorf("status: %v", err)
			return
		}
		select {
		case u.statuses <- &st:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe(rocelink.BoardEventSubject(updateBoard), func(m *nats.Msg) {
		var e rocelink.Event
		if err := json.Unmarshal(m.Data, &e); err == nil {
			u.mu.Lock()
			u.events = append(u.events, e)
			u.mu.Unlock()
		}
	}); err != nil {
		t.Fatal(err)
	}

	machine := []string{"-cpu", "cortex-a57", "-m", "1024", "-smp", "1", "-display", "none"}
	u.tree = filepath.Join(u.dir, "virt.dtb")
	// The machine has other devices where it starts firmware.
	if out, err := exec.CommandContext(ctx, qemu.Program, append([]string{"-M", "virt,dumpdtb=" + u.tree, "-bios", uboot}, machine...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	u.rocectl = filepath.Join(u.dir, "rocectl")
	c := exec.CommandContext(ctx, "go", "build", "-o", u.rocectl, "rocelink/agent/cmd/rocectl")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	key := u.signingKey("key.pem")
	one, two, three := u.build("one", key, false), u.build("two", key, false), u.build("three", key, true)
	foreign := u.build("foreign", u.signingKey("other.pem"), false)
	image := images.ImageFile("virt")

	card := filepath.Join(one, images.CardFile)
	u.console = &console{text: "Run /init"}
	q := exec.CommandContext(ctx, qemu.Program, append(machine, "-M", "virt", "-nodefaults", "-no-user-config",
		"-netdev", "user,id=net", "-device", "virtio-net-device,netdev=net",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console", "-bios", uboot,
		"-drive", "if=none,id=card,format=raw,cache=writethrough,file="+card, "-device", "virtio-blk-device,drive=card")...)
	q.Stdout, q.Stderr = u.console, u.console
	if _, err := q.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := q.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { u.ended <- q.Wait(); close(done) }()
	defer func() {
		_ = q.Process.Kill() // ended already, as a rule
		<-done
		if t.Failed() {
			t.Logf("console:\n%s", u.console)
		}
	}()

	first := u.wait("the first image", func(st *rocelink.BoardStatus) bool { return st.Image.Slot == slot.A })
	if i := first.Image; i.Build != "one" || i.Trial || i.FellBack {
		t.Errorf("the first image: %+v", i)
	}

	// What is refused leaves the board as it is.
	whole, err := os.ReadFile(filepath.Join(two, image))
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(u.dir, "short.itb")
	if err := os.WriteFile(short, whole[:len(whole)/4], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		name, want string
		args       []string
	}{
		{"another key", "wrong signature", []string{filepath.Join(foreign, image)}},
		{"cut off", "wrong signature", []string{short, "--signature", filepath.Join(two, image+".sig")}},
		{"no signature", "--sign", []string{short}},
	} {
		if out, err := u.call(append([]string{"update", updateBoard}, r.args...)...); err == nil || !strings.Contains(out, r.want) {
			t.Errorf("%s: %v, %s", r.name, err, out)
		}
	}

	began := time.Now()
	if out, err := u.call("update", updateBoard, filepath.Join(two, image), "--reboot"); err != nil {
		t.Fatalf("update: %v\n%s", err, out)
	} else {
		t.Logf("image of %d bytes taken in %v:\n%s", len(whole), time.Since(began).Round(time.Millisecond), out)
	}
	second := u.wait("the second image, confirmed", func(st *rocelink.BoardStatus) bool { return st.Image.Build == "two" && !st.Image.Trial })
	if i := second.Image; i.Slot != slot.B || i.FellBack || i.Problem != "" {
		t.Errorf("the second image: %+v", i)
	}
	u.event("image-confirmed")

	// An image that panics.
	if out, err := u.call("update", updateBoard, filepath.Join(three, image), "--reboot"); err != nil {
		t.Fatalf("update: %v\n%s", err, out)
	}
	last := u.wait("the fall back", func(st *rocelink.BoardStatus) bool { return st.Epoch != second.Epoch && st.Image.FellBack })
	if i := last.Image; i.Build != "two" || i.Slot != slot.B || i.Trial || i.Problem == "" {
		t.Errorf("after the fall back: %+v", i)
	}
	if n := strings.Count(u.console.String(), "Attempted to kill init"); n != slot.Limit {
		t.Errorf("the broken image was tried %d times, want %d", n, slot.Limit)
	}
	u.event("image-fell-back")

	if out, err := u.call("power", updateBoard, "off", "--reason", "the test ends"); err != nil {
		t.Fatalf("power off: %v\n%s", err, out)
	}
	select {
	case <-done:
		if err := <-u.ended; err != nil {
			t.Errorf("power off: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the board is still on")
	}
	u.event("power")
	checkCard(t, card, whole)
}

// event fails unless an event of the kind is published; it may come after the
// status that tells the same.
func (u *updater) event(kind string) {
	u.Helper()
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		u.mu.Lock()
		events := slices.Clone(u.events)
		u.mu.Unlock()
		if slices.ContainsFunc(events, func(e rocelink.Event) bool { return e.Kind == kind }) {
			return
		}
		if time.Now().After(limit) {
			u.Errorf("no event %s in %v", kind, events)
			return
		}
	}
}

// checkCard looks whether the file system is in order and holds what it should.
func checkCard(t *testing.T, card string, second []byte) {
	t.Helper()
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
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch f.Name {
		case slot.Image(slot.B):
			if string(f.Data) != string(second) {
				t.Errorf("%s has %d bytes, not those of the image that runs", f.Name, len(f.Data))
			}
		case slot.New(slot.A), slot.New(slot.B):
			t.Errorf("%s is left", f.Name)
		}
	}
}
