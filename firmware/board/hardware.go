package board

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rocelink/boards"
	"rocelink/firmware/link"
	"rocelink/firmware/rocecore"
	"rocelink/firmware/wiring"
	"rocelink/fpga/regs"
)

// hardware is what is open while there is a fabric.
type hardware struct {
	apertures map[string]Registers
	core      *rocecore.Core
	blocks    map[string]regs.Bus // by name of the register table

	mac      mac // nil while it does not answer
	macBlock string
	wiring   *wiring.Wiring // of what is in the fabric
	unwatch  func()
	link     *link.Machine
	macAt    time.Time // next attempt to open it
	macError error
	ticked   time.Time

	sampleError error
}

const macRetry = 2 * time.Second

func (h *hardware) close(log *slog.Logger) {
	if h.unwatch != nil {
		h.unwatch()
	}
	for name, r := range h.apertures {
		if err := r.Close(); err != nil {
			log.Warn("close registers", "aperture", name, "err", err)
		}
	}
}

// setUp opens the registers anew and brings the fabric up. The caller holds mu.
func (b *Board) setUp() (err error) {
	d := b.cfg.Description
	h := &hardware{apertures: map[string]Registers{}, blocks: map[string]regs.Bus{}}
	defer func() {
		if err != nil {
			h.close(b.log)
		}
	}()
	for _, a := range d.Apertures {
		r, err := b.cfg.Open(a)
		if err != nil {
			return fmt.Errorf("aperture %s: %w", a.Name, err)
		}
		h.apertures[a.Name] = r
	}
	a, ok := d.Aperture(d.RoCE.Aperture)
	if !ok {
		return fmt.Errorf("aperture %s: not in the description", d.RoCE.Aperture)
	}
	bus := regs.At(h.apertures[a.Name], d.RoCE.Offset)
	size := a.Size - uint64(d.RoCE.Offset)
	h.core, err = rocecore.Open(bus, size, rocecore.Config{Poll: b.poll()})
	if err != nil {
		return err
	}
	if d.Bitstream != nil && d.Bitstream.Build != 0 && h.core.Info().Build != d.Bitstream.Build {
		return fmt.Errorf("the fabric is of build %#08x, %s should be %#08x: correct the file, or the build in the description", h.core.Info().Build, d.Bitstream.File, d.Bitstream.Build)
	}
	if err := h.core.SetUp(b.cfg.MAC, b.cfg.Address); err != nil {
		return err
	}
	for name, at := range h.core.Info().Blocks {
		h.blocks[name] = regs.At(bus, at)
	}
	b.hw = h
	wire := b.cfg.Wiring
	wire.Registers = func(aperture string, offset uint32) (regs.Bus, error) {
		r, ok := h.apertures[aperture]
		if !ok {
			return nil, fmt.Errorf("aperture %q: %w", aperture, wiring.ErrUnknown)
		}
		return regs.At(r, offset), nil
	}
	h.wiring = wiring.New(d, wire)
	h.unwatch = b.watch(true, h.wiring)
	b.loader.vain = 0
	b.missing, b.backoff = "", firstBackoff
	b.streams.Attach(h.core)
	i := h.core.Info()
	kind := "fabric-ready"
	if b.everUp {
		b.setUps++
		kind = "fabric-restarted"
	}
	b.everUp = true
	b.emit(kind, "register layout %s, build %#08x, %d queue pairs, path MTU up to %d", i.Version, i.Build, i.QueuePairs, i.MaxMTU)
	for _, u := range d.Unverified {
		if kind == "fabric-ready" {
			b.log.Warn("not verified on hardware", "what", u)
		}
	}
	return nil
}

// absent notes that setting the fabric up failed, and when to try again.
func (b *Board) absent(err error) {
	if text := err.Error(); text != b.missing {
		b.missing = text
		b.streams.Detach(text)
		if !errors.Is(err, errLoading) {
			b.emit("fabric-missing", "%v", err)
		}
	}
	if errors.Is(err, errLoading) {
		b.retryAt = b.cfg.Now() // the end of the load is seen at the next tick
		return
	}
	b.loader.notLoaded()
	b.retryAt = b.cfg.Now().Add(b.backoff)
	b.backoff = min(2*b.backoff, lastBackoff)
}

// lose gives the fabric up: streams end, and it is set up again when it is
// back. The caller holds mu.
func (b *Board) lose(err error) {
	// A fabric that does not end a command may still send: it is switched off
	// if it is still the one we know.
	if errors.Is(err, rocecore.ErrTimeout) {
		if off := b.hw.core.Enable(false); off != nil {
			b.log.Warn("switch the fabric off", "err", off)
		}
	}
	reason := fmt.Sprintf("the fabric was lost: %v", err)
	b.emit("fabric-lost", "%v", err)
	b.streams.Detach(reason)
	b.hw.close(b.log)
	b.hw, b.missing = nil, reason
	for i, d := range b.cfg.Description.Cages {
		if wiring.CageInFabric(b.cfg.Description, d) {
			b.cages[i] = nil
		}
	}
	for i, d := range b.cfg.Description.Clocks {
		if wiring.ClockInFabric(b.cfg.Description, d) {
			b.clocks[i] = nil
		}
	}
	b.dropLink()
	b.retryAt, b.backoff = b.cfg.Now().Add(firstBackoff), firstBackoff
}

// stepLink opens the MAC if need be and drives the link. The caller holds mu.
func (b *Board) stepLink(now time.Time) {
	h := b.hw
	if h.mac == nil {
		if now.Before(h.macAt) {
			return
		}
		if err := b.openMAC(); err != nil {
			h.macAt = now.Add(macRetry)
			if h.macError == nil || h.macError.Error() != err.Error() {
				b.log.Warn("open the MAC", "err", err)
				b.dirty = true
			}
			h.macError = err
			b.link.State = link.Down
			return
		}
	}
	if h.link.Step() {
		b.dirty = true
	}
	b.seeLink(h.link.Status(), now)
	if now.Sub(h.ticked) >= publishEvery {
		h.ticked = now
		b.sampleMAC()
	}
}

// sampleMAC takes the MAC's counters. What goes wrong is told once.
func (b *Board) sampleMAC() {
	h := b.hw
	err := h.mac.Sample()
	if err != nil && (h.sampleError == nil || h.sampleError.Error() != err.Error()) {
		b.log.Warn("sample the MAC", "err", err)
	}
	h.sampleError = err
	if err == nil {
		b.errors.sample(b.cfg.Now(), h.mac, b.link.Up)
	}
}

// seeLink takes a new link status and tells when up changed.
func (b *Board) seeLink(s link.Status, now time.Time) {
	before := b.link
	s.Losses += b.losses
	if !s.Up && !before.Up {
		// A machine that was made anew does not know how long it has been.
		s.Since = before.Since
	}
	b.link = s
	switch {
	case s.Up && !before.Up:
		if !b.downAt.IsZero() {
			b.tellDown()
		}
		b.errors = errorCount{}
		b.emit("link-up", "receive status %s", s.Reading.Status)
	case !s.Up && before.Up:
		// What the modules see belongs to the sentence.
		b.downAt = now
		for _, c := range b.cages {
			if c != nil {
				c.soon()
			}
		}
	}
}

// dropLink ends the link machine together with its hardware.
func (b *Board) dropLink() {
	s := b.link
	if s.Up {
		s.Losses++
		s.Since = b.cfg.Now()
	}
	s.Up, s.State, s.Reading, s.Err = false, link.Down, link.Reading{}, nil
	b.losses = s.Losses
	s.Losses = 0 // seeLink adds what was before
	b.seeLink(s, b.cfg.Now())
}

func (b *Board) openMAC() error {
	d := b.cfg.Description.MAC
	open, err := macDriver(d.Driver)
	if err != nil {
		return err
	}
	bus := regs.At(b.hw.apertures[d.Aperture], d.Offset)
	m, block, err := open(bus, macConfig{b.cfg.FEC, d.FlowControl, b.poll()})
	if err != nil {
		return err
	}
	b.hw.mac, b.hw.macError = m, nil
	b.hw.macBlock, b.hw.blocks[block] = block, bus
	b.hw.link = link.New(m, link.Config{Now: b.cfg.Now, Ready: b.ready})
	b.losses = b.link.Losses
	return nil
}

// Override returns the description with its one aperture in another file.
func Override(d boards.Board, file string) (*boards.Board, error) {
	if len(d.Apertures) != 1 {
		return nil, fmt.Errorf("board: a registers file replaces one aperture, model %s has %d", d.Model, len(d.Apertures))
	}
	a := d.Apertures[0]
	// The file is the aperture: its first byte is the aperture's first.
	a.File, a.Base = file, 0
	d.Apertures = []boards.Aperture{a}
	return &d, nil
}
