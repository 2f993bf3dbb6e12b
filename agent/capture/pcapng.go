package capture

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
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

	blockHeadLen     = 8  // type and length
	blockOverhead    = 12 // these and the length again
	sectionFixedLen  = 16 // in front of its options
	describeFixedLen = 8
	optionHeadLen    = 4
	orderMagic       = 0x1a2b3c4d
)

// Limits on what a file can make the library hold in memory.
const (
	maxBlock      = maxCaptured + 64<<10 // a packet and its options
	maxInterfaces = 4096                 // in one section
	maxDescribed  = 1 << 20              // bytes of their blocks
)

// gate lets a pcapng through to the library, block by block, because the
// library believes what a block says about itself: it reads on in the next one
// where a packet or an option is longer than its block, collects the comments of
// a packet and the records of name resolution blocks without limit, and does
// not look at the length that ends a block. So a block must be there from end
// to end, be of a bounded size, and if the library does not need it to find
// packets it is left out.
type gate struct {
	in    *input
	order binary.ByteOrder
	left  int   // of the block that is being passed on
	err   error // that ended the reading

	// inPacket says that a packet block was passed on: the library is to return
	// before it wants the next one.
	inPacket   bool
	stamp      uint64 // its time stamp
	numbered   uint64 // blocks that are no packets but have a frame number
	interfaces int    // of this section
	described  int
}

// Read gives the library at most what is left of a block.
func (g *gate) Read(p []byte) (int, error) {
	if g.left == 0 && g.err == nil {
		g.left, g.err = g.next()
	}
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.in.Read(p[:min(len(p), g.left)])
	g.left -= n
	return n, err
}

// next goes to the next block for the library and returns its length. The whole
// of it is in the buffer then.
func (g *gate) next() (int, error) {
	if g.inPacket {
		return 0, fmt.Errorf("%w: the packet is longer than its block", ErrCorrupt)
	}
	for {
		g.in.start = g.in.offset()
		h, err := g.in.Peek(blockHeadLen)
		if len(h) == 0 {
			return 0, err // the end of the file is regular only here
		}
		if err != nil {
			return 0, inside(err)
		}
		kind := g.order.Uint32(h)
		if kind == blockSection {
			if err := g.section(); err != nil {
				return 0, err
			}
		}
		length := g.order.Uint32(h[4:])
		if length < blockOverhead || length%4 != 0 {
			return 0, fmt.Errorf("%w: block of type %#x and %d bytes", ErrCorrupt, kind, length)
		}
		switch kind {
		case blockSection, blockInterface, blockSimple, blockEnhanced, blockPacket:
			return int(length), g.check(kind, length)
		case blockJournal, blockCustom, blockCustomNoCopy, blockSysdig, blockSysdigV2, blockSysdigLarge:
			g.numbered++
		}
		if err := g.skip(length); err != nil {
			return 0, err
		}
	}
}

// section takes the byte order of a section. It applies to the length in front
// of it too.
func (g *gate) section() error {
	b, err := g.in.Peek(blockHeadLen + 4)
	if err != nil {
		return inside(err)
	}
	switch magic := b[blockHeadLen:]; uint32(orderMagic) {
	case binary.LittleEndian.Uint32(magic):
		g.order = binary.LittleEndian
	case binary.BigEndian.Uint32(magic):
		g.order = binary.BigEndian
	default:
		return fmt.Errorf("%w: byte order magic % x", ErrCorrupt, magic)
	}
	g.interfaces, g.described = 0, 0
	return nil
}

// check looks at a block before the library does.
func (g *gate) check(kind, length uint32) error {
	if length > maxBlock {
		return fmt.Errorf("%w: block of type %#x and %d bytes, the limit is %d", ErrCorrupt, kind, length, maxBlock)
	}
	b, err := g.in.Peek(int(length))
	if err != nil {
		return inside(err)
	}
	body := b[blockHeadLen : length-4]
	if err := g.sameLength(b[length-4:], length); err != nil {
		return err
	}
	switch kind {
	case blockSection:
		return g.options(body, sectionFixedLen)
	case blockInterface:
		g.interfaces++
		g.described += int(length)
		if g.interfaces > maxInterfaces || g.described > maxDescribed {
			return fmt.Errorf("%w: more than %d interfaces or %d bytes about them in a section", ErrCorrupt, maxInterfaces, maxDescribed)
		}
		return g.options(body, describeFixedLen)
	}
	g.inPacket = true
	if kind != blockSimple && len(body) >= 12 {
		g.stamp = uint64(g.order.Uint32(body[4:]))<<32 | uint64(g.order.Uint32(body[8:]))
	}
	return nil
}

func (g *gate) sameLength(end []byte, want uint32) error {
	if got := g.order.Uint32(end); got != want {
		return fmt.Errorf("%w: block of %d bytes ends with length %d", ErrCorrupt, want, got)
	}
	return nil
}

// options checks that the options behind the fixed part of a block are in it.
func (g *gate) options(body []byte, fixed int) error {
	if len(body) < fixed {
		return fmt.Errorf("%w: block %d bytes too short", ErrCorrupt, fixed-len(body))
	}
	for b := body[fixed:]; len(b) > 0; {
		code, n := g.order.Uint16(b), int(g.order.Uint16(b[2:]))
		b = b[optionHeadLen:]
		padded := (n + 3) &^ 3
		if code == 0 {
			break // the end of them
		}
		if padded > len(b) {
			return fmt.Errorf("%w: option %d of %d bytes in %d", ErrCorrupt, code, n, len(b))
		}
		b = b[padded:]
	}
	return nil
}

// skip leaves a block out, however long it is.
func (g *gate) skip(length uint32) error {
	for n := int64(length) - 4; n > 0; {
		m, err := g.in.Discard(int(min(n, 1<<30)))
		if err != nil {
			return inside(err)
		}
		n -= int64(m)
	}
	end, err := g.in.Peek(4)
	if err != nil {
		return inside(err)
	}
	if err := g.sameLength(end, length); err != nil {
		return err
	}
	_, err = g.in.Discard(4)
	return err
}

// inside turns the end of the file into an error.
func inside(err error) error {
	if isEnd(err) {
		return ErrTruncated
	}
	return err
}

// readBlock reads blocks up to the next packet.
func (s *source) readBlock(f *frame) error {
	s.gate.inPacket = false
	data, info, err := s.ng.ZeroCopyReadPacketData()
	if err != nil {
		return err
	}
	i, err := s.ng.Interface(info.InterfaceIndex)
	if err != nil {
		return err
	}
	f.set(data, info, linkType(i.LinkType))
	if info.Timestamp.IsZero() {
		return nil // a simple packet
	}
	switch r := i.TimestampResolution; {
	case r.Binary():
		f.time = binaryTime(s.gate.stamp, i)
	case r.Exponent() > maxExponent:
		return fmt.Errorf("%w: time stamps in units of 10^-%d seconds", ErrCorrupt, r.Exponent())
	}
	return nil
}

// maxExponent is the finest decimal resolution of which 64 bits hold a second;
// the library computes nonsense beyond.
const maxExponent = 19

// binaryTime converts a time stamp in units of a power of two. The library
// scales these by a rounded factor, which is wrong by up to half a second.
func binaryTime(stamp uint64, i pcapgo.NgInterface) time.Time {
	exp := i.TimestampResolution.Exponent() // 63 at most, or the library refuses
	hi, lo := bits.Mul64(stamp&(1<<exp-1), uint64(time.Second))
	return time.Unix(int64(stamp>>exp+i.TimestampOffset), int64(hi<<(64-exp)|lo>>exp)).UTC()
}
