package optics

import (
	"errors"
	"fmt"

	"rocelink/firmware/optics/sff"
)

// The I2C addresses: A0h of SFF-8636 and SFF-8472, and A2h of the latter, without
// the bit for reading.
const (
	address     = 0x50
	addressDiag = 0x51 // an SFP's A2h
)

// Where things are; the meaning of the bytes is sff's.
const (
	regID        = 0
	regStatus    = 2
	regTxDisable = 86
	regPower     = 93
	regCDR       = 98
	regPage      = 127
	regUpper     = 128
	regSerial    = 196
	statusFlat   = 1 << 2 // SFF-8636
	statusCMIS   = 1 << 7 // CMIS: flat
	regDiagType  = 92     // SFP
	diagHere     = 1 << 6
	regSFPStatus = 110
	sfpSoftTxOff = 1 << 6
)

// span is a range of registers.
type span struct{ at, n int }

// What one sample reads. Flags are latched and clear when read: each is in
// exactly one span, and no other read touches them.
var (
	qsfpLive  = []span{{0, 58}, {86, 13}} // flags and values; controls
	qsfpFixed = span{99, 28}              // up to the page register
	sfpLive   = []span{{96, 24}}
	sfpFixed  = span{0, 96}
	serial    = span{regSerial, 16}
)

// read reads registers. The lower and the upper half are read apart: behind
// byte 127 a module goes on at byte 0 or with what it likes.
func (c *Cage) read(at uint16, s span, into []byte) error {
	if s.at < regUpper && s.at+s.n > regUpper {
		return fmt.Errorf("read of %d bytes at %d crosses from the lower to the upper memory", s.n, s.at)
	}
	if err := c.bus.bus.Tx(at, []byte{byte(s.at)}, into[:s.n]); err != nil {
		return fmt.Errorf("read %d bytes at byte %d of I2C 0x%02X: %w", s.n, s.at, at, err)
	}
	return nil
}

func (c *Cage) write(at uint16, reg, value byte) error {
	if err := c.bus.bus.Tx(at, []byte{reg, value}, nil); err != nil {
		return fmt.Errorf("write 0x%02X to byte %d of I2C 0x%02X: %w", value, reg, at, err)
	}
	return nil
}

// load reads what does not change while a module is plugged.
func (c *Cage) load() (m memory, err error) {
	var head [3]byte
	if err := c.read(address, span{0, len(head)}, head[:]); err != nil {
		return m, err
	}
	m.layout = sff.Layout(head[regID])
	m.id = head[regID]
	m.low = make([]byte, sff.PageSize)
	m.upper = map[uint8][]byte{0: make([]byte, sff.PageSize)}
	switch m.layout {
	case sff.SFF8472:
		return m, c.loadSFP(&m)
	case sff.CMIS:
		m.flat = head[regStatus]&statusCMIS != 0
	default:
		// An unknown module is not written to.
		m.flat = m.layout != sff.SFF8636 || head[regStatus]&statusFlat != 0
	}
	copy(m.low, head[:])
	if !m.flat {
		// Somebody before may have left another page selected.
		if err := c.write(address, regPage, 0); err != nil {
			return m, err
		}
	}
	if err := c.read(address, span{regUpper, sff.PageSize}, m.upper[0]); err != nil {
		return m, err
	}
	if m.layout != sff.SFF8636 {
		return m, nil
	}
	if err := c.read(address, qsfpFixed, m.low[qsfpFixed.at:]); err != nil {
		return m, err
	}
	if m.flat {
		return m, nil
	}
	page := make([]byte, sff.PageSize)
	if err := c.write(address, regPage, 3); err != nil {
		return m, err
	}
	err = c.read(address, span{regUpper, sff.PageSize}, page)
	if err := errors.Join(err, c.write(address, regPage, 0)); err != nil {
		return m, err
	}
	m.upper[3] = page
	return m, nil
}

func (c *Cage) loadSFP(m *memory) error {
	m.flat = true
	if err := c.read(address, sfpFixed, m.low); err != nil {
		return err
	}
	if m.low[regDiagType]&diagHere == 0 {
		return nil
	}
	m.diag = make([]byte, sff.PageSize)
	return c.read(addressDiag, sfpFixed, m.diag)
}

// errExchanged: another module answers than the one that was loaded.
var errExchanged = errors.New("another module than before answers")

// sample reads what changes.
func (c *Cage) sample(m *memory) error {
	switch m.layout {
	case sff.SFF8636:
		for _, s := range qsfpLive {
			if err := c.read(address, s, m.low[s.at:]); err != nil {
				return err
			}
		}
	case sff.SFF8472:
		if m.diag == nil {
			break
		}
		for _, s := range sfpLive {
			if err := c.read(addressDiag, s, m.diag[s.at:]); err != nil {
				return err
			}
		}
	}
	// Where a line says that a module was pulled, that is enough.
	if m.layout == sff.SFF8636 && c.cfg.Present.wired() {
		if m.low[regID] != m.id {
			return fmt.Errorf("identifier 0x%02X, was 0x%02X: %w", m.low[regID], m.id, errExchanged)
		}
		return nil
	}
	return c.same(m)
}

// same asks for a module's identity again.
func (c *Cage) same(m *memory) error {
	if c.cfg.Present.wired() {
		var id [1]byte
		if err := c.read(address, span{regID, 1}, id[:]); err != nil {
			return err
		}
		if id[0] != m.id {
			return fmt.Errorf("identifier 0x%02X, was 0x%02X: %w", id[0], m.id, errExchanged)
		}
		return nil
	}
	s, want := serial, m.upper[0][regSerial-regUpper:][:serial.n]
	switch m.layout {
	case sff.SFF8472:
		s, want = span{68, 16}, m.low[68:84]
	case sff.CMIS:
		s, want = span{166, 16}, m.upper[0][166-regUpper:][:16]
	}
	now := make([]byte, s.n)
	if err := c.read(address, s, now); err != nil {
		return err
	}
	if string(now) != string(want) {
		return fmt.Errorf("serial number %q, was %q: %w", now, want, errExchanged)
	}
	return nil
}

// memory is what was read of a module.
type memory struct {
	layout sff.Management
	id     byte
	flat   bool
	low    []byte
	upper  map[uint8][]byte
	diag   []byte
}

func (m *memory) decode() (sff.Module, error) {
	return sff.Decode(sff.Memory{Lower: m.low, Upper: m.upper, Diagnostics: m.diag})
}
