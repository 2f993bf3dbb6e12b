// Package board is a board as a whole: it owns the registers, keeps fabric,
// link and streams in order whatever happens to them, and answers and reports
// over NATS without ever waiting for it.
package board

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/bsp"
	"rocelink/firmware/diagnose"
	"rocelink/firmware/link"
	"rocelink/firmware/poll"
	"rocelink/firmware/stream"
	"rocelink/firmware/wiring"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// Registers is an open aperture; bsp.Registers is one.
type Registers interface {
	regs.Bus
	io.Closer
}

// Config is a board. Name, Description, MAC and Address must be set.
type Config struct {
	Name        string
	Description *boards.Board
	MAC         roce.MAC   // of the fabric's port
	Address     netip.Addr // of the fabric's port
	// FEC overrides the description's, if not empty.
	FEC string
	// MTU is the largest path MTU the network takes; 0 is the fabric's.
	MTU          roce.MTU
	TrafficClass uint8
	// Lease of hosts that ask for none; 0 is rocelink.DefaultLeaseMillis.
	Lease time.Duration
	// NATS is how to reach the server; nil runs without.
	NATS *rocelink.Access
	// System is the computer that the board runs on.
	System System
	// Log takes what a person should know; nil discards it.
	Log *slog.Logger
	// Open opens an aperture; nil maps its file.
	Open func(boards.Aperture) (Registers, error)
	// Load loads the bitstream; nil does so by the kernel's fpga_manager.
	Load func(boards.Bitstream) error
	// Wiring is how I2C buses and GPIO lines are opened, but for those in the
	// fabric; zero is this system's.
	Wiring wiring.Config
	// Run is a folder for what is kept until the system restarts; empty keeps
	// nothing. Clocks that run are left alone by its help.
	Run string
	// Now and Sleep are the clock; nil is the real one.
	Now   func() time.Time
	Sleep func(time.Duration)
}

const (
	tickEvery    = 50 * time.Millisecond  // link, leases, identity
	tickSoon     = 10 * time.Millisecond  // while the link comes up
	soonFor      = 2 * time.Second        // after a step of it began
	sampleEvery  = 250 * time.Millisecond // state of the streams
	publishEvery = time.Second
	// A command of the fabric takes microseconds in logic and a millisecond in
	// software; half a second without an end is a fabric that is gone.
	commandTimeout = 500 * time.Millisecond
	firstBackoff   = 250 * time.Millisecond
	lastBackoff    = 5 * time.Second
	// drainTime is how long streams may deliver what they took when the
	// program ends.
	drainTime = 300 * time.Millisecond
)

// Board runs one board.
type Board struct {
	cfg   Config
	log   *slog.Logger
	start time.Time
	up    uplink
	// refresh asks for a publication at the next tick.
	refresh atomic.Bool

	// mu guards everything below, and with it every access to the hardware.
	mu       sync.Mutex
	hw       *hardware // nil while there is no fabric
	streams  *stream.Manager
	missing  string // why there is no fabric
	retryAt  time.Time
	backoff  time.Duration
	setUps   uint64 // times the fabric was set up after it was lost
	everUp   bool
	losses   uint64      // of links before the present hardware
	link     link.Status // last seen
	finding  diagnose.Finding
	downAt   time.Time // when a link was lost that is not told yet
	errors   errorCount
	loader   loader
	wiring   *wiring.Wiring // of what is not in the fabric
	cages    []*cage        // as in the description; nil: its fabric is missing
	clocks   []*refClock    // likewise
	sensors  atomic.Pointer[[]rocelink.Sensor]
	unwatch  func() // ends the watching of what is not in the fabric
	sequence uint64
	sampled  time.Time
	sent     time.Time
	dirty    bool // something changed since the last publication
	stopped  bool

	// background: cages, clocks and loads have goroutines of their own, which
	// watching counts. Otherwise ticks do their work.
	background bool
	watching   sync.WaitGroup
}

// New returns a board that has not touched anything yet.
func New(cfg Config) (*Board, error) {
	if err := rocelink.CheckName("board", cfg.Name); err != nil {
		return nil, err
	}
	if cfg.Description == nil {
		return nil, errors.New("board: no description")
	}
	if !cfg.MAC.IsUnicast() {
		return nil, fmt.Errorf("board: MAC address %v: want a unicast address, not zero", cfg.MAC)
	}
	cfg.Address = cfg.Address.Unmap()
	if a := cfg.Address; !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
		return nil, fmt.Errorf("board: address %v: give the IP address of the fabric's port", a)
	}
	if cfg.MTU != 0 && !cfg.MTU.Valid() {
		return nil, fmt.Errorf("board: path MTU %d: want 256, 512, 1024, 2048 or 4096", cfg.MTU)
	}
	if _, err := macDriver(cfg.Description.MAC.Driver); err != nil {
		return nil, err
	}
	if cfg.FEC == "" {
		cfg.FEC = cfg.Description.MAC.FEC
	}
	switch cfg.FEC {
	case boards.FECNone, boards.FECOff, boards.FECRS:
	default:
		return nil, fmt.Errorf("board: FEC %q: want none, off or rs", cfg.FEC)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Open == nil {
		cfg.Open = func(a boards.Aperture) (Registers, error) { return bsp.Map(a.File, a.Base, a.Size) }
	}
	if cfg.Load == nil {
		cfg.Load = loadImage
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sleep == nil {
		cfg.Sleep = time.Sleep
	}
	b := &Board{cfg: cfg, log: cfg.Log, start: cfg.Now(), backoff: firstBackoff, missing: "the fabric is not set up yet"}
	b.link = link.Status{State: link.Down, Since: b.start}
	b.cages = make([]*cage, len(cfg.Description.Cages))
	b.clocks = make([]*refClock, len(cfg.Description.Clocks))
	b.wiring = wiring.New(cfg.Description, cfg.Wiring)
	b.streams = stream.New(stream.Config{
		MAC: cfg.MAC, Address: cfg.Address, MTU: cfg.MTU, TrafficClass: cfg.TrafficClass, Lease: cfg.Lease,
		LinkUp: func() (bool, string) { return b.link.Up, b.finding.Text },
		Event:  b.event, Now: cfg.Now,
	})
	b.up.init(b)
	return b, nil
}

func (b *Board) poll() poll.Poll {
	return poll.Poll{Timeout: commandTimeout, Now: b.cfg.Now, Sleep: b.cfg.Sleep}
}

// Run works until ctx ends, then closes every stream, says so, and returns.
// An error means that the configuration cannot work.
func (b *Board) Run(ctx context.Context) error {
	chip := ""
	if b.cfg.Description.SoC != "none" {
		chip = b.chip(os.DirFS("/sys"))
	}
	b.mu.Lock()
	b.background = true
	b.emit("board-started", "%s, model %s, %v, %v%s", b.cfg.Name, b.cfg.Description.Model, b.cfg.MAC, b.cfg.Address, chip)
	b.mu.Unlock()
	b.tellSystem()
	failed := b.up.start()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var err error
loop:
	for {
		select {
		case <-ctx.Done():
			break loop
		case err = <-failed:
			break loop
		case <-timer.C:
		}
		start := time.Now()
		timer.Reset(max(b.tick()-time.Since(start), time.Millisecond))
	}
	b.shutDown()
	return err
}

// emit reports something about the board itself.
func (b *Board) emit(kind, format string, args ...any) {
	b.event(rocelink.Event{Version: rocelink.Version, Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// event completes an event and hands it on. It never blocks.
func (b *Board) event(e rocelink.Event) {
	e.From, e.Time = b.cfg.Name, time.Now().UTC()
	b.log.Info(e.Kind, "text", e.Text)
	b.up.event(e)
	b.dirty = true
}

// tick does what is due, and says after what time there is more to do.
func (b *Board) tick() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	b.work(now)
	if b.refresh.Swap(false) || b.dirty || now.Sub(b.sent) >= publishEvery {
		b.publish(now)
	}
	switch b.link.State {
	case link.Transceivers, link.Reset, link.Align, link.Settle:
		if now.Sub(b.link.Entered) < soonFor {
			return tickSoon
		}
	}
	return tickEvery
}

// work is tick without the publication. The caller holds mu.
func (b *Board) work(now time.Time) {
	if b.unwatch == nil {
		b.unwatch = b.watch(false, b.wiring)
	}
	b.stepClocks()
	b.stepCages(now)
	defer b.judge(now)
	if b.hw == nil {
		if now.Before(b.retryAt) {
			return
		}
		err := b.loadBitstream(now)
		if err == nil {
			err = b.setUp()
		}
		if err != nil {
			b.absent(err)
			return
		}
	}
	if err := b.hw.core.Check(); err != nil {
		b.lose(err)
		return
	}
	if b.up.cut() {
		// Nobody can renew: the data goes on while the hosts acknowledge it.
		b.streams.Hold()
	}
	if b.streams.Expire() {
		b.dirty = true
	}
	if now.Sub(b.sampled) >= sampleEvery {
		b.sampled = now
		if b.streams.Sample() {
			b.dirty = true
		}
	}
	b.stepLink(now)
	b.checkFault()
}

// checkFault gives the fabric up when a stream's command found it unusable.
func (b *Board) checkFault() {
	if err := b.streams.Fault(); err != nil {
		b.lose(err)
	}
}

// shutDown closes the streams and says goodbye within bounds.
func (b *Board) shutDown() {
	b.mu.Lock()
	b.stopped = true
	b.streams.CloseAll("boardd stops", drainTime, b.cfg.Sleep)
	if b.hw != nil {
		if err := b.hw.core.Enable(false); err != nil {
			b.log.Warn("switch the fabric off", "err", err)
		}
		b.hw.close(b.log)
		b.hw = nil
	}
	if b.unwatch != nil {
		b.unwatch()
	}
	b.missing = "boardd stopped"
	b.judge(b.cfg.Now())
	b.event(rocelink.Event{Version: rocelink.Version, Kind: "board-stopped", Text: b.cfg.Name})
	b.publish(b.cfg.Now())
	b.mu.Unlock()
	b.giveUpUpdate()
	b.up.stop()
	b.endWatching()
}

// endWatching closes what the cages use once they are out of it. One that hangs
// is left behind.
func (b *Board) endWatching() {
	ended := make(chan struct{})
	go func() { b.watching.Wait(); close(ended) }()
	select {
	case <-ended:
		if err := b.wiring.Close(); err != nil {
			b.log.Warn("close I2C and GPIO", "err", err)
		}
	case <-time.After(drainTime):
		b.log.Warn("an I2C bus hangs", "waited", drainTime)
	}
}
