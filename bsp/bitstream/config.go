package bitstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Config is what the packets of configuration data say (UG570, "Configuration Details").
type Config struct {
	ByteOrder ByteOrder `json:"byte_order"`
	// SyncOffset is where the sync word lies in the data.
	SyncOffset int `json:"sync_offset"`
	// Frames are the words of configuration written, FrameWrites in how many
	// packets.
	FrameWords  uint64 `json:"frame_words"`
	FrameWrites int    `json:"frame_writes"`
	// Compressed: one frame is written to several places (register MFWR).
	Compressed bool `json:"compressed"`
	// Partial: the header says so.
	Partial bool `json:"partial"`
	// CRC is the last checksum in the data; it is not computed here.
	CRC        Hex `json:"crc,omitempty"`
	UserAccess Hex `json:"usr_access,omitempty"` // register AXSS, USR_ACCESS
	// Desynced: the data ends with the command DESYNC, as a complete one does.
	Desynced bool `json:"desynced"`

	mask uint32 // register MASK, which guards CTL0
}

// Packets (UG570, type 1 and type 2 packet headers).
const (
	packetType1 = 1
	packetType2 = 2
	opWrite     = 2
)

// Registers (UG570, configuration registers).
const (
	regCRC    = 0
	regFDRI   = 2
	regCMD    = 4
	regCTL0   = 5
	regMASK   = 6
	regMFWR   = 10
	regCBC    = 11
	regIDCODE = 12
	regAXSS   = 13
)

const (
	cmdDesync  = 13     // UG570, command register codes
	ctl0Dec    = 1 << 6 // UG570, control register 0: AES decryptor
	nopWord    = 0x20000000
	maxPackets = 1 << 24 // bounds the work on a file of small packets
)

// words reads configuration data word by word.
type words struct {
	b     *bufio.Reader
	order ByteOrder
	left  int64 // bytes the header grants, or -1
}

// errEnd: the data ends at a word boundary.
var errEnd = errors.New("end of configuration data")

func (w *words) next() (uint32, error) {
	if w.left >= 0 && w.left < 4 {
		return 0, errEnd
	}
	var p [4]byte
	n, err := io.ReadFull(w.b, p[:])
	switch {
	case err == io.EOF && w.left < 0:
		return 0, errEnd
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if w.left < 0 {
			return 0, fmt.Errorf("%d bytes after the last whole word: %w", n, ErrTruncated)
		}
		return 0, fmt.Errorf("%d bytes of configuration data are missing: %w", w.left-int64(n), ErrTruncated)
	case err != nil:
		return 0, fmt.Errorf("read bitstream: %w", err)
	}
	if w.left > 0 {
		w.left -= 4
	}
	if w.order == Swapped {
		return binary.LittleEndian.Uint32(p[:]), nil
	}
	return binary.BigEndian.Uint32(p[:]), nil
}

// skip passes over n words.
func (w *words) skip(n uint64) error {
	bytes := int64(n) * 4
	if w.left >= 0 && bytes > w.left {
		return fmt.Errorf("a packet of %d words passes the end of the configuration data: %w", n, ErrTruncated)
	}
	for bytes > 0 {
		did, err := w.b.Discard(int(min(bytes, 1<<20)))
		bytes -= int64(did)
		if w.left >= 0 {
			w.left -= int64(did)
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%d bytes of a packet of %d words are missing: %w", bytes, n, ErrTruncated)
		}
		if err != nil {
			return fmt.Errorf("read bitstream: %w", err)
		}
	}
	return nil
}

// readConfig reads configuration data and what follows it.
func (i *Info) readConfig(b *bufio.Reader) error {
	at, order, err := findSync(b)
	if err != nil {
		return err
	}
	c := &Config{ByteOrder: order, SyncOffset: at}
	i.Config = c
	if i.Format == Bit && order != BigEndian {
		i.problem("a .bit file whose words are swapped: some tool changed the data but left the header")
	}
	w := &words{b: b, order: order, left: -1}
	if i.Header != nil {
		w.left = int64(i.Header.Length)
		c.Partial = i.Header.option("PARTIAL")
	}
	if err := w.skip(uint64(at)/4 + 1); err != nil {
		return err
	}
	if err := i.packets(w); err != nil && !errors.Is(err, errEnd) {
		return err
	}
	// What follows the last command is padding, or encrypted, or the next die of
	// a stack; only its length counts.
	for {
		if _, err := w.next(); errors.Is(err, errEnd) {
			break
		} else if err != nil {
			return err
		}
	}
	if i.Format == Bit {
		if _, err := b.Peek(1); err == nil {
			i.problem("bytes follow the configuration data whose length field e gives as %d", i.Header.Length)
		}
	}
	i.judge()
	return nil
}

// packets follows the packets up to the command DESYNC or the first encrypted
// one.
func (i *Info) packets(w *words) error {
	c := i.Config
	reg := uint32(0) // of the last type 1 packet: a type 2 packet goes on there
	for range maxPackets {
		word, err := w.next()
		if err != nil {
			return err
		}
		switch kind := word >> 29; {
		case word>>28 == nopWord>>28 && word>>27&3 == 0: // NOP, also with low bits set
			continue
		case kind == packetType1:
			reg = word >> 13 & 0x1F
			if n := uint64(word & 0x7FF); word>>27&3 == opWrite && n > 0 {
				done, err := i.write(w, reg, n)
				if done || err != nil {
					return err
				}
			}
		case kind == packetType2:
			n := uint64(word & 0x07FFFFFF)
			if word>>27&3 != opWrite {
				continue
			}
			done, err := i.write(w, reg, n)
			if done || err != nil {
				return err
			}
		case word == 0xFFFFFFFF || word == 0:
			// Padding between packets.
		default:
			i.problem("word %s is no packet: the data is not followed any further", Hex(word))
			return nil
		}
		if i.Encrypted {
			return nil
		}
	}
	c.Desynced = false
	i.problem("more than %d packets: the data is not followed any further", maxPackets)
	return nil
}

// write takes a write of n words to a register; done is true after DESYNC.
func (i *Info) write(w *words, reg uint32, n uint64) (done bool, err error) {
	c := i.Config
	switch reg {
	case regFDRI:
		c.FrameWords += n
		c.FrameWrites++
		return false, w.skip(n)
	case regMFWR:
		c.Compressed = true
		return false, w.skip(n)
	case regCBC:
		i.Encrypted = true
		return false, nil
	}
	v, err := w.next()
	if err != nil {
		if errors.Is(err, errEnd) {
			err = fmt.Errorf("a write to register %d has no value: %w", reg, ErrTruncated)
		}
		return false, err
	}
	switch reg {
	case regIDCODE:
		if i.IDCode != 0 && i.IDCode != Hex(v) {
			i.problem("IDCODE is written as %s and as %s", i.IDCode, Hex(v))
		}
		i.IDCode = Hex(v)
		i.Device = DeviceName(v)
	case regCTL0:
		i.Encrypted = i.Encrypted || v&c.mask&ctl0Dec != 0
	case regMASK:
		c.mask = v
	case regCRC:
		c.CRC = Hex(v)
	case regAXSS:
		c.UserAccess = Hex(v)
	case regCMD:
		if v&0x1F == cmdDesync {
			c.Desynced = true
			done = true
		}
	}
	if n > 1 {
		err = w.skip(n - 1)
	}
	return done, err
}

// judge names contradictions.
func (i *Info) judge() {
	c := i.Config
	if i.Encrypted {
		return
	}
	switch {
	case i.IDCode == 0:
		i.problem("the data names no device: no write to register IDCODE")
	case i.Header != nil && i.Device != "" && !samePart(i.Header.Part, i.Device):
		i.problem("the header says part %s, the data is for %s", i.Header.Part, i.Device)
	}
	if c.FrameWrites == 0 && !c.Compressed {
		i.problem("the data writes no configuration frames")
	}
	if !c.Desynced {
		i.problem("the data does not end with the command DESYNC")
	}
}
