package model

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The classic pcap format with nanoseconds, little-endian (libpcap,
// pcap-savefile(5)). gopacket's writer of it comes with a capture socket that
// nothing here needs.
const (
	pcapMagic      = 0xa1b23c4d
	pcapVersion    = 4<<16 | 2
	pcapSnapLength = 1 << 16
	pcapFileHeader = 24
	pcapHeader     = 16
)

// capture writes frames to a pcap file. Its first error is kept and ends it.
type capture struct {
	buffer *bufio.Writer
	serial gopacket.SerializeBuffer
	epoch  time.Time // of time 0
	err    error
}

func newCapture(w io.Writer, epoch time.Time) (*capture, error) {
	c := &capture{buffer: bufio.NewWriterSize(w, 1<<20), serial: gopacket.NewSerializeBuffer(), epoch: epoch}
	var h [pcapFileHeader]byte
	binary.LittleEndian.PutUint32(h[0:], pcapMagic)
	binary.LittleEndian.PutUint32(h[4:], pcapVersion)
	binary.LittleEndian.PutUint32(h[16:], pcapSnapLength)
	binary.LittleEndian.PutUint32(h[20:], uint32(layers.LinkTypeEthernet))
	c.buffer.Write(h[:]) // the error stays with the buffer
	return c, c.flush()
}

func (c *capture) frame(now time.Duration, b []byte) {
	t := c.epoch.Add(now)
	var h [pcapHeader]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(t.Unix()))
	binary.LittleEndian.PutUint32(h[4:], uint32(t.Nanosecond()))
	binary.LittleEndian.PutUint32(h[8:], uint32(len(b)))
	binary.LittleEndian.PutUint32(h[12:], uint32(len(b)))
	c.buffer.Write(h[:])
	c.buffer.Write(b)
}

// datagram writes what a socket carried, with the headers that it had as far as
// they are known: MAC addresses are zero.
func (c *capture) datagram(now time.Duration, d *Datagram) {
	if c.err != nil {
		return
	}
	src, dst := d.Src.Addr().Unmap(), d.Dst.Addr().Unmap()
	ether := layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv6}
	udp := layers.UDP{SrcPort: layers.UDPPort(d.Src.Port()), DstPort: layers.UDPPort(d.Dst.Port())}
	var ip gopacket.SerializableLayer = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP,
		SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	if src.Is4() {
		ether.EthernetType = layers.EthernetTypeIPv4
		ip = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, Flags: layers.IPv4DontFragment,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	// From the inside out. RoCE v2 sends no UDP checksum.
	lengths := gopacket.SerializeOptions{FixLengths: true}
	all := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	err := errors.Join(
		c.serial.Clear(),
		gopacket.Payload(d.Payload).SerializeTo(c.serial, lengths),
		udp.SerializeTo(c.serial, lengths),
		ip.SerializeTo(c.serial, all),
		ether.SerializeTo(c.serial, all),
	)
	if err != nil {
		c.err = fmt.Errorf("capture: make the headers of a frame: %w", err)
		return
	}
	c.frame(now, c.serial.Bytes())
}

func (c *capture) flush() error {
	if err := c.buffer.Flush(); err != nil && c.err == nil {
		c.err = fmt.Errorf("write the capture: %w", err)
	}
	return c.err
}
