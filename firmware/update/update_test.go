package update

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/boards/slot"
)

var errPower = errors.New("the power is gone")

// fakeCard is a card whose power can be lost after any number of bytes: what a
// write had put onto the medium by then stays.
type fakeCard struct {
	files map[string][]byte
	left  int // bytes and steps until the power is lost; negative: never
	room  int64
	more  int64 // free by its tables, and not there
	open  bool
	spoil bool // what is read back is not what was written
}

func (c *fakeCard) step(n int) int {
	if c.left < 0 {
		return n
	}
	n = min(n, c.left)
	c.left -= n
	return n
}

func (c *fakeCard) opener(context.Context, bool) (Card, error) {
	if c.open {
		return nil, errors.New("mounted already")
	}
	c.open = true
	return c, nil
}

func (c *fakeCard) Close() error { c.open = false; return nil }

func (c *fakeCard) Read(name string) ([]byte, error) {
	d, ok := c.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return slices.Clone(d), nil
}

// Overwrite is torn where the power is lost: worse than a card does.
func (c *fakeCard) Overwrite(name string, data []byte) error {
	n := c.step(len(data))
	old := c.files[name]
	torn := append(slices.Clone(data[:n]), old[min(n, len(old)):]...)
	c.files[name] = torn
	if n < len(data) {
		return errPower
	}
	return nil
}

func (c *fakeCard) Create(name string) (File, error) {
	if c.step(1) == 0 {
		return nil, errPower
	}
	c.files[name] = nil
	return &fakeFile{c, name}, nil
}

type fakeFile struct {
	c    *fakeCard
	name string
}

func (f *fakeFile) Write(b []byte) (int, error) {
	if int64(len(b)) > f.c.room {
		return 0, ErrFull
	}
	n := f.c.step(len(b))
	f.c.room -= int64(n)
	f.c.files[f.name] = append(f.c.files[f.name], b[:n]...)
	if n < len(b) {
		return n, errPower
	}
	return n, nil
}
func (f *fakeFile) Sync() error  { return nil }
func (f *fakeFile) Close() error { return nil }

type fakeReader struct{ *bytes.Reader }

func (fakeReader) Close() error { return nil }

func (c *fakeCard) Open(name string) (Reader, error) {
	d, ok := c.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if d = slices.Clone(d); c.spoil {
		d[len(d)/2] ^= 1
	}
	return fakeReader{bytes.NewReader(d)}, nil
}

func (c *fakeCard) Rename(from, to string) error {
	if c.step(1) == 0 {
		return errPower
	}
	c.files[to] = c.files[from]
	delete(c.files, from)
	return nil
}

func (c *fakeCard) Remove(name string) error {
	if c.step(1) == 0 {
		return errPower
	}
	c.room += int64(len(c.files[name]))
	delete(c.files, name)
	return nil
}

func (c *fakeCard) Size(name string) int64 { return int64(len(c.files[name])) }
func (c *fakeCard) Free() (int64, error)   { return c.room + c.more, nil }
func (c *fakeCard) Sync() error            { return nil }

// image is a FIT image for a model, with two parts.
func image(model string, fill byte) []byte {
	var names, s bytes.Buffer
	word := func(v uint32) { _ = binary.Write(&s, binary.BigEndian, v) }
	pad := func() {
		for s.Len()%4 != 0 {
			s.WriteByte(0)
		}
	}
	node := func(name string) { word(1); s.WriteString(name + "\x00"); pad() }
	prop := func(name string, v []byte) {
		word(3)
		word(uint32(len(v)))
		word(uint32(names.Len()))
		names.WriteString(name + "\x00")
		s.Write(v)
		pad()
	}
	node("")
	prop(slot.ModelProperty, []byte(model+"\x00"))
	node("images")
	for _, p := range []string{"kernel", "fdt"} {
		data := bytes.Repeat([]byte{fill}, 300)
		sum := sha256.Sum256(data)
		node(p)
		prop("data", data)
		node("hash")
		prop("algo", []byte("sha256\x00"))
		prop("value", sum[:])
		word(2)
		word(2)
	}
	word(2)
	word(2)
	word(9)
	const head = 40
	var out bytes.Buffer
	for _, v := range []int{0xd00dfeed, head + s.Len() + names.Len(), head, head + s.Len(), head, 17, 16, 0, names.Len(), s.Len()} {
		_ = binary.Write(&out, binary.BigEndian, uint32(v))
	}
	out.Write(s.Bytes())
	out.Write(names.Bytes())
	return out.Bytes()
}

const model = "m"

// signed is a key with the request for an image.
func request(t testing.TB, key ed25519.PrivateKey, data []byte) rocelink.UpdateRequest {
	t.Helper()
	digest, sum := sha512.Sum512(data), sha256.Sum256(data)
	sig, err := key.Sign(nil, digest[:], slot.SignatureOptions)
	if err != nil {
		t.Fatal(err)
	}
	return rocelink.UpdateRequest{Version: rocelink.Version, Size: rocelink.Count(len(data)), SHA256: sum[:], Signature: sig, Build: "new"}
}

func newCard(old []byte) *fakeCard {
	state := slot.State{Slot: slot.A, Serial: 4}.Encode()
	return &fakeCard{left: -1, room: 1 << 20, files: map[string][]byte{
		slot.Image(slot.A): old, slot.StateFile: state, slot.StateCopy: slices.Clone(state), slot.TriesFile: slot.Tries{}.Encode(),
	}}
}

func store(c *fakeCard, key ed25519.PublicKey, at string) *Store {
	return New(Config{Slot: at, Model: model, Key: key, Open: c.opener})
}

// transferAll does a whole update.
func transferAll(s *Store, r rocelink.UpdateRequest, data []byte) (rocelink.UpdateReply, error) {
	at, err := s.Begin(context.Background(), r)
	for err == nil && int(at.Offset) < len(data) {
		end := min(int(at.Offset)+100, len(data))
		at, err = s.Write(at.Update, at.Offset, data[at.Offset:end])
	}
	if err != nil {
		return at, err
	}
	return s.Finish(at.Update)
}

// boots is what the boot loader starts from a card: the first image that is whole.
func boots(c *fakeCard) (slotName string, data []byte) {
	order, tries := slot.Order(c.files[slot.StateFile], c.files[slot.StateCopy], c.files[slot.TriesFile])
	if tries != nil {
		c.files[slot.TriesFile] = tries
	}
	for _, s := range order {
		if d, ok := c.files[slot.Image(s)]; ok && slot.CheckImage(bytes.NewReader(d), int64(len(d)), model) == nil {
			return s, d
		}
	}
	return "", nil
}

// Wherever the power is lost during an update and its confirmation, the card
// starts a whole image, old or new, and a new one stays only once confirmed.
func TestPowerLoss(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	old, next := image(model, 1), image(model, 2)
	r := request(t, private, next)
	saw := map[string]bool{}
	for cut := 0; ; cut++ {
		c := newCard(old)
		// An older image is in the other slot, as it is after the first update.
		c.files[slot.Image(slot.B)] = image(model, 3)
		c.left = cut
		_, err := transferAll(store(c, public, slot.A), r, next)
		if err == nil {
			// It starts and reports in; the power may be lost while that is noted.
			left := c.left
			c.left = -1
			if at, _ := boots(c); at != slot.B {
				t.Fatalf("after the update slot %q boots", at)
			}
			c.left = left
			err = store(c, public, slot.B).Confirm(context.Background())
		}
		c.left = -1
		for n := range slot.Limit + 2 {
			at, data := boots(c)
			switch {
			case at == "":
				t.Fatalf("cut at %d: nothing boots, start %d", cut, n)
			case !bytes.Equal(data, old) && !bytes.Equal(data, next):
				t.Fatalf("cut at %d: slot %s holds something else", cut, at)
			}
			saw[at] = true
			// Nobody confirms: in the end it is the one that is known to work.
			if want, known := confirmed(c); n > slot.Limit && known && at != want {
				t.Fatalf("cut at %d: slot %s runs, %s is confirmed", cut, at, want)
			}
		}
		if err == nil {
			if at, _ := boots(c); at != slot.B {
				t.Errorf("confirmed, and slot %s boots", at)
			}
			break
		}
	}
	if !saw[slot.A] || !saw[slot.B] {
		t.Errorf("only %v ever booted", slices.Collect(maps.Keys(saw)))
	}
}

func confirmed(c *fakeCard) (string, bool) {
	for _, f := range []string{slot.StateFile, slot.StateCopy} {
		if s, err := slot.DecodeState(c.files[f]); err == nil {
			return s.Slot, true
		}
	}
	return "", false
}

func TestFallBack(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	old, next := image(model, 1), image(model, 2)
	c := newCard(old)
	if r, err := transferAll(store(c, public, slot.A), request(t, private, next), next); err != nil || !r.Ready || r.Slot != slot.B {
		t.Fatalf("%+v, %v", r, err)
	}
	for n := range slot.Limit {
		if at, _ := boots(c); at != slot.B {
			t.Fatalf("try %d: slot %s", n, at)
		}
		s := store(c, public, slot.B)
		if err := s.Load(context.Background()); err != nil || !s.Image().Trial {
			t.Fatalf("try %d: %+v, %v", n, s.Image(), err)
		}
		// One that is on trial takes no other.
		if _, err := s.Begin(context.Background(), request(t, private, old)); rocelink.CodeOf(err) != rocelink.CodeState {
			t.Errorf("an update of an image on trial: %v", err)
		}
	}
	if at, _ := boots(c); at != slot.A {
		t.Fatalf("after %d tries slot %s", slot.Limit, at)
	}
	s := store(c, public, slot.A)
	if err := s.Load(context.Background()); err != nil || !s.Image().FellBack || s.Image().Problem == "" {
		t.Fatalf("%+v, %v", s.Image(), err)
	}
	// The next update is tried as any other.
	if _, err := transferAll(s, request(t, private, next), next); err != nil {
		t.Fatal(err)
	}
	if at, _ := boots(c); at != slot.B {
		t.Errorf("slot %s", at)
	}
	if err := store(c, public, slot.B).Confirm(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s, err := slot.DecodeState(c.files[slot.StateCopy]); err != nil || s.Slot != slot.B || s.Trial != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestRefused(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	_, foreign, _ := ed25519.GenerateKey(nil)
	good := image(model, 2)
	short := good[:len(good)-8]
	spoiled := slices.Clone(good)
	spoiled[bytes.IndexByte(spoiled, 2)+200] ^= 1
	for _, c := range []struct {
		name string
		data []byte
		key  ed25519.PrivateKey
		do   func(*fakeCard, *Config, *rocelink.UpdateRequest)
		code rocelink.Code
		text string
	}{
		{"wrong signature", good, foreign, nil, rocelink.CodeBadRequest, "signature"},
		{"wrong board", image("other", 2), private, nil, rocelink.CodeBadRequest, "other"},
		{"truncated FIT", short, private, nil, rocelink.CodeBadRequest, "whole"},
		{"changed part", spoiled, private, nil, rocelink.CodeBadRequest, "SHA-256"},
		{"no FIT", []byte(strings.Repeat("x", 500)), private, nil, rocelink.CodeBadRequest, "begins"},
		{"other bytes than announced", good, private, func(_ *fakeCard, _ *Config, r *rocelink.UpdateRequest) { r.SHA256 = make([]byte, 32) }, rocelink.CodeBadRequest, "announced"},
		{"full", good, private, func(c *fakeCard, _ *Config, _ *rocelink.UpdateRequest) { c.room = 100 }, rocelink.CodeFailed, "full"},
		{"full on the way", good, private, func(c *fakeCard, _ *Config, _ *rocelink.UpdateRequest) { c.room, c.more = 150, 1<<20 }, rocelink.CodeFailed, "full"},
		{"a bad card", good, private, func(c *fakeCard, _ *Config, _ *rocelink.UpdateRequest) { c.spoil = true }, rocelink.CodeFailed, "another card"},
		{"no key", good, private, func(_ *fakeCard, k *Config, _ *rocelink.UpdateRequest) { k.Key = nil }, rocelink.CodeUnsupported, "--sign"},
		{"one slot", good, private, func(_ *fakeCard, k *Config, _ *rocelink.UpdateRequest) { k.Slot = "" }, rocelink.CodeUnsupported, "two slots"},
		{"no size", good, private, func(_ *fakeCard, _ *Config, r *rocelink.UpdateRequest) { r.Size = 0 }, rocelink.CodeBadRequest, "size"},
		{"too large", good, private, func(_ *fakeCard, _ *Config, r *rocelink.UpdateRequest) { r.Size = MaxImage + 1 }, rocelink.CodeBadRequest, "size"},
		{"short hash", good, private, func(_ *fakeCard, _ *Config, r *rocelink.UpdateRequest) { r.SHA256 = r.SHA256[1:] }, rocelink.CodeBadRequest, "sha256"},
		{"short signature", good, private, func(_ *fakeCard, _ *Config, r *rocelink.UpdateRequest) { r.Signature = nil }, rocelink.CodeBadRequest, "signature"},
		{"no state", good, private, func(c *fakeCard, _ *Config, _ *rocelink.UpdateRequest) {
			delete(c.files, slot.StateFile)
			delete(c.files, slot.StateCopy)
		}, rocelink.CodeFailed, slot.StateFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			card := newCard(image(model, 1))
			k := Config{Slot: slot.A, Model: model, Key: public, Open: card.opener}
			r := request(t, c.key, c.data)
			if c.do != nil {
				c.do(card, &k, &r)
			}
			state := slices.Clone(card.files[slot.StateFile])
			_, err := transferAll(New(k), r, c.data)
			if rocelink.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %s with %q", err, c.code, c.text)
			}
			if _, ok := card.files[slot.Image(slot.B)]; ok || !bytes.Equal(card.files[slot.StateFile], state) || card.open {
				t.Errorf("something is left: %v, mounted %v", slices.Collect(maps.Keys(card.files)), card.open)
			}
			if _, ok := card.files[slot.New(slot.B)]; ok {
				t.Error("half an image is left")
			}
		})
	}
}

func TestOneAtATime(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	c := newCard(image(model, 1))
	now := time.Unix(1000, 0)
	s := New(Config{Slot: slot.A, Model: model, Key: public, Open: c.opener, Now: func() time.Time { return now }})
	one, two := image(model, 2), image(model, 3)
	a, err := s.Begin(t.Context(), request(t, private, one))
	if err != nil {
		t.Fatal(err)
	}
	if a, err = s.Write(a.Update, 0, one[:200]); err != nil || a.Offset != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	// Another has to wait; the same one goes on.
	if _, err := s.Begin(t.Context(), request(t, private, two)); rocelink.CodeOf(err) != rocelink.CodeBusy {
		t.Errorf("a second updater: %v", err)
	}
	if again, err := s.Begin(t.Context(), request(t, private, one)); err != nil || again.Update != a.Update || again.Offset != 200 {
		t.Errorf("%+v, %v", again, err)
	}
	// A piece once more, one that overlaps, one with a gap, one beyond the end.
	if r, err := s.Write(a.Update, 100, one[100:200]); err != nil || r.Offset != 200 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.Write(a.Update, 150, one[150:250]); err != nil || r.Offset != 250 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, k := range []struct {
		update, offset rocelink.Count
		n              int
		code           rocelink.Code
	}{
		{a.Update, 251, 10, rocelink.CodeState},
		{a.Update, 250, 0, rocelink.CodeBadRequest},
		{a.Update, rocelink.Count(len(one)), 1, rocelink.CodeBadRequest},
		{a.Update, 1<<64 - 1, 2, rocelink.CodeBadRequest},
		{a.Update + 1, 250, 10, rocelink.CodeState},
	} {
		if _, err := s.Write(k.update, k.offset, make([]byte, k.n)); rocelink.CodeOf(err) != k.code {
			t.Errorf("%+v: %v", k, err)
		}
	}
	if _, err := s.Finish(a.Update); rocelink.CodeOf(err) != rocelink.CodeState {
		t.Errorf("half an image: %v", err)
	}
	// One that fell silent is given up.
	now = now.Add(idle)
	b, err := s.Begin(t.Context(), request(t, private, two))
	if err != nil || b.Update == a.Update {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := s.Write(a.Update, 250, one[250:260]); rocelink.CodeOf(err) != rocelink.CodeState {
		t.Errorf("a piece of the one before: %v", err)
	}
	if err := s.Abort(a.Update); err != nil || !c.open {
		t.Errorf("%v", err)
	}
	if err := errors.Join(s.Abort(b.Update), s.Abort(b.Update)); err != nil || c.open || c.files[slot.New(slot.B)] != nil {
		t.Errorf("after the abort: %v, %v", err, slices.Collect(maps.Keys(c.files)))
	}
}

// The old image in the other slot goes only where there is no room beside it.
func TestRoom(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	next := image(model, 2)
	for _, tight := range []bool{false, true} {
		c := newCard(image(model, 1))
		c.files[slot.Image(slot.B)] = bytes.Repeat([]byte{1}, 100<<10)
		if tight {
			c.room = 10
		}
		if _, err := store(c, public, slot.A).Begin(t.Context(), request(t, private, next)); err != nil {
			t.Fatal(err)
		}
		if gone := c.files[slot.Image(slot.B)] == nil; gone != tight {
			t.Errorf("tight %v: the old image is gone: %v", tight, gone)
		}
	}
}

// The real file system does what the fake does.
func TestFolder(t *testing.T) {
	f := &Folder{Dir: t.TempDir()}
	if err := f.Overwrite("s", []byte("state")); err != nil {
		t.Fatal(err)
	}
	w, err := f.Create("new")
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, "image")
	if err := errors.Join(err, w.Sync(), w.Close(), f.Rename("new", "image"), f.Remove("nothing"), f.Sync()); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open("image")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text := make([]byte, 5)
	if _, err := r.ReadAt(text, 0); err != nil || string(text) != "image" || f.Size("image") != 5 || f.Size("new") != 0 {
		t.Errorf("%q, %v", text, err)
	}
	if n, err := f.Free(); err != nil || n <= 0 {
		t.Errorf("free %d, %v", n, err)
	}
	if s, err := f.Read("s"); err != nil || string(s) != "state" {
		t.Errorf("%q, %v", s, err)
	}
	if err := full(fmt.Errorf("write: %w", errPower)); errors.Is(err, ErrFull) {
		t.Error(err)
	}
}
