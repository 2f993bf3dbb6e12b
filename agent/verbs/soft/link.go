package soft

import (
	"net/netip"
	"time"

	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

const (
	// sendSlots is how many answers leave in one system call. Their bytes
	// should stay in the second-level cache together with what is received.
	sendSlots = 64
	// sendSlot has room for the longest packet, in whole cache lines.
	sendSlot = (roce.MaxPacket + cacheLine - 1) &^ (cacheLine - 1)
	// sendPatience is how long answers wait for room in the socket buffer
	// before they are dropped as a full queue in a network would drop them.
	sendPatience = time.Millisecond
)

// link is the socket with the memory for one batch each way. All but the conn
// belongs to the responder.
type link struct {
	conn    *udp.Conn
	batch   *udp.Batch
	queue   *udp.SendQueue
	buffers []byte
	queued  int // buffers in the queue
}

func listen(addr netip.Addr) (*link, error) {
	conn, err := udp.Listen(netip.AddrPortFrom(addr, roce.Port), udp.Config{})
	if err != nil {
		return nil, err
	}
	return &link{
		conn:    conn,
		batch:   conn.NewBatch(0),
		queue:   conn.NewSendQueue(sendSlots),
		buffers: make([]byte, sendSlots*sendSlot),
	}, nil
}

// put encodes an answer to a queue pair's peer and queues it.
func (r *responder) put(qp *queuePair, p *roce.Packet) {
	l := r.device.link
	if l.queued == sendSlots {
		r.transmit()
	}
	p.MigReq, p.PKey, p.DestQP = true, roce.PKeyDefault, qp.peer.QPN
	b := l.buffers[l.queued*sendSlot : (l.queued+1)*sendSlot]
	n, err := p.Put(b)
	if err != nil {
		r.count.add(txDropped, 1)
		return
	}
	b = b[:n]
	qp.inbound.flow.Seal(b)
	l.queue.Add(qp.inbound.to, b)
	l.queued++
	r.count.add(txPackets, 1)
	r.count.add(txBytes, n)
}

// transmit sends what is queued. What the kernel does not take within a few
// times sendPatience is dropped: the requester asks again.
func (r *responder) transmit() {
	const tries = 4
	l := r.device.link
	for left := tries; l.queue.Len() > 0; left-- {
		before := l.queue.Len()
		sent, _ := l.conn.Send(l.queue)
		// What cannot be sent at all has left the queue too.
		r.count.add(txDropped, before-sent-l.queue.Len())
		if l.queue.Len() == 0 {
			break
		}
		if sent > 0 {
			left = tries
		}
		if ok, err := l.conn.WaitSend(sendPatience); !ok || err != nil || left == 0 {
			r.count.add(txDropped, l.queue.Len())
			l.queue.Reset()
		}
	}
	l.queued = 0
}
