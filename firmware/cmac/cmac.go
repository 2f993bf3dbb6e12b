// Package cmac drives the UltraScale+ 100G Ethernet core (CMAC, AMD PG203): it
// configures error correction before the reset that takes it over, reads
// latched status twice, and ticks the counters once for all readers.
//
// A MAC is not safe for concurrent use. It touches only addresses that the core
// decodes: the RS-FEC registers of a core built without it answer with a bus
// error.
package cmac

import (
	"errors"
	"fmt"
	"time"

	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
)

// Errors of the driver.
var (
	// ErrMissing: no CMAC answers at the address.
	ErrMissing = errors.New("CMAC missing")
	// ErrTimeout: the core did not end an action in time.
	ErrTimeout = poll.ErrTimeout
	// ErrNotHeld: a register does not hold what is written to it.
	ErrNotHeld = errors.New("register does not hold its value")
)

// FEC is the error correction of the core.
type FEC string

// The kinds of FEC. The zero value of FEC is NoFEC.
const (
	NoFEC  FEC = "none" // the core was built without RS-FEC
	FECOff FEC = "off"
	RSFEC  FEC = "rs" // RS(528,514), IEEE 802.3 clause 91
)

// Config is how to drive a core. The zero value is a core without RS-FEC.
type Config struct {
	FEC FEC
	// FlowControl takes and sends pause frames, global and by priority. Off, its
	// registers are not touched: a core may have been built without.
	FlowControl bool
	Poll        poll.Poll // clock of the waits
	// TickTimeout bounds the counter snapshot, which logic takes at once; 0 is
	// 100 ms.
	TickTimeout time.Duration
	// ResetPulse bounds how long the core is held in reset until it says that it
	// is; 0 is 10 ms.
	ResetPulse time.Duration
}

// The probe. PG203 has had major version 2 and 3; 0x0301 is the latest.
const (
	minMajor = 1
	maxMajor = 9
)

// MAC is the driver of one core.
type MAC struct {
	bus   regs.Bus
	cfg   Config
	total Counters
	// discard is set when the counters hold events from before the
	// configuration.
	discard bool
	// pending is set while a snapshot was asked for and not seen to end: its
	// events are read before the next one is asked for.
	pending bool
}

// Open probes the core by its version. The error matches ErrMissing when
// nothing or something else answers.
func Open(bus regs.Bus, cfg Config) (*MAC, error) {
	switch cfg.FEC {
	case "":
		cfg.FEC = NoFEC
	case NoFEC, FECOff, RSFEC:
	default:
		return nil, fmt.Errorf("CMAC: FEC %q: want none, off or rs", cfg.FEC)
	}
	if cfg.TickTimeout <= 0 {
		cfg.TickTimeout = 100 * time.Millisecond
	}
	if cfg.ResetPulse <= 0 {
		cfg.ResetPulse = 10 * time.Millisecond
	}
	v, err := regs.CMACCoreVersion.Read(bus)
	if err != nil {
		return nil, fmt.Errorf("CMAC: read the version: %w: %w", err, ErrMissing)
	}
	if major := regs.CMACCoreVersionMajor.Get(v); v>>16 != 0 || major < minMajor || major > maxMajor {
		return nil, fmt.Errorf("CMAC: the version reads %#08x, want 0x%02x00 to 0x%02xff: wrong address, or its clock does not run: %w", v, minMajor, maxMajor, ErrMissing)
	}
	return &MAC{bus: bus, cfg: cfg, discard: true}, nil
}

// Name is the driver's name.
func (m *MAC) Name() string { return "cmac" }

// Readable reports whether the register at an offset may be read on this core.
func (m *MAC) Readable(offset uint32) bool {
	return m.cfg.FEC != NoFEC || offset < uint32(regs.CMACRSFECConfig)
}

// Down stops both directions.
func (m *MAC) Down() error {
	if err := m.store("ConfigTx", regs.CMACConfigTx, 0); err != nil {
		return err
	}
	return m.store("ConfigRx", regs.CMACConfigRx, 0)
}

// Reset configures error correction and pulses the core's reset, which takes it
// over. Both directions are off afterwards.
func (m *MAC) Reset() error {
	if err := m.Down(); err != nil {
		return err
	}
	if m.cfg.FEC != NoFEC {
		var config, enable uint32
		if m.cfg.FEC == RSFEC {
			config = regs.CMACRSFECConfigCorrection.Mask() | regs.CMACRSFECConfigIndication.Mask() | regs.CMACRSFECConfigIEEEErrorMode.Mask()
			enable = regs.CMACRSFECEnableRx.Mask() | regs.CMACRSFECEnableTx.Mask()
		}
		if err := m.store("RSFECConfig", regs.CMACRSFECConfig, config); err != nil {
			return err
		}
		if err := m.store("RSFECEnable", regs.CMACRSFECEnable, enable); err != nil {
			return err
		}
	}
	// The transmitter shows a local fault while it is in reset; what it latched
	// before is cleared by a read.
	inReset := func() (bool, error) {
		v, err := regs.CMACStatTx.Read(m.bus)
		return regs.CMACStatTxLocalFault.Get(v) == 1, err
	}
	if _, err := inReset(); err != nil {
		return fmt.Errorf("read CMAC.StatTx: %w", err)
	}
	if err := m.write("Reset", regs.CMACReset, regs.CMACResetRx.Mask()|regs.CMACResetTx.Mask()); err != nil {
		return err
	}
	pulse := m.cfg.Poll
	pulse.Timeout = m.cfg.ResetPulse
	// A core that does not show it has been in reset for long enough by now.
	if _, err := pulse.Until(inReset); err != nil && !errors.Is(err, poll.ErrTimeout) {
		return fmt.Errorf("read CMAC.StatTx: %w", err)
	}
	// The core is not left in reset whatever the first write did.
	if err := m.write("Reset", regs.CMACReset, 0); err != nil {
		return err
	}
	m.discard = true
	return nil
}

// ResetTransceivers begins a reset of the transceivers: the remedy when a module
// came late or the reference clock changed.
func (m *MAC) ResetTransceivers() error {
	m.discard = true
	return m.write("GTReset", regs.CMACGTReset, regs.CMACGTResetAll.Mask())
}

// TransceiversReady reports that their reset ended, which takes a reference
// clock.
func (m *MAC) TransceiversReady() (bool, error) {
	v, err := regs.CMACGTReset.Read(m.bus)
	if err != nil {
		return false, fmt.Errorf("read CMAC.GTReset: %w", err)
	}
	return regs.CMACGTResetAll.Get(v) == 0, nil
}

// Listen switches the receiver on and sends remote fault: the peer sees a
// signal to align to and knows that we do not take its frames yet.
func (m *MAC) Listen() error {
	if err := m.store("ConfigRx", regs.CMACConfigRx, regs.CMACConfigRxEnable.Mask()); err != nil {
		return err
	}
	return m.store("ConfigTx", regs.CMACConfigTx, regs.CMACConfigTxSendRFI.Mask())
}

// Transmit ends the remote fault and lets frames out. Flow control is set before.
func (m *MAC) Transmit() error {
	if err := m.flowControl(); err != nil {
		return err
	}
	return m.store("ConfigTx", regs.CMACConfigTx, regs.CMACConfigTxEnable.Mask())
}

// flowControl programs pause frames as PG203 does after alignment (register space,
// bring-up with AXI4-Lite): every class on, the longest timers, and each kind of
// frame recognised by its own checks.
func (m *MAC) flowControl() error {
	const (
		all      = 0x1FF
		accept   = 0x3DFF  // all classes, all kinds of control and pause packets
		checks   = 0x1C631 // destination, type and opcode of each kind
		longest  = 0xFFFF_FFFF
		longest1 = 0xFFFF // the last register has one timer
	)
	if !m.cfg.FlowControl {
		return nil
	}
	for _, w := range []struct {
		name string
		reg  regs.Reg
		v    uint32
	}{
		{"RxFCControl1", regs.CMACRxFCControl1, accept}, {"RxFCControl2", regs.CMACRxFCControl2, checks},
		{"TxFCQuanta1", regs.CMACTxFCQuanta1, longest}, {"TxFCQuanta2", regs.CMACTxFCQuanta2, longest},
		{"TxFCQuanta3", regs.CMACTxFCQuanta3, longest}, {"TxFCQuanta4", regs.CMACTxFCQuanta4, longest}, {"TxFCQuanta5", regs.CMACTxFCQuanta5, longest1},
		{"TxFCRefresh1", regs.CMACTxFCRefresh1, longest}, {"TxFCRefresh2", regs.CMACTxFCRefresh2, longest},
		{"TxFCRefresh3", regs.CMACTxFCRefresh3, longest}, {"TxFCRefresh4", regs.CMACTxFCRefresh4, longest}, {"TxFCRefresh5", regs.CMACTxFCRefresh5, longest1},
		{"TxFCControl", regs.CMACTxFCControl, all},
	} {
		if err := m.store(w.name, w.reg, w.v); err != nil {
			return err
		}
	}
	return nil
}

// Loopback connects the transmitter to the receiver within the transceivers, for
// tests without a module; off is the fibre.
func (m *MAC) Loopback(on bool) error {
	v := uint32(0)
	if on {
		v = regs.CMACGTLoopbackEnable.Mask()
	}
	return m.store("GTLoopback", regs.CMACGTLoopback, v)
}

func (m *MAC) write(name string, r regs.Reg, v uint32) error {
	if err := r.Write(m.bus, v); err != nil {
		return fmt.Errorf("write CMAC.%s: %w", name, err)
	}
	return nil
}

// store writes a register and reads it back.
func (m *MAC) store(name string, r regs.Reg, v uint32) error {
	if err := m.write(name, r, v); err != nil {
		return err
	}
	got, err := r.Read(m.bus)
	if err != nil {
		return fmt.Errorf("read back CMAC.%s: %w", name, err)
	}
	if got != v {
		return fmt.Errorf("CMAC.%s: wrote %#x, it reads %#x: %w", name, v, got, ErrNotHeld)
	}
	return nil
}
