package model

import (
	"net/netip"
	"time"

	"rocelink/fpga/roce"
)

// Datagram is a frame without its Ethernet, IP and UDP headers: what a UDP
// socket gives and takes. Payload goes from the BTH to the ICRC.
type Datagram struct {
	Src, Dst netip.AddrPort
	Payload  []byte
}

// Receive takes an Ethernet frame, from the destination MAC to the ICRC or the
// Ethernet pad, that arrived at time now. Whatever the frame holds, one that
// must be ignored changes nothing but its counter. The first reason found
// counts, in this order: IP and UDP headers, ICRC, transport headers, opcode,
// QPN, addresses.
func (f *Fabric) Receive(now time.Duration, frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = max(f.now, now)
	if !f.mac.received(len(frame)) || !f.enabled {
		return
	}
	err := f.frame.Decode(frame)
	if err == roce.ErrNotRoCE {
		return
	}
	f.count.rxPackets++
	packet := f.frame.Transport(frame)
	if packet == nil {
		f.count.rxBytes += uint64(len(frame))
		f.count.rxMalformed++
		return
	}
	_, end := f.frame.Bounds()
	f.count.rxBytes += uint64(end)
	if !f.frame.ICRCOK(frame) {
		f.count.rxBadICRC++
		return
	}
	f.transport(err, &f.frame.Dst)
}

// ReceiveDatagrams takes what a UDP socket received at time now, as Receive.
// MAC addresses are not looked at, there are none.
func (f *Fabric) ReceiveDatagrams(now time.Duration, batch []Datagram) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = max(f.now, now)
	for i := range batch {
		d := &batch[i]
		if d.Dst.Port() != roce.Port {
			continue
		}
		f.frame.Flow = roce.Flow{Src: d.Src.Addr().Unmap(), Dst: d.Dst.Addr().Unmap(), SrcPort: d.Src.Port()}
		n := headerBytes(f.frame.Flow.Is4()) + len(d.Payload)
		if !f.mac.received(n) || !f.enabled {
			continue
		}
		f.count.rxPackets++
		f.count.rxBytes += uint64(n)
		if len(d.Payload) < roce.MinPacket {
			f.count.rxMalformed++
			continue
		}
		if !f.frame.Flow.Check(d.Payload) {
			f.count.rxBadICRC++
			continue
		}
		f.transport(f.frame.Packet.Decode(d.Payload), nil)
	}
}

// headerBytes is the length of Ethernet, IP and UDP headers.
func headerBytes(ip4 bool) int {
	if ip4 {
		return 14 + 20 + 8
	}
	return 14 + 40 + 8
}

// transport takes the packet in f.frame, whose ICRC is right and of which err
// says what is wrong with its transport headers.
func (f *Fabric) transport(err error, dst *roce.MAC) {
	p := &f.frame.Packet
	op := p.Opcode
	switch {
	case err == roce.ErrOpcode, err == nil && op != roce.Acknowledge && !op.IsReadResponse():
		f.count.rxBadOpcode++
		return
	case err != nil, op.HasAETH() && !understood(p.AETH.Syndrome):
		f.count.rxMalformed++
		return
	}
	q := f.find(p.DestQP)
	if q == nil {
		f.count.rxUnknownQP++
		return
	}
	if f.frame.Flow.Src != q.remote || f.frame.Flow.Dst != q.local || dst != nil && *dst != q.frame.Src {
		f.count.rxWrongAddress++
		return
	}
	q.respond(p)
	q.stream.settle()
}

// understood reports whether a syndrome is one of reliable connected service:
// the reserved kind and NAK codes that no requester of SEND, WRITE and READ can
// get are headers that contradict themselves.
func understood(s roce.Syndrome) bool {
	return s.IsACK() || s.IsRNR() || s.IsNAK() && s.NakCode() <= roce.RemoteOperational
}

// find returns the queue pair that is Ready with a local QPN, or nil.
func (f *Fabric) find(n roce.QPN) *queuePair {
	for i := range f.qps {
		if q := &f.qps[i]; q.state == qpReady && q.localQPN == n {
			return q
		}
	}
	return nil
}
