package clock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"periph.io/x/conn/v3/i2c"
)

// Registers and limits of the Si570 (Silicon Labs, Si570/Si571 data sheet 1.6,
// sections 3 and 5).
const (
	si570Registers = 7 // first of six that hold the dividers and RFREQ
	si570Control   = 135
	si570Freeze    = 137

	si570Recall   = 1 << 0 // of control: load what the factory set
	si570NewFreq  = 1 << 6 // of control; clears itself
	si570FreezeIt = 1 << 4 // of freeze

	dcoMin = 4.85e9
	dcoMax = 5.67e9

	rfreqOne = 1 << 28 // RFREQ has 28 bits behind the point
	rfreqMax = 1<<38 - 1

	// The crystal is 114.285 MHz by design; one further away was read wrongly, or
	// the factory frequency of the description is not that of the part.
	crystal          = 114.285e6
	crystalTolerance = 0.01

	si570Wait = 100 * time.Millisecond // data sheet: 10 ms at most
)

// dividers are what a Si570's six registers hold.
type dividers struct {
	hs    int // 4 to 11, not 8 and 10
	n1    int // 1, or even up to 128
	rfreq uint64
}

func decode(r [6]byte) (dividers, error) {
	d := dividers{
		hs:    int(r[0]>>5) + 4,
		n1:    int(r[0]&0x1F)<<2 | int(r[1]>>6),
		rfreq: uint64(r[1]&0x3F)<<32 | uint64(r[2])<<24 | uint64(r[3])<<16 | uint64(r[4])<<8 | uint64(r[5]),
	}
	d.n1++
	if d.n1 > 1 && d.n1%2 == 1 {
		d.n1++ // the data sheet rounds odd ones up
	}
	if d.hs == 8 || d.hs == 10 || d.rfreq == 0 {
		return d, fmt.Errorf("registers % X are not those of a Si570", r)
	}
	return d, nil
}

func (d dividers) encode() (r [6]byte) {
	hs, n1 := byte(d.hs-4), byte(d.n1-1)
	r[0] = hs<<5 | n1>>2
	r[1] = n1<<6 | byte(d.rfreq>>32)&0x3F
	r[2], r[3], r[4], r[5] = byte(d.rfreq>>24), byte(d.rfreq>>16), byte(d.rfreq>>8), byte(d.rfreq)
	return r
}

// output is the frequency with a crystal.
func (d dividers) output(fxtal float64) float64 {
	return fxtal * float64(d.rfreq) / rfreqOne / float64(d.hs*d.n1)
}

// choose finds dividers for a frequency: the lowest oscillator that reaches it,
// which takes the least power, and there the largest fast divider.
func choose(hz, fxtal float64) (dividers, error) {
	best, bestDCO := dividers{}, math.Inf(1)
	for _, hs := range []int{11, 9, 7, 6, 5, 4} {
		for n1 := 1; n1 <= 128; n1 += 1 + min(n1-1, 1) {
			dco := hz * float64(hs*n1)
			if dco < dcoMin || dco > dcoMax || dco >= bestDCO {
				continue
			}
			rfreq := uint64(math.Round(dco / fxtal * rfreqOne))
			if rfreq > rfreqMax {
				continue
			}
			best, bestDCO = dividers{hs, n1, rfreq}, dco
		}
	}
	if best.hs == 0 {
		return best, fmt.Errorf("%.6f MHz cannot be reached: no dividers bring the oscillator between 4.85 and 5.67 GHz", hz/1e6)
	}
	return best, nil
}

// configureSi570 sets the frequency, unless the part still holds what it was set
// to. Its registers alone do not tell the frequency: the crystal is known only from
// the factory's, and to recall them would disturb the clock.
func (c *Clock) configureSi570(ctx context.Context) error {
	d := i2c.Dev{Bus: c.bus, Addr: c.desc.Address}
	if c.held == "" && c.cfg.Record != "" {
		if text, err := os.ReadFile(c.cfg.Record); err == nil {
			c.held = string(text)
		}
	}
	if c.held != "" {
		var r [6]byte
		var freeze [1]byte
		if err := d.Tx([]byte{si570Registers}, r[:]); err != nil {
			return fmt.Errorf("Si570: read dividers: %w", err)
		}
		if err := d.Tx([]byte{si570Freeze}, freeze[:]); err != nil {
			return fmt.Errorf("Si570: read whether it is frozen: %w", err)
		}
		if freeze[0]&si570FreezeIt == 0 && c.si570Holds(r) == c.held {
			return nil
		}
	}
	c.keep("")
	r, err := c.setSi570(ctx, d)
	if err == nil {
		c.keep(c.si570Holds(r))
	}
	return err
}

// si570Holds is what the record says of a part that holds r.
func (c *Clock) si570Holds(r [6]byte) string {
	return fmt.Sprintf("si570 %s 0x%02X on %s, %v: %.3f Hz from %.3f: % X\n", c.desc.Name, c.desc.Address, c.desc.I2C, c.desc.Route, c.desc.Hz, c.desc.Factory, r)
}

// keep records what the part holds, or that it is not known. A record that cannot
// be written costs a new start of the clock and nothing else.
func (c *Clock) keep(held string) {
	c.held = held
	switch {
	case c.cfg.Record == "":
	case held == "":
		_ = os.Remove(c.cfg.Record)
	default:
		if err := os.MkdirAll(filepath.Dir(c.cfg.Record), 0o755); err == nil {
			_ = os.WriteFile(c.cfg.Record, []byte(held), 0o600)
		}
	}
}

// setSi570 sets the frequency and says what the part holds then.
func (c *Clock) setSi570(ctx context.Context, d i2c.Dev) (w [6]byte, err error) {
	factory, hz := c.desc.Factory, c.desc.Hz
	// What the factory set is recalled first: the crystal is computed from it,
	// and an earlier start may have changed the registers.
	if _, err := d.Write([]byte{si570Control, si570Recall}); err != nil {
		return w, fmt.Errorf("Si570: recall the factory's frequency: %w", err)
	}
	if err := c.awaitClear(ctx, d, si570Recall); err != nil {
		return w, fmt.Errorf("Si570: recall the factory's frequency: %w", err)
	}
	var r [6]byte
	if err := d.Tx([]byte{si570Registers}, r[:]); err != nil {
		return w, fmt.Errorf("Si570: read dividers: %w", err)
	}
	is, err := decode(r)
	if err != nil {
		return w, fmt.Errorf("Si570: %w", err)
	}
	fxtal := factory * float64(is.hs*is.n1) / (float64(is.rfreq) / rfreqOne)
	if math.Abs(fxtal-crystal) > crystal*crystalTolerance {
		return w, fmt.Errorf("Si570: its registers and a factory frequency of %.6f MHz make a crystal of %.3f MHz, want %.3f: the description's factory is not that of this part", factory/1e6, fxtal/1e6, crystal/1e6)
	}
	to, err := choose(hz, fxtal)
	if err != nil {
		return w, fmt.Errorf("Si570: %w", err)
	}
	if _, err := d.Write([]byte{si570Freeze, si570FreezeIt}); err != nil {
		return w, fmt.Errorf("Si570: freeze the oscillator: %w", err)
	}
	w = to.encode()
	_, failed := d.Write(append([]byte{si570Registers}, w[:]...))
	// It is let go of in any case: a frozen one gives no clock.
	if _, err := d.Write([]byte{si570Freeze, 0}); err != nil {
		return w, errors.Join(failed, fmt.Errorf("Si570: unfreeze the oscillator: %w", err))
	}
	if failed != nil {
		return w, fmt.Errorf("Si570: write dividers: %w", failed)
	}
	// Within 10 ms after the unfreeze.
	if _, err := d.Write([]byte{si570Control, si570NewFreq}); err != nil {
		return w, fmt.Errorf("Si570: start the new frequency: %w", err)
	}
	if err := c.awaitClear(ctx, d, si570NewFreq); err != nil {
		return w, fmt.Errorf("Si570: new frequency: %w", err)
	}
	var back [6]byte
	if err := d.Tx([]byte{si570Registers}, back[:]); err != nil {
		return w, fmt.Errorf("Si570: read dividers back: %w", err)
	}
	if back != w {
		return w, fmt.Errorf("Si570: holds % X after % X was written", back, w)
	}
	return w, nil
}

// awaitClear waits until a bit of the control register clears itself.
func (c *Clock) awaitClear(ctx context.Context, d i2c.Dev, bit byte) error {
	for end := c.cfg.Now().Add(si570Wait); ; {
		var v [1]byte
		if err := d.Tx([]byte{si570Control}, v[:]); err != nil {
			return err
		}
		if v[0]&bit == 0 {
			return nil
		}
		if !c.cfg.Now().Before(end) {
			return fmt.Errorf("bit 0x%02X of its control register is still set after %v", bit, si570Wait)
		}
		if err := c.sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}
