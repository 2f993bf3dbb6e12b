// Package axiiic is an AXI IIC core (AMD PG090) as periph's i2c.Bus: one Tx is
// one combined transfer with a repeated start in between, in the core's dynamic
// mode, and takes no longer than the bus's bounds.
//
// The core cannot pulse the clock to free a bus that a device holds: it is reset,
// Recover is called, and if that does not help the error says so.
//
// The register table is not yet compared with the manual line by line, and nothing
// of it has run on a core: the tests play one.
package axiiic

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"

	"rocelink/fpga/regs"
)

// Errors of a bus.
var (
	// ErrNoAnswer: nothing acknowledged.
	ErrNoAnswer = errors.New("no acknowledge")
	// ErrArbitration: another master took the bus.
	ErrArbitration = errors.New("arbitration lost")
	// ErrBusy: the bus does not become free.
	ErrBusy = errors.New("bus busy")
	// ErrTimeout: a transfer does not end.
	ErrTimeout = errors.New("transfer does not end")
	// ErrTransfer: the core cannot do a transfer of that shape.
	ErrTransfer = errors.New("transfer not possible")
	// ErrUnsupported: the core cannot do it.
	ErrUnsupported = errors.New("not supported by AXI IIC")
)

const (
	// maxRead is what the core counts in one read (PG090, dynamic mode: 8 bits).
	maxRead = 255
	// limit fills the receive FIFO before the core holds the clock.
	limit = 15
	// poll is about a byte at 400 kHz.
	poll = 25 * time.Microsecond
	// grace is what devices may hold the clock for in one transfer, and the
	// scheduler of a loaded system.
	grace = 50 * time.Millisecond
)

// Config is how to drive a core. The zero value works.
type Config struct {
	Hz int64 // the clock that the core was built with, for the bounds; 0 is 100 kHz
	// Recover frees a bus that a device holds, as by the reset line of its switch;
	// nil: nothing can.
	Recover func() error

	Now   func() time.Time    // nil is time.Now
	Sleep func(time.Duration) // nil is time.Sleep
}

// Bus is a core. It is safe for concurrent use; nobody else may drive the core.
type Bus struct {
	name string
	bus  regs.Bus
	cfg  Config

	mu    sync.Mutex
	ready bool // set up, and nothing failed since
}

var _ i2c.BusCloser = (*Bus)(nil)

// New is the core whose registers begin at 0 of the bus. It touches nothing.
func New(name string, bus regs.Bus, cfg Config) *Bus {
	if cfg.Hz <= 0 {
		cfg.Hz = 100_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sleep == nil {
		cfg.Sleep = time.Sleep
	}
	return &Bus{name: name, bus: bus, cfg: cfg}
}

func (b *Bus) String() string { return b.name }

// SetSpeed refuses: the clock is set when the core is built.
func (b *Bus) SetSpeed(physic.Frequency) error {
	return fmt.Errorf("%s: the clock is set when the core is built: %w", b.name, ErrUnsupported)
}

// Close leaves the core disabled.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready {
		return nil
	}
	b.ready = false
	return b.write("Control", regs.IICControl, 0)
}

// Tx writes w, then reads r.
func (b *Bus) Tx(addr uint16, w, r []byte) error {
	switch {
	case addr > 0x7F:
		return fmt.Errorf("%s: address 0x%X: want one of 7 bits", b.name, addr)
	case len(w) == 0 && len(r) == 0:
		return fmt.Errorf("%s: 0x%02X: an address alone: %w", b.name, addr, ErrTransfer)
	case len(r) > maxRead:
		return fmt.Errorf("%s: 0x%02X: read of %d bytes, at most %d: %w", b.name, addr, len(r), maxRead, ErrTransfer)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.prepare()
	if err == nil {
		if err = b.transfer(addr, w, r); err != nil {
			// Whatever is left in the FIFOs must not reach the next transfer.
			b.ready = false
			err = errors.Join(err, b.reset())
		}
	}
	if err != nil {
		return fmt.Errorf("%s: transfer of %d and %d bytes with 0x%02X: %w", b.name, len(w), len(r), addr, err)
	}
	return nil
}

func (b *Bus) write(name string, r regs.Reg, v uint32) error {
	if err := r.Write(b.bus, v); err != nil {
		return fmt.Errorf("write IIC.%s: %w", name, err)
	}
	return nil
}

func (b *Bus) read(name string, r regs.Reg) (uint32, error) {
	v, err := r.Read(b.bus)
	if err != nil {
		return 0, fmt.Errorf("read IIC.%s: %w", name, err)
	}
	return v, nil
}

func (b *Bus) reset() error {
	return b.write("SoftReset", regs.IICSoftReset, regs.IICSoftResetKeyReset)
}

// prepare makes the core ready for a transfer on a bus that is free.
func (b *Bus) prepare() error {
	if b.ready && b.free(b.bytes(1)) == nil {
		return b.clear()
	}
	b.ready = false
	err := b.setUp()
	if errors.Is(err, ErrBusy) && b.cfg.Recover != nil {
		if err := b.cfg.Recover(); err != nil {
			return fmt.Errorf("free the bus: %w", err)
		}
		err = b.setUp()
	}
	if errors.Is(err, ErrBusy) {
		return fmt.Errorf("%w after a reset of the core: a device holds SDA or SCL; reset it or cycle its power", err)
	}
	if err != nil {
		return err
	}
	b.ready = true
	return b.clear()
}

func (b *Bus) setUp() error {
	if err := b.reset(); err != nil {
		return err
	}
	if err := b.write("RxLimit", regs.IICRxLimit, limit); err != nil {
		return err
	}
	enable := regs.IICControlEnable.Mask()
	if err := b.write("Control", regs.IICControl, enable|regs.IICControlTxReset.Mask()); err != nil {
		return err
	}
	if err := b.write("Control", regs.IICControl, enable); err != nil {
		return err
	}
	return b.free(b.bytes(1))
}

// clear forgets what happened before: ones that are written toggle.
func (b *Bus) clear() error {
	v, err := b.read("ISR", regs.IICISR)
	if err != nil {
		return err
	}
	return b.write("ISR", regs.IICISR, v&(regs.IICISRArbitrationLost.Mask()|regs.IICISRTxError.Mask()))
}

// bytes is the longest that n bytes may take.
func (b *Bus) bytes(n int) time.Duration {
	return 4*time.Duration(n)*9*time.Second/time.Duration(b.cfg.Hz) + grace
}

// free waits until nobody uses the bus.
func (b *Bus) free(within time.Duration) error {
	return b.until(within, ErrBusy, func(status uint32) (bool, error) {
		return regs.IICStatusBusy.Get(status) == 0, nil
	})
}

// until reads the status until done, with a bound, and once more after it: a
// process that did not run for a while proves nothing.
func (b *Bus) until(within time.Duration, late error, done func(status uint32) (bool, error)) error {
	end := b.cfg.Now().Add(within)
	for {
		over := !b.cfg.Now().Before(end)
		status, err := b.read("Status", regs.IICStatus)
		if err != nil {
			return err
		}
		if ok, err := done(status); ok || err != nil {
			return err
		}
		if over {
			return fmt.Errorf("%w: status 0x%X for %v", late, status, within)
		}
		b.cfg.Sleep(poll)
	}
}

// transfer feeds the core and takes what it reads.
func (b *Bus) transfer(addr uint16, w, r []byte) error {
	start, stop := regs.IICTxFIFOStart.Mask(), regs.IICTxFIFOStop.Mask()
	words := make([]uint32, 0, len(w)+3)
	if len(w) > 0 {
		words = append(words, start|uint32(addr)<<1)
		for _, v := range w {
			words = append(words, uint32(v))
		}
	}
	if len(r) > 0 {
		words = append(words, start|uint32(addr)<<1|1, uint32(len(r)))
	}
	words[len(words)-1] |= stop

	fed, got := 0, 0
	return b.until(b.bytes(len(w)+len(r)+2), ErrTimeout, func(uint32) (bool, error) {
		isr, err := b.read("ISR", regs.IICISR)
		if err != nil {
			return false, err
		}
		if regs.IICISRArbitrationLost.Get(isr) != 0 {
			return false, fmt.Errorf("%w with %d of %d bytes read", ErrArbitration, got, len(r))
		}
		// Read after ISR: a byte that came before its error is here.
		status, err := b.read("Status", regs.IICStatus)
		if err != nil {
			return false, err
		}
		for got < len(r) && regs.IICStatusRxEmpty.Get(status) == 0 {
			v, err := b.read("RxFIFO", regs.IICRxFIFO)
			if err != nil {
				return false, err
			}
			r[got] = byte(v)
			got++
			if status, err = b.read("Status", regs.IICStatus); err != nil {
				return false, err
			}
		}
		// The master's own refusal of the last byte of a read counts as one too.
		if regs.IICISRTxError.Get(isr) != 0 && (len(r) == 0 || got < len(r)) {
			return false, fmt.Errorf("%w with %d of %d words sent and %d of %d bytes read", ErrNoAnswer, fed, len(words), got, len(r))
		}
		for fed < len(words) && regs.IICStatusTxFull.Get(status) == 0 {
			if err := b.write("TxFIFO", regs.IICTxFIFO, words[fed]); err != nil {
				return false, err
			}
			fed++
			if status, err = b.read("Status", regs.IICStatus); err != nil {
				return false, err
			}
		}
		if fed < len(words) || got < len(r) || regs.IICStatusTxEmpty.Get(status) == 0 || regs.IICStatusBusy.Get(status) != 0 {
			return false, nil
		}
		// The last byte of a write may have been refused since ISR was read.
		if isr, err = b.read("ISR", regs.IICISR); err != nil {
			return false, err
		}
		if len(r) == 0 && regs.IICISRTxError.Get(isr) != 0 {
			return false, fmt.Errorf("%w to the last of %d bytes", ErrNoAnswer, len(w))
		}
		return true, nil
	})
}
