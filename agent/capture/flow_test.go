package capture

import (
	"bytes"
	"net/netip"
	"testing"

	"rocelink/fpga/roce"
)

// seen is a packet and what is to be said about its PSN.
type seen struct {
	flow  roce.Flow
	p     roce.Packet
	bad   bool // with a wrong ICRC
	uc    bool // of the unreliable connected service
	twice bool // a duplicate
	gap   int
	retx  bool
	order bool
	again bool
}

func send(psn roce.PSN) seen { return seen{flow: board, p: packet(roce.SendOnly, psn, 64)} }

func lose(psn roce.PSN) seen { return send(psn).unreliable() }

func (s seen) missing(n int) seen   { s.gap = n; return s }
func (s seen) retransmitted() seen  { s.retx = true; return s }
func (s seen) outOfOrder() seen     { s.retx, s.order = true, true; return s }
func (s seen) restarted() seen      { s.again = true; return s }
func (s seen) unreliable() seen     { s.uc = true; return s }
func (s seen) late() seen           { s.order = true; return s }
func (s seen) duplicate() seen      { s.twice = true; return s }
func (s seen) corrupt() seen        { s.bad = true; return s }
func (s seen) on(f roce.Flow) seen  { s.flow = f; return s }
func (s seen) to(qpn roce.QPN) seen { s.p.DestQP = qpn; return s }

func of(flow roce.Flow, op roce.Opcode, psn roce.PSN, n int) seen {
	return seen{flow: flow, p: packet(op, psn, n)}
}

func read(psn roce.PSN, length uint32) seen {
	s := seen{flow: board, p: packet(roce.ReadRequest, psn, 0)}
	s.p.RETH.Length = length
	return s
}

func answer(y roce.Syndrome, psn roce.PSN) seen {
	s := seen{flow: host, p: packet(roce.Acknowledge, psn, 0)}
	s.p.AETH.Syndrome = y
	return s
}

func TestPSN(t *testing.T) {
	ack, seqErr := roce.ACK(31), roce.Nak(roce.PSNSequenceError)
	const first, middle, last, only = roce.ReadResponseFirst, roce.ReadResponseMiddle, roce.ReadResponseLast, roce.ReadResponseOnly
	tests := map[string][]seen{
		"in order":      {send(1), send(2), send(3)},
		"wraps":         {send(0xfffffe), send(0xffffff), send(0), send(1)},
		"gap":           {send(1), send(2), send(5).missing(2), send(6)},
		"gap over wrap": {send(0xfffffe), send(2).missing(3), send(3)},
		"repeated":      {send(7), send(7).retransmitted(), send(8)},
		"go back": {send(1), send(2), send(3), answer(seqErr, 2),
			send(2).retransmitted(), send(3).retransmitted(), send(4)},
		"lost and sent again": {send(1), send(4).missing(2), send(2).outOfOrder(), send(3).outOfOrder(), send(4).retransmitted(), send(5)},
		"swapped":             {send(1), send(3).missing(1), send(2).outOfOrder(), send(4)},
		"restart behind":      {send(0x700000), send(0x700001), send(5).restarted(), send(6)},
		"restart ahead":       {send(5), send(0x700000).restarted(), send(0x700001)},
		"just no restart":     {send(0), send(1 + RestartDistance).missing(RestartDistance), send(2).outOfOrder()},
		"QPNs apart":          {send(1), send(100).to(9), send(2), send(101).to(9)},
		"hosts apart":         {send(1), send(100).on(host), send(2), send(101).on(host)},
		"families apart":      {send(1), send(100).on(board6), send(2)},
		"acknowledges coalesce and repeat": {send(1), send(2), send(3), send(4), answer(ack, 1), answer(ack, 4),
			answer(ack, 4), answer(ack, 2), send(5)},
		"requests and answers to one QPN": {send(1), of(board, only, 500, 64), send(2), of(board, only, 501, 64)},

		"READ of one packet": {read(1, 200), read(2, 0), read(3, 256), send(4)},
		"READ, MTU from requests": {of(board, roce.WriteFirst, 1, 1024), of(board, roce.WriteMiddle, 2, 1024), of(board, roce.WriteLast, 3, 1024),
			read(4, 4096), send(8), read(9, 1025), send(11), send(14).missing(2)},
		"READ, MTU from the answer": {read(1, 3000), of(host, first, 1, 1024), of(host, middle, 2, 1024), of(host, last, 3, 952),
			read(4, 2048), send(6), send(8).missing(1)},
		"READ, gap behind it":          {of(board, roce.SendFirst, 1, 512), read(2, 1024), send(6).missing(2)},
		"READ, MTU unknown":            {read(1, 4096), send(17), send(18), send(20).missing(1)},
		"READ, MTU unknown, one after": {read(1, 4096), send(2), send(3), send(5).missing(1)},
		"READ, MTU by longest packet":  {of(board, roce.SendOnly, 1, 4000), read(2, 8192), send(4), send(6).missing(1)},
		"READ, MTUs differ": {of(board, roce.SendFirst, 1, 512).to(1), of(board, roce.SendFirst, 1, 1024).to(2),
			read(1, 4096).to(3), send(9).to(3), send(10).to(3),
			read(2, 1024).to(1), send(4).to(1)},
		"READ repeated":               {of(board, roce.SendFirst, 1, 512), read(2, 1024), read(2, 1024).retransmitted(), send(4)},
		"READ lost and sent again":    {of(board, roce.SendFirst, 1, 512), send(4).missing(2), read(2, 1024).outOfOrder(), send(5)},
		"answers, gap in a message":   {of(host, first, 10, 1024), of(host, middle, 13, 1024).missing(2), of(host, last, 14, 9)},
		"answers, gap between":        {of(host, only, 10, 64), of(host, only, 12, 64).missing(1)},
		"answers repeated":            {of(host, only, 10, 64), of(host, only, 11, 64), of(host, only, 10, 64).retransmitted()},
		"answers amid acknowledges":   {of(host, only, 10, 64), answer(ack, 14), of(host, only, 18, 64), of(host, only, 19, 64)},
		"answers amid other requests": {read(1, 64), send(2), read(3, 64), of(host, only, 1, 64), of(host, only, 3, 64)},
		"answer broken off":           {send(1), of(host, first, 10, 1024), of(host, only, 15, 64).missing(1)},

		"unreliable, in order":    {lose(0xfffffe), lose(0xffffff), lose(0), lose(1)},
		"unreliable, lost":        {lose(1), lose(4).missing(2), lose(5), lose(9).missing(3)},
		"unreliable, swapped":     {lose(1), lose(3).missing(1), lose(2).late(), lose(4)},
		"unreliable, twice":       {lose(1), lose(2), lose(2).duplicate(), lose(3), lose(1).duplicate(), lose(4)},
		"unreliable, restart":     {lose(0x700000), lose(5).restarted(), lose(6), lose(8).missing(1)},
		"unreliable, wrong ICRC":  {lose(1), lose(2).corrupt(), lose(3), lose(0x5000).corrupt(), lose(4)},
		"unreliable beside READs": {lose(1).to(9), of(host, only, 10, 64), of(host, only, 12, 64).missing(1)},

		"wrong ICRC, PSN as expected":  {send(1), send(2).corrupt(), send(3), send(2).retransmitted()},
		"wrong ICRC, PSN not believed": {send(1), send(0x5000).corrupt(), send(2), send(0).corrupt(), send(3)},
		"no ICRC right at all":         {send(1).corrupt(), send(2).corrupt(), send(4).corrupt().missing(1), send(4).corrupt().retransmitted()},
		"wrong ICRC at first":          {send(0x7000).corrupt(), send(1), send(2)},
	}
	for name, packets := range tests {
		t.Run(name, func(t *testing.T) {
			var frames []taken
			for _, s := range packets {
				b := ether(t, s.flow, s.p)
				if s.uc {
					unreliably(b)
				}
				if s.bad {
					b[len(b)-5] ^= 1
				}
				frames = append(frames, taken{data: b})
			}
			got, sum, err := decodeJSON(t, pcap(linkEthernet, frames...))
			if err != nil || len(got) != len(packets) {
				t.Fatalf("%d packets, want %d: %v", len(got), len(packets), err)
			}
			var want, have Flow
			for i, s := range packets {
				o := got[i]
				if o.Gap != s.gap || o.Retransmission != s.retx || o.OutOfOrder != s.order || o.Duplicate != s.twice || o.Restart != s.again {
					t.Errorf("packet %d, %v PSN %d: gap %d, retransmission %v, out of order %v, duplicate %v, restart %v", i+1, s.p.Opcode, s.p.PSN, o.Gap, o.Retransmission, o.OutOfOrder, o.Duplicate, o.Restart)
				}
				want.Packets++
				want.PayloadBytes += uint64(len(s.p.Payload))
				want.Missing += uint64(s.gap)
				if s.gap > 0 {
					want.Gaps++
				}
				if s.retx {
					want.Retransmissions++
				}
				if s.order {
					want.OutOfOrder++
				}
				if s.twice {
					want.Duplicates++
				}
				if s.again {
					want.Restarts++
				}
				if s.bad {
					want.BadICRC++
				}
				if y := s.p.AETH.Syndrome; s.p.Opcode == roce.Acknowledge {
					switch {
					case y.IsACK():
						want.ACKs++
					case y.IsNAK():
						want.NAKs++
					}
				}
			}
			for _, f := range sum.Flows {
				have.Packets += f.Packets
				have.PayloadBytes += f.PayloadBytes
				have.Gaps += f.Gaps
				have.Missing += f.Missing
				have.Retransmissions += f.Retransmissions
				have.OutOfOrder += f.OutOfOrder
				have.Duplicates += f.Duplicates
				have.Restarts += f.Restarts
				have.ACKs += f.ACKs
				have.NAKs += f.NAKs
				have.BadICRC += f.BadICRC
			}
			if have != want {
				t.Errorf("flows add up to\n%+v, want\n%+v", have, want)
			}
		})
	}
}

// fill against a set of numbers.
func TestHoles(t *testing.T) {
	var s sequence
	s.see(0xfffff0, 1)
	missing := map[roce.PSN]bool{}
	for _, gap := range []int{1, 5, 30, 2} {
		next := s.next
		s.see(next.Add(gap), 1)
		for i := range gap {
			missing[next.Add(i)] = true
		}
	}
	for _, c := range []struct {
		psn roce.PSN
		n   int
	}{{0xfffff1, 1}, {0xfffff3, 3}, {0, 3}, {0xfffff0, 60}, {2, 1}} {
		want := 0
		for i := range c.n {
			if missing[c.psn.Add(i)] {
				want++
				delete(missing, c.psn.Add(i))
			}
		}
		if got := s.see(c.psn, c.n).recovered; got != want {
			t.Errorf("%d PSNs from %#x: recovered %d, want %d", c.n, c.psn, got, want)
		}
	}
}

// However many flows and holes there are, the tables are bounded, and every
// packet is printed and counted.
func TestBounds(t *testing.T) {
	const limit, n = 8, 100
	var frames []taken
	for i := range n {
		flow := board
		flow.Src = netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
		frames = append(frames, taken{data: ether(t, flow, packet(roce.SendOnly, 1, 4))})
	}
	for i := range n {
		frames = append(frames, taken{data: ether(t, board, packet(roce.SendOnly, roce.PSN(2*i), 4))})
	}
	got, s, err := decodeFrom(t, bytes.NewReader(pcap(linkEthernet, frames...)), Options{JSON: true, MaxFlows: limit})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2*n || len(s.Flows) != limit || s.Packets != 2*n || s.Beyond != 2*n-limit {
		t.Errorf("%d packets, %d flows, %d beyond", len(got), len(s.Flows), s.Beyond)
	}
	_, s, err = decodeJSON(t, pcap(linkEthernet, frames[n:]...))
	if err != nil || s.Flows[0].Missing != n-1 || s.Flows[0].Gaps != n-1 {
		t.Errorf("%+v, %v", s.Flows, err)
	}
}
