//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// Gateway lets the software provider, which lives on a UDP socket, be a host on
// a wire. A socket shows neither identification nor Ethernet header, and
// rdma_rxe numbers its packets, so the gateway stands between: it checks the
// ICRC of each frame of the guest over the headers that were on the wire, and
// seals the packet anew for the socket's headers, and so the other way round.
// To the provider the guest has the gateway's address.
type Gateway struct {
	port  *Port
	guest roce.MAC
	far   netip.Addr // the guest's
	conn  *udp.Conn
	to    netip.AddrPort

	queue  *udp.SendQueue
	ended  chan struct{}
	err    error
	closed atomic.Bool

	in, out, badICRC, malformed, dropped, numbered atomic.Uint64
}

// GatewayCounters say what passed a gateway.
type GatewayCounters struct {
	In, Out   uint64 // packets from the guest, and to it
	BadICRC   uint64
	Malformed uint64
	Dropped   uint64 // not taken by a socket or the wire
	Numbered  uint64 // of In, those whose IPv4 identification was not 0
}

// NewGateway returns a gateway on socket address near, port 4791, to the
// software device at address device. The guest has address and MAC far and
// guest.
func NewGateway(port *Port, guest roce.MAC, far, near, device netip.Addr) (*Gateway, error) {
	conn, err := udp.Listen(netip.AddrPortFrom(near, roce.Port), udp.Config{})
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{port: port, guest: guest, far: far, conn: conn, to: netip.AddrPortFrom(device, roce.Port),
		queue: conn.NewSendQueue(1), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		g.err = g.answer()
	}()
	return g, nil
}

// Counters returns the totals so far.
func (g *Gateway) Counters() GatewayCounters {
	return GatewayCounters{In: g.in.Load(), Out: g.out.Load(), BadICRC: g.badICRC.Load(),
		Malformed: g.malformed.Load(), Dropped: g.dropped.Load(), Numbered: g.numbered.Load()}
}

// Take passes a frame of the guest on. It is called by one goroutine at a time.
func (g *Gateway) Take(frame []byte) {
	var f roce.Frame
	if err := f.Decode(frame); err != nil {
		g.malformed.Add(1)
		return
	}
	if !f.ICRCOK(frame) {
		g.badICRC.Add(1)
		return
	}
	if f.Flow.ID != 0 {
		g.numbered.Add(1)
	}
	packet := f.Transport(frame)
	flow := g.conn.FlowTo(g.to)
	flow.Seal(packet)
	g.queue.Add(g.to, packet)
	g.in.Add(1)
	for g.queue.Len() > 0 {
		_, err := g.conn.Send(g.queue)
		if err == nil && g.queue.Len() > 0 {
			_, err = g.conn.WaitSend(time.Second)
		}
		if err != nil {
			g.dropped.Add(1)
			g.queue.Reset()
		}
	}
}

// answer passes on what the device sends.
func (g *Gateway) answer() error {
	batch := g.conn.NewBatch(0)
	out := make([]byte, roce.MaxFrame)
	for !g.closed.Load() {
		n, err := g.conn.Receive(batch)
		if err == nil && n == 0 {
			_, err = g.conn.Wait(-1)
		}
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		for i := range n {
			packet, from := batch.Packet(i)
			g.forward(packet, from, out)
		}
	}
	return nil
}

func (g *Gateway) forward(packet []byte, from netip.AddrPort, out []byte) {
	flow := g.conn.FlowFrom(from)
	if !flow.Check(packet) {
		g.badICRC.Add(1)
		return
	}
	f := roce.Frame{Dst: g.guest, Src: g.port.MAC,
		Flow: roce.Flow{Src: g.port.Address, Dst: g.far, SrcPort: from.Port()}}
	err := f.Packet.Decode(packet)
	if err != nil {
		g.malformed.Add(1)
		return
	}
	n, err := f.Put(out)
	if err == nil {
		_, err = g.port.Wire.Write(out[:roce.Pad(out, n)])
	}
	if err != nil {
		g.dropped.Add(1)
		return
	}
	g.out.Add(1)
}

// Close ends the gateway and frees its address.
func (g *Gateway) Close() error {
	g.closed.Store(true)
	g.conn.Wake()
	<-g.ended
	return errors.Join(g.err, g.conn.Close())
}
