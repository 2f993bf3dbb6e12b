package model

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// captureLength is what the file says to be its longest frame, more than any is.
const captureLength = 1 << 16

// capture writes frames to a pcap file with nanoseconds. Its first error is kept
// and ends it.
type capture struct {
	buffer *bufio.Writer
	file   *pcapgo.Writer
	serial gopacket.SerializeBuffer
	epoch  time.Time // of time 0
	err    error
}

func newCapture(w io.Writer, epoch time.Time) (*capture, error) {
	c := &capture{buffer: bufio.NewWriterSize(w, 1<<20), serial: gopacket.NewSerializeBuffer(), epoch: epoch}
	c.file = pcapgo.NewWriterNanos(c.buffer)
	if err := c.file.WriteFileHeader(captureLength, layers.LinkTypeEthernet); err != nil {
		return nil, fmt.Errorf("write the capture: %w", err)
	}
	return c, c.flush()
}

func (c *capture) frame(now time.Duration, b []byte) {
	if c.err != nil {
		return
	}
	info := gopacket.CaptureInfo{Timestamp: c.epoch.Add(now), CaptureLength: len(b), Length: len(b)}
	if err := c.file.WritePacket(info, b); err != nil {
		c.err = fmt.Errorf("write the capture: %w", err)
	}
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
