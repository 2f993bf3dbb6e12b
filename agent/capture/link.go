package capture

import "encoding/binary"

// linkType says what a frame begins with.
type linkType uint16

// The link types that are read (registry of LINKTYPE_ values).
const (
	linkNull     linkType = 0
	linkEthernet linkType = 1
	linkRaw      linkType = 101
	linkLoop     linkType = 108
	linkCooked   linkType = 113 // LINUX_SLL
	linkIPv4     linkType = 228
	linkIPv6     linkType = 229
	linkCooked2  linkType = 276 // LINUX_SLL2

	// DLT_RAW of some BSDs, which leaks into files.
	linkRawBSD     linkType = 12
	linkRawOpenBSD linkType = 14
)

const (
	etherHeaderLen = 14
	cookedLen      = 16 // LINUX_SLL
	cooked2Len     = 20 // LINUX_SLL2
	familyLen      = 4  // NULL and LOOP
	tagLen         = 4

	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	maxTags       = 8 // more is rubbish
)

// network returns where in a frame the IP header begins and the VLANs that
// were in between. ok is false for frames without one; known is false for a
// link type that this package does not read.
func network(f *frame, tags []uint16) (at int, vlans []uint16, ok, known bool) {
	b := f.data
	var etherType uint16
	switch f.link {
	case linkEthernet:
		if len(b) < etherHeaderLen {
			return 0, tags, false, true
		}
		etherType, at = binary.BigEndian.Uint16(b[12:]), etherHeaderLen
	case linkCooked:
		if len(b) < cookedLen {
			return 0, tags, false, true
		}
		etherType, at = binary.BigEndian.Uint16(b[14:]), cookedLen
	case linkCooked2:
		if len(b) < cooked2Len {
			return 0, tags, false, true
		}
		etherType, at = binary.BigEndian.Uint16(b), cooked2Len
	case linkNull, linkLoop:
		// The address family differs between systems, and in its byte order:
		// the version in the IP header does not.
		return familyLen, tags, len(b) > familyLen, true
	case linkRaw, linkRawBSD, linkRawOpenBSD, linkIPv4, linkIPv6:
		return 0, tags, len(b) > 0, true
	default:
		return 0, tags, false, false
	}
	for isTag(etherType) {
		if len(tags) == maxTags || len(b) < at+tagLen {
			return at, tags, false, true
		}
		tags = append(tags, binary.BigEndian.Uint16(b[at:])&0x0fff)
		etherType = binary.BigEndian.Uint16(b[at+2:])
		at += tagLen
	}
	return at, tags, etherType == etherTypeIPv4 || etherType == etherTypeIPv6, true
}

// isTag reports whether an EtherType begins a VLAN tag: 802.1Q, 802.1ad, and
// the two numbers that were in use for stacked tags before it.
func isTag(etherType uint16) bool {
	switch etherType {
	case 0x8100, 0x88a8, 0x9100, 0x9200:
		return true
	}
	return false
}
