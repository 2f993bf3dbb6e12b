package soft

import (
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// window is a requester that sends single-packet messages as fast as it is
// acknowledged, for tests that need load. One goroutine drives it.
type window struct {
	g         *rig
	datagrams [][]byte
	packets   []roce.Packet
	acked     roce.PSN // the next PSN to be acknowledged
	naks      int
	rnrs      int
}

func newWindow(g *rig, size int, p roce.Packet) *window {
	w := &window{g: g, acked: g.psn}
	for range size {
		w.packets = append(w.packets, p)
		w.datagrams = append(w.datagrams, make([]byte, p.Len()))
	}
	return w
}

// fill sends new packets until the window is full.
func (w *window) fill() error {
	g := w.g
	for g.psn.Sub(w.acked) < len(w.packets) {
		i := int(g.psn) % len(w.packets)
		p := &w.packets[i]
		p.PSN, p.AckReq = g.psn, true
		if _, err := p.Put(w.datagrams[i]); err != nil {
			return err
		}
		g.flow.Seal(w.datagrams[i])
		g.queue.Add(g.to, w.datagrams[i])
		g.psn = g.psn.Next()
	}
	for g.queue.Len() > 0 {
		n, err := g.conn.Send(g.queue)
		if err != nil {
			return err
		}
		g.total.Add(uint64(n))
	}
	return nil
}

// take handles answers: it waits for one at most as long as given. RNR and
// sequence errors send everything again.
func (w *window) take(timeout time.Duration) (int, error) {
	g := w.g
	n, err := g.conn.Receive(g.batch)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if _, err := g.conn.Wait(timeout); err != nil {
			return 0, err
		}
		if n, err = g.conn.Receive(g.batch); err != nil {
			return 0, err
		}
	}
	for i := range n {
		b, _ := g.batch.Packet(i)
		var p roce.Packet
		if err := p.Decode(b); err != nil {
			return 0, err
		}
		switch s := p.AETH.Syndrome; {
		case s.IsACK():
			w.acked = p.PSN.Next()
		case s.IsRNR():
			w.rnrs++
			w.acked, g.psn = p.PSN, p.PSN
		default:
			w.naks++
			w.acked, g.psn = p.PSN, p.PSN
		}
	}
	return n, nil
}

// repost polls once and posts a receive again for every completion.
func (g *rig) repost(wcs []verbs.WorkCompletion, rs []verbs.ReceiveRequest) (n int, err error) {
	n, err = g.cq.Poll(wcs)
	if err != nil || n == 0 {
		return n, err
	}
	for i, wc := range wcs[:n] {
		rs[i] = verbs.ReceiveRequest{ID: wc.ID, Address: g.mr.base + wc.ID*4096, Length: 4096, LKey: g.mr.lkey}
	}
	_, err = g.qp.PostReceive(rs[:n])
	return n, err
}
