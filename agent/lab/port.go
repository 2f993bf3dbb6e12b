//go:build linux

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"rocelink/fpga/roce"
)

// Port is a host of one address at this end of a wire. It answers ARP for its
// address and hands RoCE v2 frames on.
type Port struct {
	Wire    *Wire
	MAC     roce.MAC
	Address netip.Addr // IPv4

	arps, passed, other atomic.Uint64
}

// PortCounters say what a port has seen.
type PortCounters struct {
	ARP    uint64 // requests answered
	Passed uint64 // RoCE v2 frames handed on
	Other  uint64 // anything else, which nobody misses: neighbour discovery and the like
}

// Counters returns the totals so far.
func (p *Port) Counters() PortCounters {
	return PortCounters{p.arps.Load(), p.passed.Load(), p.other.Load()}
}

// Run serves the port until the wire is closed, which is no error. take gets
// every RoCE v2 frame to the port's MAC; the frame is only valid during the
// call.
func (p *Port) Run(take func(frame []byte)) error {
	buffer := make([]byte, maxFrame)
	for {
		n, err := p.Wire.Read(buffer)
		if errors.Is(err, net.ErrClosed) || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		frame := buffer[:n]
		switch {
		case isRoCE(frame) && roce.MAC(frame[:6]) == p.MAC:
			p.passed.Add(1)
			take(frame)
		case p.answerARP(frame):
			p.arps.Add(1)
		default:
			p.other.Add(1)
		}
	}
}

// isRoCE tells a frame that may be RoCE v2 over untagged IPv4: who takes it
// looks closer.
func isRoCE(b []byte) bool {
	const ipv4, udp, minimum = 0x0800, 17, 42
	if len(b) < minimum || binary.BigEndian.Uint16(b[12:]) != ipv4 || b[23] != udp {
		return false
	}
	at := 14 + int(b[14]&15)*4
	return len(b) >= at+4 && binary.BigEndian.Uint16(b[at+2:]) == roce.Port
}

// answerARP answers a request for the port's address (RFC 826).
func (p *Port) answerARP(frame []byte) bool {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	arp, ok := packet.Layer(layers.LayerTypeARP).(*layers.ARP)
	own := p.Address.As4()
	if !ok || arp.Operation != layers.ARPRequest || string(arp.DstProtAddress) != string(own[:]) {
		return false
	}
	out := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: p.MAC[:], DstMAC: arp.SourceHwAddress, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: layers.ARPReply,
			HwAddressSize: 6, ProtAddressSize: 4,
			SourceHwAddress: p.MAC[:], SourceProtAddress: own[:],
			DstHwAddress: arp.SourceHwAddress, DstProtAddress: arp.SourceProtAddress,
		})
	if err != nil {
		return false
	}
	_, err = p.Wire.Write(out.Bytes())
	return err == nil
}
