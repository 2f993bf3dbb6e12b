// Package fabricio is the modules of the software fabric: the I2C bus and the
// lines of its block Modules (fpga/regs) as periph's i2c.Bus and gpio.PinIO.
//
// One Tx is one transfer that the fabric carries out as a whole, with a repeated
// start in between; waiting for it is bounded. Nothing is touched before it is
// used, and the block's identity is checked each time: a fabric may end and
// another begin in the same memory.
package fabricio

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"

	"rocelink/fpga/regs"
)

// Errors of a bus and its lines.
var (
	// ErrMissing: there is no such block, or no fabric any more.
	ErrMissing = errors.New("no modules in this fabric")
	// ErrNoAnswer: nothing acknowledged.
	ErrNoAnswer = errors.New("no acknowledge")
	// ErrStuck: a device holds the bus.
	ErrStuck = errors.New("a device holds the bus")
	// ErrTimeout: a transfer does not end.
	ErrTimeout = errors.New("transfer does not end")
	// ErrTransfer: the fabric cannot do a transfer of that shape.
	ErrTransfer = errors.New("transfer not possible")
	// ErrLine: there is no such line.
	ErrLine = errors.New("no such line")
	// ErrUnsupported: the fabric cannot do it.
	ErrUnsupported = errors.New("not supported by the fabric")
)

const (
	maxBytes = regs.ModulesDataBytes
	perWord  = 4
	// poll is how often the end of a transfer is looked for; the fabric looks for
	// its beginning as often while it is used.
	poll = 50 * time.Microsecond
	// bound is for a fabric that is a process of a loaded machine.
	bound = 500 * time.Millisecond
)

// Config is how to wait. The zero value works.
type Config struct {
	Now   func() time.Time    // nil is time.Now
	Sleep func(time.Duration) // nil is time.Sleep
}

// Bus is the I2C bus. It is safe for concurrent use; nobody else may use the
// block's transfers.
type Bus struct {
	name string
	bus  regs.Bus
	cfg  Config
	mu   sync.Mutex
}

var _ i2c.Bus = (*Bus)(nil)

// NewBus is the bus of the block that begins at 0 of the registers.
func NewBus(name string, bus regs.Bus, cfg Config) *Bus {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sleep == nil {
		cfg.Sleep = time.Sleep
	}
	return &Bus{name: name, bus: bus, cfg: cfg}
}

func (b *Bus) String() string { return b.name }

// SetSpeed refuses: transfers take no time of a clock.
func (b *Bus) SetSpeed(physic.Frequency) error {
	return fmt.Errorf("%s: set the clock: %w", b.name, ErrUnsupported)
}

// Tx writes w, then reads r.
func (b *Bus) Tx(addr uint16, w, r []byte) error {
	switch {
	case addr > 0x7F:
		return fmt.Errorf("%s: address 0x%X, want one of 7 bits: %w", b.name, addr, ErrTransfer)
	case len(w) == 0 && len(r) == 0:
		return fmt.Errorf("%s: 0x%02X: an address alone: %w", b.name, addr, ErrTransfer)
	case len(w) > maxBytes || len(r) > maxBytes:
		return fmt.Errorf("%s: 0x%02X: %d bytes to write and %d to read, at most %d: %w", b.name, addr, len(w), len(r), maxBytes, ErrTransfer)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.transfer(addr, w, r); err != nil {
		return fmt.Errorf("%s: transfer of %d and %d bytes with 0x%02X: %w", b.name, len(w), len(r), addr, err)
	}
	return nil
}

func (b *Bus) transfer(addr uint16, w, r []byte) error {
	if err := identify(b.bus); err != nil {
		return err
	}
	// One that was given up before must not take the data of this one.
	if err := b.idle("the transfer before"); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		reg   regs.Reg
		value int
	}{{"Address", regs.ModulesAddress, int(addr)}, {"WriteLength", regs.ModulesWriteLength, len(w)}, {"ReadLength", regs.ModulesReadLength, len(r)}} {
		if err := x.reg.Write(b.bus, uint32(x.value)); err != nil {
			return fmt.Errorf("write Modules.%s: %w", x.name, err)
		}
	}
	for at := 0; at < len(w); at += perWord {
		var v uint32
		for i, c := range w[at:min(at+perWord, len(w))] {
			v |= uint32(c) << (8 * i)
		}
		if err := (regs.ModulesData + regs.Reg(at)).Write(b.bus, v); err != nil {
			return fmt.Errorf("write Modules.Data byte %d: %w", at, err)
		}
	}
	if err := regs.ModulesControl.Write(b.bus, regs.ModulesControlGo.Mask()); err != nil {
		return fmt.Errorf("write Modules.Control: %w", err)
	}
	if err := b.idle("it"); err != nil {
		return err
	}
	status, err := regs.ModulesStatus.Read(b.bus)
	if err != nil {
		return fmt.Errorf("read Modules.Status: %w", err)
	}
	if err := result(status, len(w)); err != nil {
		return err
	}
	for at := 0; at < len(r); at += perWord {
		v, err := (regs.ModulesData + regs.Reg(at)).Read(b.bus)
		if err != nil {
			return fmt.Errorf("read Modules.Data byte %d: %w", at, err)
		}
		for i := range r[at:min(at+perWord, len(r))] {
			r[at+i] = byte(v >> (8 * i))
		}
	}
	return nil
}

// result is what a transfer ended with.
func result(status uint32, written int) error {
	switch code := regs.ModulesStatusCode.Get(status); code {
	case regs.ModulesStatusCodeOK:
		return nil
	case regs.ModulesStatusCodeNoAcknowledge:
		n := regs.ModulesStatusByte.Get(status)
		if n == 0 {
			return fmt.Errorf("%w to the address", ErrNoAnswer)
		}
		return fmt.Errorf("%w to byte %d of %d", ErrNoAnswer, n, written)
	case regs.ModulesStatusCodeStuck:
		return fmt.Errorf("%w: reset it or cycle its power", ErrStuck)
	case regs.ModulesStatusCodeBadTransfer:
		return ErrTransfer
	default:
		return fmt.Errorf("status 0x%X is not known: %w", status, ErrTransfer)
	}
}

// idle waits until Control reads 0, and looks once more after the bound: a process
// that did not run for a while proves nothing.
func (b *Bus) idle(what string) error {
	end := b.cfg.Now().Add(bound)
	for {
		over := !b.cfg.Now().Before(end)
		v, err := regs.ModulesControl.Read(b.bus)
		switch {
		case err != nil:
			return fmt.Errorf("read Modules.Control: %w", err)
		case v == 0:
			// A fabric that has ended leaves memory that says anything.
			return identify(b.bus)
		case over:
			if err := identify(b.bus); err != nil {
				return err
			}
			return fmt.Errorf("%w: %s has not ended after %v", ErrTimeout, what, bound)
		}
		b.cfg.Sleep(poll)
	}
}

// identify refuses registers that are not the block's.
func identify(bus regs.Bus) error {
	switch v, err := regs.ModulesIdent.Read(bus); {
	case err != nil:
		return fmt.Errorf("read Modules.Ident: %w", err)
	case v != regs.IdentModules:
		return fmt.Errorf("%w: Modules.Ident is 0x%08X, want 0x%08X", ErrMissing, v, uint32(regs.IdentModules))
	}
	return nil
}
