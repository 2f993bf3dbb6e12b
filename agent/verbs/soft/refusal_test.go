package soft

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// TestRefusals has every kind of packet that must change nothing. The region is
// checked as a whole after each.
func TestRefusals(t *testing.T) {
	const mtu = 256
	var (
		invalid = roce.Nak(roce.InvalidRequest)
		access  = roce.Nak(roce.RemoteAccess)
		silent  = roce.Syndrome(0xff)
	)
	write := func(g *rig, address uint64, rkey uint32, n int) [][]byte {
		return g.encodeAll(g.message(roce.WriteOnly, pattern(n, 7), roce.RETH{Address: address, RKey: rkey, Length: uint32(n)}, 0)...)
	}
	read := func(g *rig, address uint64, rkey uint32, n int) [][]byte {
		return g.encodeAll(g.read(address, rkey, n))
	}
	end := func(g *rig) uint64 { return g.mr.base + uint64(len(g.mr.bytes)) }
	single := func(op roce.Opcode, n int, change func(*rig, *roce.Packet)) func(*rig) [][]byte {
		return func(g *rig) [][]byte {
			p := g.packet(op, g.psn, pattern(n, 7))
			p.RETH = roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: uint32(n)}
			if change != nil {
				change(g, &p)
			}
			return g.encodeAll(p)
		}
	}
	// raw lets change edit the bytes of a good packet; the ICRC is made right
	// again after.
	raw := func(change func([]byte) []byte) func(*rig) [][]byte {
		return func(g *rig) [][]byte {
			b := change(g.encode(g.packet(roce.SendOnly, g.psn, pattern(64, 7))))
			g.flow.Seal(b)
			return [][]byte{b}
		}
	}
	for _, c := range []struct {
		name    string
		o       options
		receive int // length of a receive that is posted, -1: none
		packets func(*rig) [][]byte
		counter string
		nak     roce.Syndrome // silent: no answer
		cause   string        // of the event that follows a fatal NAK
		status  verbs.Status  // of the receive; flushed if 0
	}{
		// Dropped in silence.
		{name: "ICRC", counter: "rx_icrc_error", nak: silent, receive: 64, packets: func(g *rig) [][]byte {
			b := g.encode(g.packet(roce.SendOnly, g.psn, pattern(64, 7)))
			b[20] ^= 1
			return [][]byte{b}
		}},
		{name: "shorter than BTH", counter: "rx_malformed", nak: silent, receive: 64, packets: func(*rig) [][]byte { return [][]byte{{1, 2, 3}} }},
		{name: "BTH only", counter: "rx_malformed", nak: silent, receive: 64,
			packets: raw(func(b []byte) []byte { return b[:roce.BTHLen] })},
		{name: "transport version", counter: "rx_malformed", nak: silent, receive: 64,
			packets: raw(func(b []byte) []byte { b[1] |= 1; return b })},
		{name: "unreliable datagram", counter: "rx_malformed", nak: silent, receive: 64,
			packets: raw(func(b []byte) []byte { b[0] = 0x64; return b })},
		{name: "unknown QP", counter: "rx_unknown_qp", nak: silent, receive: 64,
			packets: single(roce.SendOnly, 8, func(g *rig, p *roce.Packet) { p.DestQP = g.qp.qpn ^ 1 })},
		{name: "QP 0", counter: "rx_unknown_qp", nak: silent, receive: 64,
			packets: single(roce.SendOnly, 8, func(_ *rig, p *roce.Packet) { p.DestQP = 0 })},
		{name: "P_Key", counter: "rx_pkey_mismatch", nak: silent, receive: 64,
			packets: single(roce.SendOnly, 8, func(_ *rig, p *roce.Packet) { p.PKey = 0x8001 })},
		{name: "acknowledge", counter: "rx_unexpected_response", nak: silent, receive: 64,
			packets: single(roce.Acknowledge, 0, nil)},
		{name: "READ response", counter: "rx_unexpected_response", nak: silent, receive: 64,
			packets: single(roce.ReadResponseOnly, 8, nil)},
		{name: "duplicate that is malformed", counter: "rx_malformed", nak: silent, receive: 64, o: options{psn: 5},
			packets: func(g *rig) [][]byte {
				b := g.encode(g.packet(roce.SendOnly, 4, pattern(64, 7)))
				b[0] = byte(roce.CompareSwap)
				g.flow.Seal(b)
				return [][]byte{b}
			}},

		// Invalid requests.
		{name: "compare and swap", counter: "invalid_request", nak: invalid, cause: "COMPARE_SWAP", receive: 64,
			packets: raw(func(b []byte) []byte { b[0] = byte(roce.CompareSwap); return b })},
		{name: "SEND with invalidate", counter: "invalid_request", nak: invalid, cause: "SEND_ONLY_INV", receive: 64,
			packets: raw(func(b []byte) []byte { b[0] = byte(roce.SendOnlyInv); return b })},
		{name: "reserved opcode", counter: "invalid_request", nak: invalid, cause: "0x1f", receive: 64,
			packets: raw(func(b []byte) []byte { b[0] = 0x1f; return b })},
		{name: "pad longer than the payload", counter: "invalid_request", nak: invalid, cause: "pad", receive: 64,
			packets: func(g *rig) [][]byte {
				b := g.encode(g.packet(roce.SendOnly, g.psn, nil))
				b[1] |= 3 << 4
				g.flow.Seal(b)
				return [][]byte{b}
			}},
		{name: "length not in words", counter: "invalid_request", nak: invalid, cause: "length", receive: 64,
			packets: raw(func(b []byte) []byte { return b[:len(b)-1] })},
		{name: "first shorter than the MTU", counter: "invalid_request", nak: invalid, cause: "SEND_FIRST with 252", receive: 512,
			packets: single(roce.SendFirst, mtu-4, nil)},
		{name: "first longer than the MTU", counter: "invalid_request", nak: invalid, cause: "SEND_FIRST with 260", receive: 512,
			packets: single(roce.SendFirst, mtu+4, nil)},
		{name: "only longer than the MTU", counter: "invalid_request", nak: invalid, cause: "SEND_ONLY with 257", receive: 512,
			packets: single(roce.SendOnly, mtu+1, nil)},
		{name: "WRITE first shorter than the MTU", counter: "invalid_request", nak: invalid, cause: "WRITE_FIRST with 128", receive: -1,
			packets: single(roce.WriteFirst, mtu/2, func(_ *rig, p *roce.Packet) { p.RETH.Length = 512 })},
		{name: "SEND middle without first", counter: "invalid_request", nak: invalid, cause: "without a first", receive: 512,
			packets: single(roce.SendMiddle, mtu, nil)},
		{name: "SEND last without first", counter: "invalid_request", nak: invalid, cause: "without a first", receive: 512,
			packets: single(roce.SendLast, 8, nil)},
		{name: "WRITE middle without first", counter: "invalid_request", nak: invalid, cause: "without a first", receive: 512,
			packets: single(roce.WriteMiddle, mtu, nil)},
		{name: "WRITE last without first", counter: "invalid_request", nak: invalid, cause: "without a first", receive: 512,
			packets: single(roce.WriteLastImm, 8, nil)},
		{name: "WRITE only with another length", counter: "invalid_request", nak: invalid, cause: "8 payload bytes where 9", receive: -1,
			packets: single(roce.WriteOnly, 8, func(_ *rig, p *roce.Packet) { p.RETH.Length = 9 })},
		{name: "WRITE first of a message that ends with it", counter: "invalid_request", nak: invalid, cause: "WRITE_FIRST where", receive: -1,
			packets: single(roce.WriteFirst, mtu, nil)},
		{name: "WRITE first of a message of no bytes", counter: "invalid_request", nak: invalid, cause: "WRITE_FIRST where 0", receive: -1,
			packets: single(roce.WriteFirst, mtu, func(_ *rig, p *roce.Packet) { p.RETH.Length = 0 })},
		{name: "WRITE longer than any message", counter: "invalid_request", nak: invalid, cause: "the longest", receive: -1,
			packets: single(roce.WriteFirst, mtu, func(_ *rig, p *roce.Packet) { p.RETH.Length = 1<<31 + 1 })},
		{name: "READ longer than any message", counter: "invalid_request", nak: invalid, cause: "the longest", receive: -1,
			packets: single(roce.ReadRequest, 0, func(_ *rig, p *roce.Packet) { p.RETH.Length = 1<<32 - 1 })},
		{name: "WRITE not permitted to the QP", counter: "invalid_request", nak: invalid, cause: "does not permit", receive: -1,
			o: options{access: verbs.LocalWrite | verbs.RemoteRead}, packets: single(roce.WriteOnly, 8, nil)},
		{name: "READ not permitted to the QP", counter: "invalid_request", nak: invalid, cause: "does not permit", receive: -1,
			o: options{access: verbs.LocalWrite | verbs.RemoteWrite}, packets: single(roce.ReadRequest, 0, nil)},
		{name: "SEND longer than the receive", counter: "local_length_error", nak: invalid, cause: "SEND of 65 bytes", receive: 64,
			status: verbs.LocalLengthError, packets: single(roce.SendOnly, 65, nil)},
		{name: "SEND into a receive without buffer", counter: "local_length_error", nak: invalid, cause: "receive of 0", receive: 0,
			status: verbs.LocalLengthError, packets: single(roce.SendOnly, 1, nil)},

		// Access errors. No byte may be written though part of it would fit.
		{name: "unknown rkey", counter: "remote_access_error", nak: access, cause: "no region", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, g.mr.base, g.mr.rkey+1, 8) }},
		{name: "lkey for rkey", counter: "remote_access_error", nak: access, cause: "no region", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, g.mr.base, g.mr.lkey, 8) }},
		{name: "one byte past the end", counter: "remote_access_error", nak: access, cause: "local access error", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, end(g)-7, g.mr.rkey, 8) }},
		{name: "last packet past the end", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, end(g)-2*mtu, g.mr.rkey, 2*mtu+1)[:1] }},
		{name: "one byte before the start", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, g.mr.base-1, g.mr.rkey, 8) }},
		{name: "beyond the end altogether", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, end(g)+1, g.mr.rkey, 8) }},
		{name: "address and length wrap", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: func(g *rig) [][]byte { return write(g, ^uint64(0)-3, g.mr.rkey, 8) }},
		{name: "length larger than the region", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: single(roce.WriteFirst, mtu, func(_ *rig, p *roce.Packet) { p.RETH.Length = 1 << 30 })},
		{name: "region not writable", counter: "remote_access_error", nak: access, cause: "does not permit", receive: -1,
			o: options{region: verbs.LocalWrite | verbs.RemoteRead}, packets: func(g *rig) [][]byte { return write(g, g.mr.base, g.mr.rkey, 8) }},
		{name: "region not readable", counter: "remote_access_error", nak: access, cause: "does not permit", receive: -1,
			o: options{region: verbs.LocalWrite | verbs.RemoteWrite}, packets: func(g *rig) [][]byte { return read(g, g.mr.base, g.mr.rkey, 8) }},
		{name: "READ past the end", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: func(g *rig) [][]byte { return read(g, end(g)-7, g.mr.rkey, 8) }},
		{name: "READ wraps", counter: "remote_access_error", nak: access, cause: "the region is", receive: -1,
			packets: func(g *rig) [][]byte { return read(g, ^uint64(0), g.mr.rkey, 2) }},
		{name: "WRITE with immediate, bad key, receive stays", counter: "remote_access_error", nak: access, cause: "no region", receive: 64,
			packets: single(roce.WriteOnlyImm, 8, func(_ *rig, p *roce.Packet) { p.RETH.RKey++ })},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.o
			o.mtu = mtu
			g := newRig(t, o)
			before := pattern(len(g.memory.Bytes()), 3)
			copy(g.memory.Bytes(), before)
			if c.receive >= 0 {
				g.post(1, 0, uint32(c.receive))
			}
			psn := g.psn
			answers := g.exchangeRaw(c.packets(g)...)
			g.count(map[string]uint64{c.counter: 1})
			if !bytes.Equal(g.memory.Bytes(), before) {
				t.Errorf("memory changed at %d", firstDifference(g.memory.Bytes(), before))
			}
			if c.nak == silent {
				g.none(answers)
				if s := g.qp.State(); s != verbs.ReadyToSend {
					t.Errorf("state %v", s)
				}
				// The PSN was not consumed.
				if c.receive > 0 {
					g.acks(g.exchange(g.message(roce.SendOnly, []byte("x"), roce.RETH{}, 0)...), psn, 1)
				}
				return
			}
			g.one(answers, c.nak, psn)
			if s := g.qp.State(); s != verbs.Error {
				t.Errorf("state %v", s)
			}
			if e := g.event(); e.Kind != verbs.EventQPFatal || e.QPN != g.qp.qpn || !strings.Contains(e.Cause, c.cause) {
				t.Errorf("event %v of %#x: %q, want %q in it", e.Kind, e.QPN, e.Cause, c.cause)
			}
			wcs := g.poll()
			switch {
			case c.receive < 0 && len(wcs) != 0:
				t.Errorf("completions %+v", wcs)
			case c.receive >= 0:
				want := c.status
				if want == verbs.Success {
					want = verbs.WorkRequestFlushed
				}
				if len(wcs) != 1 || wcs[0].Status != want || wcs[0].ID != 100 {
					t.Errorf("completions %+v, want status %v", wcs, want)
				}
			}
			// Nothing more is executed or answered.
			g.none(g.exchange(g.packet(roce.SendOnly, psn, nil)))
			g.count(map[string]uint64{"rx_qp_not_ready": 1})
		})
	}
}

func (g *rig) encodeAll(ps ...roce.Packet) (bs [][]byte) {
	for _, p := range ps {
		bs = append(bs, g.encode(p))
	}
	return bs
}

// Faults in the middle of a message: what was placed stays, nothing more comes.
func TestFaultsWithinAMessage(t *testing.T) {
	const mtu = 256
	for _, c := range []struct {
		name   string
		only   roce.Opcode
		second roce.Opcode
		n      int
		status verbs.Status
	}{
		{"new SEND within a SEND", roce.SendOnly, roce.SendOnly, 8, verbs.RemoteInvalidRequest},
		{"WRITE within a SEND", roce.SendOnly, roce.WriteMiddle, mtu, verbs.RemoteInvalidRequest},
		{"READ within a SEND", roce.SendOnly, roce.ReadRequest, 0, verbs.RemoteInvalidRequest},
		{"short middle of a SEND", roce.SendOnly, roce.SendMiddle, mtu - 4, verbs.RemoteInvalidRequest},
		{"SEND grows too long", roce.SendOnly, roce.SendMiddle, mtu, verbs.LocalLengthError},
		{"SEND ends too long", roce.SendOnly, roce.SendLast, mtu, verbs.LocalLengthError},
		{"new WRITE within a WRITE", roce.WriteOnly, roce.WriteOnly, 8, 0},
		{"SEND within a WRITE", roce.WriteOnly, roce.SendLast, 8, 0},
		{"WRITE ends too soon", roce.WriteOnly, roce.WriteLast, 8, 0},
		{"WRITE ends too late", roce.WriteOnly, roce.WriteLast, mtu, 0},
		{"WRITE does not end", roce.WriteOnly, roce.WriteMiddle, mtu, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, options{mtu: mtu})
			const length = mtu + mtu/2
			if c.only == roce.SendOnly {
				g.post(1, 0, length)
			}
			reth := roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: length}
			first := g.message(c.only, pattern(length, 1), reth, 0)[0]
			g.acks(g.exchange(first), 0, 0)
			bad := g.packet(c.second, 1, pattern(c.n, 2))
			bad.RETH = roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: uint32(c.n)}
			g.one(g.exchange(bad), roce.Nak(roce.InvalidRequest), 1)
			want := make([]byte, len(g.memory.Bytes()))
			copy(want, pattern(length, 1)[:mtu])
			if !bytes.Equal(g.memory.Bytes(), want) {
				t.Error("memory holds something else than the first packet")
			}
			if got := g.poll(); c.status == 0 && len(got) > 0 || c.status != 0 && (len(got) != 1 || got[0].Status != c.status || got[0].ID != 100) {
				t.Errorf("completions %+v, want status %v", got, c.status)
			}
		})
	}
}

// The same things at the limit, which are right.
func TestLastLegalByte(t *testing.T) {
	const mtu = 256
	g := newRig(t, options{mtu: mtu})
	end := g.mr.base + uint64(len(g.mr.bytes))
	for i, n := range []int{1, 8, mtu, mtu + 1, 3 * mtu} {
		data := pattern(n, i)
		g.acks(g.exchange(g.message(roce.WriteOnly, data, roce.RETH{Address: end - uint64(n), RKey: g.mr.rkey, Length: uint32(n)}, 0)...), g.psn.Add(-1), uint32(2*i+1))
		if !bytes.Equal(g.mr.bytes[len(g.mr.bytes)-n:], data) {
			t.Errorf("%d bytes to the end: wrong data", n)
		}
		psn := g.psn
		got, err := response(g.exchange(g.read(end-uint64(n), g.mr.rkey, n)), mtu, psn, n, uint32(2*i+2))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes from the end: %v", n, err)
		}
	}
	whole := len(g.mr.bytes)
	g.acks(g.exchange(g.message(roce.WriteOnly, pattern(whole, 77), roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: uint32(whole)}, 0)...), g.psn.Add(-1), 11)
	if !bytes.Equal(g.mr.bytes, pattern(whole, 77)) {
		t.Error("the whole region: wrong data")
	}
}

// A peer with the right QPN and the wrong address is not the peer.
func TestWrongAddress(t *testing.T) {
	g := newRig(t, options{})
	g.post(1, 0, 64)
	other := newRig(t, options{device: g.d})
	p := g.packet(roce.SendOnly, 0, []byte("x"))
	other.total = g.total
	other.none(other.exchange(p))
	g.count(map[string]uint64{"rx_wrong_address": 1})
	g.acks(g.exchange(p), 0, 1)
}

// The ICRC covers the address, so that a packet cannot be played from another.
func TestICRCCoversTheAddresses(t *testing.T) {
	g := newRig(t, options{})
	b := g.encode(g.packet(roce.SendOnly, 0, []byte("x")))
	other := newRig(t, options{device: g.d})
	other.total = g.total
	other.none(other.exchangeRaw(b))
	g.count(map[string]uint64{"rx_icrc_error": 1, "rx_wrong_address": 0})
	if crc := binary.LittleEndian.Uint32(b[len(b)-4:]); crc == 0 {
		t.Error("the packet was not sealed")
	}
}

// A queue pair that is not in RTR or RTS answers nothing.
func TestNotReady(t *testing.T) {
	g := newRig(t, options{})
	cq, err := g.d.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := g.pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	defer qp.Close()
	p := g.packet(roce.SendOnly, 0, nil)
	p.DestQP = qp.QPN()
	g.none(g.exchange(p))
	if err := qp.Init(everything); err != nil {
		t.Fatal(err)
	}
	g.none(g.exchange(p))
	g.count(map[string]uint64{"rx_qp_not_ready": 2})
}
