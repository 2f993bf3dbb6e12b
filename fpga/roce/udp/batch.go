package udp

import "net/netip"

// Batch is the memory that Receive fills: as many buffers as it has slots, and
// the packets found in them. What Packet returns is valid until the Batch is
// given to Receive again.
type Batch struct {
	packets []packetRef
	sources []netip.AddrPort // by slot
	sys     batchSys
}

type packetRef struct {
	data []byte
	slot int
}

// Len returns how many packets the last Receive brought.
func (b *Batch) Len() int { return len(b.packets) }

// Packet returns packet i and where it came from. The address is never IPv4
// mapped into IPv6.
func (b *Batch) Packet(i int) (packet []byte, src netip.AddrPort) {
	p := &b.packets[i]
	return p.data, b.sources[p.slot]
}

// split adds the packets of one buffer: all of size bytes but the last, which
// may be shorter. A size of 0 means a single packet.
func (b *Batch) split(data []byte, size, slot int) {
	if size <= 0 {
		size = len(data)
	}
	for len(data) > size {
		b.packets = append(b.packets, packetRef{data[:size:size], slot})
		data = data[size:]
	}
	b.packets = append(b.packets, packetRef{data[:len(data):len(data)], slot})
}
