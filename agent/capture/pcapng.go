package capture

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"
)

// Numbers of the format (draft-ietf-opsawg-pcapng, sections 3 and 4).
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2 // obsolete
	blockSimple    = 3
	blockEnhanced  = 6

	// No packets, but Wireshark numbers them among the frames: systemd journal
	// entries, custom blocks of two kinds, sysdig events of three.
	blockJournal      = 9
	blockCustom       = 0x00000bad
	blockCustomNoCopy = 0x40000bad
	blockSysdig       = 0x0204
	blockSysdigV2     = 0x0216
	blockSysdigLarge  = 0x0221

	blockHeadLen  = 8  // type and length
	blockOverhead = 12 // these and the length again
	orderMagic    = 0x1a2b3c4d
	ngMajor       = 1

	optionEnd        = 0
	optionResolution = 9  // if_tsresol
	optionOffset     = 14 // if_tsoffset
	optionHeadLen    = 4
	binaryResolution = 0x80
)

// Limits on what a file can make the reader hold in memory.
const (
	maxOptions    = 64 << 10 // bytes of an interface's options
	maxInterfaces = 4096     // in one section
)

// iface is what a capture says about an interface.
type iface struct {
	link   linkType
	snap   uint32 // longest capture, 0 if unlimited
	ticks  uint64 // of time stamps, a second
	offset int64  // of time stamps, in seconds
}

// time converts a time stamp.
func (i *iface) time(stamp uint64) time.Time {
	hi, lo := bits.Mul64(stamp%i.ticks, uint64(time.Second))
	ns, _ := bits.Div64(hi, lo, i.ticks)
	return time.Unix(int64(stamp/i.ticks)+i.offset, int64(ns)).UTC()
}

// readBlocks reads blocks up to the next packet.
func (s *source) readBlocks(f *frame) error {
	for {
		if err := s.begin(); err != nil {
			return err
		}
		h, err := s.take(blockHeadLen)
		if err != nil {
			return err
		}
		kind := s.order.Uint32(h)
		if kind == blockSection {
			// The byte order changes in front of the length.
			order, err := s.r.Peek(4)
			if err != nil {
				return inside(err)
			}
			switch uint32(orderMagic) {
			case binary.LittleEndian.Uint32(order):
				s.order = binary.LittleEndian
			case binary.BigEndian.Uint32(order):
				s.order = binary.BigEndian
			default:
				return fmt.Errorf("%w: byte order magic % x", ErrCorrupt, order)
			}
		}
		length := s.order.Uint32(h[4:])
		if length < blockOverhead || length%4 != 0 {
			return fmt.Errorf("%w: block of type %#x and %d bytes", ErrCorrupt, kind, length)
		}
		body := int64(length) - blockOverhead
		isFrame := false
		switch kind {
		case blockSection:
			err = s.section(&body)
		case blockInterface:
			err = s.iface(&body)
		case blockJournal, blockCustom, blockCustomNoCopy, blockSysdig, blockSysdigV2, blockSysdigLarge:
			s.n++
		case blockSimple:
			isFrame, err = true, s.simple(f, &body)
		case blockEnhanced, blockPacket:
			isFrame, err = true, s.enhanced(f, &body, kind)
		}
		if err == nil {
			err = s.skip(body)
		}
		if err == nil {
			err = s.endBlock(length)
		}
		if err != nil || isFrame {
			return err
		}
	}
}

// endBlock reads the length that ends a block.
func (s *source) endBlock(want uint32) error {
	b, err := s.r.Peek(4)
	if err != nil {
		s.next += int64(len(b))
		return inside(err)
	}
	if got := s.order.Uint32(b); got != want {
		return fmt.Errorf("%w: block of %d bytes ends with length %d", ErrCorrupt, want, got)
	}
	return s.skip(4)
}

// part reads n bytes of a block's body.
func (s *source) part(body *int64, n int) ([]byte, error) {
	if *body < int64(n) {
		return nil, fmt.Errorf("%w: block %d bytes too short", ErrCorrupt, int64(n)-*body)
	}
	*body -= int64(n)
	return s.take(n)
}

func (s *source) section(body *int64) error {
	h, err := s.part(body, 16)
	if err != nil {
		return err
	}
	if v := s.order.Uint16(h[4:]); v != ngMajor {
		return fmt.Errorf("%w: pcapng version %d, want %d", ErrFormat, v, ngMajor)
	}
	s.interfaces = s.interfaces[:0]
	return nil
}

func (s *source) iface(body *int64) error {
	h, err := s.part(body, 8)
	if err != nil {
		return err
	}
	if len(s.interfaces) == maxInterfaces {
		return fmt.Errorf("%w: more than %d interfaces in a section", ErrCorrupt, maxInterfaces)
	}
	if *body > maxOptions {
		return fmt.Errorf("%w: interface with %d bytes of options, the limit is %d", ErrCorrupt, *body, maxOptions)
	}
	i := iface{link: linkType(s.order.Uint16(h)), snap: s.order.Uint32(h[4:]), ticks: 1e6}
	options, err := s.part(body, int(*body))
	if err != nil {
		return err
	}
	for len(options) >= optionHeadLen {
		code, n := s.order.Uint16(options), int(s.order.Uint16(options[2:]))
		if code == optionEnd {
			break
		}
		padded := (n + 3) &^ 3
		options = options[optionHeadLen:]
		if padded > len(options) {
			return fmt.Errorf("%w: interface option %d of %d bytes in %d", ErrCorrupt, code, n, len(options))
		}
		switch {
		case code == optionResolution && n == 1:
			if i.ticks = ticks(options[0]); i.ticks == 0 {
				return fmt.Errorf("%w: time stamp resolution 0x%02x", ErrCorrupt, options[0])
			}
		case code == optionOffset && n == 8:
			i.offset = int64(s.order.Uint64(options))
		}
		options = options[padded:]
	}
	s.interfaces = append(s.interfaces, i)
	return nil
}

// ticks returns the time stamps in a second of an if_tsresol, 0 if they are
// more than 64 bits hold.
func ticks(resolution byte) uint64 {
	exp := resolution &^ binaryResolution
	if resolution&binaryResolution != 0 {
		return 1 << exp
	}
	if exp > 19 {
		return 0
	}
	t := uint64(1)
	for range exp {
		t *= 10
	}
	return t
}

func (s *source) enhanced(f *frame, body *int64, kind uint32) error {
	h, err := s.part(body, 20)
	if err != nil {
		return err
	}
	id := int(s.order.Uint32(h))
	if kind == blockPacket {
		id = int(s.order.Uint16(h))
	}
	if id >= len(s.interfaces) {
		return fmt.Errorf("%w: packet of interface %d, there are %d", ErrCorrupt, id, len(s.interfaces))
	}
	i := &s.interfaces[id]
	f.time = i.time(uint64(s.order.Uint32(h[4:]))<<32 | uint64(s.order.Uint32(h[8:])))
	f.link = i.link
	f.length = int(s.order.Uint32(h[16:]))
	return s.captured(f, body, s.order.Uint32(h[12:]))
}

func (s *source) simple(f *frame, body *int64) error {
	h, err := s.part(body, 4)
	if err != nil {
		return err
	}
	if len(s.interfaces) == 0 {
		return fmt.Errorf("%w: packet before any interface", ErrCorrupt)
	}
	i := &s.interfaces[0]
	n := s.order.Uint32(h)
	f.time, f.link, f.length = time.Time{}, i.link, int(n)
	if i.snap != 0 {
		n = min(n, i.snap)
	}
	return s.captured(f, body, n)
}

// captured reads the bytes of a frame.
func (s *source) captured(f *frame, body *int64, n uint32) error {
	if n > maxCaptured || int64(n) > *body {
		return fmt.Errorf("%w: it claims %d captured bytes, the block has %d left, the limit is %d", ErrCorrupt, n, *body, maxCaptured)
	}
	var err error
	f.data, err = s.part(body, int(n))
	return err
}
