// Package update takes a new boot image into the slot that does not run and has
// the boot loader try it. Whatever happens, and wherever the power is lost, the
// card holds a whole image that the boot loader starts: the new one gets its
// name only when it is whole and proven, and becomes the board's only once it
// has reported in.
package update

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync"
	"time"

	"rocelink"
	"rocelink/boards/slot"
)

const (
	// MaxImage is the largest image that is taken.
	MaxImage = 512 << 20
	// idle is how long a transfer without a piece keeps others away.
	idle = 30 * time.Second
	// syncEvery bounds what a slow card has to write at once.
	syncEvery = 4 << 20
	// room is what must be left for the file system itself.
	room = 64 << 10
)

// Config is what a Store works with.
type Config struct {
	// Slot runs: slot.A or slot.B. "" refuses updates.
	Slot  string
	Model string // of the board
	// Key is what images are signed with; nil refuses updates.
	Key  ed25519.PublicKey
	Open Opener
	Now  func() time.Time // nil: time.Now
}

// Store is the board's two images. Its methods may be called by several at a
// time; one that waits for the card does not hold up Image.
type Store struct {
	cfg Config

	work sync.Mutex // held by what uses the card, and guards the transfer
	t    *transfer
	last uint64

	mu    sync.Mutex
	image rocelink.Image
}

// transfer is an image on its way.
type transfer struct {
	number  uint64
	request rocelink.UpdateRequest
	slot    string
	card    Card
	file    File
	taken   int64
	synced  int64
	sum     hash.Hash
	touched time.Time
}

// New returns a store that has not touched the card.
func New(c Config) *Store {
	if c.Now == nil {
		c.Now = time.Now
	}
	// Numbers of an earlier run must not be taken for one of this run.
	return &Store{cfg: c, image: rocelink.Image{Slot: c.Slot}, last: uint64(c.Now().UnixNano()) >> 10}
}

// Image is what is known of the image that runs.
func (s *Store) Image() rocelink.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.image
}

func (s *Store) set(change func(*rocelink.Image)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.image)
}

// Load reads from the card how the image that runs came to run.
func (s *Store) Load(ctx context.Context) error {
	if s.cfg.Slot == "" {
		return nil
	}
	s.work.Lock()
	defer s.work.Unlock()
	err := s.with(ctx, false, func(c Card) error {
		state, err := readState(c)
		if err != nil {
			return err
		}
		s.set(func(i *rocelink.Image) {
			i.Trial = state.Trial == s.cfg.Slot
			i.FellBack = state.Trial != "" && !i.Trial && s.tried(c, state)
			i.Problem = ""
			switch {
			case i.FellBack:
				i.Problem = fmt.Sprintf("the new image in slot %s did not report in %d times: slot %s runs again", state.Trial, slot.Limit, s.cfg.Slot)
			case state.Slot != s.cfg.Slot && !i.Trial:
				i.Problem = fmt.Sprintf("the image in slot %s does not boot: slot %s runs", state.Slot, s.cfg.Slot)
			}
		})
		return nil
	})
	if err != nil {
		s.set(func(i *rocelink.Image) { i.Problem = "slots: " + err.Error() })
		return fmt.Errorf("slots: %w", err)
	}
	return nil
}

// tried says whether the boot loader has given up the trial: an image that waits
// for its first try has not fallen back.
func (s *Store) tried(c Card, state slot.State) bool {
	data, err := c.Read(slot.TriesFile)
	if err != nil {
		return true
	}
	t, err := slot.DecodeTries(data)
	return err != nil || t.Serial != state.Serial || t.Count > 0
}

// Confirm notes that the image that runs works. It is called once it has
// reported in.
func (s *Store) Confirm(ctx context.Context) error {
	if s.cfg.Slot == "" {
		return nil
	}
	s.work.Lock()
	defer s.work.Unlock()
	err := s.with(ctx, true, func(c Card) error {
		state, err := readState(c)
		if err != nil || state.Trial != s.cfg.Slot {
			return err
		}
		return writeState(c, slot.State{Slot: s.cfg.Slot, Serial: state.Serial})
	})
	if err != nil {
		return fmt.Errorf("confirm the image in slot %s: %w", s.cfg.Slot, err)
	}
	s.set(func(i *rocelink.Image) { i.Trial = false })
	return nil
}

// with opens the card for one use.
func (s *Store) with(ctx context.Context, write bool, use func(Card) error) error {
	c, err := s.cfg.Open(ctx, write)
	if err != nil {
		return err
	}
	return errors.Join(use(c), c.Close())
}

func readState(c Card) (slot.State, error) {
	var all error
	for _, name := range []string{slot.StateFile, slot.StateCopy} {
		data, err := c.Read(name)
		if err == nil {
			var s slot.State
			if s, err = slot.DecodeState(data); err == nil {
				return s, nil
			}
		}
		all = errors.Join(all, fmt.Errorf("%s: %w", name, err))
	}
	return slot.State{}, all
}

// writeState writes both files, one after the other: one of them is right at any
// time.
func writeState(c Card, s slot.State) error {
	for _, name := range []string{slot.StateFile, slot.StateCopy} {
		if err := c.Overwrite(name, s.Encode()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Begin begins a transfer, or goes on with the same one. An error is a
// *rocelink.Error.
func (s *Store) Begin(ctx context.Context, r rocelink.UpdateRequest) (rocelink.UpdateReply, error) {
	if err := s.check(r); err != nil {
		return rocelink.UpdateReply{}, err
	}
	s.work.Lock()
	defer s.work.Unlock()
	if t := s.t; t != nil {
		same := t.request.Size == r.Size && bytes.Equal(t.request.SHA256, r.SHA256) && bytes.Equal(t.request.Signature, r.Signature)
		quiet := s.cfg.Now().Sub(t.touched)
		switch {
		case same:
			t.touched = s.cfg.Now()
			return t.reply(), nil
		case quiet < idle:
			return rocelink.UpdateReply{}, rocelink.Refuse(rocelink.CodeBusy,
				"update-begin: image %.40q is on its way, %d of %d bytes: wait, or abort update %d", t.request.Build, t.taken, t.request.Size, t.number)
		}
		s.drop()
	}
	t, err := s.begin(ctx, r)
	if err != nil {
		if errors.Is(err, ErrFull) {
			return rocelink.UpdateReply{}, rocelink.Refuse(rocelink.CodeFailed, "update-begin: %v: free some, or write a larger card", err)
		}
		return rocelink.UpdateReply{}, refusal("update-begin", err)
	}
	s.t = t
	return t.reply(), nil
}

// check refuses what cannot be an update of this board.
func (s *Store) check(r rocelink.UpdateRequest) error {
	bad := func(format string, args ...any) error {
		return rocelink.Refuse(rocelink.CodeBadRequest, "update-begin: "+format, args...)
	}
	switch {
	case s.cfg.Slot == "":
		return rocelink.Refuse(rocelink.CodeUnsupported, "update-begin: this board did not start from a card with two slots: write a card with boot.scr")
	case s.cfg.Key == nil:
		return rocelink.Refuse(rocelink.CodeUnsupported, "update-begin: the image that runs has no key to check another by: build it with --sign or --update-key")
	case r.Size == 0 || r.Size > MaxImage:
		return bad("size %d: want 1 to %d bytes", r.Size, int64(MaxImage))
	case len(r.SHA256) != sha256.Size:
		return bad("sha256 of %d bytes: want %d", len(r.SHA256), sha256.Size)
	case len(r.Signature) != ed25519.SignatureSize:
		return bad("signature of %d bytes: want %d", len(r.Signature), ed25519.SignatureSize)
	}
	return rocelink.CheckName("build", r.Build)
}

func (s *Store) begin(ctx context.Context, r rocelink.UpdateRequest) (t *transfer, err error) {
	c, err := s.cfg.Open(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	if state.Trial == s.cfg.Slot {
		return nil, rocelink.Refuse(rocelink.CodeState, "update-begin: the image that runs is on trial itself and not confirmed yet")
	}
	to := slot.Other(s.cfg.Slot)
	// What is to be replaced must not be what the boot loader starts.
	if state.Trial != "" || state.Slot != s.cfg.Slot {
		state.Trial, state.Slot = "", s.cfg.Slot
		if err := writeState(c, state); err != nil {
			return nil, err
		}
	}
	if err := c.Remove(slot.New(to)); err != nil {
		return nil, fmt.Errorf("remove the rest of an earlier transfer: %w", err)
	}
	need := int64(r.Size) + room
	free, err := c.Free()
	if err != nil {
		return nil, err
	}
	if old := c.Size(slot.Image(to)); free < need && free+old >= need {
		// It is of use only as long as there is room for both.
		if err := c.Remove(slot.Image(to)); err != nil {
			return nil, fmt.Errorf("remove the old image: %w", err)
		}
		if err := c.Sync(); err != nil {
			return nil, err
		}
		if free, err = c.Free(); err != nil {
			return nil, err
		}
	}
	if free < need {
		return nil, fmt.Errorf("%w: %d bytes are free, the image needs %d", ErrFull, free, need)
	}
	f, err := c.Create(slot.New(to))
	if err != nil {
		return nil, err
	}
	s.last++
	return &transfer{number: s.last, request: r, slot: to, card: c, file: f, sum: sha256.New(), touched: s.cfg.Now()}, nil
}

func (t *transfer) reply() rocelink.UpdateReply {
	return rocelink.UpdateReply{Version: rocelink.Version, Update: rocelink.Count(t.number), Slot: t.slot, Offset: rocelink.Count(t.taken)}
}

// current returns the transfer with the number.
func (s *Store) current(endpoint string, number rocelink.Count) (*transfer, error) {
	if s.t == nil || rocelink.Count(s.t.number) != number {
		return nil, rocelink.Refuse(rocelink.CodeState, "%s: no update %d is under way: begin again", endpoint, number)
	}
	return s.t, nil
}

// Write takes the bytes at offset. Those that were taken already are not taken
// again, so that a piece whose reply was lost may be sent once more.
func (s *Store) Write(number, offset rocelink.Count, data []byte) (rocelink.UpdateReply, error) {
	const endpoint = rocelink.EndpointUpdateWrite
	s.work.Lock()
	defer s.work.Unlock()
	t, err := s.current(endpoint, number)
	if err != nil {
		return rocelink.UpdateReply{}, err
	}
	taken, size := rocelink.Count(t.taken), t.request.Size
	switch end := offset + rocelink.Count(len(data)); {
	case len(data) == 0 || offset > size || end > size:
		return rocelink.UpdateReply{}, rocelink.Refuse(rocelink.CodeBadRequest, "%s: bytes %d to %d: the image has %d", endpoint, offset, end, size)
	case offset > taken:
		return rocelink.UpdateReply{}, rocelink.Refuse(rocelink.CodeState, "%s: bytes from %d: the next is %d", endpoint, offset, taken)
	case end <= taken:
		return t.reply(), nil
	}
	data = data[taken-offset:]
	t.touched = s.cfg.Now()
	if _, err = t.file.Write(data); err == nil {
		t.sum.Write(data)
		t.taken += int64(len(data))
		if t.taken-t.synced >= syncEvery {
			err = t.file.Sync()
			t.synced = t.taken
		}
	}
	if err != nil {
		s.drop()
		return rocelink.UpdateReply{}, rocelink.Refuse(rocelink.CodeFailed, "%s: %v: the update is given up", endpoint, err)
	}
	return t.reply(), nil
}

// Abort gives a transfer up; one that is not under way is given up already.
func (s *Store) Abort(number rocelink.Count) error {
	s.work.Lock()
	defer s.work.Unlock()
	if s.t != nil && rocelink.Count(s.t.number) == number {
		return s.drop()
	}
	return nil
}

// Stop gives up what is under way.
func (s *Store) Stop() error {
	s.work.Lock()
	defer s.work.Unlock()
	return s.drop()
}

// drop ends the transfer and removes what came of it.
func (s *Store) drop() error {
	t := s.t
	if t == nil {
		return nil
	}
	s.t = nil
	err := t.close()
	return errors.Join(err, t.card.Remove(slot.New(t.slot)), t.card.Close())
}

func (t *transfer) close() error {
	if t.file == nil {
		return nil
	}
	f := t.file
	t.file = nil
	return f.Close()
}

// Finish checks the image as the card has it, and only then gives it its name and
// has the boot loader try it.
func (s *Store) Finish(number rocelink.Count) (rocelink.UpdateReply, error) {
	const endpoint = rocelink.EndpointUpdateFinish
	s.work.Lock()
	defer s.work.Unlock()
	t, err := s.current(endpoint, number)
	if err != nil {
		return rocelink.UpdateReply{}, err
	}
	if missing := int64(t.request.Size) - t.taken; missing > 0 {
		return rocelink.UpdateReply{}, rocelink.Refuse(rocelink.CodeState, "%s: %d of %d bytes are missing", endpoint, missing, t.request.Size)
	}
	err = s.prove(t)
	if err == nil {
		err = s.install(t)
	}
	if err != nil {
		return rocelink.UpdateReply{}, refusal(endpoint, errors.Join(err, s.drop()))
	}
	s.t = nil
	reply := t.reply()
	reply.Ready = true
	if err := t.card.Close(); err != nil {
		return rocelink.UpdateReply{}, refusal(endpoint, err)
	}
	s.set(func(i *rocelink.Image) { i.FellBack, i.Problem = false, "" })
	return reply, nil
}

// refusal is an error as it crosses the wire.
func refusal(endpoint string, err error) error {
	var e *rocelink.Error
	if errors.As(err, &e) {
		return e
	}
	return rocelink.Refuse(rocelink.CodeFailed, "%s: %v", endpoint, err)
}

// prove reads the image back from the card.
func (s *Store) prove(t *transfer) error {
	bad := func(format string, args ...any) error {
		return rocelink.Refuse(rocelink.CodeBadRequest, "update-finish: "+format, args...)
	}
	if got := t.sum.Sum(nil); !bytes.Equal(got, t.request.SHA256) {
		return bad("SHA-256 of the bytes that came is %x, announced was %x", got, t.request.SHA256)
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	if err := t.close(); err != nil {
		return err
	}
	r, err := t.card.Open(slot.New(t.slot))
	if err != nil {
		return err
	}
	defer r.Close()
	size := int64(t.request.Size)
	sum, digest := sha256.New(), sha512.New()
	n, err := io.Copy(io.MultiWriter(sum, digest), io.NewSectionReader(r, 0, size))
	switch {
	case err != nil:
		return fmt.Errorf("read the image back: %w", err)
	case n != size || !bytes.Equal(sum.Sum(nil), t.request.SHA256):
		return fmt.Errorf("the card does not give back what was written: try another card")
	}
	if err := slot.Verify(s.cfg.Key, digest.Sum(nil), t.request.Signature); err != nil {
		return bad("%v: the image is not signed with the key of the image that runs", err)
	}
	if err := slot.CheckImage(r, size, s.cfg.Model); err != nil {
		if errors.Is(err, slot.ErrImage) || errors.Is(err, slot.ErrBoard) {
			return bad("%v", err)
		}
		return err
	}
	return nil
}

// install gives the image its name. The boot loader hears of it last.
func (s *Store) install(t *transfer) error {
	c := t.card
	state, err := readState(c)
	if err != nil {
		return err
	}
	if err := c.Remove(slot.Image(t.slot)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old image: %w", err)
	}
	if err := c.Rename(slot.New(t.slot), slot.Image(t.slot)); err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	if err := c.Sync(); err != nil {
		return err
	}
	serial := state.Serial + 1
	if err := c.Overwrite(slot.TriesFile, slot.Tries{Serial: serial}.Encode()); err != nil {
		return fmt.Errorf("%s: %w", slot.TriesFile, err)
	}
	return writeState(c, slot.State{Slot: s.cfg.Slot, Trial: t.slot, Serial: serial})
}
