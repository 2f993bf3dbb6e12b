package soft

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// halt ends a rig's responder, so that the test can play it.
func halt(g *rig) *responder {
	g.d.stop.Store(true)
	g.d.link.conn.Wake()
	<-g.d.ended
	// The responder's last act is under the mutex.
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	return g.d.responder
}

// discard throws away what would be sent.
func (l *link) discard() {
	l.queue.Reset()
	l.queued = 0
}

// What a fuzzed packet is made right in, so that the fuzzer gets past the
// checks one at a time.
const (
	fixQP = 1 << iota
	fixPSN
	fixRKey
	fixAddress
	fixPKey
	fixReadOnlyRKey
	fixForeignRKey
	breakICRC
)

// seed builds fuzz input: a byte of fixes, two of length, the packet.
func seed(ps ...roce.Packet) []byte {
	var b []byte
	for _, p := range ps {
		d := make([]byte, p.Len())
		n, err := p.Put(d)
		if err != nil {
			panic(err)
		}
		b = append(b, fixQP|fixPSN|fixRKey|fixAddress|fixPKey)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b = append(b, d[:n]...)
	}
	return b
}

// FuzzResponder feeds the responder with arbitrary packets. Only the memory that
// a peer may write may change, and accounts must balance.
func FuzzResponder(f *testing.F) {
	const mtu = 256
	data := pattern(mtu, 1)
	p := func(op roce.Opcode, n int, length uint32) roce.Packet {
		return roce.Packet{BTH: roce.BTH{Opcode: op, AckReq: true}, Payload: data[:n], RETH: roce.RETH{Length: length}, Imm: 7}
	}
	f.Add(seed(p(roce.SendFirst, mtu, 0), p(roce.SendMiddle, mtu, 0), p(roce.SendLastImm, 9, 0)))
	f.Add(seed(p(roce.WriteFirst, mtu, 2*mtu+1), p(roce.WriteMiddle, mtu, 0), p(roce.WriteLastImm, 1, 0)))
	f.Add(seed(p(roce.SendOnly, 0, 0), p(roce.WriteOnly, 8, 8), p(roce.WriteOnlyImm, 0, 0), p(roce.ReadRequest, 0, 1000)))
	f.Add(seed(p(roce.ReadRequest, 0, 5000), p(roce.ReadRequest, 0, 100), p(roce.Acknowledge, 0, 0), p(roce.ReadResponseOnly, 4, 0)))
	f.Add(seed(p(roce.SendFirst, mtu, 0), p(roce.WriteOnly, 4, 4)))
	f.Add([]byte{0, 0, 3, 1, 2, 3, 0xff, 0, 16})

	const size, receives = 8192, 8
	g := newRig(f, options{mtu: mtu, memory: size, receives: receives, depth: 2 * receives})
	register := func(pd *domain, access verbs.Access) (*verbs.Memory, *region) {
		m, err := verbs.AllocMemory(size, false)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { m.Free() })
		copy(m.Bytes(), pattern(size, 5))
		mr, err := pd.Register(m, access)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { mr.Close() })
		return m, mr.(*region)
	}
	readOnly, readOnlyMR := register(g.pd, verbs.LocalWrite|verbs.RemoteRead)
	pd, err := g.d.AllocPD()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { pd.Close() })
	foreign, foreignMR := register(pd.(*domain), everything)
	unregistered, err := verbs.AllocMemory(size, false)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { unregistered.Free() })
	copy(unregistered.Bytes(), pattern(size, 5))
	want := pattern(size, 5)
	r := halt(g)
	from := netip.AddrPortFrom(g.flow.Src, g.flow.SrcPort)
	wcs := make([]verbs.WorkCompletion, 1024)
	// The rig's own queue pair is in the way of closing regions.
	if err := g.qp.SetError(); err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, input []byte) {
		qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: g.cq, MaxReceives: receives})
		if err != nil {
			t.Fatal(err)
		}
		defer qp.Close()
		_ = qp.Init(everything)
		rs := make([]verbs.ReceiveRequest, receives)
		for i := range rs {
			rs[i] = verbs.ReceiveRequest{ID: uint64(i), Address: g.mr.base + uint64(i)*1024, Length: uint32(i) * 100, LKey: g.mr.lkey}
		}
		posted, err := qp.PostReceive(rs)
		if err != nil {
			t.Fatal(err)
		}
		if err := qp.ReadyToReceive(verbs.PeerAttributes{QPN: peerQPN, PSN: 0xfffffe, Address: from.Addr(), MTU: mtu, MaxReads: 2}); err != nil {
			t.Fatal(err)
		}
		in := &qp.(*queuePair).inbound
		for len(input) >= 3 {
			fix, n := input[0], int(binary.BigEndian.Uint16(input[1:]))
			input = input[3:]
			b := bytes.Clone(input[:min(n, len(input))])
			input = input[len(b):]
			if len(b) >= roce.BTHLen {
				op := roce.Opcode(b[0])
				if fix&fixQP != 0 {
					b[5], b[6], b[7] = byte(qp.QPN()>>16), byte(qp.QPN()>>8), byte(qp.QPN())
				}
				if fix&fixPSN != 0 {
					b[9], b[10], b[11] = byte(in.expected>>16), byte(in.expected>>8), byte(in.expected)
				}
				if fix&fixPKey != 0 {
					b[2], b[3] = 0xff, 0xff
				}
				if op.HasRETH() && len(b) >= roce.BTHLen+roce.RETHLen {
					mr := g.mr
					switch {
					case fix&fixReadOnlyRKey != 0:
						mr = readOnlyMR
					case fix&fixForeignRKey != 0:
						mr = foreignMR
					}
					if fix&fixAddress != 0 {
						at := binary.BigEndian.Uint64(b[roce.BTHLen:])
						binary.BigEndian.PutUint64(b[roce.BTHLen:], mr.base+at%(size+2))
					}
					if fix&(fixRKey|fixReadOnlyRKey|fixForeignRKey) != 0 {
						binary.BigEndian.PutUint32(b[roce.BTHLen+8:], mr.rkey)
					}
				}
			}
			if fix&breakICRC == 0 {
				g.flow.Seal(b)
			}
			r.handle(b, from)
			r.answers()
			g.d.link.discard()
		}
		if err := qp.SetError(); err != nil {
			t.Fatal(err)
		}
		n, err := g.cq.Poll(wcs)
		if err != nil || n != posted {
			t.Fatalf("%d receives posted, %d completed: %v", posted, n, err)
		}
		for i, wc := range wcs[:n] {
			if wc.ID != uint64(i) || wc.QPN != uint32(qp.QPN()) {
				t.Fatalf("completion %d: %+v", i, wc)
			}
		}
		for name, m := range map[string]*verbs.Memory{"read-only": readOnly, "foreign": foreign, "unregistered": unregistered} {
			if !bytes.Equal(m.Bytes(), want) {
				t.Fatalf("%s memory changed at %d", name, firstDifference(m.Bytes(), want))
			}
		}
		for len(g.d.events) > 0 {
			<-g.d.events
		}
	})
}

// BenchmarkExecute is the responder's own work for a packet of 4 KiB: decode,
// check the ICRC, find, place. Nothing is received or sent.
func BenchmarkExecute(b *testing.B) {
	const mtu, packets = 4096, 64
	g := newRig(b, options{mtu: mtu, memory: packets * mtu})
	r := halt(g)
	from := netip.AddrPortFrom(g.flow.Src, g.flow.SrcPort)
	var datagrams [][]byte
	for i := range packets {
		reth := roce.RETH{Address: g.mr.base + uint64(i*mtu), RKey: g.mr.rkey, Length: mtu}
		datagrams = append(datagrams, g.encodeAll(g.message(roce.WriteOnly, pattern(mtu, i), reth, 0)...)...)
	}
	b.SetBytes(mtu)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%packets == 0 {
			g.qp.inbound.expected = 0
		}
		r.handle(datagrams[i%packets], from)
	}
	if n := r.count.own[writeRequests]; n == 0 || r.count.own[duplicateRequest]+r.count.own[outOfSequence] > 0 {
		b.Fatalf("%d written", n)
	}
}
