// Package mrmac drives one 100 Gb/s port of Versal's multirate Ethernet MAC
// (MRMAC, AMD PG314): it sets mode and error correction before the reset that
// takes them over, repeats that reset while the receiver finds nothing, and ticks
// the counters once for all readers.
//
// The receiver of the transceivers does not lock to a partner that comes late by
// itself: while the link is down the port's reset is repeated, the transceivers'
// is not.
//
// A MAC is not safe for concurrent use. Proven against mrmactest, not yet on
// hardware.
package mrmac

import (
	"errors"
	"fmt"
	"time"

	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
)

// Errors of the driver.
var (
	// ErrMissing: no MRMAC answers at the address.
	ErrMissing = errors.New("MRMAC missing")
	// ErrNotHeld: a register does not hold what is written to it.
	ErrNotHeld = errors.New("register does not hold its value")
)

// FEC is the error correction of the port.
type FEC string

// The kinds of FEC. The zero value is RSFEC: every port of 100 Gb/s has it.
const (
	FECOff FEC = "off"
	RSFEC  FEC = "rs" // RS(528,514), IEEE 802.3 clause 91
)

// Config is how to drive a port.
type Config struct {
	FEC  FEC
	Poll poll.Poll // clock of the waits
	// ResetPulse is how long the port is held in reset; 0 is 1 ms. No register
	// tells that it is.
	ResetPulse time.Duration
	// Again is the time between resets while nothing is received; 0 is 250 ms.
	Again time.Duration
	// MaxPacket is the longest packet that is received; 0 is 9600 bytes.
	MaxPacket int
}

const (
	minPacket   = 64
	maxPacket   = 9600
	rate100G    = 4
	serdesWide  = 6
	axis384     = 5
	interPacket = 12
	fecRS528    = 8
	statReady   = 3
)

// MAC is the driver of one port.
type MAC struct {
	bus     regs.Bus
	cfg     Config
	now     func() time.Time
	sleep   func(time.Duration)
	resetAt time.Time // of the last reset
	listens bool      // the receiver is on
	total   [counters]uint64
	// discard is set when the counters hold events from before a reset.
	discard bool
}

// Open probes the core. The error matches ErrMissing when nothing answers.
func Open(bus regs.Bus, cfg Config) (*MAC, error) {
	switch cfg.FEC {
	case "":
		cfg.FEC = RSFEC
	case FECOff, RSFEC:
	default:
		return nil, fmt.Errorf("MRMAC: FEC %q: want off or rs", cfg.FEC)
	}
	if cfg.ResetPulse <= 0 {
		cfg.ResetPulse = time.Millisecond
	}
	if cfg.Again <= 0 {
		cfg.Again = 250 * time.Millisecond
	}
	if cfg.MaxPacket == 0 {
		cfg.MaxPacket = maxPacket
	}
	if cfg.MaxPacket < minPacket || cfg.MaxPacket > 1<<15-1 {
		return nil, fmt.Errorf("MRMAC: longest packet %d bytes: want %d to %d", cfg.MaxPacket, minPacket, 1<<15-1)
	}
	m := &MAC{bus: bus, cfg: cfg, now: cfg.Poll.Now, sleep: cfg.Poll.Sleep, discard: true}
	if m.now == nil {
		m.now = time.Now
	}
	if m.sleep == nil {
		m.sleep = time.Sleep
	}
	var seen [2]uint32
	for i := range seen {
		v, err := regs.MRMACRevision.Read(bus)
		if err != nil {
			return nil, fmt.Errorf("MRMAC: read the revision: %w: %w", err, ErrMissing)
		}
		seen[i] = v
	}
	if v := seen[0]; v == 0 || v == ^uint32(0) || v != seen[1] {
		return nil, fmt.Errorf("MRMAC: the revision reads %#08x, then %#08x: wrong address, or its clock does not run: %w", seen[0], seen[1], ErrMissing)
	}
	return m, nil
}

// Name is the driver's name.
func (m *MAC) Name() string { return "mrmac" }

// Readable reports whether the register at an offset may be read.
func (m *MAC) Readable(uint32) bool { return true }

// Down stops both directions.
func (m *MAC) Down() error {
	m.listens = false
	return errors.Join(m.store("ConfigTx", regs.MRMACConfigTx, 0), m.store("ConfigRx", regs.MRMACConfigRx, 0))
}

// Reset configures the port under its reset, which takes the configuration over.
// Both directions are off afterwards.
func (m *MAC) Reset() error {
	if err := m.Down(); err != nil {
		return err
	}
	return m.reset()
}

const allResets = 0x7F // SerDes, receiver and transmitter

func (m *MAC) reset() error {
	if err := m.store("Reset", regs.MRMACReset, allResets); err != nil {
		return err
	}
	m.sleep(m.cfg.ResetPulse)
	err := m.configure()
	// The port is not left in reset whatever the configuration did.
	err = errors.Join(err, m.store("Reset", regs.MRMACReset, 0))
	m.resetAt, m.discard = m.now(), true
	return err
}

func (m *MAC) configure() error {
	fec := uint32(0)
	if m.cfg.FEC == RSFEC {
		fec = regs.MRMACFECMode.Of(fecRS528) | regs.MRMACFECFourLanePMD.Of(1)
	}
	for _, w := range []struct {
		name string
		reg  regs.Reg
		v    uint32
	}{
		{"Mode", regs.MRMACMode, regs.MRMACModeRate.Of(rate100G) | regs.MRMACModeSerdesWidth.Of(serdesWide) |
			regs.MRMACModeAXIS.Of(axis384) | regs.MRMACModeTickRegister.Of(1)},
		{"FEC", regs.MRMACFEC, fec},
		{"RxMTU", regs.MRMACRxMTU, regs.MRMACRxMTUMin.Of(minPacket) | regs.MRMACRxMTUMax.Of(uint32(m.cfg.MaxPacket))},
	} {
		if err := m.store(w.name, w.reg, w.v); err != nil {
			return err
		}
	}
	return nil
}

// ResetTransceivers resets the SerDes interface. The transceivers themselves are
// reset once, by the fabric's own logic, when their clock is there.
func (m *MAC) ResetTransceivers() error {
	m.listens, m.discard = false, true
	return m.reset()
}

// TransceiversReady reports that both directions have ended their reset.
func (m *MAC) TransceiversReady() (bool, error) {
	v, err := regs.MRMACStatReady.Read(m.bus)
	if err != nil {
		return false, fmt.Errorf("read MRMAC.StatReady: %w", err)
	}
	return v != ^uint32(0) && v&statReady == statReady, nil
}

// Listen switches both directions on: while the receiver has no signal the core
// itself sends remote fault (IEEE 802.3 clause 81.3.4).
func (m *MAC) Listen() error {
	if err := m.enable(); err != nil {
		return err
	}
	m.listens = true
	return nil
}

// Transmit lets frames out, which the core does once the faults have ended.
func (m *MAC) Transmit() error { return m.Listen() }

func (m *MAC) enable() error {
	tx := regs.MRMACConfigTxEnable.Of(1) | regs.MRMACConfigTxInsertFCS.Of(1) | regs.MRMACConfigTxIPG.Of(interPacket)
	rx := regs.MRMACConfigRxEnable.Of(1) | regs.MRMACConfigRxDeleteFCS.Of(1) | regs.MRMACConfigRxCheckSFD.Of(1) | regs.MRMACConfigRxCheckPreamble.Of(1)
	if err := m.store("ConfigTx", regs.MRMACConfigTx, tx); err != nil {
		return err
	}
	return m.store("ConfigRx", regs.MRMACConfigRx, rx)
}

// store writes a register and reads it back.
func (m *MAC) store(name string, r regs.Reg, v uint32) error {
	if err := r.Write(m.bus, v); err != nil {
		return fmt.Errorf("write MRMAC.%s: %w", name, err)
	}
	got, err := r.Read(m.bus)
	if err != nil {
		return fmt.Errorf("read back MRMAC.%s: %w", name, err)
	}
	if got != v {
		return fmt.Errorf("MRMAC.%s: wrote %#x, it reads %#x: %w", name, v, got, ErrNotHeld)
	}
	return nil
}
